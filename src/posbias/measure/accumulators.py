"""Streaming statistics of a measurement: sums and counts in float64, one layer at a time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from posbias.errors import InstrumentationError, UnsupportedModelError
from posbias.measure.kernel_sums import FullKernels, KernelSums, SummaryKernels
from posbias.measure.row_sums import ROW_SUMS, add_row_sums
from posbias.models.checks import overflow_advice
from posbias.models.preflight import CheckedModel
from posbias.models.tap import AttentionRows

__all__ = ["Accumulator"]

Arrays = dict[str, NDArray[np.float64] | NDArray[np.int64]]


class Accumulator:
    """Receives one forward pass after another and holds the arrays of the measurement.

    An `Observer` of `posbias.models.instrument`. Nothing of the size of one attention matrix
    outlives the call that brought it, except the kernel sum.

    Parameters
    ----------
    checked : CheckedModel
        The model, its position scheme and its sizes.
    windows, length : int
        D and n.
    device : torch.device
        Where the sums live.
    kernels : {"full", "summary"}
        How measured attention is kept.

    Notes
    -----
    Memory is ``8 T n^2`` bytes for full kernels plus ``8 D T (n + 10 H)``.
    """

    def __init__(
        self,
        checked: CheckedModel,
        *,
        windows: int,
        length: int,
        device: torch.device,
        kernels: str = "full",
    ) -> None:
        layers, heads = checked.sizes.layers, checked.sizes.heads
        self._scheme = checked.scheme
        self._dtype = checked.sites.dtype
        self._n = length
        self._device = device
        per_head = (windows, layers, heads)
        self._mixing = self._zeros(windows, layers, length)
        self._frobenius = self._zeros(windows, layers)
        kind = SummaryKernels if kernels == "summary" else FullKernels
        self._kernels: KernelSums = kind(layers, length, device=device)
        self._sums = {name: self._zeros(*per_head) for name in _SUMS}
        self._lag_sum = self._zeros(layers, heads, length)
        self._lag_count = _lag_counts(checked.scheme.windows, length) * windows
        self._pairs = [self._earlier_pairs(window) for window in checked.scheme.windows]
        self._first_rows = [self._rows_that_see_first(w) for w in checked.scheme.windows]
        self._span = slice(0, 0)
        self._norms: Tensor | None = None
        if min(self._pairs) < 1:
            raise UnsupportedModelError(
                "a layer has a sliding window of 1 position: its queries see only themselves"
            )

    def begin(self, span: slice) -> None:
        """Announce which windows the next forward pass brings."""
        self._span = span

    def on_stream(self, layer: int, stream: Tensor) -> None:
        """Keep the norms of x, shape (B, n)."""
        self._norms = _norms(stream)

    def on_update(self, layer: int, update: Tensor) -> None:
        """Turn the norms of x and a into both estimators of the mixing coefficient."""
        if self._norms is None:
            raise InstrumentationError(f"layer {layer + 1} updates a stream that was not seen")
        a, x = _norms(update), self._norms
        self._norms = None
        self._mixing[self._span, layer] = _share(a, x)
        self._frobenius[self._span, layer] = _share(
            torch.linalg.vector_norm(a, dim=-1), torch.linalg.vector_norm(x, dim=-1)
        )

    def on_attention(self, rows: AttentionRows) -> None:
        """Add the probabilities and logits of a block of rows."""
        layer, start, stop = rows.layer, rows.start, rows.stop
        keys = rows.logits.shape[-1]
        # The layers of a split model are on different devices; sums are kept on one.
        device = rows.logits.device
        visible = self._scheme.visible(layer, range(start, stop), keys=keys, device=device)
        if not bool((rows.visible == visible).all()):
            raise InstrumentationError(
                f"the mask of layer {layer + 1} changed between the checks and the measurement"
            )
        bias = self._scheme.bias(layer, range(start, stop), keys=keys, length=self._n)
        self._add_rows(rows, None if bias is None else bias.to(device))

    def state(self) -> dict[str, Tensor]:
        """Return the sums themselves by name; filling them with those of another run resumes it."""
        return {
            "mixing": self._mixing,
            "frobenius": self._frobenius,
            **self._kernels.state(),
            "lag": self._lag_sum,
            **self._sums,
        }

    def finish(self) -> Arrays:
        """Return the arrays by their names in `posbias.measurement.schema`.

        Raises
        ------
        InstrumentationError
            If attention reached the future.
        """
        arrays: dict[str, Tensor] = {
            "mixing.norm.windows": self._mixing,
            "mixing.frobenius.windows": self._frobenius,
            **self._kernels.arrays(),
            **self._content(),
            "attention.diagonal.windows": self._sums["p_diagonal"] / self._n,
            "attention.first.windows": self._sums["p_first"] / (self._n - 1),
            "logits.lag.sum": self._lag_sum,
        }
        if self._scheme.sinks is not None:
            arrays["attention.null.windows"] = self._sums["p_null"] / self._n
        plain: Arrays = {name: tensor.cpu().numpy() for name, tensor in arrays.items()}
        plain["logits.lag.count"] = self._lag_count
        if self._scheme.slopes is not None:
            plain["position.slopes"] = np.array(self._scheme.slopes, dtype=np.float64)
        return plain

    def check_finite(self) -> None:
        """Refuse numbers that are not finite, naming layer and type; call after each pass."""
        totals = {
            "attention update": self._mixing[self._span].sum((0, 2)),
            "attention": self._sums["p_diagonal"][self._span].sum((0, 2)),
            "attention logits": sum(
                self._sums[name][self._span].sum((0, 2)) for name in ("diagonal", "lower")
            ),
        }
        for what, total in totals.items():
            bad = torch.nonzero(~torch.isfinite(torch.as_tensor(total)))
            if bad.numel():
                raise self._unusable(
                    f"the {what} of layer {int(bad[0]) + 1} is not finite",
                    "the activations overflow its range",
                )

    def check_rows(self, rows: Mapping[str, Tensor]) -> None:
        """Refuse rows per window that are not finite, naming array, window and type."""
        for name, values in rows.items():
            bad = torch.nonzero(~torch.isfinite(values))
            if bad.numel():
                raise self._unusable(
                    f"{name.removesuffix('.windows')} of window {self._span.start + int(bad[0, 0])}"
                    " is not finite",
                    "activations or gradients overflow its range",
                )

    def check_influence(self, rows: Mapping[str, NDArray[Any]]) -> None:
        """Refuse influence that is zero at every position of every window."""
        for name, values in rows.items():
            if name.startswith("influence.") and not values.any():
                raise self._unusable(
                    f"{name.removesuffix('.windows')} is zero everywhere",
                    "the probability of the next token does not depend on the input, or its "
                    "gradient vanishes, as it does when the logits saturate the softmax",
                )

    def _unusable(self, what: str, cause: str) -> InstrumentationError:
        name = str(self._dtype).removeprefix("torch.")
        return InstrumentationError(f"{what} in {name}: {cause}. {overflow_advice(self._dtype)}")

    def _add_rows(self, rows: AttentionRows, bias: Tensor | None) -> None:
        """Add probabilities, and logits without position bias, window by window."""
        layer, sliding = rows.layer, self._scheme.windows[rows.layer]
        by_lag = self._zeros(rows.logits.shape[1], self._n).to(rows.logits.device)
        for index in range(len(rows.logits)):
            part = add_row_sums(rows, index, bias, by_lag, window=sliding)
            mean = part.mean
            if self._scheme.sinks is not None:
                mean = mean / mean.sum(-1, keepdim=True)
            self._kernels.add(layer, rows.start, mean)
            for name, values in zip(ROW_SUMS, part.sums.to(self._device), strict=True):
                self._sums[name][self._span.start + index, layer] += values
        self._lag_sum[layer] += by_lag.to(self._device)
        if self._scheme.sinks is not None:
            null = (1.0 - rows.probabilities.sum(-1, dtype=torch.float64)).sum(-1)
            self._sums["p_null"][self._span, layer] += null.to(self._device)

    def _content(self) -> dict[str, Tensor]:
        """Return means, spreads and the share of variance that constant + diagonal explains."""
        pairs = torch.tensor(self._pairs, dtype=torch.float64, device=self._device)[None, :, None]
        firsts = torch.tensor(self._first_rows, dtype=torch.float64, device=self._device)
        n, sums = float(self._n), self._sums
        diagonal, lower = sums["diagonal"] / n, sums["lower"] / pairs
        # Variances from sums of squares may come out at minus a rounding error: zero is meant.
        own = (sums["diagonal_square"] / n - diagonal.square()).clamp(min=0.0)
        other = (sums["lower_square"] / pairs - lower.square()).clamp(min=0.0)
        within = n * own + pairs * other
        between = n * pairs / (n + pairs) * (diagonal - lower).square()
        total = within + between
        return {
            "content.diagonal.windows": diagonal,
            "content.lower.windows": lower,
            "content.diagonal.std.windows": own.sqrt(),
            "content.lower.std.windows": other.sqrt(),
            # Logits without any variance are explained in full.
            "content.explained.windows": torch.where(total > 0.0, between / total, 1.0),
            "content.first.windows": sums["first"] / firsts[None, :, None],
        }

    def _zeros(self, *shape: int) -> Tensor:
        return torch.zeros(*shape, dtype=torch.float64, device=self._device)

    def _earlier_pairs(self, window: int | None) -> int:
        reach = self._n - 1 if window is None else min(window, self._n) - 1
        return reach * (reach + 1) // 2 + (self._n - 1 - reach) * reach

    def _rows_that_see_first(self, window: int | None) -> int:
        return self._n - 1 if window is None else min(window, self._n) - 1


_SUMS = (*ROW_SUMS, "p_null")


def _norms(states: Tensor) -> Tensor:
    norms: Tensor = torch.linalg.vector_norm(states.to(torch.float64), dim=-1)
    return norms


def _share(a: Tensor, x: Tensor) -> Tensor:
    """Return a / (x + a), zero where there is no update."""
    return torch.where(a > 0.0, a / (x + a), a)


def _lag_counts(windows: tuple[int | None, ...], n: int) -> NDArray[np.int64]:
    """Return the number of visible pairs of one window of text by lag, shape (T, n)."""
    lags = np.arange(n, dtype=np.int64)
    return np.stack([np.where(lags < (w or n), n - lags, 0) for w in windows]).astype(np.int64)
