"""Intervals over windows of text, by the bootstrap."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["LEVEL", "RESAMPLES", "SEED", "Interval", "Statistic", "bootstrap", "interval"]

Array = NDArray[np.float64]
Statistic = Callable[[Array], Array]
"""From profiles, shape (B, n), to one figure each, shape (B,)."""

RESAMPLES = 1000
"""Number of resamples."""

SEED = 0
"""Seed of the draw of windows."""

LEVEL = 0.95
"""Share of the resamples inside an interval."""

_VALUES_AT_ONCE = 2**22


@dataclass(frozen=True)
class Interval:
    """A figure with the range that the sampling of windows leaves open.

    Parameters
    ----------
    value : float
        The figure of the profile over all windows.
    low, high : float or None
        The central `LEVEL` of the resamples; None for a single window, whose spread is unknown.
    """

    value: float
    low: float | None = None
    high: float | None = None

    @property
    def is_known(self) -> bool:
        """Whether there is a range."""
        return self.low is not None and self.high is not None


def bootstrap(rows: Array, statistics: Mapping[str, Statistic]) -> dict[str, Array]:
    """Return figures of `RESAMPLES` profiles, each from D windows drawn with replacement.

    Parameters
    ----------
    rows : ndarray, shape (D, n)
        Raw influence per window on one common scale: a resampled profile is the sum of the drawn
        rows divided by its total, as the profile itself is.
    statistics : mapping of str to callable
        From profiles, shape (B, n), to one figure each.

    Returns
    -------
    dict of str to ndarray, shape (RESAMPLES,)
        Nothing for a single window. The draw depends on `SEED` and D only. Cost O(B D n).
    """
    windows, n = rows.shape
    if windows == 1:
        return {}
    draws = np.random.default_rng(SEED).multinomial(
        windows, np.full(windows, 1.0 / windows), size=RESAMPLES
    )
    found: dict[str, list[Array]] = {name: [] for name in statistics}
    for some in np.array_split(draws, -(-RESAMPLES * n // _VALUES_AT_ONCE)):
        profiles = some @ rows
        profiles /= profiles.sum(axis=1, keepdims=True)
        for name, statistic in statistics.items():
            found[name].append(statistic(profiles))
    return {name: np.concatenate(values) for name, values in found.items()}


def interval(value: float, resampled: Array | None) -> Interval:
    """Return a figure with the central `LEVEL` of its resamples (percentile method)."""
    if resampled is None:
        return Interval(value)
    low, high = np.quantile(resampled, [(1.0 - LEVEL) / 2.0, (1.0 + LEVEL) / 2.0])
    return Interval(value, float(low), float(high))
