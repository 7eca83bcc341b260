"""What a measurement starts from: options, a loaded model and windows of its tokens."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from torch import Tensor, nn

from posbias.errors import InputError, ModelError
from posbias.measure import Text
from posbias.measure.manifest import Origin
from posbias.measure.options import MeasureOptions
from posbias.measure.padding import refuse_padding, unpadded
from posbias.measure.text import TextCollection, read_text
from posbias.measure.windows import (
    TokenWindows,
    automatic_prefix,
    check_vocabulary,
    make_windows,
    prepared_windows,
)
from posbias.models._config_checks import check_causal
from posbias.models.loading import LoadedModel, load_model
from posbias.models.sites import input_embedding

__all__ = ["GivenModel", "read_model", "read_options", "read_windows"]


@dataclass(frozen=True)
class GivenModel:
    """A model, and a tokenizer unless the text comes as token ids."""

    model: nn.Module
    tokenizer: Any
    id: str
    revision: str | None


def read_options(options: MeasureOptions | None, settings: dict[str, Any]) -> MeasureOptions:
    """Return the options, given at once or each by its name.

    Raises
    ------
    InputError
        If they are given in both ways, or a name is unknown.
    """
    if options is not None and settings:
        raise InputError(
            f"options and {', '.join(settings)} were given; pass all options in one of both ways"
        )
    known = set(MeasureOptions.__dataclass_fields__)
    unknown = sorted(set(settings) - known)
    if unknown:
        raise InputError(f"unknown option {unknown[0]!r}; options are {', '.join(sorted(known))}")
    return options if options is not None else MeasureOptions(**settings)


def read_model(model: Any, tokenizer: Any, options: MeasureOptions) -> GivenModel:
    """Load a model that is named, or check the format of one that is given.

    Raises
    ------
    InputError, ModelError, UnsupportedModelError
        If it cannot be loaded, or is not what was asked for.
    """
    if isinstance(model, str | os.PathLike):
        loaded = load_model(
            model,
            dtype=options.dtype or "float32",
            device=options.device,
            revision=options.revision,
            gguf_file=options.gguf_file,
            attn_implementation=options.attn_implementation,
            trust_remote_code=options.trust_remote_code,
        )
        return GivenModel(loaded.model, tokenizer or loaded.tokenizer, loaded.id, loaded.revision)
    if isinstance(model, LoadedModel):
        return GivenModel(model.model, tokenizer or model.tokenizer, model.id, model.revision)
    if isinstance(model, tuple) and len(model) == 2:
        model, tokenizer = model[0], tokenizer or model[1]
    if not isinstance(model, nn.Module) or not hasattr(model, "config"):
        raise ModelError(
            f"model is {type(model).__name__}; a name, a path, a transformers model or a pair "
            "(model, tokenizer) is required"
        )
    wanted, found = options.dtype, str(model.dtype).removeprefix("torch.")
    if wanted is not None and wanted.removeprefix("torch.") != found:
        raise ModelError(
            f"dtype {wanted} was asked for, the given model is {found}; convert it yourself "
            f"(model.to(torch.{wanted})) or leave dtype out"
        )
    name = str(getattr(model.config, "_name_or_path", "") or type(model).__name__)
    check_causal(model.config, name)
    return GivenModel(model, tokenizer, name, getattr(model.config, "_commit_hash", None))


def read_windows(
    given: GivenModel, text: Text, options: MeasureOptions
) -> tuple[TokenWindows, Origin]:
    """Draw windows from a text in the order of the text, or take those that are given.

    Raises
    ------
    InputError, TextError
        If a tokenizer is missing, the text too short, or a token unknown to the model.
    """
    vocabulary = int(getattr(input_embedding(given.model), "num_embeddings", 2**62))
    if isinstance(text, Mapping):
        return _given_windows(given, unpadded(text), vocabulary)
    if isinstance(text, Tensor):
        if text.is_floating_point() or text.is_complex():
            raise InputError(
                f"windows have type {text.dtype}; token ids, a tensor of integers, are required"
            )
        text = text.detach().cpu().numpy()
    if isinstance(text, np.ndarray) or not _is_documents(text):
        drawn, origin = _given_windows(given, text, vocabulary)
        refuse_padding(drawn.ids, _pad_token(given))
        return drawn, origin
    if given.tokenizer is None:
        raise InputError(
            "a text needs a tokenizer; pass tokenizer=..., a pair (model, tokenizer), or windows "
            "of token ids"
        )
    if isinstance(text, str | os.PathLike):
        texts = read_text(text)
    else:
        texts = text if isinstance(text, TextCollection) else TextCollection(text)
    drawn = make_windows(
        given.tokenizer,
        texts,
        length=options.length,
        count=options.windows,
        seed=options.seed,
        pack=options.pack,
    )
    check_vocabulary(drawn, vocabulary)
    tokenizer_id = str(getattr(given.tokenizer, "name_or_path", "") or given.id)
    adds_bos = bool(automatic_prefix(given.tokenizer))
    origin = Origin(given.id, given.revision, tokenizer_id, adds_bos, texts.source, texts.sha256)
    return _ascending(drawn), origin


def _given_windows(given: GivenModel, ids: Any, vocabulary: int) -> tuple[TokenWindows, Origin]:
    windows = prepared_windows(
        ids,
        vocabulary_size=vocabulary,
        bos_token_id=getattr(given.tokenizer, "bos_token_id", None),
    )
    origin = Origin(given.id, given.revision, "none", False, "token ids", windows.sha256)
    return windows, origin


def _is_documents(text: Any) -> bool:
    if isinstance(text, list | tuple):
        return all(isinstance(document, str) for document in text)
    return True


def _pad_token(given: GivenModel) -> int | None:
    """Return the id that stands for padding and nothing else, None if there is no such id."""
    source = given.model.config if given.tokenizer is None else given.tokenizer
    pad = getattr(source, "pad_token_id", None)
    others = {getattr(source, name, None) for name in ("bos_token_id", "eos_token_id")}
    return pad if isinstance(pad, int) and pad not in others else None


def _ascending(windows: TokenWindows) -> TokenWindows:
    """Return the windows in the order of the text."""
    order = np.lexsort((windows.starts[:, 1], windows.starts[:, 0]))
    return replace(windows, ids=windows.ids[order], starts=windows.starts[order])
