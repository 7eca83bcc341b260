"""The page of one measurement."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from posbias.compare import Comparison, compare
from posbias.kernels import Kernel
from posbias.measurement import Measurement
from posbias.plan import plan_predictions
from posbias.predict import VARIANTS, predict
from posbias.profile import ProfileSet
from posbias.recommend import recommend
from posbias.report import facts, tables
from posbias.report.heatmaps import kernel_figures
from posbias.report.page import Page
from posbias.report.series import depth_series, mixing_series, profile_panels
from posbias.report.verdicts import Verdicts, verdicts
from posbias.report.wording import (
    bracket,
    headline,
    number,
    percent,
    shape_sentence,
    trough_sentence,
)
from posbias.report.zones import ZoneFigures, zone_figures
from posbias.uncertainty import W1_TARGET, Interval, draw, sampling_units

__all__ = ["Findings", "find", "single_page"]

Array = NDArray[np.float64]

WITHOUT_INFLUENCE = "residual+measured"
"""The prediction that stands for the model where no influence was measured and none recommended."""

THROUGH_DEPTH = (
    *("attention-only", "residual+content", "residual+lag"),
    *("residual+measured", "energy-rollout"),
)
"""Predictions that are followed through the layers."""


@dataclass(frozen=True, eq=False)
class Findings:
    """What profiles and their comparison say about one measurement.

    Parameters
    ----------
    profiles : ProfileSet
        The leading profile first: ``measured``, or a prediction where influence is missing. Then
        influence by further methods, then the predictions.
    figures : ZoneFigures
        Of the leading profile.
    comparison : Comparison or None
        Distances to the measured profile; None without measured influence.
    resampled : ndarray, shape (B, n), or None
        The measured profile of each resample, None where there are none.
    """

    profiles: ProfileSet
    figures: ZoneFigures
    comparison: Comparison | None = None
    resampled: Array | None = None

    @property
    def is_measured(self) -> bool:
        """Whether influence was measured."""
        return self.comparison is not None

    @property
    def distances(self) -> dict[str, Interval]:
        """W1 of the predictions by name, empty without measured influence."""
        if self.comparison is None:
            return {}
        known = self.comparison.intervals
        return {
            row.variant: known[row.variant]["w1"] if known else Interval(row.w1)
            for row in self.comparison.rows
            if row.variant in VARIANTS
        }

    @property
    def basis(self) -> str:
        """What the intervals rest on."""
        return "none" if self.comparison is None else self.comparison.basis


def find(measurement: Measurement, estimator: str) -> Findings:
    """Predict all variants of a measurement and compare them with what it measured."""
    predicted = predict(measurement, estimator=estimator)
    if not measurement.influence_methods:
        leading = _recommended(predicted) or WITHOUT_INFLUENCE
        names = sorted(predicted, key=lambda name: name != leading)
        profiles = ProfileSet({name: predicted[name] for name in names})
        return Findings(profiles, zone_figures(profiles[names[0]].mass))
    measured = measurement.influence()
    others = {
        f"measured by {method}": measurement.influence(method)
        for method in measurement.influence_methods[1:]
    }
    draws = draw(sampling_units(measurement))
    resampled = None if draws is None else draws.profiles(measurement.influence_windows())
    return Findings(
        profiles=ProfileSet({"measured": measured, **others, **predicted}),
        figures=zone_figures(measured.mass, resampled),
        comparison=compare(measurement, {**others, **predicted}),
        resampled=resampled,
    )


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
        "sentences": _sentences(measurement, found),
        "tiles": tables.tiles(found.figures, measurement.n),
        "variants": tables.variant_rows(found.profiles, found.comparison, found.figures),
        "basis": found.basis,
        "layer_rows": tables.layer_rows(measurement, theory),
        "forces": tables.force_rows(theory, has_bias=measurement.slopes() is not None),
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


def _sentences(measurement: Measurement, found: Findings) -> dict[str, Any]:
    """Return the headline, and what goes below it."""
    subject = "this model" if found.is_measured else "this model, as predicted,"
    lead = headline(found.figures, subject)
    more = [trough_sentence(found.figures, measurement.n), shape_sentence(found.figures)]
    if measurement.manifest["windows"]["first_token_is_bos"]:
        mass = next(iter(found.profiles.values())).mass[0]
        more.append(
            f"Position 0 holds the start token, no word of the text; it has {percent(float(mass))} "
            "of the influence, counted with the first 10 %."
        )
    more += _advice(measurement, found)
    more += _explanations(found, has_bias=measurement.slopes() is not None)
    if not found.is_measured:
        more.append(
            "Influence was not measured; these figures describe the prediction "
            f"{next(iter(found.profiles))}."
        )
    return {"lead": lead, "more": more}


def _advice(measurement: Measurement, found: Findings) -> list[str]:
    """Say which keys are sinks, and which prediction was recommended before any was compared."""
    start = bool(measurement.manifest["windows"]["first_token_is_bos"])
    said = [f"Attention {line}." for line in measurement.sinks().lines(start_token=start)]
    recommended = _recommended(found.profiles)
    if recommended is not None:
        reasons = "; ".join(recommend(measurement).reasons)
        said.append(f"The recommended prediction is {recommended}: {reasons}.")
    return said


def _recommended(profiles: ProfileSet) -> str | None:
    """Return the prediction that the rule recommends."""
    names = [name for name, profile in profiles.items() if profile.origin.get("recommended")]
    return names[0] if names else None


def _explanations(found: Findings, *, has_bias: bool) -> list[str]:
    """Say how far the predictions are from what was measured."""
    if not found.distances:
        return []
    residual, alone = found.distances["residual"], found.distances["attention-only"]
    known = bracket(residual)
    parts = "Mask, ALiBi slopes and residual path" if has_bias else "Mask and residual path"
    return [
        f"{parts} alone, without any content, predict the measured profile "
        f"to a distance W1 of {number(residual.value)}{f' ({known})' if known else ''}; "
        f"attention alone, without the residual path, is {number(alone.value)} away. "
        + _closest({name: w1.value for name, w1 in found.distances.items()}),
        *_open_questions(found.comparison),
    ]


def _open_questions(comparison: Comparison | None) -> list[str]:
    """Say which predictions the text does not tell apart, and how much text a number takes."""
    if comparison is None or comparison.sampling is None:
        return []
    best = comparison.best.variant
    alike = [p.first for p in comparison.against_best if p.verdict == "not distinguished"]
    said = []
    if alike:
        said.append(f"On this text {best} is not distinguished from {', '.join(alike)}.")
    needed = comparison.units_needed(best, W1_TARGET)
    if needed is not None:
        said.append(
            f"To know W1 of {best} to ±{W1_TARGET} takes about {needed:,} "
            f"{comparison.sampling['unit']} like these."
        )
    return [" ".join(said)] if said else []


def _closest(distances: Mapping[str, float]) -> str:
    """Name the closest prediction, and say so if a flat profile is as good as any."""
    best = min(distances, key=lambda name: distances[name])
    distance = number(distances[best])
    if best == "uniform":
        return (
            f"No prediction comes closer than a flat profile, which is {distance} away: rollout "
            "does not explain this profile."
        )
    return f"The closest prediction is {best} with {distance}."


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
