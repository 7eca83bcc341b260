"""The textbook algorithm of attention rollout for ALiBi models, written out with dense matrices.

Every head's n x n softmax is formed, heads are averaged, and the transitions are multiplied. It
shares no code with the package. Cost O(T H n^2 + T n^3), memory a few n x n matrices.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


@dataclass(frozen=True)
class AlibiModel:
    """Slopes and content (T, H) and mixing coefficients (T,) of a model with ALiBi."""

    slopes: Array
    diagonal: Array
    mixing: Array

    @property
    def depth(self) -> int:
        """T."""
        return int(self.mixing.size)


class DenseRollout:
    """The textbook computation over n positions.

    Parameters
    ----------
    model : AlibiModel
        What to compute.
    n : int
        Positions.
    """

    def __init__(self, model: AlibiModel, n: int) -> None:
        positions = np.arange(n, dtype=np.float64)
        self._model = model
        self._lags = positions[:, None] - positions[None, :]
        self._future = np.where(self._lags < 0, -np.inf, 0.0)

    def profile(self, layers: int | None = None) -> Array:
        """Return the last row of ``R_T ... R_1``, or of the lowest `layers` layers only."""
        n = len(self._lags)
        product = np.eye(n)
        for t in range(self._model.depth if layers is None else layers):
            mixing = self._model.mixing[t]
            product = ((1.0 - mixing) * np.eye(n) + mixing * self._attention(t)) @ product
        return product[-1]

    def row_profile(self, layers: int | None = None) -> Array:
        """Return the same row by row-vector products: without ``T n^3``, the softmaxes remain."""
        row = np.zeros(len(self._lags))
        row[-1] = 1.0
        for t in reversed(range(self._model.depth if layers is None else layers)):
            mixing = self._model.mixing[t]
            row = (1.0 - mixing) * row + mixing * (row @ self._attention(t))
        return row

    def _attention(self, t: int) -> Array:
        """Return the mean of the softmax matrices of all heads of a layer."""
        slopes, diagonal = self._model.slopes[t], self._model.diagonal[t]
        total = np.zeros_like(self._lags)
        for slope, own in zip(slopes, diagonal, strict=True):
            logits = self._future - slope * self._lags
            np.fill_diagonal(logits, own)
            logits -= logits.max(axis=1, keepdims=True)
            np.exp(logits, out=logits)
            total += logits / logits.sum(axis=1, keepdims=True)
        return total / len(slopes)
