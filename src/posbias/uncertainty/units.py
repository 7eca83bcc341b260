"""What is drawn with replacement: documents, or windows where there are too few documents."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from posbias.measurement import Measurement

__all__ = ["FEWEST_DOCUMENTS", "Units", "sampling_units"]

FEWEST_DOCUMENTS = 10
"""Documents below which windows are drawn instead."""


@dataclass(frozen=True, eq=False)
class Units:
    """The sampling units of the windows of a measurement.

    Parameters
    ----------
    kind : {"documents", "windows"}
        What is drawn.
    labels : ndarray of int, shape (D,)
        The unit 0..count-1 of each window.
    """

    kind: Literal["documents", "windows"]
    labels: NDArray[np.int64]

    @property
    def count(self) -> int:
        """Number of units K."""
        return int(self.labels.max()) + 1

    @property
    def windows(self) -> int:
        """Number of windows D."""
        return int(self.labels.size)

    def effective(self, rows: NDArray[np.float64]) -> float:
        """Return how many units of equal weight would give a profile as much, in [1, count].

        The profile of a measurement is the sum of its windows, so a window of large gradients
        weighs more than one of small ones. This is the effective sample size of Kish,
        (sum w)^2 / sum w^2 with the total w of each unit.

        Parameters
        ----------
        rows : ndarray, shape (D, n)
            Raw influence per window, not negative and not all zero.
        """
        weights = np.bincount(self.labels, weights=rows.sum(axis=1))
        return float(weights.sum() ** 2 / (weights**2).sum())

    def __str__(self) -> str:
        one = self.kind.removesuffix("s")
        return f"{self.count:,} {one if self.count == 1 else self.kind}"


def sampling_units(measurement: Measurement) -> Units:
    """Return documents as units, or windows if fewer than `FEWEST_DOCUMENTS` documents contribute.

    Windows are also the units where one may span documents (packed text). Windows do not overlap,
    but those of one document are alike: intervals over windows may then be too narrow for a claim
    about other documents.
    """
    windows = measurement.manifest["windows"]
    documents = np.array([document for document, _ in windows["starts"]], dtype=np.int64)
    found, labels = np.unique(documents, return_inverse=True)
    if windows.get("packed", False) or found.size < FEWEST_DOCUMENTS:
        return Units("windows", np.arange(documents.size, dtype=np.int64))
    return Units("documents", labels.astype(np.int64))
