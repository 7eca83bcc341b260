"""The page that compares several measurements, positions taken relative to the length."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from posbias.binning import bin_edges, mean_shares, round_digits
from posbias.measurement import Measurement
from posbias.predict import VARIANTS
from posbias.profile import Profile
from posbias.report import facts
from posbias.report.findings import Findings, find
from posbias.report.page import Page
from posbias.report.sources import labels
from posbias.report.wording import UNKNOWN, bracket, headline, number, percent, times
from posbias.uncertainty import Interval

__all__ = ["relative_distance", "several_page"]

_BINS = 256

Row = dict[str, Any]


def several_page(measurements: Sequence[Measurement], names: Sequence[str], estimator: str) -> Page:
    """Return the page that compares measurements.

    Parameters
    ----------
    measurements : sequence of Measurement
        At least two, of any lengths and depths.
    names : sequence of str
        Their directories as the reader would name them.
    estimator : str
        Of all predictions, see `posbias.predict.predict`.
    """
    found = [find(measurement, estimator) for measurement in measurements]
    titles = labels(measurements, names)
    kinds = [
        kind
        for kind in ("measured", *VARIANTS)
        if kind != "uniform" and any(kind in f.profiles for f in found)
    ]
    names_w1 = [kind for kind in kinds if kind != "measured"]
    context = {
        "title": f"Position bias of {len(measurements)} measurements",
        "subtitle": "; ".join(titles),
        "names": list(names),
        "estimator": estimator,
        "kinds": kinds,
        "sentences": [_sentence(t, f) for t, f in zip(titles, found, strict=True)],
        "w1_names": names_w1,
        "methods": sorted(
            {
                facts.method_sentence(m.influence_methods[0])
                for m in measurements
                if m.influence_methods
            }
        ),
        "rows": [_row(*item, names_w1) for item in zip(titles, measurements, found, strict=True)],
        "pairs": _pairs(titles, found),
        "details": [
            {
                "label": title,
                "source": name,
                "subtitle": facts.subtitle(measurement),
                "fact_groups": facts.fact_groups(measurement),
                "preflight": facts.preflight_rows(measurement),
                "command": facts.command_line(measurement),
            }
            for title, name, measurement in zip(titles, names, measurements, strict=True)
        ],
        "alternatives": _alternatives(titles, found),
    }
    data = {
        "kind": "several",
        "kinds": kinds,
        "measurements": [
            _curves(title, measurement, f, kinds=kinds)
            for title, measurement, f in zip(titles, measurements, found, strict=True)
        ],
    }
    return Page("several.html", context, data)


def relative_distance(p: Profile, q: Profile) -> float:
    """Return W1 of two profiles of any lengths on positions j / (n - 1), in [0, 1].

    Examples
    --------
    >>> short, long = Profile([0.5, 0.5]), Profile([0.5, 0.0, 0.5])
    >>> relative_distance(short, long)
    0.0
    """
    from scipy.stats import wasserstein_distance

    return float(
        wasserstein_distance(np.linspace(0, 1, p.n), np.linspace(0, 1, q.n), p.mass, q.mass)
    )


def _sentence(title: str, found: Findings) -> dict[str, str]:
    subject = "it" if found.is_measured else "it, as predicted,"
    said = [_with_extent(*sentence) for sentence in headline(found.figures, subject)]
    return {"label": title, "text": " ".join(said)}


def _with_extent(text: str, extent: str) -> str:
    """Put an interval into the brackets at the end of a sentence, or into brackets of its own."""
    if not extent:
        return text
    return f"{text[:-2]}; {extent})." if text.endswith(").") else f"{text[:-1]} ({extent})."


def _row(title: str, measurement: Measurement, found: Findings, names_w1: Sequence[str]) -> Row:
    figures, distances = found.figures, found.distances
    ratios = (figures.start_ratio, figures.end_ratio)
    return {
        "name": title,
        "basis": f"measured; intervals: {found.basis}" if found.is_measured else "predicted",
        "n": f"{measurement.n:,}",
        "windows": f"{measurement.windows:,}",
        "layers": f"{measurement.layers:,}",
        "mixing": number(float(measurement.mixing().mean())),
        "zones": [
            (percent(zone.value), bracket(zone, percent))
            for zone in (figures.start, figures.middle, figures.end)
        ],
        "ratios": [
            (UNKNOWN, "") if r is None else (times(r.value), bracket(r, times)) for r in ratios
        ],
        "trough": percent(figures.trough / (measurement.n - 1)),
        "u_shaped": "yes" if figures.is_u_shaped else "no",
        "w1": [_distance(distances.get(name)) for name in names_w1],
    }


def _distance(w1: Interval | None) -> tuple[str, str]:
    return (UNKNOWN, "") if w1 is None else (number(w1.value), bracket(w1))


def _pairs(titles: Sequence[str], found: Sequence[Findings]) -> list[Row]:
    """Return W1 between every two leading profiles, one row per measurement."""
    leading = [next(iter(f.profiles.values())) for f in found]
    return [
        {"name": title, "cells": [number(relative_distance(p, q)) for q in leading]}
        for title, p in zip(titles, leading, strict=True)
    ]


def _curves(title: str, measurement: Measurement, found: Findings, *, kinds: list[str]) -> Row:
    edges = bin_edges(measurement.n, _BINS)
    return {
        "label": title,
        "n": measurement.n,
        "edges": edges.tolist(),
        "series": {
            kind: round_digits(mean_shares(found.profiles[kind].mass, edges, measurement.n))
            for kind in kinds
            if kind in found.profiles
        },
        "mixing": round_digits(measurement.mixing()),
    }


def _alternatives(titles: Sequence[str], found: Sequence[Findings]) -> dict[str, str]:
    parts = [
        f"{title}: {percent(f.figures.start.value)} on the first tenth, "
        f"{percent(f.figures.middle.value)} on the middle, {percent(f.figures.end.value)} on the "
        "last tenth"
        for title, f in zip(titles, found, strict=True)
    ]
    return {
        "profiles": "Lines of influence against relative position, one per measurement. "
        + "; ".join(parts)
        + ".",
        "mixing": "Lines of the mixing coefficient against relative depth, one per measurement.",
    }
