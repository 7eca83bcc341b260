"""Which keys receive much attention from far away, layer by layer."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from posbias.errors import InputError
from posbias.kernels import Kernel

__all__ = ["LEAST_ATTENTION", "LEAST_RATIO", "AttentionSink", "Sinks", "detect_sinks"]

Array = NDArray[np.float64]

LEAST_ATTENTION = 0.1
"""Mean attention that a sink receives from distant queries, at least."""

LEAST_RATIO = 4.0
"""The same in multiples of the uniform share."""

_GAP_SHARE = 8
_QUERY_SHARE = 4


@dataclass(frozen=True)
class AttentionSink:
    """A key that acts as a sink in one layer.

    Parameters
    ----------
    layer : int
        1..T, the bottom layer first.
    position : int
        Of the key.
    attention : float
        Mean attention that it receives from distant queries, in [0, 1].
    uniform : float
        What uniform attention over the visible keys would give it.
    value_norm, stream_norm : float or None
        Norm of its value, and of the stream, relative to the median of the other keys; None where
        they were not recorded.
    """

    layer: int
    position: int
    attention: float
    uniform: float
    value_norm: float | None = None
    stream_norm: float | None = None


@dataclass(frozen=True)
class Sinks:
    """The sinks of all layers.

    Parameters
    ----------
    layers : int
        T.
    found : tuple of AttentionSink
        By layer, then position.
    """

    layers: int
    found: tuple[AttentionSink, ...] = ()

    @property
    def positions(self) -> tuple[int, ...]:
        """Keys that act as a sink in any layer, ascending."""
        return tuple(sorted({sink.position for sink in self.found}))

    @property
    def by_layer(self) -> tuple[tuple[int, ...], ...]:
        """Keys that act as sinks in each layer, the bottom layer first."""
        return tuple(
            tuple(sink.position for sink in self.found if sink.layer == layer)
            for layer in range(1, self.layers + 1)
        )

    @property
    def strength(self) -> float:
        """Attention that all sinks of a layer receive, mean over the T layers."""
        return sum(sink.attention for sink in self.found) / self.layers

    def lines(self, *, start_token: bool = False) -> list[str]:
        """Return what was found in words, a line per position, or one that says there is none.

        Parameters
        ----------
        start_token : bool
            Whether position 0 holds the start token.
        """
        if not self.found:
            return ["sinks: none"]
        return [self._line(position, start_token) for position in self.positions]

    def as_dict(self) -> dict[str, Any]:
        """Return thresholds, strength and every sink, JSON-serialisable."""
        return {
            "least_attention": LEAST_ATTENTION,
            "least_ratio": LEAST_RATIO,
            "strength": self.strength,
            "positions": list(self.positions),
            "found": [asdict(sink) for sink in self.found],
        }

    def _line(self, position: int, start_token: bool) -> str:
        here = [sink for sink in self.found if sink.position == position]
        name = f"position {position}{' (BOS)' if start_token and position == 0 else ''}"
        share = float(np.mean([sink.attention for sink in here]))
        words = (
            f"sinks: {name} receives {100.0 * share:.0f} % of attention on average in {len(here)} "
            f"of {self.layers} layers"
        )
        for label, key in (("value norm", "value_norm"), ("stream norm", "stream_norm")):
            ratios = [getattr(sink, key) for sink in here if getattr(sink, key) is not None]
            words += f", {label} {np.median(ratios):.2g}x" if ratios else ""
        return words


def detect_sinks(
    attention: Iterable[Kernel],
    *,
    layer_windows: Sequence[int | None] | None = None,
    value_norms: ArrayLike | None = None,
    stream_norms: ArrayLike | None = None,
) -> Sinks:
    """Find the keys that receive much attention from far away, layer by layer.

    A key j is a sink of a layer if the queries that are at least a gap g behind it give it
    `LEAST_ATTENTION` or more on average, and `LEAST_RATIO` times what uniform attention over the
    keys that they see would give. With r = min(n, window) keys within reach, g = max(1, r // 8)
    keeps out the attention of local heads to keys nearby, and a key counts only if at least
    max(1, r // 4) such queries see it: a few queries at the end of a window say nothing.

    Parameters
    ----------
    attention : iterable of Kernel
        The causal kernel of each layer, bottom first: the mean over heads and windows.
    layer_windows : sequence of int or None, optional
        Sliding window of each layer, None for full causal attention, which is the default.
    value_norms, stream_norms : array_like, shape (T, n), optional
        Norms of each token's value and stream in any unit, as evidence beside the attention.

    Returns
    -------
    Sinks

    Raises
    ------
    InputError
        If shapes do not fit or a kernel is not causal.

    Notes
    -----
    posbias. Cost per layer: one product with the kernel, and one per key that receives enough
    attention to come into question, a few at most. Sinks that stand at another position in every
    window (a full stop, say) vanish in the mean over windows and are not found, and neither are
    sinks outside the sequence (a learned logit), which a measurement records as
    ``attention.null.windows``. Below about 64 positions four times the uniform share is much: weak
    sinks are not found there.
    """
    found: list[AttentionSink] = []
    layer = 0
    for layer, kernel in enumerate(attention, start=1):
        if not (isinstance(kernel, Kernel) and kernel.is_causal):
            raise InputError(
                f"the attention of layer {layer} is {kernel!r}; a causal Kernel is required"
            )
        window = None if layer_windows is None else _entry(layer_windows, layer, "layer_windows")
        received, uniform = _received(kernel, window)
        is_sink = (received >= LEAST_ATTENTION) & (received >= LEAST_RATIO * uniform)
        values = _norms(value_norms, layer, kernel.n, "value_norms")
        streams = _norms(stream_norms, layer, kernel.n, "stream_norms")
        found += [
            AttentionSink(
                layer=layer,
                position=position,
                attention=float(received[position]),
                uniform=float(uniform[position]),
                value_norm=_relative(values, position, is_sink),
                stream_norm=_relative(streams, position, is_sink),
            )
            for position in np.flatnonzero(is_sink).tolist()
        ]
    if layer_windows is not None and len(layer_windows) != layer:
        raise InputError(f"{len(layer_windows)} layer windows do not fit {layer} layers")
    return Sinks(layer, tuple(found))


def _received(kernel: Kernel, window: int | None) -> tuple[Array, Array]:
    """Return the mean attention to each key from distant queries, and that of uniform attention.

    Both of shape (n,), zero for keys that too few distant queries see, and the first also for keys
    that receive too little from all queries together.
    """
    n = kernel.n
    reach = n if window is None else min(n, window)
    gap, least = max(1, reach // _GAP_SHARE), max(1, reach // _QUERY_SHARE)
    keys = np.arange(n)
    first, last = np.minimum(keys + gap, n), np.minimum(keys + reach, n)
    seen = last - first
    shares = np.concatenate([[0.0], np.cumsum(1.0 / np.minimum(keys + 1, reach))])
    uniform, received = np.zeros(n), np.zeros(n)
    np.divide(shares[last] - shares[first], seen, out=uniform, where=seen >= least)
    total = kernel.rmatvec(np.ones(n))
    in_question = (seen >= least) & (total >= LEAST_ATTENTION * seen)
    for key in np.flatnonzero(in_question).tolist():
        queries = (keys >= first[key]) & (keys < last[key])
        received[key] = kernel.rmatvec(queries / seen[key])[key]
    return received, uniform


def _relative(norms: Array | None, position: int, is_sink: NDArray[np.bool_]) -> float | None:
    """Return a norm in multiples of the median of the keys that are no sinks."""
    if norms is None or is_sink.all():
        return None
    median = float(np.median(norms[~is_sink]))
    return float(norms[position]) / median if median > 0.0 else None


def _norms(given: ArrayLike | None, layer: int, n: int, name: str) -> Array | None:
    """Return the norms of one layer, shape (n,)."""
    if given is None:
        return None
    norms = np.asarray(_entry(given, layer, name), dtype=np.float64)
    if norms.shape != (n,):
        raise InputError(f"{name} of a layer has shape {norms.shape}; ({n},) is required")
    return norms


def _entry(values: Any, layer: int, name: str) -> Any:
    """Return what belongs to a layer."""
    if len(values) < layer:
        raise InputError(f"{name} has {len(values)} layers, the attention has more")
    return values[layer - 1]
