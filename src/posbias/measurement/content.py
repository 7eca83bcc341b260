"""How well *constant + diagonal term* describes the content logits of a model."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["ContentFit", "fit_content"]

Array = NDArray[np.float64]


@dataclass(frozen=True)
class ContentFit:
    """Quality of the content abstraction; arrays of shape (T, H).

    Attributes
    ----------
    diagonal_std, lower_std : ndarray
        Spread of the logits on the diagonal and strictly below it, in logits: root of the mean
        over windows of the variance within a window.
    separation : ndarray
        Distance of the two means in units of the pooled spread,
        ``d / sqrt((diagonal_std**2 + lower_std**2) / 2)``; infinite where both spreads are zero.
    explained : ndarray
        Share of the variance of the logits that the abstraction explains, mean over windows.
    """

    diagonal_std: Array
    lower_std: Array
    separation: Array
    explained: Array


def fit_content(d: Array, diagonal_std: Array, lower_std: Array, explained: Array) -> ContentFit:
    """Combine the spreads of all windows.

    Parameters
    ----------
    d : ndarray, shape (T, H)
        The content term.
    diagonal_std, lower_std, explained : ndarray, shape (D, T, H)
        Standard deviations within each window, and share of variance explained.
    """
    diagonal_variance = (diagonal_std**2).mean(axis=0)
    lower_variance = (lower_std**2).mean(axis=0)
    pooled = np.sqrt((diagonal_variance + lower_variance) / 2.0)
    return ContentFit(
        diagonal_std=np.sqrt(diagonal_variance),
        lower_std=np.sqrt(lower_variance),
        separation=np.divide(d, pooled, out=np.copysign(np.inf, d), where=pooled > 0.0),
        explained=explained.mean(axis=0),
    )
