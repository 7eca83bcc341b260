"""A figure with the range that the sampling of text leaves open."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from posbias.errors import InputError

__all__ = [
    "LEVEL",
    "TAILS",
    "W1_TARGET",
    "Interval",
    "band",
    "interval",
    "units_needed",
    "with_range",
]

Array = NDArray[np.float64]

LEVEL = 0.95
"""Share of the resamples inside an interval."""

W1_TARGET = 0.01
"""Half width of an interval of W1 for which tables say how much text it takes."""

TAILS = ((1.0 - LEVEL) / 2.0, (1.0 + LEVEL) / 2.0)
"""Quantiles at which an interval begins and ends."""


@dataclass(frozen=True)
class Interval:
    """A figure with the range that the sampling of text leaves open.

    Parameters
    ----------
    value : float
        The figure over all windows.
    low, high : float or None
        The central `LEVEL` of the resamples; None where there are none.
    """

    value: float
    low: float | None = None
    high: float | None = None

    @property
    def is_known(self) -> bool:
        """Whether there is a range."""
        return self.low is not None and self.high is not None

    @property
    def half_width(self) -> float | None:
        """Half the length of the range, None where it is not known."""
        return None if self.low is None or self.high is None else (self.high - self.low) / 2.0


def interval(value: float, resampled: ArrayLike | None) -> Interval:
    """Return a figure with the central `LEVEL` of its resamples (percentile method).

    Parameters
    ----------
    value : float
        The figure over all windows.
    resampled : array_like, shape (B,), or None
        The figure of each resample. With None, or where a resample leaves the figure undefined
        (nan), the range is not known.
    """
    if resampled is None:
        return Interval(value)
    values = np.asarray(resampled, dtype=np.float64)
    if np.isnan(values).any():
        return Interval(value)
    low, high = np.quantile(values, TAILS)
    return Interval(value, float(low), float(high))


def band(profiles: Array) -> tuple[Array, Array]:
    """Return the central `LEVEL` of resampled profiles, shape (B, n), at each position.

    Returns
    -------
    low, high : ndarray, shape (n,)
        Pointwise: each position by itself is inside in `LEVEL` of the resamples.
    """
    low, high = np.quantile(profiles, TAILS, axis=0)
    return low, high


def units_needed(found: Interval, half_width: float, units: int) -> int | None:
    """Estimate how many sampling units narrow an interval to ``value +- half_width``.

    The width of an interval falls as one over the square root of the number of units, so that
    ``units * (present half width / half_width)**2`` are needed. An estimate: it takes the present
    width as exact and further text to vary like this one.

    Parameters
    ----------
    found : Interval
        The interval from `units` units.
    half_width : float
        The one that is wanted, positive.
    units : int
        How many documents or windows `found` comes from.

    Returns
    -------
    int or None
        At least 2; None if the interval is not known.

    Raises
    ------
    InputError
        If `half_width` is no positive number.

    Examples
    --------
    >>> units_needed(Interval(0.08, 0.06, 0.10), 0.01, 64)
    256
    """
    if not (math.isfinite(half_width) and half_width > 0.0):
        raise InputError(f"the half width is {half_width!r}; a positive number is required")
    if found.half_width is None:
        return None
    return max(2, math.ceil(units * (found.half_width / half_width) ** 2 - 1e-9))


def with_range(found: Interval, digits: int = 4) -> str:
    """Return a figure for people: ``0.0806 [0.071, 0.092]``, ``-`` if it is undefined.

    Parameters
    ----------
    found : Interval
        The figure; without a known range, or if no resample changes it, it stands alone.
    digits : int
        Digits after the point; the ends of the range have one less.

    Examples
    --------
    >>> with_range(Interval(0.08061, 0.0708, 0.0916)), with_range(Interval(201, 198, 203.4), 0)
    ('0.0806 [0.071, 0.092]', '201 [198, 203]')
    """
    if math.isnan(found.value):
        return "-"
    alone = f"{found.value:.{digits}f}"
    if found.low is None or found.high is None or found.low == found.high:
        return alone
    fewer = max(0, digits - 1)
    return f"{alone} [{found.low:.{fewer}f}, {found.high:.{fewer}f}]"
