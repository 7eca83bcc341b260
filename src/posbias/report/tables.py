"""The rows of the tables of a page, as text."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np

from posbias.compare import Comparison
from posbias.errors import InputError
from posbias.measurement import Measurement
from posbias.metrics import shape_figures
from posbias.profile import Profile, ProfileSet
from posbias.report.verdicts import Verdicts
from posbias.report.wording import UNKNOWN, bracket, number, percent
from posbias.report.zones import ZoneFigures, Zones
from posbias.theory import Shift
from posbias.uncertainty import DISTANCES, Interval, interval, mixing_intervals

__all__ = ["VARIANT_MEANINGS", "force_rows", "layer_rows", "tiles", "variant_rows"]

Row = dict[str, Any]

VARIANT_MEANINGS: Mapping[str, str] = {
    "measured": "what the model does",
    "attention-only": "mask and position bias, no residual path",
    "residual": "mask, position bias and the measured residual path",
    "residual+content": "the same plus the mean content term of each head",
    "residual+lag": "the same with the measured mean logit by lag, in place of the content term",
    "residual+measured": "measured attention and measured residual path",
    "energy-rollout": "measured values and attention, layers adding energies, sinks as identity",
    "paper": "measured attention and residual path as the paper estimates them",
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
    profiles: ProfileSet, comparison: Comparison | None, figures: ZoneFigures
) -> list[Row]:
    """Return one row per profile; figures are pairs of a number and its range.

    Parameters
    ----------
    profiles : ProfileSet
        The measured one first, if there is any, then the predictions.
    comparison : Comparison or None
        Distances to the measured profile.
    figures : ZoneFigures
        Of the first profile.
    """
    rows = []
    for k, (name, profile) in enumerate(profiles.items()):
        known = _figures(name, profile, comparison)
        zones = (figures.start, figures.middle, figures.end)
        if k > 0:
            zones = _zones(name, profile, comparison)
        flat = known["trough_depth"].value <= _FLAT
        rows.append(
            {
                "name": name,
                "meaning": _meaning(name, comparison),
                **{key: _shown(known.get(key)) for key in DISTANCES},
                "zones": [(percent(z.value), bracket(z, percent)) for z in zones],
                "trough": (UNKNOWN, "") if flat else _shown(known["trough_position"], 4),
                "mean": _shown(known["mean_position"], 4),
            }
        )
    return rows


def _figures(name: str, profile: Profile, comparison: Comparison | None) -> dict[str, Interval]:
    """Return the figures of a profile by name, distances only where there is a comparison."""
    if comparison is not None and name in comparison.intervals:
        known = dict(comparison.intervals[name])
    else:
        known = {
            key: Interval(float(value)) for key, value in shape_figures(profile).as_dict().items()
        }
        if comparison is not None and name != comparison.measured.variant:
            row = comparison[name]
            known |= {key: Interval(getattr(row, key)) for key in DISTANCES}
    if comparison is not None and name == comparison.measured.variant:
        known = {key: value for key, value in known.items() if key not in DISTANCES}
    return known


def _meaning(name: str, comparison: Comparison | None) -> str:
    meaning = VARIANT_MEANINGS.get(name, "what the model does, by another measure")
    pairs = () if comparison is None else comparison.against_best
    if any(p.first == name and p.verdict == "not distinguished" for p in pairs):
        meaning = f"{meaning}; not distinguished from the closest"
    if comparison is not None and comparison.recommended == name:
        meaning = f"{meaning}; recommended"
    return meaning


def _shown(figure: Interval | None, digits: int = 3) -> tuple[str, str]:
    """Return a number and its range; an undefined number is a dash."""
    if figure is None or math.isnan(figure.value):
        return UNKNOWN, ""
    is_open = figure.low != figure.high
    show = partial(number, digits=digits)
    return show(figure.value), bracket(figure, show) if is_open else ""


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
    norm, frobenius = (
        mixing_intervals(measurement, "norm"),
        mixing_intervals(measurement, "frobenius"),
    )
    explained = _explained(measurement)
    rows = []
    for t, layer in enumerate(found.layers):
        window = measurement.layer_windows[t]
        d = content[t]
        rows.append(
            {
                "layer": t + 1,
                "mask": "causal" if window is None else f"window {window:,}",
                "norm": _shown(norm[t]),
                "frobenius": _shown(frobenius[t]),
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


def _zones(
    name: str, profile: Profile, comparison: Comparison | None
) -> tuple[Interval, Interval, Interval]:
    """Return the shares of start, middle and end, with intervals where the profile moves."""
    start, middle, end = (float(share) for share in Zones(profile.n).shares(profile.mass))
    uncertainty = None if comparison is None else comparison.uncertainty
    if uncertainty is None or not uncertainty.predictions[name].moves:
        return Interval(start), Interval(middle), Interval(end)
    drawn = uncertainty.predictions[name].figures
    first, last = drawn["primacy"], drawn["recency"]
    return interval(start, first), interval(middle, 1.0 - first - last), interval(end, last)


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
