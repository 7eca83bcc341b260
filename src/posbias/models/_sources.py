"""What a model is named by: a hub id, a folder, a GGUF file, a package, the embedded models."""

from __future__ import annotations

import importlib
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from posbias.errors import ModelError, shown

__all__ = ["DEFAULT_MODEL", "ModelSource", "embedded_models", "resolve_source"]

DEFAULT_MODEL = "embedded:bloom"
"""The model that is measured unless another is named."""

_EMBEDDED_PREFIX = "embedded:"
_PACKAGE_PREFIX = "package:"
_EMBEDDED = Path(__file__).resolve().parents[1] / "data" / "models"
_HUB_ID = re.compile(r"[A-Za-z0-9_][\w.\-]*(/[A-Za-z0-9_][\w.\-]*)?")


@dataclass(frozen=True)
class ModelSource:
    """A model that has been found, or that only the hub can tell about.

    Parameters
    ----------
    id : str
        The model as it was named.
    kind : str
        ``"hub"``, ``"directory"``, ``"gguf"`` or ``"embedded"``.
    location : str
        Hub id or local folder, as transformers takes it.
    gguf_file : str or None
        The file in it, for GGUF.
    """

    id: str
    kind: str
    location: str
    gguf_file: str | None = None


def embedded_models() -> list[str]:
    """Return the names of the models that are shipped with posbias."""
    return sorted(config.parent.name for config in _EMBEDDED.glob("*/config.json"))


def resolve_source(model: str | os.PathLike[str], *, gguf_file: str | None = None) -> ModelSource:
    """Find out what a model name means, without the network.

    Raises
    ------
    ModelError
        If an embedded model, package, file or folder does not exist or holds no model, or the
        name cannot be a hub id.
    """
    name = os.fspath(model)
    if not name:
        raise ModelError(f"the name of the model is empty; give a folder, a hub id or {_known()}")
    if name.startswith(_EMBEDDED_PREFIX):
        return _embedded(name, gguf_file)
    if name.startswith(_PACKAGE_PREFIX):
        return _gguf(name, _package_file(name, gguf_file))
    path = Path(os.path.expanduser(name))
    # Unlike those of `Path`, these are false for what is too long to be a name.
    if os.path.isdir(path):
        return _directory(name, path, gguf_file)
    if os.path.exists(path):
        return _file(name, path, gguf_file)
    if isinstance(model, os.PathLike) or _looks_like_path(name):
        raise ModelError(
            f"no model at {shown(name)}: no such file or folder. Give a folder with config.json "
            f"and weights, a .gguf file, a hub id, or an embedded model: {_known()}"
        )
    if not _HUB_ID.fullmatch(name):
        raise ModelError(
            f"'{shown(name)}' names no model: no such file or folder, and a hub id is NAME or "
            f"OWNER/NAME of letters, digits, '-', '_' and '.'. Embedded models: {_known()}"
        )
    return ModelSource(name, "hub", name, gguf_file)


def _known() -> str:
    return ", ".join(_EMBEDDED_PREFIX + name for name in embedded_models()) or "none"


def _embedded(name: str, gguf_file: str | None) -> ModelSource:
    model = name.removeprefix(_EMBEDDED_PREFIX)
    if model not in embedded_models():
        raise ModelError(f"there is no model {name}; available: {_known()}")
    if gguf_file is not None:
        raise ModelError(f"gguf_file {gguf_file!r} was given for {name}, which is not GGUF")
    return ModelSource(name, "embedded", str(_EMBEDDED / model))


def _directory(name: str, path: Path, gguf_file: str | None) -> ModelSource:
    if gguf_file is not None:
        if not (path / gguf_file).is_file():
            raise ModelError(f"the folder {name} holds no file {gguf_file}")
        return _gguf(name, path / gguf_file)
    if (path / "config.json").is_file():
        return ModelSource(name, "directory", str(path))
    found = sorted(path.glob("*.gguf"))
    if len(found) == 1:
        return _gguf(name, found[0])
    if found:
        names = ", ".join(file.name for file in found)
        raise ModelError(f"the folder {name} holds several GGUF files ({names}); name one of them")
    raise ModelError(
        f"the folder {name} holds no model: neither config.json nor a .gguf file is in it"
    )


def _file(name: str, path: Path, gguf_file: str | None) -> ModelSource:
    if path.suffix.lower() != ".gguf":
        raise ModelError(
            f"{name} is a file that is not GGUF; give the folder with config.json, weights and "
            "tokenizer, or a .gguf file"
        )
    if gguf_file is not None:
        raise ModelError(f"gguf_file {gguf_file!r} was given, but {name} is a file already")
    return _gguf(name, path)


def _gguf(name: str, path: Path) -> ModelSource:
    try:
        with path.open("rb") as file:
            magic = file.read(4)
    except OSError as error:
        raise ModelError(f"cannot read {path}: {error.strerror or error}") from error
    if magic != b"GGUF":
        raise ModelError(
            f"{name} is not a GGUF file: {path.name} begins with {magic!r} instead of b'GGUF'. It "
            "may be a failed download"
        )
    return ModelSource(name, "gguf", str(path.parent), path.name)


def _package_file(name: str, gguf_file: str | None) -> Path:
    """Return the GGUF file that an installed Python package holds or puts together."""
    distribution = name.removeprefix(_PACKAGE_PREFIX)
    module_name = distribution.replace("-", "_")
    if not module_name.isidentifier():
        raise ModelError(f"{name} names no Python package; write {_PACKAGE_PREFIX}NAME")
    try:
        package: Any = importlib.import_module(module_name)
    except ImportError as error:
        raise ModelError(
            f"the package of {name} cannot be imported ({error}). "
            f"Install it: pip install {distribution.replace('_', '-')}"
        ) from error
    if gguf_file is None and callable(getattr(package, "assemble", None)):
        # Files above the size limit of the package index come in parts.
        try:
            return Path(package.assemble())
        except (OSError, ValueError) as error:
            raise ModelError(f"the package of {name} cannot give its file: {error}") from error
    folders = [Path(folder) for folder in getattr(package, "__path__", [])]
    found = sorted(file for folder in folders for file in folder.rglob(gguf_file or "*.gguf"))
    if len(found) != 1:
        raise ModelError(
            f"the package of {name} holds {len(found)} files {gguf_file or '*.gguf'}; exactly one "
            "is required. Give the path of the file instead"
        )
    return found[0]


def _looks_like_path(name: str) -> bool:
    return (
        name.startswith((".", "~", "/"))
        or "\\" in name
        or name.count("/") > 1
        or name.lower().endswith((".gguf", ".safetensors", ".json", ".bin", "/"))
    )
