"""One call of fused attention, and the logits that it does not show."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from posbias.errors import InstrumentationError

__all__ = ["FusedCall", "Memory"]


@dataclass
class FusedCall:
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
    def bind(cls, *args: Any, **options: Any) -> FusedCall:
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

    def logits(
        self, start: int, stop: int, threshold: float, memory: Memory
    ) -> tuple[Tensor, Tensor]:
        """Return logits (B, H, r, k) of the rows start..stop-1 and which keys are visible."""
        query, key = self.query.detach()[..., start:stop, :], self.key.detach()
        total = key.shape[-2]
        positions = torch.arange(total, device=query.device)
        bias: Tensor | None = None
        if self.is_causal:
            visible = positions[:stop] <= positions[start:stop, None]
        elif self.attn_mask is None:
            visible = torch.ones(stop - start, total, dtype=torch.bool, device=query.device)
        else:
            mask = self.attn_mask.detach()
            mask = mask[..., start:stop, :] if mask.shape[-2] > 1 else mask
            visible = mask if mask.dtype == torch.bool else mask > threshold
            bias = None if mask.dtype == torch.bool else mask
        keys = stop if not bool(visible[..., stop:].any()) else total
        logits = self._products(query, key[..., :keys, :], memory)
        if bias is not None:
            logits += bias[..., :keys]
        return logits, visible[..., :keys]

    def _products(self, query: Tensor, key: Tensor, memory: Memory) -> Tensor:
        """Return the scaled products of queries and keys, shape (B, H, r, k)."""
        *batch, heads, rows, width = query.shape
        groups, keys = key.shape[-3], key.shape[-2]
        scale = self.scale if self.scale is not None else 1.0 / math.sqrt(width)
        # The query heads that share a key head are rows of one product.
        query = query.reshape(-1, heads // groups * rows, width)
        key = key.reshape(-1, keys, width).transpose(1, 2)
        out = memory.view((len(query), query.shape[1], keys), query)
        torch.baddbmm(out, query, key, beta=0, alpha=scale, out=out)
        return out.view(*batch, heads, rows, keys)

    def _per_head(self, states: Tensor) -> Tensor:
        groups = self.query.shape[-3] // states.shape[-3]
        return states.repeat_interleave(groups, dim=-3) if groups > 1 else states


class Memory:
    """Memory for one tensor at a time: making it anew for every block takes longer than filling."""

    def __init__(self) -> None:
        self._flat: Tensor | None = None

    def view(self, shape: tuple[int, ...], like: Tensor) -> Tensor:
        """Return a tensor of a shape, contents undefined, of the type and device of another."""
        size = math.prod(shape)
        flat = self._flat
        if (
            flat is None
            or flat.numel() < size
            or (flat.dtype, flat.device)
            != (
                like.dtype,
                like.device,
            )
        ):
            flat = self._flat = torch.empty(size, dtype=like.dtype, device=like.device)
        return flat[:size].view(shape)
