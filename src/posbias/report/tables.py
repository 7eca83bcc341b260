"""The rows of the tables of a page, as text."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from posbias.errors import InputError
from posbias.measurement import Measurement
from posbias.metrics import shape_figures
from posbias.profile import Profile, ProfileSet
from posbias.report.resampling import Interval
from posbias.report.verdicts import Verdicts
from posbias.report.wording import UNKNOWN, bracket, number, percent
from posbias.report.zones import ZoneFigures, Zones
from posbias.theory import Shift

__all__ = ["VARIANT_MEANINGS", "force_rows", "layer_rows", "tiles", "variant_rows"]

Row = dict[str, Any]

VARIANT_MEANINGS: Mapping[str, str] = {
    "measured": "what the model does",
    "attention-only": "mask and position bias, no residual path",
    "residual": "mask, position bias and the measured residual path",
    "residual+content": "the same plus the mean content term of each head",
    "residual+lag": "the same with the measured mean logit by lag, in place of the content term",
    "residual+measured": "measured attention and measured residual path",
    "fixed-half": "measured attention, half of it mixed in: classic attention rollout",
    "uniform": "every position alike",
}

_FLAT = 1e-9
"""Depth of the trough below which a profile has none."""

_FORCE_NAMES = {
    "depth": "mask and depth",
    "residual": "residual path",
    "position": "position encoding",
    "content": "content",
}


def variant_rows(
    profiles: ProfileSet,
    comparison: Mapping[str, Row],
    distances: Mapping[str, Interval],
    figures: ZoneFigures,
) -> list[Row]:
    """Return one row per profile.

    Parameters
    ----------
    profiles : ProfileSet
        The measured ones first, if there are any, then the predictions.
    comparison : mapping of str to dict
        Distances to the measured profile, empty without one.
    distances : mapping of str to Interval
        W1 of the predictions, with intervals.
    figures : ZoneFigures
        Of the first profile.
    """
    rows = []
    for k, (name, profile) in enumerate(profiles.items()):
        shape = shape_figures(profile)
        compared = comparison.get(name, {})
        w1 = compared.get("w1")
        spread = distances.get(name)
        zones = (figures.start, figures.middle, figures.end)
        if k > 0:
            zones = _zones(profile)
        rows.append(
            {
                "name": name,
                "meaning": VARIANT_MEANINGS.get(name, "what the model does, by another measure"),
                "w1": (_optional(w1), "" if spread is None else bracket(spread)),
                "spearman": _optional(compared.get("spearman")),
                "js": _optional(compared.get("js")),
                "tv": _optional(compared.get("tv")),
                "zones": [(percent(z.value), bracket(z, percent)) for z in zones],
                "trough": f"{shape.trough_position:,}" if shape.trough_depth > _FLAT else UNKNOWN,
                "mean": number(shape.mean_position, 4),
            }
        )
    return rows


def tiles(figures: ZoneFigures, n: int) -> list[Row]:
    """Return share and range of start, middle and end, with the share that would be fair."""
    zones = Zones(n)
    ends, inner = zones.size, n - 2 * zones.size
    named = [
        (f"First {ends:,} positions", figures.start, ends),
        (f"The {inner:,} between", figures.middle, inner),
        (f"Last {ends:,} positions", figures.end, ends),
    ]
    return [
        {
            "label": label,
            "value": percent(figure.value),
            "range": bracket(figure, percent),
            "fair": percent(size / n),
        }
        for label, figure, size in named
        if size > 0
    ]


def layer_rows(measurement: Measurement, found: Verdicts) -> list[Row]:
    """Return mixing, content and monotonicity of every layer, bottom first."""
    content = measurement.content()
    norm, std = measurement.mixing("norm"), measurement.mixing_std("norm")
    frobenius = measurement.mixing("frobenius")
    explained = _explained(measurement)
    rows = []
    for t, layer in enumerate(found.layers):
        window = measurement.layer_windows[t]
        d = content[t]
        rows.append(
            {
                "layer": t + 1,
                "mask": "causal" if window is None else f"window {window:,}",
                "norm": f"{number(norm[t])} ± {number(std[t], 2)}",
                "frobenius": number(frobenius[t]),
                "content": f"{number(d.mean())} ({number(d.min())} to {number(d.max())})",
                "explained": explained[t],
                "violations": percent(layer.measured.violation_rate),
                "measured": "yes" if layer.measured.holds else "no",
                "model": {True: "yes", False: "no", None: "undecided"}[layer.is_model_monotone],
            }
        )
    return rows


def force_rows(found: Verdicts, *, has_bias: bool) -> list[Row]:
    """Return what strengthening and removing each force does.

    Without a position bias apart from the query-key products, the model has no position term
    that could be changed by itself.
    """
    rows = []
    for effect in found.forces.effects:
        if effect.name == "position" and not has_bias:
            rows.append(_absent_force("position", "no position bias apart from content"))
            continue
        answer, _, reason = (effect.guarantee if effect.applies else effect.note).partition(": ")
        rows.append(
            {
                "name": _FORCE_NAMES[effect.name],
                "change": effect.note.replace("lambda", "λ") if effect.applies else "",
                "stronger": _shift(effect.strengthened),
                "removal": effect.removed_note.replace("lambda", "λ"),
                "removed": _shift(effect.removed),
                "guarantee": answer,
                "reason": reason,
            }
        )
    return rows


def _absent_force(name: str, reason: str) -> Row:
    return {
        "name": _FORCE_NAMES[name],
        "change": "",
        "stronger": (UNKNOWN, ""),
        "removal": "",
        "removed": (UNKNOWN, ""),
        "guarantee": "not applicable",
        "reason": reason,
    }


def _zones(profile: Profile) -> tuple[Interval, Interval, Interval]:
    start, middle, end = Zones(profile.n).shares(profile.mass)
    return Interval(float(start)), Interval(float(middle)), Interval(float(end))


def _optional(value: float | None) -> str:
    return UNKNOWN if value is None or math.isnan(value) else number(value)


def _explained(measurement: Measurement) -> list[str]:
    """Return the share of the variance of the logits that the content terms explain."""
    try:
        shares = measurement.content_fit().explained.mean(axis=1)
    except InputError:
        return [UNKNOWN] * measurement.layers
    return [percent(float(share)) for share in np.asarray(shares)]


def _shift(shift: Shift | None) -> tuple[str, str]:
    """Return the direction, and how far."""
    if shift is None:
        return UNKNOWN, ""
    direction = {"neither": "crossing"}.get(shift.direction, shift.direction)
    sign = "+" if shift.mean_change >= 0.0 else ""
    far = f"W1 {number(abs(shift.signed_w1))}, mean position {sign}{number(shift.mean_change)}"
    return direction, far
