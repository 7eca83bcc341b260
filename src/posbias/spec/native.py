"""The package's own spec format (see docs/spec-format.md and schema.json)."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Mapping
from typing import Any

from posbias.errors import SpecError
from posbias.spec.spec import FORMAT_VERSION, Spec

__all__ = ["NATIVE_KEY", "parse_spec", "refuse_unknown_keys"]

NATIVE_KEY = "posbias_spec"

_KEYS = (NATIVE_KEY, "name", "length", "depth", "mask", "layers", "mixing", "provenance")
_LAYER_KEYS = ("heads", "alibi", "mask", "temperature")


def parse_spec(document: Any) -> Spec:
    """Return the spec of a parsed document, the inverse of `Spec.as_dict`.

    Raises
    ------
    SpecError
        If a key is unknown (the nearest valid name is suggested), missing, or has a value out of
        range; the message names the place.
    """
    if not isinstance(document, Mapping):
        raise SpecError(f"a spec is a mapping of keys, got {type(document).__name__}")
    refuse_unknown_keys(document, _KEYS, "the spec")
    version = document.get(NATIVE_KEY)
    if version != FORMAT_VERSION or isinstance(version, bool):
        raise SpecError(f"{NATIVE_KEY} is {version!r}; this posbias reads {FORMAT_VERSION}")
    for key in ("length", "layers"):
        if key not in document:
            raise SpecError(f"the spec lacks the key {key!r}; length and layers are required")
    layers = _layers(document["layers"], document.get("mask"))
    return Spec(
        name=_text(document.get("name", "unnamed"), "name"),
        length=document["length"],
        depth=_depth(document, len(layers)),
        layers=layers,
        mixing=document.get("mixing"),
        provenance=_provenance(document.get("provenance", {})),
    )


def refuse_unknown_keys(given: Mapping[str, Any], known: Collection[str], place: str) -> None:
    """Raise `SpecError` for the first key that is not known, with the nearest known name."""
    for key in given:
        if key not in known:
            near = difflib.get_close_matches(str(key), list(known), n=1)
            hint = f", did you mean {near[0]!r}?" if near else ""
            raise SpecError(
                f"{place} has an unknown key {key!r}{hint}; valid are {', '.join(sorted(known))}"
            )


def _layers(entries: Any, mask: Any) -> tuple[Mapping[str, Any], ...]:
    if not isinstance(entries, list) or not entries:
        raise SpecError(f"layers is {entries!r}; a list of at least one layer is required")
    layers = []
    for index, entry in enumerate(entries):
        if not isinstance(entry, Mapping):
            raise SpecError(f"layers[{index}] is {entry!r}; a mapping is required")
        refuse_unknown_keys(entry, _LAYER_KEYS, f"layers[{index}]")
        layers.append(dict(entry) if mask is None else {"mask": mask, **entry})
    return tuple(layers)


def _depth(document: Mapping[str, Any], layers: int) -> int:
    """Return T as stated, or as the number of layers or of mixing coefficients."""
    if "depth" in document:
        return document["depth"]  # type: ignore[no-any-return]
    if layers > 1:
        return layers
    mixing = document.get("mixing")
    if isinstance(mixing, Mapping) and isinstance(mixing.get("values"), list):
        return len(mixing["values"])
    raise SpecError(
        "the spec lacks the key 'depth'; it is required where one layer description stands for "
        "all layers and the mixing is not a list of coefficients"
    )


def _text(value: Any, what: str) -> str:
    if not isinstance(value, str):
        raise SpecError(f"{what} is {value!r}; text is required")
    return value


def _provenance(value: Any) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise SpecError(f"provenance is {value!r}; a mapping is required")
    return value
