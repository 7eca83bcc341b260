"""The findings of one measurement as sentences."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from posbias.comparison import ComparisonRow
from posbias.measurement import Measurement
from posbias.recommend import recommend
from posbias.report.findings import Findings
from posbias.report.wording import (
    bracket,
    headline,
    last_token_sentence,
    number,
    percent,
    shape_sentence,
    trough_sentence,
)
from posbias.uncertainty import W1_TARGET, Interval

__all__ = ["closest_sentence", "sentences"]

_YARDSTICK = "uniform"

_SINK = (
    "a position that draws much attention from everywhere behind it and passes on little; mostly "
    "the first"
)


def sentences(measurement: Measurement, found: Findings) -> dict[str, Any]:
    """Return the headline, the sentences below it, and what is recommended with its reasons.

    Returns
    -------
    dict
        ``lead``: pairs of a sentence and its interval; ``more``: sentences; ``advice``: None, or
        a dict of ``text`` and ``reasons``.
    """
    subject = "this model" if found.is_measured else "this model, as predicted,"
    more = [trough_sentence(found.figures, measurement.n), *last_token_sentence(found.figures)]
    more.append(shape_sentence(found.figures))
    if measurement.manifest["windows"]["first_token_is_bos"]:
        mass = next(iter(found.profiles.values())).mass[0]
        more.append(
            f"Position 0 holds the start token, no word of the text; it has {percent(float(mass))} "
            "of the influence, counted with the first 10 %."
        )
    more += _on_predictions(found, has_bias=measurement.slopes() is not None)
    more += _on_sinks(measurement)
    if not found.is_measured:
        more.append(
            "Influence was not measured; these figures describe the prediction "
            f"{next(iter(found.profiles))}."
        )
    return {
        "lead": headline(found.figures, subject),
        "more": more,
        "advice": _advice(measurement, found),
    }


def closest_sentence(ranked: Sequence[ComparisonRow], w1: dict[str, Interval], verdict: str) -> str:
    """Name the closest prediction and what the next one and a flat profile cost.

    Parameters
    ----------
    ranked : sequence of ComparisonRow
        Predictions by their W1, the closest first.
    w1 : dict of str to Interval
        By name.
    verdict : str
        Of the second against the first, see `posbias.uncertainty.Paired`; empty if not known.
    """
    best, *others = (row.variant for row in ranked)
    if best == _YARDSTICK:
        return (
            f"No prediction comes closer than a flat profile, which is {_distance(w1[best])} away: "
            "rollout does not explain this profile."
        )
    said = f"The closest prediction is {best} with W1 {_distance(w1[best])}"
    if others:
        following = f"the next one, {others[0]} with W1 {_distance(w1[others[0]])}"
        said += {
            "not distinguished": f"; this text does not tell it apart from {following}",
            "farther": f"; it is closer than {following}, beyond what the draw of text leaves open",
        }.get(verdict, f"; {following}, follows")
    said += "."
    if _YARDSTICK in w1:
        said += (
            f" The yardstick is a flat profile (uniform), which knows nothing: it is "
            f"{number(w1[_YARDSTICK].value)} away."
        )
    return said


def _distance(w1: Interval) -> str:
    known = bracket(w1)
    return f"{number(w1.value)}{f' ({known})' if known else ''}"


def _on_predictions(found: Findings, *, has_bias: bool) -> list[str]:
    """Say how far the predictions are from what was measured."""
    w1 = found.distances
    if not w1:
        return []
    pairs = found.against_closest
    second = found.ranked[1].variant
    parts = "Mask, ALiBi slopes and residual path" if has_bias else "Mask and residual path"
    return [
        closest_sentence(found.ranked, w1, pairs[second].verdict if pairs else ""),
        f"{parts} alone, without any content, predict the measured profile to a distance W1 of "
        f"{_distance(w1['residual'])}; attention alone, without the residual path, is "
        f"{number(w1['attention-only'].value)} away.",
        *_open_questions(found),
    ]


def _open_questions(found: Findings) -> list[str]:
    """Say which predictions the text does not tell apart, and how much text a number takes."""
    comparison = found.comparison
    if comparison is None or comparison.sampling is None:
        return []
    best = found.ranked[0].variant
    said = []
    if found.alike:
        said.append(f"On this text {best} is not distinguished from {', '.join(found.alike)}.")
    needed = comparison.units_needed(best, W1_TARGET)
    if needed is not None:
        said.append(
            f"To know W1 of {best} to ±{W1_TARGET} takes about {needed:,} "
            f"{comparison.sampling['unit']} like these."
        )
    return [" ".join(said)] if said else []


def _on_sinks(measurement: Measurement) -> list[str]:
    """Say which keys are sinks, and what a sink is."""
    sinks = measurement.sinks()
    if not sinks.found:
        return [f"No position acts as an attention sink ({_SINK})."]
    start = bool(measurement.manifest["windows"]["first_token_is_bos"])
    lines = [line.removeprefix("sinks: ") for line in sinks.lines(start_token=start)]
    return [f"Attention sink ({_SINK}): {'; '.join(lines)}."]


def _advice(measurement: Measurement, found: Findings) -> dict[str, Any] | None:
    """Return which prediction to trust, recommended before any was compared, and why."""
    if found.recommended is None:
        return None
    text = (
        f"Trust {found.recommended} first: a rule that looks inside the model, and never at the "
        "measured profile, recommends this prediction"
    )
    place = [row.variant for row in found.ranked].index(found.recommended) if found.ranked else 0
    if found.ranked and place > 0 and found.recommended not in found.alike:
        text += ". On this text it is not the closest one"
    reasons = [f"{reason[0].upper()}{reason[1:]}." for reason in recommend(measurement).reasons]
    return {"text": f"{text}.", "reasons": reasons}
