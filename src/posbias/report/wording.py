"""Numbers and findings in plain words."""

from __future__ import annotations

import math
from collections.abc import Callable

from posbias.report.resampling import LEVEL, Interval
from posbias.report.zones import ZoneFigures

__all__ = ["bracket", "headline", "number", "percent", "shape_sentence", "times", "trough_sentence"]

_ALIKE = 0.05
_INTERVAL = f"{100 * LEVEL:.0f} % interval"


def number(value: float, digits: int = 3) -> str:
    """Return a number with some significant digits, thousands separated, minus as a sign."""
    if math.isinf(value):
        return "∞" if value > 0.0 else "−∞"
    if value != 0.0 and 1e4 <= abs(value) < 1e9:
        value = float(f"{value:.{digits}g}")
        return f"{value:,.0f}".replace("-", "−")
    return f"{value:.{digits}g}".replace("-", "−")


def percent(share: float) -> str:
    """Return a share as a percentage with three significant digits."""
    if 0.0 < share < 1e-6:
        return "below 0.0001 %"
    return f"{number(100.0 * share)} %"


def times(ratio: float) -> str:
    """Return a ratio with two significant digits."""
    return number(ratio, 2 if ratio < 100.0 else 3)


def bracket(figure: Interval, show: Callable[[float], str] = number) -> str:
    """Return the range of a figure as ``low to high``, empty if it is not known."""
    if figure.low is None or figure.high is None:
        return ""
    return f"{show(figure.low).removesuffix(' %')} to {show(figure.high)}"


def headline(figures: ZoneFigures, subject: str = "this model") -> list[str]:
    """Return what start and end weigh against the middle, one sentence each.

    Parameters
    ----------
    figures : ZoneFigures
        With ratios, else there is no middle to compare with and nothing is returned.
    subject : str
        What uses the context.
    """
    if figures.start_ratio is None or figures.end_ratio is None:
        return []
    return [
        f"Per token, {subject} uses the last 10 % of its context "
        f"{_comparison(figures.end_ratio)}.",
        f"It uses the first 10 % {_comparison(figures.start_ratio)}.",
    ]


def trough_sentence(figures: ZoneFigures, n: int) -> str:
    """Say where the least influence is."""
    return (
        f"The smoothed profile is lowest at position {figures.trough:,} of 0 to {n - 1:,}: "
        f"{times(figures.trough_share)} of the influence that a position would have if all "
        "counted alike."
    )


def shape_sentence(figures: ZoneFigures) -> str:
    """Say whether the profile is U-shaped, and in how many resamples."""
    answer = (
        "The profile is U-shaped: both ends rise above an interior minimum"
        if figures.is_u_shaped
        else "The profile is not U-shaped: it has no interior minimum that both ends rise above "
        "by the stated margin"
    )
    if figures.u_shaped_resamples is None:
        return f"{answer}."
    share = figures.u_shaped_resamples
    alike = share if figures.is_u_shaped else 1.0 - share
    return f"{answer} (so in {percent(alike)} of the resamples)."


def _comparison(ratio: Interval) -> str:
    """Compare an end with the middle, per token."""
    value = ratio.value
    known = bracket(ratio, times)
    extent = f"{_INTERVAL} {known}" if known else ""
    is_open = ratio.low is not None and ratio.high is not None and ratio.low <= 1.0 <= ratio.high
    if math.isinf(value):
        return "and the middle not at all"
    if is_open or abs(value - 1.0) < _ALIKE:
        within = f"; {extent}" if extent else ""
        return f"about as much as the middle (ratio {times(value)}{within})"
    within = f" ({extent})" if extent else ""
    if value > 1.0:
        return f"{times(value)} times as much as the middle{within}"
    return f"less than the middle: {times(value)} times as much{within}"
