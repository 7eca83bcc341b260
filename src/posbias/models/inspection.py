"""What was found in each layer of a checked model, for people."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn

from posbias.models.positions import PositionScheme
from posbias.models.preflight import SHORT, CheckedModel
from posbias.models.sites import LayerSites
from posbias.models.state import forward_logits
from posbias.models.trace import Trace, record

__all__ = ["LayerFacts", "describe_layers", "read_constants"]

Range = tuple[float, float]

_CONSTANTS = (
    *("attn_logit_softcapping", "query_pre_attn_scalar", "attention_multiplier", "attn_scale"),
    *("softmax_scale", "scale_attn_weights", "scale_attn_by_inverse_layer_idx", "clip_qkv"),
    *("embedding_multiplier", "residual_multiplier", "scale_emb", "scale_depth", "scale_embedding"),
    *("final_logit_softcapping", "logits_scaling", "logit_scale"),
)
"""Names under which configs keep scales, multipliers, and caps of logits."""


@dataclass(frozen=True)
class LayerFacts:
    """One layer of a model.

    Attributes
    ----------
    layer : int
        1 at the bottom.
    stream : str
        Module inside the block whose output is x; ``"block input"`` mostly.
    update : str
        Module inside the block whose output, times `multiplier`, is the attention update a.
    multiplier : float
        Constant factor of the update.
    norms : tuple of str
        ``"pre"``: attention reads a normalised x. ``"post"``: the update is normalised before it
        is added. ``"sum"``: the stream itself is normalised when the block ends.
    residual : str
        ``"sequential"`` or ``"parallel"`` (the MLP does not read x + a).
    heads, kv_heads : int
        Query heads and key-value heads.
    position : str
        ``"alibi"``, ``"rotary"``, ``"learned"`` or ``"none"``.
    slopes : (float, float) or None
        Smallest and largest effective ALiBi slope, logits per position.
    window : int or None
        Keys that a query sees, its own included; None for all earlier ones.
    sinks : (float, float) or None
        Smallest and largest logit of a softmax entry outside the sequence.
    """

    layer: int
    stream: str
    update: str
    multiplier: float
    norms: tuple[str, ...]
    residual: str
    heads: int
    kv_heads: int
    position: str
    slopes: Range | None
    window: int | None
    sinks: Range | None

    def as_dict(self) -> dict[str, Any]:
        """Return JSON-serialisable values by name."""
        return asdict(self)


def describe_layers(checked: CheckedModel, ids: Tensor) -> tuple[LayerFacts, ...]:
    """Describe every layer, bottom first.

    Parameters
    ----------
    checked : CheckedModel
        In measuring state.
    ids : Tensor of int64, shape (D, n)
        Windows; the first tokens of the first are used.

    Notes
    -----
    One pass over at most 24 positions, whose activations are kept.
    """
    model, sites = checked.model, checked.sites
    traces = record(
        [Trace(site.block) for site in sites.layers],
        lambda: forward_logits(model, ids[:1, :SHORT]),
    )
    return tuple(
        _facts(checked, layer, site, trace)
        for layer, (site, trace) in enumerate(zip(sites.layers, traces, strict=True))
    )


def read_constants(config: Any) -> dict[str, float | bool]:
    """Return the scales, multipliers and caps that a config names, in the order of a pass.

    Parameters
    ----------
    config
        Of the text model; parts of it (``attn_config`` of MPT) are looked into.

    Notes
    -----
    What is measured includes all of them: they are part of the model's own numbers.
    """
    parts = [config, getattr(config, "attn_config", None)]
    found: dict[str, float | bool] = {}
    for name in _CONSTANTS:
        for part in parts:
            value = getattr(part, name, None)
            if isinstance(value, int | float):
                found[name] = value
    return found


def _facts(checked: CheckedModel, layer: int, site: LayerSites, trace: Trace) -> LayerFacts:
    scheme = checked.scheme
    return LayerFacts(
        layer=layer + 1,
        stream=trace.name_of(site.stream) or "block input",
        update=trace.name_of(site.update),
        multiplier=site.multiplier,
        norms=_norms(site, trace),
        residual=checked.residual[layer],
        heads=checked.sizes.heads,
        kv_heads=checked.sizes.kv_heads,
        position=_position(scheme, layer),
        slopes=_range(scheme.slopes, layer),
        window=scheme.windows[layer],
        sinks=_range(scheme.sinks, layer),
    )


def _position(scheme: PositionScheme, layer: int) -> str:
    return "none" if layer in scheme.details.get("nope_layers", ()) else scheme.type


def _range(values: NDArray[np.float64] | None, layer: int) -> Range | None:
    return None if values is None else (float(values[layer].min()), float(values[layer].max()))


def _norms(site: LayerSites, trace: Trace) -> tuple[str, ...]:
    """Return where norms stand, from what the modules read and return."""
    norms = [
        event
        for event in trace.events
        if event.output is not None and _is_norm(trace.block.get_submodule(event.name))
    ]
    attention = next(event for event in trace.events if event.name == trace.attention)
    places = []
    if any(
        e.output.equal(read)
        for e in norms
        if e.output is not None and e.ended < attention.began
        for read in attention.reads
    ):
        places.append("pre")
    if _is_norm(site.update):
        places.append("post")
    if trace.returned is not None and any(
        e.output.equal(trace.returned) for e in norms if e.output is not None
    ):
        places.append("sum")
    return tuple(places)


def _is_norm(module: nn.Module) -> bool:
    return "norm" in type(module).__name__.lower()
