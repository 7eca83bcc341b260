"""Run a model without changing it: evaluation mode, frozen parameters, everything put back."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from posbias.errors import InstrumentationError, PosbiasError, UnsupportedModelError, shown

__all__ = [
    "attention_implementation",
    "forward_logits",
    "input_device",
    "is_out_of_memory",
    "measuring",
    "model_errors",
    "parameter_value",
    "with_implementation",
]


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


@contextmanager
def model_errors(model: nn.Module) -> Iterator[None]:
    """Turn what the code of a model raises into one line; memory that ran out is let through.

    Raises
    ------
    InstrumentationError
        From any exception that posbias does not raise on purpose.
    """
    try:
        yield
    except PosbiasError:
        raise
    except Exception as error:
        if is_out_of_memory(error):
            raise
        raise InstrumentationError(
            f"{type(model).__name__} stops with {type(error).__name__} when it is run: "
            f"{shown(error)}. Usual causes: a number format that its code does not support (try "
            "float32), or code or weights that do not fit this version of transformers"
        ) from error


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an exception says that memory ran out, on a GPU or in the process."""
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    text = str(error).lower()
    return isinstance(error, RuntimeError) and (
        "out of memory" in text or "can't allocate memory" in text or "not enough memory" in text
    )


def input_device(model: nn.Module) -> torch.device:
    """Return the device on which a model takes token ids, also if accelerate has split it."""
    getter = getattr(model, "get_input_embeddings", None)
    embedding = getter() if callable(getter) else model
    for module in (embedding, model):
        device = next(module.parameters()).device
        if device.type != "meta":
            return device
        for hook in _placement_hooks(module):
            if hook.execution_device is not None:
                return torch.device(hook.execution_device)
    raise UnsupportedModelError(
        "the weights of the model are not loaded (they are on the meta device); load them, or "
        "split the model with a device_map"
    )


def parameter_value(module: nn.Module, name: str) -> Tensor:
    """Return a parameter of a module, fetched from where accelerate keeps it if it is offloaded."""
    value: Tensor = getattr(module, name)
    if value.device.type != "meta":
        return value.detach()
    for hook in _placement_hooks(module):
        if hook.weights_map is not None:
            stored: Tensor = hook.weights_map[name]
            return stored.detach()
    raise UnsupportedModelError(
        f"parameter {name} of {type(module).__name__} is not loaded (it is on the meta device); "
        "load the weights, or split the model with a device_map"
    )


def _placement_hooks(module: nn.Module) -> list[Any]:
    """Return the hooks of accelerate that bring weights to a device before a module runs."""
    outer = getattr(module, "_hf_hook", None)
    hooks = getattr(outer, "hooks", [outer])
    return [hook for hook in hooks if hasattr(hook, "weights_map")]


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
