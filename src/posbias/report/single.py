"""The page of one measurement."""

from __future__ import annotations

from typing import Any

import numpy as np

from posbias.kernels import Kernel
from posbias.measurement import Measurement
from posbias.plan import plan_predictions
from posbias.report import facts, tables
from posbias.report.answers import sentences
from posbias.report.findings import Findings, find
from posbias.report.heatmaps import kernel_figures
from posbias.report.page import Page
from posbias.report.series import depth_series, mixing_series, profile_panels
from posbias.report.verdicts import Verdicts, verdicts
from posbias.report.wording import number, percent

__all__ = ["single_page"]

THROUGH_DEPTH = (
    *("attention-only", "residual+content", "residual+lag"),
    *("residual+measured", "energy-rollout"),
)
"""Predictions that are followed through the layers."""


def single_page(measurement: Measurement, source: str, estimator: str) -> Page:
    """Return the page of one measurement.

    Parameters
    ----------
    measurement : Measurement
        With or without measured influence.
    source : str
        Its directory as the reader would name it.
    estimator : str
        Of all predictions, see `posbias.predict.predict`.
    """
    found = find(measurement, estimator)
    attention = measurement.kernels("attention")
    theory = verdicts(measurement, attention, estimator)
    model = measurement.manifest["model"]["id"]
    scheme = measurement.manifest["model"]["position_scheme"]["type"]
    context = {
        "title": f"Position bias of {model}",
        "subtitle": facts.subtitle(measurement),
        "source": source,
        "estimator": estimator,
        "n": measurement.n,
        "windows": measurement.windows,
        "layers": measurement.layers,
        "is_measured": found.is_measured,
        "methods": [facts.method_sentence(method) for method in measurement.influence_methods],
        "sentences": sentences(measurement, found),
        "tiles": tables.tiles(found.figures, measurement.n),
        "variants": tables.variant_rows(found),
        "basis": found.basis,
        "layer_rows": tables.layer_rows(measurement, theory),
        "forces": tables.force_rows(
            theory, has_bias=measurement.slopes() is not None, scheme=scheme
        ),
        "theory": _theory_sentences(measurement, theory),
        "theory_length": theory.length,
        "theory_w1": number(found.distances["residual+content"].value) if found.distances else "",
        "fact_groups": facts.fact_groups(measurement),
        "preflight": facts.preflight_rows(measurement),
        "command": facts.command_line(measurement),
        "alternatives": _alternatives(measurement, found),
    }
    return Page("single.html", context, _data(measurement, found, attention, estimator=estimator))


def _data(
    measurement: Measurement, found: Findings, attention: list[Kernel], *, estimator: str
) -> dict[str, Any]:
    position = measurement.kernels("position")
    content = measurement.kernels("position+content")
    plan = plan_predictions(measurement, estimator=estimator)
    followed = [name for name in THROUGH_DEPTH if name in found.profiles]
    kinds = {"measured": attention, "position+content": content, "position": position}
    if "residual+lag" in found.profiles:
        kinds["lag"] = measurement.kernels("lag")
    return {
        "kind": "single",
        "profiles": profile_panels(found.profiles, found.resampled),
        "mixing": mixing_series(measurement),
        "kernels": kernel_figures(kinds),
        "depth": depth_series({name: plan.rollout(name) for name in followed}),
    }


def _theory_sentences(measurement: Measurement, theory: Verdicts) -> list[dict[str, str]]:
    """Return the verdicts on layers and depth, each with a short title."""
    finite, infinite = theory.finite, theory.infinite
    count = theory.monotone_layers
    worst = max(layer.measured.violation_rate for layer in theory.layers)
    modelled = sum(layer.is_model_monotone is True for layer in theory.layers)
    reached = (
        f"not within {finite.depth_limit:,} layers"
        if finite.depth_for_share is None
        else f"after {finite.depth_for_share:,} layers"
    )
    return [
        {
            "title": "Monotone layers",
            "text": f"The measured attention of {count} of {measurement.layers} layers is "
            "stochastically monotone (later queries look later); the largest share of violated "
            f"comparisons in a layer is {percent(worst)}. The structured kernel (mask, position "
            f"bias, content) is monotone by its analytic criterion in {modelled} layers. Above "
            "monotone layers every further layer moves influence towards the start (T1).",
        },
        {
            "title": "Depth so far",
            "text": f"After {finite.depth} layers, mask, position bias, content and residual path "
            f"leave {percent(1.0 - finite.bounds.exact)} of the influence on token 0; "
            f"{percent(finite.bounds.diagonal)} never left the last position (T5). Bounds alone "
            "place the share away from token 0 between "
            f"{percent(finite.bounds.lower)} and {percent(finite.bounds.upper)}.",
        },
        {
            "title": "More depth",
            "text": f"If layers went on with the mean mixing of the top quarter, "
            f"{number(finite.tail_mixing)}, {percent(finite.share)} of the influence would be on "
            f"token 0 {reached}.",
        },
        {
            "title": f"Infinite depth: {infinite.outcome}",
            "text": f"Layers repeated for ever with that mixing: {infinite.summary()}.",
        },
    ]


def _alternatives(measurement: Measurement, found: Findings) -> dict[str, str]:
    """Return what each figure shows, in words, for readers who cannot see it."""
    mixing = measurement.mixing()
    low, high = int(np.argmin(mixing)), int(np.argmax(mixing))
    figures = found.figures
    leading = next(iter(found.profiles))
    return {
        "profiles": f"Lines of influence against position, one per profile. The {leading} profile "
        f"has {percent(figures.start.value)} on the first tenth, {percent(figures.middle.value)} "
        f"on the middle and {percent(figures.end.value)} on the last tenth of the positions, and "
        f"is lowest near position {figures.trough:,}.",
        "mixing": f"Mixing coefficient per layer: from {number(mixing[low])} in layer {low + 1} "
        f"to {number(mixing[high])} in layer {high + 1}, mean {number(float(mixing.mean()))}.",
        "kernels": "Two heat maps of attention from queries (rows) to keys (columns), measured "
        "and modelled, for the layer that the slider chooses, and the chosen row as lines.",
        "depth": "Lines of influence against position after the number of layers that the slider "
        "chooses, one per prediction.",
    }
