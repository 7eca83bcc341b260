"""One way to see the attention of every architecture.

A torch function mode intercepts the softmax or scaled-dot-product call that runs inside an
attention module. It hands the logits and probabilities on and returns the model's own result
untouched, so the outputs of the model stay bitwise the same.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from posbias.errors import InstrumentationError
from posbias.models._fused import FusedCall, Memory

__all__ = [
    "BLOCK_ENTRIES",
    "BLOCK_ROWS",
    "LEAST_ROWS",
    "AttentionRows",
    "AttentionTap",
    "ValueRows",
    "is_attention_call",
]

BLOCK_ROWS = 256
"""Query rows per block when the logits have to be computed beside a fused attention call."""

BLOCK_ENTRIES = 2**20
"""Logits of one window in a block, beyond which it has fewer rows."""

LEAST_ROWS = 32
"""Rows that a block has whatever its size."""

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

    Not to be kept: the memory of the logits is used again for the next rows.

    Attributes
    ----------
    layer : int
        Layer index, 0 at the bottom.
    start : int
        First query row.
    logits : Tensor, shape (B, H, r, k)
        Logits as fed to the softmax, for keys 0..k-1 (k <= n; later keys are not visible). Where
        the softmax has an entry outside the sequence they are relative to that entry.
    visible : Tensor of bool, broadcastable to the logits
        Which keys the mask leaves visible.
    length : int
        n, number of positions.
    applied : Tensor, shape (B, H, r, k), or None
        The probabilities of the model itself, where it makes them.
    """

    layer: int
    start: int
    logits: Tensor
    visible: Tensor
    length: int
    applied: Tensor | None = None

    @cached_property
    def probabilities(self) -> Tensor:
        """Softmax of the logits in float32 or float64, shape (B, H, r, k).

        Rows sum to less than one where the softmax has an entry outside the sequence.
        """
        if self.applied is not None:
            return self.applied
        work = torch.promote_types(self.logits.dtype, torch.float32)
        return torch.softmax(self.logits.masked_fill(~self.visible, -math.inf), dim=-1, dtype=work)

    def probabilities_of(self, index: int, rows: Tensor) -> Tensor:
        """Return the probabilities of some rows of one window, shape (H, len(rows), k)."""
        if self.applied is not None:
            return self.applied[index][:, rows]
        logits = self.logits[index][:, rows]
        hidden = ~self.visible.expand_as(self.logits)[index][:, rows]
        work = torch.promote_types(logits.dtype, torch.float32)
        return torch.softmax(logits.masked_fill(hidden, -math.inf), dim=-1, dtype=work)

    @property
    def stop(self) -> int:
        """One past the last query row."""
        return self.start + self.logits.shape[-2]


@dataclass(frozen=True)
class ValueRows:
    """Attention of consecutive query rows of one layer with the values that it weights.

    Attributes
    ----------
    attention : AttentionRows
        Not to be kept.
    values : Tensor, shape (B, G, n, d)
        Values of all keys. G divides H: query head h reads the values of head ``h // (H / G)``.
    """

    attention: AttentionRows
    values: Tensor


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
    receive_values : callable, optional
        Called with the `ValueRows` of a layer, in blocks of rows, under ``no_grad``.
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
        receive_values: Callable[[ValueRows], None] | None = None,
    ) -> None:
        super().__init__()
        self.captures = [0] * layers
        self.value_errors: list[float | None] = [None] * layers
        self._receive = receive
        self._receive_values = receive_values
        # Masked logits hold the lowest number of the model's type, or of float32 in some models.
        lowest = torch.float32 if dtype is torch.float64 else dtype
        self._threshold = float(torch.finfo(lowest).min) / 2
        self._zero_queries = zero_queries
        self._check_values = check_values
        self._block_rows = block_rows
        self._memory = Memory()
        self._layer: int | None = None
        self._shape = (0, 0)
        self._pending: Tensor | None = None
        self._rows: list[AttentionRows] = []

    def enter(self, layer: int, batch: int, length: int) -> None:
        """Start watching: the attention module of `layer` begins."""
        self._layer, self._shape, self._pending = layer, (batch, length), None

    def leave(self) -> None:
        """Stop watching: the attention module ended."""
        self._layer, self._pending, self._rows = None, None, []

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
            return self._fused(func, FusedCall.bind(*args, **options))
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
                seen = visible[..., :keys]
                rows = AttentionRows(self._current, start, block, seen, length, p)
                self._receive(rows)
                if self._receive_values is not None:
                    self._rows.append(rows)
            self._pending = output.detach().reshape(shape)[..., :length]
        return output

    def _fused(self, func: Callable[..., Any], call: FusedCall) -> Tensor:
        if self._zero_queries:
            call.query = torch.zeros_like(call.query)
        output: Tensor = func(**call.arguments())
        with torch.no_grad():
            self._count()
            length = call.query.shape[-2]
            step = self._rows_at_once(call)
            for start in range(0, length, step):
                stop = min(start + step, length)
                logits, visible = call.logits(start, stop, self._threshold, self._memory)
                rows = AttentionRows(self._current, start, logits, visible, self._shape[1])
                self._receive(rows)
                if self._receive_values is not None:
                    self._receive_values(ValueRows(rows, call.value.detach()))
                if self._check_values:
                    probabilities = rows.probabilities
                    values = call.values()[..., : logits.shape[-1], :]
                    mixed = probabilities @ values.to(probabilities.dtype)
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
            self._hand_on(operand, [*args, *options.values()])
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

    @torch.no_grad()
    def _hand_on(self, operand: Tensor, factors: list[Any]) -> None:
        """Hand on the rows of a softmax with the values that they are multiplied with."""
        rows, (batch, length) = self._rows, self._shape
        if not rows or self._receive_values is None or self._pending is None:
            return
        if operand.numel() != self._pending.numel():
            return
        for v in factors:
            if isinstance(v, Tensor) and v is not operand and v.dim() > 2 and v.shape[-2] == length:
                values = v.detach().reshape(batch, -1, length, v.shape[-1])
                for block in rows:
                    self._receive_values(ValueRows(block, values))
                self._rows = []
                return

    def _compare(self, operand: Tensor) -> None:
        """Note how far the weights applied to the values are from the seen probabilities."""
        pending = self._pending
        if self._check_values and pending is not None and operand.numel() == pending.numel():
            self._note_error(operand.detach().reshape(pending.shape) - pending)
            self._pending = None

    def _note_error(self, difference: Tensor) -> None:
        error = float(difference.abs().max())
        self.value_errors[self._current] = max(error, self.value_errors[self._current] or 0.0)

    def _rows_at_once(self, call: FusedCall) -> int:
        """Return the rows of a block: fewer for many heads and long windows."""
        # Of one window, so that results do not depend on the batch.
        heads, keys = call.query.shape[-3], call.key.shape[-2]
        return max(min(self._block_rows, BLOCK_ENTRIES // (heads * keys)), LEAST_ROWS)

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
