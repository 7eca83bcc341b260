"""What the checks of a model watch during a forward pass."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from posbias.models.positions import PositionScheme
from posbias.models.tap import AttentionRows

__all__ = ["BiasObserver", "CaptureObserver", "PositionObserver"]


class CaptureObserver:
    """Row sums, mass above the diagonal, heads and finiteness of all that is seen."""

    def __init__(self, has_sink: bool) -> None:
        self.row_error = self.future = 0.0
        self.finite = True
        self.heads: dict[int, int] = {}
        self._has_sink = has_sink

    def on_stream(self, layer: int, stream: Tensor) -> None:
        """See x of a layer."""
        self.finite &= bool(torch.isfinite(stream).all())

    def on_update(self, layer: int, update: Tensor) -> None:
        """See a of a layer."""
        self.finite &= bool(torch.isfinite(update).all())

    def on_attention(self, rows: AttentionRows) -> None:
        """See a block of attention rows."""
        p = rows.probabilities.double()
        self.heads[rows.layer] = p.shape[1]
        total = p.sum(-1)
        error = (total - 1.0).clamp(min=0.0) if self._has_sink else (total - 1.0).abs()
        keys = torch.arange(p.shape[-1], device=p.device)
        queries = torch.arange(rows.start, rows.stop, device=p.device)
        above = torch.where(keys > queries[:, None], p, 0.0)
        self.row_error = max(self.row_error, float(error.max()))
        self.future = max(self.future, float(above.max()))
        self.finite &= bool(torch.isfinite(p).all())


class BiasObserver:
    """Keeps the logits of every layer; for short windows only."""

    def __init__(self) -> None:
        self.logits: list[Tensor] = []

    def on_stream(self, layer: int, stream: Tensor) -> None:
        """See x of a layer."""

    def on_update(self, layer: int, update: Tensor) -> None:
        """See a of a layer."""

    def on_attention(self, rows: AttentionRows) -> None:
        """See a block of attention rows."""
        self.logits.append(rows.logits[0].masked_fill(~rows.visible.expand_as(rows.logits)[0], 0.0))


class PositionObserver:
    """Attention with zeroed queries against the content-free kernel of the scheme."""

    def __init__(self, scheme: PositionScheme) -> None:
        self.error = self.content = self.bias = 0.0
        self.mask_differs: str | None = None
        self._scheme = scheme

    def on_stream(self, layer: int, stream: Tensor) -> None:
        """See x of a layer."""

    def on_update(self, layer: int, update: Tensor) -> None:
        """See a of a layer."""

    def on_attention(self, rows: AttentionRows) -> None:
        """See a block of attention rows."""
        scheme, layer, device = self._scheme, rows.layer, rows.logits.device
        keys, span = rows.logits.shape[-1], range(rows.start, rows.stop)
        visible = scheme.visible(layer, span, keys=keys, device=device)
        hidden = scheme.visible(layer, span, keys=rows.length, device=device)[:, keys:]
        is_same = bool((rows.visible == visible).all()) and not bool(hidden.any())
        if not is_same and self.mask_differs is None:
            shown = rows.visible.expand_as(rows.logits) != visible
            self.mask_differs = self._difference(rows, shown, visible)
        logits = rows.logits.double()
        first, second = logits.masked_fill(~visible, 0.0)
        self.content = max(self.content, float((first - second).abs().max()))
        bias = scheme.bias(layer, span, keys=keys, length=rows.length)
        expected = torch.zeros(logits.shape[1:], dtype=torch.float64, device=device)
        if bias is not None:
            expected = expected + bias.to(device)
            self.bias = max(self.bias, float(bias.abs().max()))
        expected = expected.masked_fill(~visible, -math.inf)
        if scheme.sinks is not None:
            sink = torch.from_numpy(scheme.sinks[layer]).to(device)[:, None, None]
            expected = torch.cat([expected, sink.expand(-1, len(span), 1)], dim=-1)
        kernel = torch.softmax(expected, dim=-1)[..., :keys]
        self.error = max(self.error, float((rows.probabilities.double() - kernel).abs().max()))

    def _difference(self, rows: AttentionRows, differs: Tensor, expected: Tensor) -> str:
        """Say what a mask does at the first place where it is not that of the scheme."""
        window = self._scheme.windows[rows.layer]
        mask = "causal" if window is None else f"causal with a window of {window} keys"
        start = f"the mask of layer {rows.layer + 1} is not {mask}"
        if not bool(differs.any()):
            return f"{start}, because it hides keys that should be seen"
        _, _, row, key = (int(k) for k in differs.nonzero()[0])
        place = f"query {rows.start + row}"
        if bool(expected[row, key]):
            return f"{start}: key {key} is hidden from {place}"
        logit = float(rows.logits[0, 0, row, key])
        return (
            f"{start}: key {key} is not hidden from {place}, its logit is {logit:g}, and only the "
            "lowest number of the format or minus infinity counts as hidden"
        )
