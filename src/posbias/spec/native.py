"""The package's own spec format (see docs/spec-format.md and schema.json)."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Mapping
from typing import Any

from posbias.errors import InputError, SpecError
from posbias.kernels import kernel_from_description
from posbias.spec._document import one_line, plain, shown
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
    if isinstance(version, bool) or version != FORMAT_VERSION:
        quoted = ", a number without quotes" if isinstance(version, str) else ""
        raise SpecError(
            f"{NATIVE_KEY} is {shown(version)}; this posbias reads {FORMAT_VERSION}{quoted}"
        )
    for key in ("length", "layers"):
        if key not in document:
            raise SpecError(f"the spec lacks the key {key!r}; length and layers are required")
    for key in ("length", "depth", "layers"):
        if key in document and document[key] is None:
            raise SpecError(f"{key} is empty; give it a value")
    for key in ("mask", "mixing"):
        if key in document and document[key] is None:
            raise SpecError(f"{key} is empty; give a mapping or leave the key out")
    layers = _layers(document["layers"], document.get("mask"))
    return Spec(
        name=document.get("name", "unnamed"),
        length=document["length"],
        depth=_depth(document, len(layers)),
        layers=layers,
        mixing=document.get("mixing"),
        provenance=document.get("provenance", {}),
    )


def refuse_unknown_keys(given: Mapping[Any, Any], known: Collection[str], place: str) -> None:
    """Raise `SpecError` for the first key that is not known, with the nearest known name."""
    for key in given:
        if key not in known:
            near = difflib.get_close_matches(str(key), list(known), n=1)
            hint = f", did you mean {near[0]!r}?" if near else ""
            raise SpecError(
                f"{place} has an unknown key {shown(key)}{hint}; valid are "
                f"{', '.join(sorted(known))}"
            )


def _layers(entries: Any, mask: Any) -> tuple[Mapping[str, Any], ...]:
    if not isinstance(entries, (list, tuple)) or not entries:
        raise SpecError(f"layers is {shown(entries)}; a list of at least one layer is required")
    if mask is not None:
        _check_mask(mask)
    layers = []
    for index, entry in enumerate(entries):
        place = f"layers[{index}]"
        if not isinstance(entry, Mapping):
            raise SpecError(f"{place} is {shown(entry)}; a mapping is required")
        refuse_unknown_keys(entry, _LAYER_KEYS, place)
        if "mask" in entry and entry["mask"] is None:
            raise SpecError(f"{place}.mask is empty; give a mapping or leave the key out")
        layers.append(dict(entry) if mask is None else {"mask": mask, **entry})
    return tuple(layers)


def _check_mask(mask: Any) -> None:
    """Raise `SpecError` for a mask that is wrong, also if every layer has its own."""
    try:
        kernel_from_description({"heads": [{}], "mask": plain(mask, "mask")}, 2)
    except SpecError:
        raise
    except InputError as error:
        raise SpecError(one_line(error)) from error


def _depth(document: Mapping[str, Any], layers: int) -> Any:
    """Return T as stated, or as the number of layers or of mixing coefficients."""
    if "depth" in document:
        return document["depth"]
    if layers > 1:
        return layers
    mixing = document.get("mixing")
    if isinstance(mixing, Mapping) and isinstance(mixing.get("values"), (list, tuple)):
        return len(mixing["values"])
    raise SpecError(
        "the spec lacks the key 'depth'; it is required where one layer description stands for "
        "all layers and the mixing is not a list of coefficients"
    )
