"""Spec files: which format a file has, reading and writing."""

from __future__ import annotations

import hashlib
import json
from copy import deepcopy
from functools import lru_cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from posbias.atomic import atomic_write_text
from posbias.errors import SpecError, shown
from posbias.spec._document import one_line
from posbias.spec._yaml import dump_yaml, parse_yaml
from posbias.spec.huggingface import is_config, parse_config
from posbias.spec.native import NATIVE_KEY, parse_spec
from posbias.spec.published import is_published, parse_published
from posbias.spec.spec import Spec

__all__ = ["load_spec", "save_spec", "spec_schema"]


def load_spec(path: str | Path) -> Spec:
    """Read a spec from a YAML or JSON file.

    Three forms are told apart by their keys: the package's own (``posbias_spec``), the rollout
    configs published with the paper (``lambda_schedule_config``), and the ``config.json`` of a
    Hugging Face model (``model_type``). Files named ``*.json`` are read as JSON, others as YAML.

    Raises
    ------
    SpecError
        If the file cannot be read or is none of these; the message names file and place.
    """
    file = Path(path)
    try:
        data = file.read_bytes()
        text = data.decode("utf-8-sig")
    except OSError as error:
        reason = error.strerror or error
        raise SpecError(
            f"cannot read the spec {shown(file)}: {reason}; give the path of a file"
        ) from error
    except ValueError as error:
        raise SpecError(f"cannot read the spec {str(file)!r}: it is no UTF-8 text") from error
    document = _parse(text, file)
    try:
        spec = _dispatch(document, _label(file))
    except SpecError as error:
        raise SpecError(one_line(f"{file}: {error}")) from error
    digest = hashlib.sha256(data).hexdigest()
    return spec.with_provenance({**spec.provenance, "file": file.name, "sha256": digest})


def save_spec(spec: Spec, path: str | Path, *, overwrite: bool = False) -> None:
    """Write a spec in the package's own form, as JSON if the name ends so, else as YAML.

    Reading the file gives an equal spec, to the last bit of every number; only the provenance is
    that of the new file. ``"-"`` is standard output.

    Raises
    ------
    OutputExistsError
        If the file exists and `overwrite` is false.
    """
    document = spec.as_dict()
    is_json = Path(path).suffix.lower() == ".json"
    text = json.dumps(document, indent=1) + "\n" if is_json else dump_yaml(document)
    atomic_write_text(path, text, overwrite=overwrite)


def spec_schema() -> dict[str, Any]:
    """Return the JSON Schema (draft 2020-12) of the package's own form, a new dict."""
    return deepcopy(_schema())


@lru_cache(maxsize=1)
def _schema() -> dict[str, Any]:
    text = files("posbias.spec").joinpath("schema.json").read_text(encoding="utf-8")
    schema: dict[str, Any] = json.loads(text)
    return schema


def _label(file: Path) -> str:
    """Return the file's stem, or its folder's name for a ``config.json``, as valid text."""
    name = file.stem if file.stem != "config" else file.resolve().parent.name
    return name.encode("utf-8", "replace").decode("utf-8")


def _parse(text: str, file: Path) -> Any:
    if file.suffix.lower() != ".json":
        return parse_yaml(text, str(file))
    try:
        return json.loads(text, object_pairs_hook=_refuse_repeated)
    except ValueError as error:
        raise SpecError(f"{file} is not valid JSON: {one_line(error)}") from error
    except RecursionError as error:
        raise SpecError(f"{file} is nested too deeply") from error


def _refuse_repeated(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    mapping = dict(pairs)
    if len(mapping) != len(pairs):
        names = [name for name, _ in pairs]
        repeated = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"key {repeated!r} is repeated")
    return mapping


def _dispatch(document: Any, name: str) -> Spec:
    if isinstance(document, dict) and NATIVE_KEY in document:
        return parse_spec(document)
    if is_published(document):
        return parse_published(document, name)
    if is_config(document):
        return parse_config(document, name)
    raise SpecError(
        f"this is no spec: a mapping with the key {NATIVE_KEY!r} (the package's own form), "
        "'lambda_schedule_config' (published configs) or 'model_type' (config.json) is required"
    )
