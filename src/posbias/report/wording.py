"""Numbers and findings in plain words."""

from __future__ import annotations

import math
from collections.abc import Callable

from posbias.report.zones import ZoneFigures
from posbias.uncertainty import LEVEL, Interval

__all__ = [
    "UNKNOWN",
    "bracket",
    "headline",
    "last_token_sentence",
    "number",
    "percent",
    "shape_sentence",
    "times",
    "trough_sentence",
]

UNKNOWN = "\N{EN DASH}"
"""What stands for a figure that is not known."""

_ALIKE = 0.05
_MINUS = "\N{MINUS SIGN}"
_TIMES = "\N{MULTIPLICATION SIGN}"
_PERCENT = "\N{NO-BREAK SPACE}%"
_SUPERSCRIPT = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
_INTERVAL = f"{100 * LEVEL:.0f}{_PERCENT} interval"


def number(value: float, digits: int = 3) -> str:
    """Return a number with some significant digits, thousands separated, minus as a sign."""
    if math.isinf(value):
        return "∞" if value > 0.0 else f"{_MINUS}∞"
    if value != 0.0 and 1e3 <= abs(value) < 1e9:
        value = float(f"{value:.{max(digits, 4)}g}")
        return f"{value:,.0f}".replace("-", _MINUS)
    mantissa, _, exponent = f"{value:.{digits}g}".replace("-", _MINUS).partition("e")
    if not exponent:
        return mantissa
    power = str(int(exponent.replace(_MINUS, "-"))).translate(_SUPERSCRIPT)
    return f"{mantissa} {_TIMES} 10{power}"


def percent(share: float) -> str:
    """Return a share as a percentage with three significant digits, more just below one."""
    if 0.0 < share < 1e-6:
        return f"below 0.0001{_PERCENT}"
    digits = 5 if 0.999 <= share < 1.0 else 3
    return f"{number(100.0 * share, digits)}{_PERCENT}"


def times(ratio: float) -> str:
    """Return a ratio with two significant digits, with three near one and above 100."""
    return number(ratio, 3 if 1.0 <= ratio < 2.0 or ratio >= 100.0 else 2)


def bracket(figure: Interval, show: Callable[[float], str] = number) -> str:
    """Return the range of a figure as ``low to high``, empty if it is not known."""
    if figure.low is None or figure.high is None:
        return ""
    return f"{show(figure.low).removesuffix(_PERCENT)} to {show(figure.high)}"


def headline(figures: ZoneFigures, subject: str = "this model") -> list[tuple[str, str]]:
    """Return what end and start weigh against the middle: each a sentence and its interval.

    Parameters
    ----------
    figures : ZoneFigures
        With ratios, else there is no middle to compare with and nothing is returned.
    subject : str
        What uses the context.
    """
    if figures.start_ratio is None or figures.end_ratio is None:
        return []
    last, first = figures.end_ratio, figures.start_ratio
    return [
        (
            f"Per token, {subject} uses the last 10{_PERCENT} of its context {_comparison(last)}.",
            _extent(last),
        ),
        (f"It uses the first 10{_PERCENT} {_comparison(first)}.", _extent(first)),
    ]


def trough_sentence(figures: ZoneFigures, n: int) -> str:
    """Say where the least influence is, and between which positions it may be."""
    where = f"position {figures.trough:,}"
    if figures.trough_range is not None and figures.trough_range[0] < figures.trough_range[1]:
        low, high = figures.trough_range
        where += f", anywhere from {low:,} to {high:,},"
    return (
        f"Least is used around {where} of 0 to {n - 1:,} (smoothed): "
        f"{percent(figures.trough_share)} of what a position would have if all counted alike."
    )


def last_token_sentence(figures: ZoneFigures) -> list[str]:
    """Say how much of the last tenth is the last token itself; nothing if that is not known."""
    if figures.last_token is None:
        return []
    return [
        f"Of the influence of the last 10{_PERCENT}, {percent(figures.last_token)} is that of the "
        "last token itself, the one after which the next is predicted."
    ]


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
    return f"{answer} (so in {'all' if alike == 1.0 else percent(alike)} of the resamples)."


def _extent(ratio: Interval) -> str:
    known = bracket(ratio, times)
    return f"{_INTERVAL} {known}" if known else ""


def _comparison(ratio: Interval) -> str:
    """Compare an end with the middle, per token."""
    value = ratio.value
    is_open = ratio.low is not None and ratio.high is not None and ratio.low <= 1.0 <= ratio.high
    if math.isinf(value):
        return "and the middle not at all"
    if is_open or abs(value - 1.0) < _ALIKE:
        return f"about as much as the middle ({times(value)} times)"
    if value > 1.0:
        return f"{times(value)} times as much as the middle"
    return f"less than the middle: {times(value)} times as much"
