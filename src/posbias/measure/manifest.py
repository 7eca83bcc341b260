"""The manifest of a measurement: what was measured, on what, and how."""

from __future__ import annotations

import platform
import sys
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import numpy as np
import torch
import transformers

from posbias.measure.options import MeasureOptions
from posbias.measure.windows import TokenWindows
from posbias.measurement.schema import FORMAT, VERSION
from posbias.models.architectures import text_config
from posbias.models.preflight import CheckedModel
from posbias.models.state import attention_implementation
from posbias.version import __version__

__all__ = ["Origin", "build_manifest"]


@dataclass(frozen=True)
class Origin:
    """Names of what went in.

    Attributes
    ----------
    model_id, revision : str
        The model as it was named, and its commit if it has one.
    tokenizer_id : str
        The tokenizer.
    adds_bos : bool
        Whether it begins sequences with a start token.
    text_source, text_sha256 : str
        The text and its hash.
    """

    model_id: str
    revision: str | None
    tokenizer_id: str
    adds_bos: bool
    text_source: str
    text_sha256: str


def build_manifest(
    checked: CheckedModel,
    windows: TokenWindows,
    *,
    origin: Origin,
    options: MeasureOptions,
    run: dict[str, Any],
    command: list[str] | None,
) -> dict[str, Any]:
    """Return the manifest with every key of `posbias.measurement.schema.MANIFEST`."""
    return {
        "format": FORMAT,
        "version": VERSION,
        "posbias_version": __version__,
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "model": _model(checked, origin),
        "tokenizer": {"id": origin.tokenizer_id, "adds_bos": origin.adds_bos},
        "text": {
            "source": origin.text_source,
            "sha256": origin.text_sha256,
            "documents": windows.counts.documents,
            "tokens": windows.counts.tokens,
        },
        "windows": {
            "length": windows.length,
            "count": windows.count,
            "seed": options.seed,
            "starts": windows.starts.tolist(),
            "first_token_is_bos": windows.first_token_is_bos,
            "prefix": windows.prefix,
            "packed": windows.packed,
        },
        "libraries": {
            "torch": torch.__version__,
            "transformers": transformers.__version__,
            "numpy": np.__version__,
            "python": platform.python_version(),
        },
        "command": command,
        "preflight": {name: dict(check) for name, check in checked.checks.items()},
        "influence_method": options.influence[0] if options.influence else None,
        "run": {**run, "platform": sys.platform},
    }


def _model(checked: CheckedModel, origin: Origin) -> dict[str, Any]:
    model, sizes = checked.model, checked.sizes
    return {
        "id": origin.model_id,
        "architecture": str(text_config(model.config).model_type),
        "revision": origin.revision,
        "layers": sizes.layers,
        "heads": sizes.heads,
        "kv_heads": sizes.kv_heads,
        "position_scheme": checked.scheme.describe(),
        "layer_windows": list(checked.scheme.windows),
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        "dtype": str(checked.sites.dtype).removeprefix("torch."),
        "attention_implementation": attention_implementation(model),
    }
