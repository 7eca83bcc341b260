"""Attention sinks: which keys receive attention without giving information, and what to do."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from posbias.errors import InputError
from posbias.estimator import AXES, SinkTreatment
from posbias.kernels import DenseKernel, Kernel, Matrix, Vector

__all__ = [
    "LEAST_ATTENTION",
    "LEAST_RATIO",
    "AttentionSink",
    "Sinks",
    "TreatedKernel",
    "detect_sinks",
    "moved_mass",
    "treat_sinks",
]

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


def treat_sinks(kernel: Kernel, positions: Sequence[int], treatment: SinkTreatment) -> Kernel:
    """Return a kernel whose attention to sinks is treated.

    Parameters
    ----------
    kernel : Kernel
        Of any kind; a dense one gives a dense one.
    positions : sequence of int
        The sinks S among its keys. Rows of sinks stay as they are.
    treatment : {"keep", "identity", "drop"}
        ``identity``: ``A'[i, i] = A[i, i] + sum_S A[i, s]`` and ``A'[i, s] = 0``: attention to a
        sink changes nothing, as if the token attended to itself. ``drop``: the mass on S is taken
        away and the row divided by what is left; a row with nothing left is 1 on the diagonal.

    Returns
    -------
    Kernel
        `kernel` itself for ``keep`` or without sinks.

    Raises
    ------
    InputError
        If the treatment is unknown or a position is no key of the kernel.

    Notes
    -----
    Products cost one or two of `kernel` and are exact: no mass is subtracted.
    """
    if treatment not in AXES["sinks"]:
        raise InputError(
            f"the treatment of sinks is {treatment!r}; one of {', '.join(AXES['sinks'])} is "
            "required"
        )
    if treatment == "keep" or not len(positions):
        return kernel
    treated = TreatedKernel(kernel, positions, treatment)
    return (
        DenseKernel(treated.toarray(), copy=False) if isinstance(kernel, DenseKernel) else treated
    )


def moved_mass(kernel: Kernel, positions: Sequence[int]) -> Vector:
    """Return how much of each row is on sinks and would be moved or dropped, shape (n,).

    Rows of sinks keep their mass and are 0 here.
    """
    if not len(positions):
        return np.zeros(kernel.n)
    is_sink = _checked_positions(positions, kernel.n)
    return np.where(is_sink, 0.0, kernel.matvec(is_sink.astype(np.float64)))


class TreatedKernel(Kernel):
    """A kernel with its attention to sinks treated, see `treat_sinks`.

    Parameters
    ----------
    kernel : Kernel
        The kernel.
    positions : sequence of int
        The sinks.
    treatment : {"identity", "drop"}
        What becomes of the attention that they receive.
    """

    def __init__(self, kernel: Kernel, positions: Sequence[int], treatment: SinkTreatment) -> None:
        super().__init__(kernel.n)
        self._kernel = kernel
        self._is_sink = _checked_positions(positions, kernel.n)
        self._positions = tuple(np.flatnonzero(self._is_sink).tolist())
        self._treatment: SinkTreatment = treatment
        others = np.where(self._is_sink, 0.0, 1.0)
        # Row i of the result is scale[i] times row i on other keys, plus stay[i] on the diagonal.
        if treatment == "identity":
            self._scale = np.ones(kernel.n)
            self._stay = others * kernel.matvec(1.0 - others)
        else:
            left = np.where(self._is_sink, 1.0, kernel.matvec(others))
            is_empty = left == 0.0
            self._scale = np.where(is_empty, 0.0, 1.0 / np.where(is_empty, 1.0, left))
            self._stay = is_empty.astype(np.float64)

    @property
    def is_causal(self) -> bool:
        """Whether the kernel is."""
        return self._kernel.is_causal

    def rmatvec(self, p: ArrayLike) -> Vector:
        """Return ``p @ A'``, shape (n,)."""
        product: Vector = self.rmatmat(self._vector(p)[None])[0]
        return product

    def rmatmat(self, rows: ArrayLike) -> Matrix:
        """Return ``rows @ A'`` for row vectors stacked as (Q, n), shape (Q, n)."""
        given = np.asarray(rows, dtype=np.float64)
        if given.ndim != 2 or given.shape[1] != self._n:
            raise InputError(
                f"the row vectors have shape {given.shape}; (rows, {self._n}) is required"
            )
        others = np.where(self._is_sink, 0.0, given)
        product = self._kernel.rmatmat(self._scale * others)
        product[:, self._is_sink] = 0.0
        product += self._stay * others
        sinks = np.where(self._is_sink, given, 0.0)
        return product + self._kernel.rmatmat(sinks) if sinks.any() else product

    def matvec(self, v: ArrayLike) -> Vector:
        """Return ``A' @ v``, shape (n,)."""
        v = self._vector(v)
        others = self._scale * self._kernel.matvec(np.where(self._is_sink, 0.0, v))
        return np.where(self._is_sink, self._kernel.matvec(v), others + self._stay * v)

    def row(self, i: int) -> Vector:
        """Return row `i`, shape (n,)."""
        i = self._index(i)
        row = self._kernel.row(i)
        return row if self._is_sink[i] else self._treated(row[None], np.array([i]))[0]

    def toarray(self) -> Matrix:
        """Return the dense matrix, shape (n, n)."""
        matrix = self._kernel.toarray()
        others = np.flatnonzero(~self._is_sink)
        matrix[others] = self._treated(matrix[others], others)
        return matrix

    def restrict(self, n: int) -> Kernel:
        """Return the treated kernel over the first `n` positions."""
        n = self._restricted(n)
        kept = [p for p in self._positions if p < n]
        return treat_sinks(self._kernel.restrict(n), kept, self._treatment)

    def _treated(self, rows: Matrix, index: NDArray[np.intp]) -> Matrix:
        """Return rows of other keys than sinks, treated; `rows` is changed in place."""
        rows[:, self._is_sink] = 0.0
        rows *= self._scale[index, None]
        rows[np.arange(len(index)), index] += self._stay[index]
        return rows


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


def _checked_positions(positions: Sequence[int], n: int) -> NDArray[np.bool_]:
    """Return which of the n keys are among the positions."""
    for position in positions:
        whole = isinstance(position, (int, np.integer)) and not isinstance(position, bool)
        if not whole or not 0 <= position < n:
            raise InputError(f"the sink {position!r} is no key of a kernel of {n} positions")
    mask = np.zeros(n, dtype=np.bool_)
    mask[list(positions)] = True
    return mask
