"""How positions enter the attention logits of one model, as the model applies them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from posbias.errors import UnsupportedModelError
from posbias.models.architectures import Architecture
from posbias.models.sites import ModelSites
from posbias.models.state import parameter_value
from posbias.spec.slopes import alibi_slopes

__all__ = ["PositionScheme", "Sizes", "infer_scheme", "read_scheme", "read_sizes"]

Anchor = Literal["first", "last", "query"]
_FIT_TOLERANCE = 1e-4


@dataclass(frozen=True)
class Sizes:
    """Counts of one model: layers T, query heads H, key-value heads, width of a head."""

    layers: int
    heads: int
    kv_heads: int
    head_width: int


@dataclass(frozen=True, eq=False)
class PositionScheme:
    """Position bias, visibility and sinks of every layer.

    Attributes
    ----------
    type : str
        ``"alibi"``, ``"rotary"``, ``"learned"`` or ``"none"``.
    windows : tuple of (int or None), length T
        Keys that a query sees in a layer, its own included; None for all earlier ones.
    slopes : array, shape (T, H), or None
        Effective ALiBi slopes: the logits hold ``-slope * (i - j)`` up to a constant per row.
    anchor : {"first", "last", "query"}
        The position at which the bias of the model is zero: key 0, key n-1 or the query itself.
    rounding : torch.dtype or None
        Type to which the model rounds slope and bias; None for no rounding beyond float32.
    scale : float
        Factor that the model applies after rounding.
    dtype : torch.dtype
        Type of the model.
    sinks : array, shape (T, H), or None
        Logit of a softmax entry outside the sequence.
    details : mapping
        Further facts for the manifest, JSON-serialisable.
    """

    type: str
    windows: tuple[int | None, ...]
    dtype: torch.dtype
    slopes: NDArray[np.float64] | None = None
    anchor: Anchor = "first"
    rounding: torch.dtype | None = None
    scale: float = 1.0
    sinks: NDArray[np.float64] | None = None
    details: Mapping[str, Any] = field(default_factory=dict)

    def visible(self, layer: int, rows: range, *, keys: int, device: torch.device) -> Tensor:
        """Return which keys 0..keys-1 the rows see, bool, shape (r, keys)."""
        i = torch.arange(rows.start, rows.stop, device=device)[:, None]
        j = torch.arange(keys, device=device)[None, :]
        window = self.windows[layer]
        return j <= i if window is None else (j <= i) & (i - j < window)

    def bias(self, layer: int, rows: range, *, keys: int, length: int) -> Tensor | None:
        """Return the bias as applied, float64, shape (H, 1 or r, keys); None when it is zero."""
        if self.slopes is None:
            return None
        slopes = torch.from_numpy(self.slopes[layer] / self.scale)[:, None, None]
        j = torch.arange(keys, dtype=torch.float64)[None, None, :]
        if self.anchor == "query":
            j = j - torch.arange(rows.start, rows.stop, dtype=torch.float64)[None, :, None]
        elif self.anchor == "last":
            j = j - (length - 1)
        if self.rounding is None:
            return slopes * j * self.scale
        rounded = slopes.float().to(self.rounding) if self.rounding is torch.bfloat16 else slopes
        product = (rounded.float() * j.float()).to(self.rounding).to(self.dtype)
        return (product * self.scale).double()

    def describe(self) -> dict[str, Any]:
        """Return the scheme for the manifest."""
        facts: dict[str, Any] = {"type": self.type, **self.details}
        if self.slopes is not None:
            facts |= {"anchor": self.anchor, "slope_scale": self.scale}
            if self.rounding is not None:
                facts["bias_rounding"] = str(self.rounding).removeprefix("torch.")
        if self.sinks is not None:
            facts["sink_logits"] = self.sinks.tolist()
        return facts


def read_sizes(config: Any) -> Sizes:
    """Read the counts from the config of the text model."""
    heads = _first(config, "num_attention_heads", "n_head", "n_heads", "num_heads")
    layers = _first(config, "num_hidden_layers", "n_layer", "n_layers", "num_layers")
    width = _first(config, "hidden_size", "n_embd", "d_model")
    if heads is None or layers is None or width is None:
        raise UnsupportedModelError(
            f"the config of this {config.model_type} model does not name layers, heads and width; "
            "a decoder-only transformer is required"
        )
    kv = _first(config, "num_key_value_heads", "num_kv_heads") or heads
    if config.model_type == "falcon" and not config.new_decoder_architecture:
        kv = 1 if config.multi_query else heads
    head_width = getattr(config, "head_dim", None) or width // heads
    return Sizes(int(layers), int(heads), int(kv), int(head_width))


def read_scheme(sites: ModelSites, config: Any, sizes: Sizes) -> PositionScheme | None:
    """Read the scheme of an architecture in the table; None for one that is not in it."""
    row = sites.row
    if row is None:
        return None
    windows = layer_windows(config, sizes.layers)
    sinks = _sinks(sites, row.sinks)
    details = _details(config, row.position)
    if row.position != "alibi":
        return PositionScheme(row.position, windows, sites.dtype, sinks=sinks, details=details)
    scale = 1.0 / math.sqrt(sizes.head_width) if row.slope_scale == "head" else 1.0
    slopes = np.tile(np.asarray(alibi_slopes(sizes.heads)) * scale, (sizes.layers, 1))
    return PositionScheme(
        "alibi",
        windows,
        sites.dtype,
        slopes=slopes,
        anchor="last" if row.name == "MPT" else "first",
        rounding=_rounding(row, sites.dtype),
        scale=scale,
        sinks=sinks,
        details=details,
    )


def infer_scheme(
    logits: Sequence[Tensor],
    sites: ModelSites,
    *,
    config: Any,
    sizes: Sizes,
    has_position_table: bool,
) -> PositionScheme:
    """Infer the scheme of an unknown architecture from logits with zeroed queries.

    Parameters
    ----------
    logits : sequence of T tensors, shape (H, m, m)
        Logits of a short window whose queries are zero: position bias only.
    sites : ModelSites
        Found by search.
    config, sizes
        Of the text model.
    has_position_table : bool
        Whether the model has an embedding of positions.

    Raises
    ------
    UnsupportedModelError
        If the bias is neither zero nor linear in the lag.
    """
    windows = layer_windows(config, sizes.layers)
    steps = [_slope(bias) for bias in logits]
    if all(float(step.abs().max()) == 0.0 for step in steps):
        is_rotary = _first(config, "rope_parameters", "rope_theta", "rotary_dim", "rotary_pct")
        kind = "rotary" if is_rotary else "learned" if has_position_table else "none"
        return PositionScheme(kind, windows, sites.dtype, details=_details(config, kind))
    slopes = torch.stack(steps).double()
    m = logits[0].shape[-1]
    for anchor in ("first", "last", "query"):
        scheme = PositionScheme(
            "alibi", windows, sites.dtype, slopes=slopes.cpu().numpy(), anchor=anchor
        )
        if all(_fits(scheme, layer, bias, m) for layer, bias in enumerate(logits)):
            return scheme
    raise UnsupportedModelError(
        "the attention logits of this model hold a position bias that is neither zero nor linear "
        "in the lag (ALiBi); a learned or bucketed bias cannot be separated from content yet"
    )


def layer_windows(config: Any, layers: int) -> tuple[int | None, ...]:
    """Return the sliding window of each layer from the config, None where there is none."""
    if getattr(config, "attention_layers", None):
        local = int(getattr(config, "window_size", 0) or 0)
        return tuple(local if kind == "local" else None for kind in config.attention_layers)
    window = getattr(config, "sliding_window", None)
    if window is None or getattr(config, "use_sliding_window", True) is False:
        return (None,) * layers
    kinds = getattr(config, "layer_types", None)
    if not kinds:
        return (int(window),) * layers
    return tuple(int(window) if kind == "sliding_attention" else None for kind in kinds)


def _slope(bias: Tensor) -> Tensor:
    """Return the step from the last key but one to the last, in the last row, shape (H,)."""
    m = bias.shape[-1]
    return (bias[:, m - 1, m - 1] - bias[:, m - 1, m - 2]).double()


def _fits(scheme: PositionScheme, layer: int, bias: Tensor, m: int) -> bool:
    rows = range(m)
    expected = scheme.bias(layer, rows, keys=m, length=m)
    visible = scheme.visible(layer, rows, keys=m, device=bias.device)
    if expected is None:
        return False
    error = (bias.double() - expected.to(bias.device)).masked_fill(~visible, 0.0).abs().max()
    return float(error) <= _FIT_TOLERANCE * max(1.0, float(expected.abs().max()))


def _rounding(row: Architecture, dtype: torch.dtype) -> torch.dtype | None:
    if row.bias_rounding == "bfloat16":
        return torch.bfloat16
    if row.bias_rounding == "model" and dtype in (torch.float16, torch.bfloat16):
        return dtype
    return None


def _sinks(sites: ModelSites, attribute: str) -> NDArray[np.float64] | None:
    if not attribute:
        return None
    values = [parameter_value(site.attention, attribute).double().cpu() for site in sites.layers]
    return np.asarray(torch.stack(values).numpy(), dtype=np.float64)


def _details(config: Any, position: str) -> dict[str, Any]:
    """Return rotary facts for the manifest: base and the layers without any encoding."""
    if position != "rotary":
        return {}
    facts: dict[str, Any] = {}
    parameters = getattr(config, "rope_parameters", None)
    if isinstance(parameters, Mapping):
        facts["rope"] = {str(k): _plain(v) for k, v in parameters.items()}
    marks = getattr(config, "no_rope_layers", None)
    if marks is None and config.model_type == "cohere2":
        marks = [int(kind == "sliding_attention") for kind in config.layer_types]
    if marks:
        facts["nope_layers"] = [layer for layer, has_rope in enumerate(marks) if not has_rope]
    return facts


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(v) for v in value]
    return value if isinstance(value, str | int | float | bool | None) else str(value)


def _first(config: Any, *names: str) -> Any:
    return next((v for v in (getattr(config, name, None) for name in names) if v), None)
