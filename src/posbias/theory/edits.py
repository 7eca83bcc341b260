"""Kernels with one force made stronger or taken away."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from posbias.errors import InputError
from posbias.kernels import (
    ALiBi,
    AttentionKernel,
    Cosine,
    Head,
    Kernel,
    KerpleLog,
    KerplePower,
    LagTable,
    MixtureKernel,
    NoPE,
    RopeSum,
    Sink,
    T5Buckets,
)

__all__ = ["has_content", "has_position", "is_structured", "scale_content", "scale_position"]


def is_structured(kernel: Kernel) -> bool:
    """Whether position and content of a kernel are known apart."""
    if isinstance(kernel, MixtureKernel):
        return all(is_structured(part) for part in kernel.kernels)
    return isinstance(kernel, AttentionKernel)


def has_position(kernel: Kernel) -> bool:
    """Whether any head of a structured kernel has a position encoding."""
    return any(not isinstance(head.position, NoPE) for head in _heads(kernel))


def has_content(kernel: Kernel) -> bool:
    """Whether any head of a structured kernel has diagonal, key or sink content."""
    return any(
        head.diagonal != 0.0 or head.key is not None or head.sink is not None
        for head in _heads(kernel)
    )


def scale_position(kernel: Kernel, factor: float) -> Kernel:
    """Return the kernel with every position logit multiplied; 0 takes the encoding away."""
    return _edit(kernel, lambda head: replace(head, position=_scaled(head.position, factor)))


def scale_content(kernel: Kernel, factor: float) -> Kernel:
    """Return the kernel with diagonal, key and sink logits multiplied; 0 takes them away."""

    def edit(head: Head) -> Head:
        keep = factor != 0.0
        key = factor * head.key if keep and head.key is not None else None
        old = head.sink
        sink = Sink(old.count, factor * old.logit) if keep and old is not None else None
        return replace(head, diagonal=factor * head.diagonal, key=key, sink=sink)

    return _edit(kernel, edit)


def _heads(kernel: Kernel) -> Sequence[Head]:
    if isinstance(kernel, MixtureKernel):
        return [head for part in kernel.kernels for head in _heads(part)]
    return kernel.heads if isinstance(kernel, AttentionKernel) else ()


def _edit(kernel: Kernel, edit: Callable[[Head], Head]) -> Kernel:
    """Apply an edit to every head of a structured kernel."""
    if isinstance(kernel, MixtureKernel):
        return MixtureKernel([_edit(part, edit) for part in kernel.kernels], kernel.weights)
    if not isinstance(kernel, AttentionKernel):
        raise InputError(
            f"a {type(kernel).__name__} does not know position and content apart; "
            "use structured kernels, e.g. those of kind 'position+content'"
        )
    heads = tuple(edit(head) for head in kernel.heads)
    return AttentionKernel(kernel.n, heads, mask=kernel.mask, temperature=kernel.temperature)


def _scaled(position: Any, factor: float) -> Any:
    """Return the position encoding with its logits multiplied by `factor`."""
    if isinstance(position, NoPE) or (factor == 0.0 and not isinstance(position, LagTable)):
        return NoPE()
    if isinstance(position, ALiBi):
        return replace(position, slope=factor * position.slope)
    if isinstance(position, KerpleLog | KerplePower):
        return replace(position, r1=factor * position.r1)
    if isinstance(position, T5Buckets):
        return replace(position, bias=tuple(factor * float(b) for b in position.bias))
    if isinstance(position, Cosine | RopeSum):
        return replace(position, amp=factor * position.amp)
    if isinstance(position, LagTable):
        # A lag that is never attended to stays so: it belongs to the pattern, not to the bias.
        seen = np.isfinite(position.bias)
        return LagTable(np.where(seen, factor * np.where(seen, position.bias, 0.0), -np.inf))
    raise InputError(f"the position encoding {type(position).__name__} cannot be scaled")
