"""From raw influence per window to a profile with a standard error.

With g[w, j] the raw influence of position j in window w and S_w = sum_j g[w, j], the profile is
the normalised mean over windows,

    mass_j = sum_w g[w, j] / sum_w S_w.

This is a ratio of two means over windows. Its standard error is that of the linearised ratio
(delta method), with the windows of text as independent draws:

    stderr_j = sqrt(sum_w (g[w, j] - mass_j S_w)**2 / (D (D - 1))) / (mean_w S_w).

A common factor of all g cancels. Sources: docs/methods/influence.md; the delta method is standard.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["scale_rows", "standard_error"]

Array = NDArray[np.float64]


def scale_rows(raw: Array) -> Array:
    """Return raw influence, shape (D, n), by one factor such that its mean row sums to one."""
    scaled: Array = raw / (raw.sum() / raw.shape[0])
    return scaled


def standard_error(rows: Array) -> Array | None:
    """Return the standard error of the profile of scaled rows, shape (D, n), as a vector (n,).

    None for a single window, whose spread is unknown.
    """
    count = rows.shape[0]
    if count == 1:
        return None
    residuals = rows - rows.mean(axis=0) * rows.sum(axis=1, keepdims=True)
    error: Array = np.sqrt((residuals**2).sum(axis=0) / (count * (count - 1)))
    return error
