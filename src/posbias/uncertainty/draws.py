"""Draws of sampling units with replacement, and what they make of the values of windows."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from posbias.uncertainty.units import Units

__all__ = ["RESAMPLES", "SEED", "Draws", "draw"]

Array = NDArray[np.float64]

RESAMPLES = 1000
"""Number of resamples."""

SEED = 0
"""Seed of the draws."""


@dataclass(frozen=True, eq=False)
class Draws:
    """How often each window is in each resample.

    Every figure of one measurement is resampled with the same draws, so that differences between
    figures are resampled too.

    Parameters
    ----------
    units : Units
        What was drawn.
    weights : ndarray, shape (B, D)
        Number of times that each window is in each resample; all windows of a unit alike.
    """

    units: Units
    weights: Array

    @property
    def count(self) -> int:
        """Number of resamples B."""
        return int(self.weights.shape[0])

    def means(self, values: Array) -> Array:
        """Return the mean over the drawn windows of values per window, (D, ...) to (B, ...)."""
        total = np.tensordot(self.weights, values, axes=1)
        counts = self.weights.sum(axis=1)
        return np.asarray(total / counts.reshape(-1, *(1,) * (values.ndim - 1)))

    def profiles(self, rows: Array) -> Array:
        """Return the influence profile of each resample, shape (B, n).

        Parameters
        ----------
        rows : ndarray, shape (D, n)
            Raw influence per window on one common scale. A resampled profile is the sum of the
            drawn rows divided by its total, as the profile itself is. Cost O(B D n).
        """
        profiles = self.weights @ rows
        profiles /= profiles.sum(axis=1, keepdims=True)
        return np.asarray(profiles)


def draw(units: Units, *, resamples: int = RESAMPLES, seed: int = SEED) -> Draws | None:
    """Draw as many units as there are, with replacement, `resamples` times.

    Returns
    -------
    Draws or None
        None for a single unit, whose spread is unknown. Depends on the seed, the number of units
        and, through the windows of each unit, on nothing but their labels.
    """
    if units.count == 1:
        return None
    share = np.full(units.count, 1.0 / units.count)
    counts = np.random.default_rng(seed).multinomial(units.count, share, size=resamples)
    return Draws(units, counts[:, units.labels].astype(np.float64))
