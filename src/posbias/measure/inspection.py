"""Look at a model without measuring it: what was found per layer, and every check."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from posbias.errors import InstrumentationError, UnsupportedModelError
from posbias.measure.options import MeasureOptions
from posbias.measure.runner import measure
from posbias.measure.text import TextCollection, read_text
from posbias.measure.windows import automatic_prefix, check_vocabulary, make_windows
from posbias.measurement import ContentFit, Measurement
from posbias.models.architectures import text_config
from posbias.models.checks import Preflight
from posbias.models.inspection import LayerFacts, describe_layers, read_constants
from posbias.models.loading import LoadedModel, load_model, maximum_length
from posbias.models.preflight import CheckedModel, check_model
from posbias.models.sites import input_embedding
from posbias.models.state import attention_implementation, input_device, measuring, model_errors
from posbias.sinks import Sinks

__all__ = ["ContentReport", "Inspection", "inspect_model"]

Documents = str | os.PathLike[str] | TextCollection | Sequence[str]

DEFAULT_TEXT = "embedded"
"""Text of the checks when none is given."""


@dataclass(frozen=True, eq=False)
class ContentReport:
    """How well *constant + diagonal term* describes the content logits on a text.

    Attributes
    ----------
    source : str
        The text.
    windows, length : int
        D and n.
    d : array, shape (T, H)
        The content term, in logits.
    fit : ContentFit
        Spreads, separation and share of variance explained, each of shape (T, H).
    """

    source: str
    windows: int
    length: int
    d: NDArray[np.float64]
    fit: ContentFit

    def as_dict(self) -> dict[str, Any]:
        """Return nested lists, layers of heads, by name; infinite separation is null."""
        fit = self.fit
        return {
            "text": self.source,
            "windows": self.windows,
            "length": self.length,
            "d": _plain(self.d),
            "diagonal_std": _plain(fit.diagonal_std),
            "lower_std": _plain(fit.lower_std),
            "separation": _plain(fit.separation),
            "explained": _plain(fit.explained),
        }


@dataclass(frozen=True, eq=False)
class Inspection:
    """What was found in a model.

    Attributes
    ----------
    model : mapping
        Facts about the whole model.
    tokenizer : mapping
        The special tokens with which the tokenizer begins every sequence.
    layers : tuple of LayerFacts
        Empty when the model was refused before they were known.
    checks : mapping
        Passed, value and tolerance of each check that ran, in order.
    length : int
        Positions of the windows that were looked at.
    content : ContentReport or None
        Only with a text.
    sinks : Sinks or None
        Keys that act as attention sinks; only with a text.
    error : UnsupportedModelError, InstrumentationError or None
        Why the model was refused.
    """

    model: Mapping[str, Any]
    tokenizer: Mapping[str, Any]
    layers: tuple[LayerFacts, ...]
    checks: Mapping[str, Mapping[str, Any]]
    length: int
    content: ContentReport | None = None
    sinks: Sinks | None = None
    error: UnsupportedModelError | InstrumentationError | None = None

    @property
    def unreached_windows(self) -> tuple[int, ...]:
        """Sliding windows whose edge lies beyond the tokens that were looked at."""
        found = {f.window for f in self.layers if f.window is not None and f.window >= self.length}
        return tuple(sorted(found))

    def as_dict(self) -> dict[str, Any]:
        """Return everything as JSON-serialisable values."""
        return {
            "model": dict(self.model),
            "tokenizer": dict(self.tokenizer),
            "layers": [facts.as_dict() for facts in self.layers],
            "checks": {name: dict(check) for name, check in self.checks.items()},
            "length": self.length,
            "unreached_windows": list(self.unreached_windows),
            "content": None if self.content is None else self.content.as_dict(),
            "sinks": None if self.sinks is None else self.sinks.as_dict(),
            "error": None if self.error is None else str(self.error),
        }


def inspect_model(
    model: Any, text: Documents | None = None, *, options: MeasureOptions | None = None
) -> Inspection:
    """Locate and check the parts of a model; with a text, look at content and sinks on it.

    Parameters
    ----------
    model : str, path, (model, tokenizer) or LoadedModel
        As in `posbias.measure`; a tokenizer is required.
    text : str, path, TextCollection or sequence of str, optional
        As in `posbias.measure`. Without one the checks run on the embedded text.
    options : MeasureOptions, optional
        `length`, `windows` (with a text), `seed`, `pack` and what concerns loading are used.

    Returns
    -------
    Inspection
        Also of a model that fails a check or cannot be measured: its `error` says why.

    Raises
    ------
    InputError, ModelError, TextError
        If the input does not fit.
    UnsupportedModelError
        If the configuration alone tells that the model is no causal language model.

    Notes
    -----
    About eight short passes and one over n positions; with a text, one pass per window more.
    """
    chosen = replace(options or MeasureOptions(windows=8), influence="none")
    loaded = load_model(
        model,
        dtype=chosen.dtype if not isinstance(model, str) else chosen.dtype or "float32",
        device=chosen.device,
        revision=chosen.revision,
        gguf_file=chosen.gguf_file,
        attn_implementation=chosen.attn_implementation,
        trust_remote_code=chosen.trust_remote_code,
    )
    documents = _documents(DEFAULT_TEXT if text is None else text)
    ids = _windows(loaded, documents, chosen)
    preflight = Preflight()
    checked: CheckedModel | None = None
    error: UnsupportedModelError | InstrumentationError | None = None
    layers: tuple[LayerFacts, ...] = ()
    with measuring(loaded.model):
        try:
            checked = check_model(loaded.model, ids, checks=preflight)
            with model_errors(loaded.model):
                layers = describe_layers(checked, ids)
        except (UnsupportedModelError, InstrumentationError) as refusal:
            error = refusal
    content = sinks = None
    if text is not None and error is None:
        measurement = measure(loaded, documents, options=replace(chosen, dtype=None))
        content, sinks = _content(measurement, documents.source), measurement.sinks()
    return Inspection(
        _model_facts(loaded, checked),
        _tokenizer_facts(loaded),
        layers,
        preflight.results,
        chosen.length,
        content=content,
        sinks=sinks,
        error=error,
    )


def _documents(text: Documents) -> TextCollection:
    if isinstance(text, str | os.PathLike):
        return read_text(text)
    return text if isinstance(text, TextCollection) else TextCollection(text)


def _windows(loaded: LoadedModel, text: TextCollection, options: MeasureOptions) -> torch.Tensor:
    """Return the two windows on which the checks run."""
    windows = make_windows(
        loaded.tokenizer,
        text,
        length=options.length,
        count=2,
        seed=options.seed,
        pack=options.pack,
    )
    check_vocabulary(windows, int(getattr(input_embedding(loaded.model), "num_embeddings", 2**62)))
    return torch.from_numpy(windows.ids.copy()).to(input_device(loaded.model))


def _content(measurement: Measurement, source: str) -> ContentReport:
    return ContentReport(
        source,
        measurement.windows,
        measurement.n,
        measurement.content(),
        measurement.content_fit(),
    )


def _model_facts(loaded: LoadedModel, checked: CheckedModel | None) -> dict[str, Any]:
    network: Any = loaded.model
    facts = {
        "id": loaded.id,
        "revision": loaded.revision,
        "architecture": str(text_config(network.config).model_type),
        "class": type(network).__name__,
        "parameters": sum(parameter.numel() for parameter in network.parameters()),
        "dtype": str(network.dtype).removeprefix("torch."),
        "attention_implementation": attention_implementation(network),
        "maximum_length": maximum_length(network),
        "located_by": None,
        "position_scheme": None,
        "constants": read_constants(text_config(network.config)),
    }
    if checked is not None:
        facts["located_by"] = "table" if checked.sites.row is not None else "search"
        facts["position_scheme"] = checked.scheme.describe()
    return facts


def _tokenizer_facts(loaded: LoadedModel) -> dict[str, Any]:
    tokenizer: Any = loaded.tokenizer
    prefix = automatic_prefix(tokenizer)
    return {
        "id": str(getattr(tokenizer, "name_or_path", "") or loaded.id),
        "prefix": [str(token) for token in tokenizer.convert_ids_to_tokens(prefix)],
        "adds_bos": bool(prefix),
        "has_chat_template": bool(getattr(tokenizer, "chat_template", None)),
    }


def _plain(values: NDArray[np.float64]) -> list[list[float | None]]:
    return [[x if math.isfinite(x) else None for x in row] for row in values.tolist()]
