"""Run a model without changing it: evaluation mode, frozen parameters, everything put back."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch import Tensor, nn

from posbias.errors import InstrumentationError, UnsupportedModelError

__all__ = ["attention_implementation", "forward_logits", "measuring", "with_implementation"]


@contextmanager
def measuring(model: nn.Module) -> Iterator[None]:
    """Put the model in evaluation mode with frozen parameters; restore both at the end."""
    training = [(module, module.training) for module in model.modules()]
    required = [(parameter, parameter.requires_grad) for parameter in model.parameters()]
    try:
        model.eval()
        for parameter, _ in required:
            parameter.requires_grad_(False)
        yield
    finally:
        for module, flag in training:
            module.training = flag
        for parameter, flag in required:
            parameter.requires_grad_(flag)


def forward_logits(model: nn.Module, ids: Tensor, *, last_only: bool = True) -> Tensor:
    """Run the model without cache and return its logits.

    Parameters
    ----------
    ids : Tensor of int64, shape (B, n)
        Token ids, none of them padding.
    last_only : bool
        Ask for the logits of the last position only, where the model can; the result then has
        shape (B, 1, V) or (B, n, V).
    """
    options: dict[str, Any] = {"use_cache": False}
    if last_only and "logits_to_keep" in inspect.signature(model.forward).parameters:
        options["logits_to_keep"] = 1
    output = model(input_ids=ids, **options)
    logits = getattr(output, "logits", None)
    if not isinstance(logits, Tensor) or logits.dim() != 3:
        raise UnsupportedModelError(
            f"{type(model).__name__} returns no next-token logits; a causal language model with "
            "its output head is required (AutoModelForCausalLM)"
        )
    return logits


def attention_implementation(model: nn.Module) -> str:
    """Return the name of the attention implementation in use, e.g. ``"sdpa"``."""
    return str(getattr(model.config, "_attn_implementation", None) or "eager")


@contextmanager
def with_implementation(model: Any, name: str) -> Iterator[bool]:
    """Switch eager and sdpa for the duration of the context; yield whether it was possible."""
    before = attention_implementation(model)
    can_set = getattr(model, "_can_set_attn_implementation", None)
    if not callable(can_set) or not can_set() or not getattr(model, f"_supports_{name}", True):
        yield False
        return
    try:
        model.set_attn_implementation(name)
        yield attention_implementation(model) == name
    finally:
        model.set_attn_implementation(before)
        if attention_implementation(model) != before:
            raise InstrumentationError(f"attention could not be switched back to {before}")
