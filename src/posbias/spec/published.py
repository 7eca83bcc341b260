"""The rollout configs that the authors of the paper publish, read as they are.

Content is taken as their code takes it: ``diagonal_scores`` is the term d that is added at j = i,
``base_scores`` is added to every logit of a row and cancels in the softmax. Slopes, content and
head weights are lists of shape (1 or T, 1 or H) that stand for all layers or all heads where they
have one entry. ``save_dir`` is not used. A coefficient outside [0, 1], which their code clips, is
refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from posbias.errors import InputError, SpecError
from posbias.rollout import MixingSchedule
from posbias.spec._document import one_line, plain, shown
from posbias.spec.native import refuse_unknown_keys
from posbias.spec.spec import MAX_DEPTH, MAX_HEADS, MAX_LENGTH, Spec

__all__ = ["is_published", "parse_published"]

Table = NDArray[np.float64]

_SECTIONS = {
    "mask_config": ("mask_type", "window_size"),
    "attention_config": ("num_heads", "alibi_slopes", "head_weights", "softmax_temperature"),
    "content_config": ("diagonal_scores", "base_scores"),
    "lambda_schedule_config": (
        "schedule_type",
        "lambda_const",
        "lambda_0",
        "beta",
        "lambdas_custom",
    ),
}
_KEYS = ("sequence_length", "num_layers", *_SECTIONS, "save_dir")
_OPTIONAL = ("mask_config", "content_config", "save_dir")
_SCHEDULES = {
    "constant": ("constant", {"value": "lambda_const"}),
    "power_decay": ("power", {"lambda0": "lambda_0", "beta": "beta"}),
    "custom": ("custom", {"values": "lambdas_custom"}),
}


def is_published(document: Any) -> bool:
    """Whether a parsed document has the form of a published config."""
    return isinstance(document, Mapping) and "lambda_schedule_config" in document


def parse_published(document: Mapping[str, Any], name: str) -> Spec:
    """Return the spec of a published config.

    Raises
    ------
    SpecError
        If a key is unknown or missing, a list has the wrong shape, or a value is out of range; the
        message names the place.
    """
    sections = _sections(document)
    length = _count(document["sequence_length"], "sequence_length", 2, MAX_LENGTH)
    depth = _count(document["num_layers"], "num_layers", 1, MAX_DEPTH)
    return Spec(
        name=name,
        length=length,
        depth=depth,
        layers=tuple(_layers(sections, depth)),
        mixing=_mixing(sections["lambda_schedule_config"], depth),
        provenance={"format": "published rollout config"},
    )


def _sections(document: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """Return the four parts of a config after a check of all its keys."""
    refuse_unknown_keys(document, _KEYS, "the config")
    for key in _KEYS:
        if key not in document and key not in _OPTIONAL:
            raise SpecError(f"the config lacks the key {key!r}")
    sections = {}
    for place, keys in _SECTIONS.items():
        section = document.get(place, {})
        if not isinstance(section, Mapping):
            raise SpecError(f"{place} is {shown(section)}; a mapping is required")
        refuse_unknown_keys(section, keys, place)
        sections[place] = section
    return sections


def _layers(sections: Mapping[str, Mapping[str, Any]], depth: int) -> list[dict[str, Any]]:
    """Return the entry of the layer that all share, or of each layer."""
    attention, content = sections["attention_config"], sections["content_config"]
    heads = _count(attention.get("num_heads"), "attention_config.num_heads", 1, MAX_HEADS)

    def table(section: str, key: str, default: Any = None) -> Table:
        value = sections[section].get(key)
        value = default if value is None else value
        return _table(value, (depth, heads), f"{section}.{key}")

    slopes = table("attention_config", "alibi_slopes")
    weights = table("attention_config", "head_weights", [[1.0]])
    diagonal = table("content_config", "diagonal_scores", [[0.0]])
    if "base_scores" in content:
        table("content_config", "base_scores")
    for row, column in np.argwhere(weights < 0):
        raise SpecError(
            f"attention_config.head_weights[{row}][{column}] is {weights[row, column]:g}; "
            "non-negative weights are required"
        )
    if not weights.any(axis=1).all():
        raise SpecError("attention_config.head_weights are all 0 in a layer; one must be positive")
    mask = _mask(sections["mask_config"])
    shared = {"mask": mask, "temperature": _temperature(attention)}
    entry = _signed_layer if mask["type"] == "full" else _bank_layer
    return [
        {**entry(*(array[t % len(array)] for array in (slopes, diagonal, weights))), **shared}
        for t in range(max(len(slopes), len(diagonal), len(weights)))
    ]


def _bank_layer(slopes: Table, diagonal: Table, weights: Table) -> dict[str, Any]:
    bank: dict[str, Any] = {"slopes": slopes.tolist(), "diagonal": diagonal.tolist()}
    if np.ptp(weights) != 0.0:
        bank["weights"] = weights.tolist()
    return {"alibi": bank}


def _signed_layer(slopes: Table, diagonal: Table, weights: Table) -> dict[str, Any]:
    """Return a layer that sees later keys; the publisher's bias is -m (i - j) for them too."""
    rows = zip(slopes.tolist(), diagonal.tolist(), weights.tolist(), strict=True)
    heads = [
        {
            "weight": weight,
            "position": {"type": "alibi", "slope": slope, "future": "signed"},
            "diagonal": own,
        }
        for slope, own, weight in rows
    ]
    return {"heads": heads}


def _table(value: Any, shape: tuple[int, int], place: str) -> Table:
    """Return a list of lists as an array of shape (1 or T, H)."""
    depth, heads = shape
    try:
        array = np.array(plain(value, place))
    except SpecError:
        raise
    except ValueError as error:
        raise SpecError(f"{place} is not a rectangular list of lists of numbers") from error
    if array.ndim != 2 or array.shape[0] not in (1, depth) or array.shape[1] not in (1, heads):
        raise SpecError(
            f"{place} has shape {array.shape}; (1 or {depth} layers, 1 or {heads} heads) is "
            "required"
        )
    if array.dtype.kind not in "fiu":
        raise SpecError(f"{place} holds something that is no number")
    return np.broadcast_to(array.astype(np.float64), (array.shape[0], heads))


def _mask(section: Mapping[str, Any]) -> dict[str, Any]:
    kind = section.get("mask_type", "causal")
    if kind == "sliding_window":
        window = _count(section.get("window_size"), "mask_config.window_size", 1, MAX_LENGTH)
        return {"type": kind, "window": window}
    if kind not in ("causal", "full"):
        raise SpecError(
            f"mask_config.mask_type is {shown(kind)}; causal, full or sliding_window is required"
        )
    return {"type": kind}


def _temperature(attention: Mapping[str, Any]) -> float:
    value = attention.get("softmax_temperature", 1.0)
    place = "attention_config.softmax_temperature"
    value = plain(value, place)
    if not isinstance(value, (int, float)) or value <= 0:
        raise SpecError(f"{place} is {shown(value)}; a positive number is required")
    return float(value)


def _mixing(section: Mapping[str, Any], depth: int) -> dict[str, Any]:
    kind = section.get("schedule_type")
    if not isinstance(kind, str) or kind not in _SCHEDULES:
        raise SpecError(
            f"lambda_schedule_config.schedule_type is {shown(kind)}; one of "
            f"{', '.join(_SCHEDULES)} is required"
        )
    name, fields = _SCHEDULES[kind]
    for key in fields.values():
        if key not in section:
            raise SpecError(f"lambda_schedule_config lacks the key {key!r} of schedule {kind!r}")
    place = "lambda_schedule_config"
    mixing = {
        "type": name,
        **{ours: plain(section[theirs], f"{place}.{theirs}") for ours, theirs in fields.items()},
    }
    try:
        with np.errstate(all="ignore"):  # what overflows is out of range, and refused as such
            MixingSchedule.from_description(mixing, depth)
    except InputError as error:
        raise SpecError(one_line(f"{place} ({', '.join(fields.values())}): {error}")) from error
    return mixing


def _count(value: Any, place: str, least: int, most: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise SpecError(
            f"{place} is {shown(value)}; a whole number from {least} to {most} is required"
        )
    return value
