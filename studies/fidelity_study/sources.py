"""Models and texts of the study."""

from __future__ import annotations

import functools
import hashlib
import importlib.util
import platform
import sysconfig
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

from fidelity_study.grid import Model
from posbias.measure.text import EMBEDDED_TEXT, TextCollection, read_text
from posbias.models.loading import LoadedModel, load_model

__all__ = [
    "MODELS_FOLDER",
    "code_files",
    "code_text",
    "describe_texts",
    "load",
    "text_of",
    "why_missing",
]

MODELS_FOLDER = Path(__file__).resolve().parents[1] / "models"
"""Weights of the embedded models at earlier steps of their training."""

RANDOM_SEED = 20260217
"""Seed of the weights of the models that are not trained."""

CODE_FILES = 32
SMALLEST_CODE, LARGEST_CODE = 16 * 1024, 128 * 1024


def code_files() -> list[Path]:
    """Return the files of program code: source files of the running Python's standard library.

    The modules directly in its folder of 16 to 128 KiB, ordered by the SHA-256 of their file name,
    the first `CODE_FILES` of them.
    """
    folder = Path(sysconfig.get_paths()["stdlib"])
    fitting = [
        file for file in folder.glob("*.py") if SMALLEST_CODE <= file.stat().st_size <= LARGEST_CODE
    ]
    return sorted(fitting, key=lambda file: _sha256(file.name.encode()))[:CODE_FILES]


@functools.lru_cache(maxsize=1)
def code_text() -> TextCollection:
    """Return program code, a document per file of `code_files`."""
    documents = [file.read_text(encoding="utf-8") for file in code_files()]
    return TextCollection(documents, f"standard library of Python {platform.python_version()}")


def text_of(name: str) -> TextCollection:
    """Return the documents of a kind of text of the grid."""
    return read_text(EMBEDDED_TEXT) if name == "literature" else code_text()


def describe_texts() -> dict[str, Any]:
    """Return what the texts are, with the SHA-256 of every file, JSON-serialisable."""
    literature = text_of("literature")
    return {
        "literature": {"source": "embedded sample of posbias", "sha256": literature.sha256},
        "code": {
            "source": code_text().source,
            "sha256": code_text().sha256,
            "files": {file.name: _sha256(file.read_bytes()) for file in code_files()},
        },
    }


def why_missing(model: Model) -> str | None:
    """Return why a model of the grid cannot be loaded here, None if it can."""
    if model.kind == "snapshot" and not _weights(model).is_file():
        return "its weights are not in studies/models"
    if model.kind != "package":
        return None
    package = model.source.removeprefix("package:")
    for name in (package, "gguf", "accelerate"):
        if importlib.util.find_spec(name.replace("-", "_")) is None:
            return f"{name} is not installed"
    return None


def load(model: Model, cache: Path) -> Any:
    """Load a model of the study in float32.

    Parameters
    ----------
    model : Model
        The model.
    cache : Path
        Where a model that takes long to unpack is kept unpacked.

    Returns
    -------
    LoadedModel
        Under the name that it has in the study.
    """
    if model.kind == "package":
        loaded = load_model(_unpacked(model, cache))
    else:
        loaded = load_model(model.source)
    network: Any = loaded.model
    if model.kind == "random":
        network = _untrained(network.config)
    if model.kind == "snapshot":
        network = _with_weights(network, _weights(model))
    return LoadedModel(network, loaded.tokenizer, model.name, loaded.revision, "object")


def _weights(model: Model) -> Path:
    return MODELS_FOLDER / model.name / "model.safetensors"


def _untrained(config: Any) -> Any:
    torch.manual_seed(RANDOM_SEED)
    untyped: Any = AutoModelForCausalLM
    network: Any = untyped.from_config(config)
    return network.float().eval()


def _with_weights(network: Any, file: Path) -> Any:
    report = network.load_state_dict(load_file(file), strict=False)
    # The output matrix is the embedding itself and is not stored twice.
    lost = [name for name in report.missing_keys if name != "lm_head.weight"]
    if lost or report.unexpected_keys:
        raise ValueError(f"{file} does not fit: {lost or report.unexpected_keys}")
    return network


def _unpacked(model: Model, cache: Path) -> Path:
    target = cache / "unpacked" / model.name
    if not (target / "complete").exists():
        loaded = load_model(model.source)
        network: Any = loaded.model
        # The weights are plain numbers by now; transformers refuses to save them while it takes
        # them for quantised.
        network.hf_quantizer = None
        if hasattr(network.config, "quantization_config"):
            del network.config.quantization_config
        network.save_pretrained(target)
        loaded.tokenizer.save_pretrained(target)
        (target / "complete").write_text("")
    return target


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
