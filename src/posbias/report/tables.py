"""The rows of the tables of a page, as text."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np

from posbias.compare import Comparison
from posbias.comparison import ALIKE, RECOMMENDED
from posbias.errors import InputError
from posbias.measurement import Measurement
from posbias.metrics import FLAT, shape_figures
from posbias.profile import Profile
from posbias.report.findings import Findings
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
    "paper+mlp": "the paper's estimate with the update of the MLP as part of a token's own share",
    "paper": "measured attention and residual path as the paper estimates them",
    "fixed-half": "measured attention, half of it mixed in: classic attention rollout",
    "uniform": "every position alike",
}

_FORCE_NAMES = {
    "depth": "mask and depth",
    "residual": "residual path",
    "position": "position encoding",
    "content": "content",
}


def variant_rows(found: Findings) -> list[Row]:
    """Return one row per profile, the leading one first.

    Figures are pairs of a number and its range. ``mark`` is ``*`` for the recommended prediction
    and ``~`` for one that is not distinguished from the closest.
    """
    figures, comparison, alike = found.figures, found.comparison, found.alike
    rows = []
    for k, (name, profile) in enumerate(found.profiles.items()):
        known = _figures(name, profile, comparison)
        zones = (figures.start, figures.middle, figures.end)
        if k > 0:
            zones = _zones(name, profile, comparison)
        has_trough = known["trough_depth"].value > FLAT
        notes = [VARIANT_MEANINGS.get(name, "what the model does, by another measure")]
        notes += ["not distinguished from the closest"] if name in alike else []
        notes += ["recommended"] if name == found.recommended else []
        rows.append(
            {
                "name": name,
                "mark": (RECOMMENDED if name == found.recommended else "")
                + (ALIKE if name in alike else ""),
                "meaning": "; ".join(notes),
                **{key: _shown(known.get(key)) for key in DISTANCES},
                "zones": [(percent(z.value), bracket(z, percent)) for z in zones],
                "trough": _shown(known["trough_position"], 4) if has_trough else (UNKNOWN, ""),
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


def force_rows(found: Verdicts, *, has_bias: bool, scheme: str) -> list[Row]:
    """Return what strengthening and removing each force does.

    Without a position bias apart from the query-key products, the model has no position term
    that could be changed by itself.

    Parameters
    ----------
    found : Verdicts
        Of the theory.
    has_bias : bool
        Whether the model adds a position bias to its logits.
    scheme : str
        Its position scheme, as the manifest names it.
    """
    absent = (
        "rotary positions act inside content; not separable"
        if scheme == "rotary"
        else "no position bias apart from content"
    )
    rows = []
    for effect in found.forces.effects:
        if effect.name == "position" and not has_bias:
            rows.append(_absent_force("position", absent))
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
