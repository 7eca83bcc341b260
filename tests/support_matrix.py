"""Every tiny model under every attention implementation: what is found, or why it is refused."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from tiny_models import CONFIGS, KINDS, tiny, token_ids

from posbias.errors import UnsupportedModelError
from posbias.models.inspection import LayerFacts, describe_layers
from posbias.models.positions import PositionScheme
from posbias.models.preflight import check_model
from posbias.models.state import measuring

IMPLEMENTATIONS = ("eager", "sdpa")
LENGTH = 30


@dataclass(frozen=True, eq=False)
class Outcome:
    """What became of one model under one attention implementation.

    `status` is "measured", "refused" (with `reason`), or "absent": transformers does not offer
    the implementation for this model.
    """

    kind: str
    implementation: str
    status: str
    reason: str = ""
    checks: Mapping[str, Mapping[str, Any]] | None = None
    layers: tuple[LayerFacts, ...] = ()
    scheme: PositionScheme | None = None


@cache
def examine(kind: str, implementation: str) -> Outcome:
    """Load, check and describe one model; each only once per process."""
    try:
        model = tiny(kind, attn=implementation)
    except ValueError as error:
        return Outcome(kind, implementation, "absent", str(error))
    ids = token_ids(2, LENGTH)
    try:
        with measuring(model):
            checked = check_model(model, ids)
            layers = describe_layers(checked, ids)
    except UnsupportedModelError as error:
        return Outcome(kind, implementation, "refused", str(error))
    return Outcome(
        kind,
        implementation,
        "measured",
        checks=checked.checks,
        layers=layers,
        scheme=checked.scheme,
    )


def outcomes(kind: str) -> dict[str, Outcome]:
    """Return the outcome of a model under each implementation."""
    return {name: examine(kind, name) for name in IMPLEMENTATIONS}


def model_type(kind: str) -> str:
    """Return ``config.model_type`` of a model of the matrix."""
    return CONFIGS[kind][0]


def measured_pairs() -> list[tuple[str, str]]:
    """Return model and implementation wherever transformers offers it and posbias measures."""
    return [(kind, name) for kind in KINDS for name in IMPLEMENTATIONS if _may_run(kind, name)]


def _may_run(kind: str, name: str) -> bool:
    """Known without building the model, so that tests are named when they are collected."""
    if name == "eager":
        return kind != "falcon-alibi"
    return kind not in ("bloom", "bloom-post", "mpt", "gpt_neo", "gpt_oss", "gemma2")
