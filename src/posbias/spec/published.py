"""The rollout configs that the authors of the paper publish, read as they are.

Content is taken as their code takes it: ``diagonal_scores`` is the term d that is added at j = i,
``base_scores`` is added to every logit of a row and cancels in the softmax. Slopes and content are
lists of shape (1 or T, 1 or H) that stand for all layers or all heads where they have one entry.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from posbias.errors import SpecError
from posbias.spec.native import refuse_unknown_keys
from posbias.spec.spec import Spec

__all__ = ["is_published", "parse_published"]

_KEYS = {
    "": (
        "sequence_length",
        "num_layers",
        "mask_config",
        "attention_config",
        "content_config",
        "lambda_schedule_config",
        "save_dir",
    ),
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
        If a key is unknown or missing, a list has the wrong shape, or a value is out of range.
    """
    sections = _sections(document)
    attention = sections["attention_config"]
    depth = _count(document["num_layers"], "num_layers")
    heads = _count(attention.get("num_heads"), "attention_config.num_heads")
    content = sections["content_config"]
    slopes = _table(attention.get("alibi_slopes"), depth, heads, "attention_config.alibi_slopes")
    diagonal = _table(
        content.get("diagonal_scores", [[0.0]]), depth, heads, "content_config.diagonal_scores"
    )
    _table(content.get("base_scores", [[0.0]]), depth, heads, "content_config.base_scores")
    shared = {
        "mask": _mask(sections["mask_config"]),
        "temperature": attention.get("softmax_temperature", 1.0),
    }
    layers = [
        _layer(slopes[t % len(slopes)], diagonal[t % len(diagonal)], attention, shared)
        for t in range(max(len(slopes), len(diagonal)))
    ]
    return Spec(
        name=name,
        length=document["sequence_length"],
        depth=depth,
        layers=tuple(layers),
        mixing=_mixing(sections["lambda_schedule_config"]),
        provenance={"format": "published rollout config", "file": name},
    )


def _count(value: Any, what: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise SpecError(f"{what} is {value!r}; a whole number of at least 1 is required")
    return value


def _sections(document: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    refuse_unknown_keys(document, _KEYS[""], "the config")
    for key in _KEYS[""][:-1]:
        if key not in document and key != "content_config":
            raise SpecError(f"the config lacks the key {key!r}")
    sections = {}
    for place in list(_KEYS)[1:]:
        section = document.get(place, {})
        if not isinstance(section, Mapping):
            raise SpecError(f"{place} is {section!r}; a mapping is required")
        refuse_unknown_keys(section, _KEYS[place], place)
        sections[place] = section
    return sections


def _layer(
    slopes: NDArray[np.float64],
    diagonal: NDArray[np.float64],
    attention: Mapping[str, Any],
    shared: Mapping[str, Any],
) -> dict[str, Any]:
    weights = attention.get("head_weights")
    if shared["mask"]["type"] == "full":
        # The publisher's bias is -m (i - j) for later keys too.
        plain = [1.0] * len(slopes) if weights is None else weights
        heads = [
            {
                "weight": weight,
                "position": {"type": "alibi", "slope": slope, "future": "signed"},
                "diagonal": own,
            }
            for slope, own, weight in zip(slopes.tolist(), diagonal.tolist(), plain, strict=True)
        ]
        return {"heads": heads, **shared}
    bank: dict[str, Any] = {"slopes": slopes.tolist(), "diagonal": diagonal.tolist()}
    if weights is not None:
        bank["weights"] = weights
    return {"alibi": bank, **shared}


def _table(value: Any, depth: int, heads: int, place: str) -> NDArray[np.float64]:
    """Return a list of lists as an array of shape (1 or T, H)."""
    try:
        array = np.array(value, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise SpecError(f"{place} is not a rectangular list of lists of numbers") from error
    if array.ndim != 2 or array.shape[0] not in (1, depth) or array.shape[1] not in (1, heads):
        raise SpecError(
            f"{place} has shape {array.shape}; (1 or {depth} layers, 1 or {heads} heads) is "
            "required"
        )
    if not np.isfinite(array).all():
        raise SpecError(f"{place} holds a number that is not finite")
    return np.broadcast_to(array, (array.shape[0], heads))


def _mask(section: Mapping[str, Any]) -> dict[str, Any]:
    kind = section.get("mask_type", "causal")
    if kind == "sliding_window":
        return {"type": kind, "window": section.get("window_size")}
    if kind not in ("causal", "full"):
        raise SpecError(
            f"mask_config.mask_type is {kind!r}; causal, full or sliding_window is required"
        )
    return {"type": kind}


def _mixing(section: Mapping[str, Any]) -> dict[str, Any]:
    kind = section.get("schedule_type")
    if kind not in _SCHEDULES:
        raise SpecError(
            f"lambda_schedule_config.schedule_type is {kind!r}; one of {', '.join(_SCHEDULES)} is "
            "required"
        )
    name, fields = _SCHEDULES[kind]
    for key in fields.values():
        if key not in section:
            raise SpecError(f"lambda_schedule_config lacks the key {key!r} of schedule {kind!r}")
    return {"type": name, **{ours: section[theirs] for ours, theirs in fields.items()}}
