"""One way to see the attention of every architecture.

A torch function mode intercepts the softmax or scaled-dot-product call that runs inside an
attention module. It hands the logits and probabilities on and returns the model's own result
untouched, so the outputs of the model stay bitwise the same.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from posbias.errors import InstrumentationError

__all__ = ["BLOCK_ROWS", "AttentionRows", "AttentionTap", "is_attention_call"]

BLOCK_ROWS = 256
"""Query rows per block when the logits have to be computed beside a fused attention call."""

_SOFTMAX = {functional.softmax, torch.softmax, torch.Tensor.softmax, torch.special.softmax}
_FUSED = functional.scaled_dot_product_attention
_MATMUL = {
    torch.matmul,
    torch.bmm,
    torch.Tensor.matmul,
    torch.Tensor.__matmul__,
    torch.Tensor.bmm,
    torch.linalg.matmul,
}
_BADDBMM = {torch.baddbmm, torch.Tensor.baddbmm}


@dataclass(frozen=True)
class AttentionRows:
    """Attention of consecutive query rows of one layer, detached from the graph.

    Attributes
    ----------
    layer : int
        Layer index, 0 at the bottom.
    start : int
        First query row.
    logits : Tensor, shape (B, H, r, k)
        Logits as fed to the softmax, for keys 0..k-1 (k <= n; later keys are not visible). Where
        the softmax has an entry outside the sequence they are relative to that entry.
    probabilities : Tensor, shape (B, H, r, k)
        Softmax of the logits in float32 or float64; rows sum to less than one where the softmax
        has an entry outside the sequence.
    visible : Tensor of bool, broadcastable to the logits
        Which keys the mask leaves visible.
    length : int
        n, number of positions.
    """

    layer: int
    start: int
    logits: Tensor
    probabilities: Tensor
    visible: Tensor
    length: int

    @property
    def stop(self) -> int:
        """One past the last query row."""
        return self.start + self.logits.shape[-2]


Receiver = Callable[[AttentionRows], None]


def is_attention_call(
    func: Callable[..., Any], args: Sequence[Any], options: dict[str, Any], length: int
) -> bool:
    """Whether a torch call is fused attention or a softmax over `length` keys (or one more)."""
    if func is _FUSED:
        return True
    if func not in _SOFTMAX:
        return False
    logits = args[0] if args else options["input"]
    return logits.dim() >= 3 and logits.shape[-2] == length and logits.shape[-1] - length in (0, 1)


class AttentionTap(TorchFunctionMode):
    """Torch function mode that sees one attention call per layer.

    `enter` and `leave` are called by hooks around each attention module; outside of them every
    call passes through unseen.

    Parameters
    ----------
    layers : int
        T, number of layers.
    receive : callable
        Called with the `AttentionRows` of a layer, in blocks of rows, under ``no_grad``.
    dtype : torch.dtype
        Type of the model: a logit below half its lowest number counts as masked.
    zero_queries : bool
        Replace every query by zero, so that only mask and position bias are left.
    check_values : bool
        Compare the layer's own weighted sum of the values with the seen probabilities; the
        largest difference per layer is in `value_errors`.
    block_rows : int
        Query rows handed on at once when the attention call is fused.
    """

    def __init__(
        self,
        layers: int,
        receive: Receiver,
        *,
        dtype: torch.dtype,
        zero_queries: bool = False,
        check_values: bool = False,
        block_rows: int = BLOCK_ROWS,
    ) -> None:
        super().__init__()
        self.captures = [0] * layers
        self.value_errors: list[float | None] = [None] * layers
        self._receive = receive
        # Masked logits hold the lowest number of the model's type, or of float32 in some models.
        lowest = torch.float32 if dtype is torch.float64 else dtype
        self._threshold = float(torch.finfo(lowest).min) / 2
        self._zero_queries = zero_queries
        self._check_values = check_values
        self._block_rows = block_rows
        self._layer: int | None = None
        self._shape = (0, 0)
        self._pending: Tensor | None = None

    def enter(self, layer: int, batch: int, length: int) -> None:
        """Start watching: the attention module of `layer` begins."""
        self._layer, self._shape, self._pending = layer, (batch, length), None

    def leave(self) -> None:
        """Stop watching: the attention module ended."""
        self._layer, self._pending = None, None

    @property
    def layer(self) -> int | None:
        """Layer whose attention module runs, None outside of all."""
        return self._layer

    @property
    def shape(self) -> tuple[int, int]:
        """Windows and positions that the attention module reads."""
        return self._shape

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        """Pass the call on; look at softmax, fused attention and products on the way."""
        options = kwargs or {}
        if self._layer is None:
            return func(*args, **options)
        if func is _FUSED:
            return self._fused(func, _FusedCall.bind(*args, **options))
        if func in _SOFTMAX:
            return self._softmax(func, args, options)
        if func in _MATMUL or func in _BADDBMM or func is torch.einsum:
            return self._product(func, list(args), dict(options))
        return func(*args, **options)

    def _softmax(
        self, func: Callable[..., Any], args: Sequence[Any], options: dict[str, Any]
    ) -> Tensor:
        output: Tensor = func(*args, **options)
        logits: Tensor = args[0] if args else options["input"]
        batch, length = self._shape
        if not is_attention_call(func, args, options, length):
            return output
        extra = logits.shape[-1] - length
        with torch.no_grad():
            exact = output.detach()
            if exact.dtype not in (torch.float32, torch.float64):
                exact = torch.softmax(logits.detach(), dim=-1, dtype=torch.float32)
            shape = (batch, -1, length, length + extra)
            raw, exact = logits.detach().reshape(shape), exact.reshape(shape)
            self._count()
            for start in range(0, length, self._block_rows):
                stop = min(start + self._block_rows, length)
                visible = raw[..., start:stop, :length] > self._threshold
                keys = stop if not bool(visible[..., stop:].any()) else length
                block = raw[..., start:stop, :keys]
                if extra:
                    block = block - raw[..., start:stop, length:]
                p = exact[..., start:stop, :keys]
                self._receive(
                    AttentionRows(self._current, start, block, p, visible[..., :keys], length)
                )
            self._pending = output.detach().reshape(shape)[..., :length]
        return output

    def _fused(self, func: Callable[..., Any], call: _FusedCall) -> Tensor:
        if self._zero_queries:
            call.query = torch.zeros_like(call.query)
        output: Tensor = func(**call.arguments())
        with torch.no_grad():
            self._count()
            length = call.query.shape[-2]
            for start in range(0, length, self._block_rows):
                stop = min(start + self._block_rows, length)
                logits, visible = call.logits(start, stop, self._threshold)
                work = torch.promote_types(logits.dtype, torch.float32)
                probabilities = torch.softmax(
                    logits.masked_fill(~visible, -math.inf), dim=-1, dtype=work
                )
                rows = AttentionRows(
                    self._current, start, logits, probabilities, visible, self._shape[1]
                )
                self._receive(rows)
                if self._check_values:
                    values = call.values()[..., : logits.shape[-1], :]
                    mixed = probabilities @ values.to(work)
                    self._note_error(mixed - output.detach()[..., start:stop, :])
        return output

    def _product(
        self, func: Callable[..., Any], args: list[Any], options: dict[str, Any]
    ) -> Tensor:
        """Zero the queries of a product that makes logits; compare one that mixes values."""
        left = 1 if func in _BADDBMM or func is torch.einsum else 0
        names = {0: ("input", "mat1"), 1: ("batch1",)}[left]
        place: list[Any] | dict[str, Any] = args if len(args) > left else options
        key: Any = left if len(args) > left else next((k for k in names if k in options), None)
        operand = place[key] if key is not None else None
        if not isinstance(operand, Tensor) or operand.dim() < 3:
            output: Tensor = func(*args, **options)
            return output
        if self._pending is not None:
            self._compare(operand)
        elif self._zero_queries:
            plain: Tensor = func(*args, **options)
            if plain.dim() < 3 or plain.shape[-2:] != (self._shape[1], self._shape[1]):
                return plain
            other = next(
                (a for a in [*args[left + 1 :], *options.values()] if isinstance(a, Tensor)), None
            )
            if other is None or other.dim() < 3:
                return plain
            place[key] = torch.zeros_like(operand)
        result: Tensor = func(*args, **options)
        return result

    def _compare(self, operand: Tensor) -> None:
        """Note how far the weights applied to the values are from the seen probabilities."""
        pending = self._pending
        if self._check_values and pending is not None and operand.numel() == pending.numel():
            self._note_error(operand.detach().reshape(pending.shape) - pending)
            self._pending = None

    def _note_error(self, difference: Tensor) -> None:
        error = float(difference.abs().max())
        self.value_errors[self._current] = max(error, self.value_errors[self._current] or 0.0)

    def _count(self) -> None:
        self.captures[self._current] += 1
        if self.captures[self._current] > 1:
            raise InstrumentationError(
                f"layer {self._current + 1} calls softmax or fused attention more than once per "
                "forward pass; exactly one call is required. Attention that mixes several "
                "softmaxes cannot be measured"
            )

    @property
    def _current(self) -> int:
        if self._layer is None:
            raise InstrumentationError("attention was seen outside of an attention module")
        return self._layer


@dataclass
class _FusedCall:
    """The arguments of one scaled_dot_product_attention call."""

    query: Tensor
    key: Tensor
    value: Tensor
    attn_mask: Tensor | None = None
    dropout_p: float = 0.0
    is_causal: bool = False
    scale: float | None = None
    enable_gqa: bool = False

    @classmethod
    def bind(cls, *args: Any, **options: Any) -> _FusedCall:
        """Read the arguments as given by the model."""
        call = cls(*args, **options)
        if call.dropout_p > 0.0:
            raise InstrumentationError(
                f"attention runs with dropout {call.dropout_p:g}; it must be off in evaluation mode"
            )
        return call

    def arguments(self) -> dict[str, Any]:
        """Return all arguments by name."""
        return dict(vars(self))

    def values(self) -> Tensor:
        """Return the values with one head per query head."""
        return self._per_head(self.value.detach())

    def logits(self, start: int, stop: int, threshold: float) -> tuple[Tensor, Tensor]:
        """Return logits (B, H, r, k) of the rows start..stop-1 and which keys are visible."""
        query = self.query.detach()[..., start:stop, :]
        key = self._per_head(self.key.detach())
        total = key.shape[-2]
        positions = torch.arange(total, device=query.device)
        bias: Tensor | None = None
        if self.is_causal:
            visible = positions <= positions[start:stop, None]
        elif self.attn_mask is None:
            visible = torch.ones(stop - start, total, dtype=torch.bool, device=query.device)
        else:
            mask = self.attn_mask.detach()
            mask = mask[..., start:stop, :] if mask.shape[-2] > 1 else mask
            visible = mask if mask.dtype == torch.bool else mask > threshold
            bias = None if mask.dtype == torch.bool else mask
        keys = stop if not bool(visible[..., stop:].any()) else total
        scale = self.scale if self.scale is not None else 1.0 / math.sqrt(query.shape[-1])
        logits = query @ key[..., :keys, :].transpose(-1, -2) * scale
        if bias is not None:
            logits = logits + bias[..., :keys]
        return logits, visible[..., :keys]

    def _per_head(self, states: Tensor) -> Tensor:
        groups = self.query.shape[-3] // states.shape[-3]
        return states.repeat_interleave(groups, dim=-3) if groups > 1 else states
