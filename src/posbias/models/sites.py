"""Where x, a and the attention live in one loaded model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from posbias.errors import UnsupportedModelError
from posbias.models.architectures import Architecture, architecture_of, text_config

__all__ = [
    "LayerSites",
    "ModelSites",
    "find_blocks",
    "first_tensor",
    "sites_from_row",
    "submodule",
]


@dataclass(frozen=True)
class LayerSites:
    """The modules of one layer.

    Attributes
    ----------
    block : Module
        The layer.
    attention : Module
        The module inside which the softmax runs.
    update : Module
        Its first output times `multiplier` is a, the attention update as added to the stream.
    stream : Module or None
        Its first output is x; None when x is the first input of the block.
    multiplier : float
        Constant factor of the update.
    """

    block: nn.Module
    attention: nn.Module
    update: nn.Module
    stream: nn.Module | None = None
    multiplier: float = 1.0


@dataclass(frozen=True)
class ModelSites:
    """All layers of one model, bottom first.

    Attributes
    ----------
    layers : tuple of LayerSites
        One entry per layer.
    embedding : Module
        The input embedding.
    dtype : torch.dtype
        Type of the activations.
    row : Architecture or None
        The row of the table, None when the sites were found by search.
    update_path, stream_path : str
        Paths inside a block, for messages and manifests; `stream_path` is empty for its input.
    """

    layers: tuple[LayerSites, ...]
    embedding: nn.Module
    dtype: torch.dtype
    row: Architecture | None
    update_path: str
    stream_path: str = ""


def first_tensor(value: Any) -> Tensor | None:
    """Return the first floating-point tensor in nested arguments or outputs."""
    if isinstance(value, Tensor):
        return value if value.is_floating_point() else None
    if isinstance(value, Mapping):
        value = tuple(value.values())
    if isinstance(value, Sequence) and not isinstance(value, str):
        for item in value:
            found = first_tensor(item)
            if found is not None:
                return found
    return None


def submodule(root: nn.Module, path: str) -> nn.Module | None:
    """Return the module at a dotted path, or None."""
    try:
        return root.get_submodule(path)
    except AttributeError:
        return None


def sites_from_row(model: nn.Module, row: Architecture) -> ModelSites:
    """Return the sites that a row of the table claims.

    Raises
    ------
    UnsupportedModelError
        If the model does not have the modules that the row names.
    """
    blocks = submodule(model, row.blocks) or submodule(model, _multimodal(row.blocks))
    if not isinstance(blocks, nn.ModuleList):
        blocks = find_blocks(model)
    layers = []
    for index, block in enumerate(blocks):
        attention = submodule(block, row.attention)
        update = submodule(block, row.update)
        stream = submodule(block, row.stream) if row.stream else None
        if attention is None or update is None or (row.stream and stream is None):
            raise UnsupportedModelError(
                f"layer {index + 1} of this {row.name} model lacks {row.attention!r}, "
                f"{row.update!r} or {row.stream!r}; another version of transformers or changed "
                "model code is the usual cause"
            )
        factor = float(getattr(block, row.multiplier)) if row.multiplier else 1.0
        layers.append(LayerSites(block, attention, update, stream, factor))
    return ModelSites(
        tuple(layers), input_embedding(model), dtype_of(model), row, row.update, row.stream
    )


def find_blocks(model: nn.Module) -> nn.ModuleList:
    """Return the one list of layers of a decoder.

    Raises
    ------
    UnsupportedModelError
        If there is no module list with one entry per layer.
    """
    config = text_config(model.config)
    wanted = getattr(config, "num_hidden_layers", None)
    found = [
        module
        for name, module in model.named_modules()
        if isinstance(module, nn.ModuleList) and len(module) == wanted and "vision" not in name
    ]
    if not found:
        raise UnsupportedModelError(
            f"no list of {wanted} layers was found in {type(model).__name__}; a decoder-only "
            "transformer with one module list of blocks is required"
        )
    return found[0]


def input_embedding(model: nn.Module) -> nn.Module:
    """Return the module that turns token ids into vectors."""
    getter = getattr(model, "get_input_embeddings", None)
    embedding = getter() if callable(getter) else None
    if not isinstance(embedding, nn.Module):
        raise UnsupportedModelError(f"{type(model).__name__} has no input embedding module")
    return embedding


def dtype_of(model: nn.Module) -> torch.dtype:
    """Return the floating-point type of the parameters."""
    for parameter in model.parameters():
        if parameter.is_floating_point():
            return parameter.dtype
    raise UnsupportedModelError(f"{type(model).__name__} has no floating-point parameters")


def known_row(model: nn.Module) -> Architecture | None:
    """Return the row of the table for a model, or None."""
    return architecture_of(model.config)


def _multimodal(path: str) -> str:
    """Return the path of the same list inside a model with a vision tower."""
    return path.replace("model.", "model.language_model.", 1)
