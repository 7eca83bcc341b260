"""Check a manifest against the schema, key by key."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any

from posbias.errors import ArtifactError
from posbias.measurement.schema import (
    FORMAT,
    MANIFEST,
    POSITION_SCHEMES,
    VERSION,
    Dimensions,
    KeySpec,
)

__all__ = ["check_manifest", "check_version", "plain_copy", "text_tokens", "value_at"]

_LIBRARIES = ("torch", "transformers", "numpy", "python")
_CHECK_KEYS = {"passed", "value", "tolerance"}
_GROUPS = {key.split(".")[0] for key in MANIFEST if "." in key}


def check_manifest(manifest: Mapping[str, Any]) -> Dimensions:
    """Check every key and the consistency between keys; return the dimensions.

    Raises
    ------
    ArtifactError
        Naming the first key that is missing, unknown, of a wrong type or inconsistent.
    """
    check_version(manifest)
    _check_names(manifest)
    for path, spec in MANIFEST.items():
        value = value_at(manifest, path)
        if value is _MISSING:
            continue
        if value is None and spec.nullable:
            continue
        _check_value(path, spec, value)
    model, windows = manifest["model"], manifest["windows"]
    _check_layer_windows(model["layer_windows"], model["layers"])
    _check_starts(windows)
    return Dimensions(
        windows=windows["count"],
        layers=model["layers"],
        heads=model["heads"],
        positions=windows["length"],
    )


def check_version(manifest: Mapping[str, Any]) -> None:
    """Refuse another format or another version, before anything else is looked at."""
    if manifest.get("format") != FORMAT:
        raise ArtifactError(
            f"manifest key format is {manifest.get('format')!r}, {FORMAT!r} is required; this is "
            "not a measurement of posbias"
        )
    version = manifest.get("version")
    if version != VERSION or isinstance(version, bool):
        raise ArtifactError(
            f"the measurement has format version {version!r}, this posbias reads version "
            f"{VERSION}; use the posbias that wrote it ({manifest.get('posbias_version')!r}) or "
            "measure again"
        )


def plain_copy(manifest: Mapping[str, Any]) -> dict[str, Any]:
    """Return the manifest as JSON would give it back: dicts, lists, strings, finite numbers.

    Raises
    ------
    ArtifactError
        If a value has no JSON form.
    """
    if not isinstance(manifest, Mapping):
        raise ArtifactError(f"a manifest is a JSON object, got {type(manifest).__name__}")
    try:
        copy: dict[str, Any] = json.loads(json.dumps(dict(manifest), allow_nan=False))
    except (TypeError, ValueError) as error:
        raise ArtifactError(
            f"the manifest cannot be written as JSON ({error}); use plain strings, finite "
            "numbers, lists and dicts"
        ) from error
    return copy


def value_at(manifest: Mapping[str, Any], path: str) -> Any:
    """Return the value at a dotted path, or a marker that is not JSON if it is missing."""
    value: Any = manifest
    for key in path.split("."):
        if not isinstance(value, Mapping) or key not in value:
            return _MISSING
        value = value[key]
    return value


def text_tokens(windows: Mapping[str, Any]) -> int:
    """Return how many tokens of the text one window takes: its length less the special tokens."""
    prefix = windows.get("prefix", int(windows["first_token_is_bos"]))
    return int(windows["length"]) - int(prefix)


class _Missing:
    """Stands for a key that is not there (None is a value)."""

    def __repr__(self) -> str:
        return "nothing"


_MISSING = _Missing()


def _check_names(manifest: Mapping[str, Any]) -> None:
    for group in _GROUPS:
        if not isinstance(manifest.get(group), Mapping):
            raise ArtifactError(f"manifest key {group} must be an object; measure again")
    present = set()
    for key, value in manifest.items():
        present |= {f"{key}.{inner}" for inner in value} if key in _GROUPS else {key}
    unknown = sorted(present - set(MANIFEST))
    if unknown:
        near = difflib.get_close_matches(unknown[0], MANIFEST, n=1)
        hint = f"; did you mean {near[0]}?" if near else "; free-form facts belong under run"
        raise ArtifactError(f"manifest key {unknown[0]} is not part of the schema{hint}")
    required = {path for path, spec in MANIFEST.items() if spec.required}
    missing = sorted(required - present)
    if missing:
        raise ArtifactError(
            f"manifest key {missing[0]} is missing: {MANIFEST[missing[0]].description}; the "
            "manifest was edited or written by another program, measure again"
        )


def _check_value(path: str, spec: KeySpec, value: Any) -> None:
    if not _KINDS[spec.kind](value):
        raise ArtifactError(
            f"manifest key {path} is {_short(value)}; required: {spec.description} "
            f"({spec.kind}{' or null' if spec.nullable else ''})"
        )


def _check_layer_windows(layer_windows: list[int | None], layers: int) -> None:
    if len(layer_windows) != layers:
        raise ArtifactError(
            f"model.layer_windows has {len(layer_windows)} entries, model.layers is {layers}; "
            "one per layer is required"
        )


def _check_starts(windows: Mapping[str, Any]) -> None:
    starts, count, length = windows["starts"], windows["count"], windows["length"]
    if length < 2:
        raise ArtifactError(f"windows.length is {length}; at least 2 tokens are required")
    if len(starts) != count:
        raise ArtifactError(
            f"windows.starts has {len(starts)} entries, windows.count is {count}; one per window "
            "is required"
        )
    taken = text_tokens(windows)
    for (document, offset), (next_document, next_offset) in pairwise(starts):
        if (next_document, next_offset) <= (document, offset):
            raise ArtifactError(
                f"windows.starts must ascend by document, then offset; {[document, offset]} is "
                f"followed by {[next_document, next_offset]}"
            )
        if next_document == document and next_offset < offset + taken:
            raise ArtifactError(
                f"windows at {[document, offset]} and {[next_document, next_offset]} overlap: "
                f"each takes {taken} tokens of the text; windows must be disjoint"
            )


def _is_integer(value: Any, low: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= low


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and bool(value)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _is_time(value: Any) -> bool:
    try:
        moment = datetime.fromisoformat(value)
    except (TypeError, ValueError):
        return False
    return moment.utcoffset() == timedelta(0)


def _is_scheme(value: Any) -> bool:
    return isinstance(value, Mapping) and value.get("type") in POSITION_SCHEMES


def _is_layer_windows(value: Any) -> bool:
    return isinstance(value, list) and all(w is None or _is_integer(w, 1) for w in value)


def _is_starts(value: Any) -> bool:
    return isinstance(value, list) and all(
        isinstance(s, list) and len(s) == 2 and all(_is_integer(x, 0) for x in s) for s in value
    )


def _is_versions(value: Any) -> bool:
    return (
        isinstance(value, Mapping)
        and all(name in value for name in _LIBRARIES)
        and all(_is_text(version) for version in value.values())
    )


def _is_preflight(value: Any) -> bool:
    return isinstance(value, Mapping) and all(
        isinstance(check, Mapping)
        and set(check) == _CHECK_KEYS
        and isinstance(check["passed"], bool)
        and all(check[key] is None or _is_number(check[key]) for key in ("value", "tolerance"))
        for check in value.values()
    )


_KINDS: Mapping[str, Callable[[Any], bool]] = {
    "text": _is_text,
    "texts": lambda value: isinstance(value, list) and all(isinstance(x, str) for x in value),
    "count": lambda value: _is_integer(value, 1),
    "integer": lambda value: _is_integer(value, 0),
    "flag": lambda value: isinstance(value, bool),
    "time": _is_time,
    "sha256": lambda value: isinstance(value, str) and bool(re.fullmatch("[0-9a-f]{64}", value)),
    "object": lambda value: isinstance(value, Mapping),
    "scheme": _is_scheme,
    "layer windows": _is_layer_windows,
    "starts": _is_starts,
    "versions": _is_versions,
    "preflight": _is_preflight,
}


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
