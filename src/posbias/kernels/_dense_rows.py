"""Rows of a layer's kernel entry by entry, for `row` and `toarray`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from posbias.kernels._layer import Law, Layer

__all__ = ["dense_blocks", "dense_rows"]

Vector = NDArray[np.float64]
Matrix = NDArray[np.float64]
Mask = NDArray[np.bool_]

_ROWS_AT_ONCE = 256
_LEAST_MASS = 1e-40


def dense_blocks(layer: Layer, laws: Sequence[Law]) -> Iterator[Matrix]:
    """Yield all rows of the weighted mixture of all heads, block by block."""
    for start in range(0, layer.n, _ROWS_AT_ONCE):
        yield dense_rows(layer, laws, range(start, min(start + _ROWS_AT_ONCE, layer.n)))


def dense_rows(layer: Layer, laws: Sequence[Law], rows: range) -> Matrix:
    """Return some rows of the weighted mixture of all heads, shape (R, n).

    Laws that depend on the lag alone are summed as functions of the lag by one matrix product,
    the others entry by entry. Cost O(R n) per law.
    """
    visible = np.stack([layer.mask.visible(i, layer.n) for i in rows])
    visible[np.arange(len(rows)), rows] = False
    total = np.zeros((len(rows), layer.n))
    by_lag = _LagSum(layer, rows, visible)
    for law in laws:
        logits = _two_sided(layer, law)
        if law.keys(layer) is not None or not by_lag.add(law, logits):
            total += _entries(layer, law, logits, (rows, visible))
    return total + by_lag.total()


class _LagSum:
    """A sum of laws whose weights are functions of the lag.

    Parameters
    ----------
    layer : Layer
        The layer of the laws.
    rows : range
        The R rows.
    visible : ndarray of bool, shape (R, n)
        Which keys each row sees, its own left out.
    """

    def __init__(self, layer: Layer, rows: range, visible: Mask) -> None:
        self._layer = layer
        self._rows = rows
        self._is_alone = ~visible.any(axis=1)
        self._seen = np.zeros((len(rows), 2 * layer.n - 1))
        for r, i in enumerate(rows):
            self._seen[r, i : i + layer.n] = visible[r, ::-1]
        self._weights: list[Vector] = []
        self._factors: list[Vector] = []
        self._own = np.zeros(len(rows))

    def add(self, law: Law, logits: Vector) -> bool:
        """Add a law with logits by lag -(n-1)..n-1; return False if its weights underflow."""
        top = logits.max()
        weights = np.exp(logits - top)
        mass = self._seen @ weights
        if not np.all((mass > _LEAST_MASS) | self._is_alone):
            return False
        with np.errstate(divide="ignore"):
            log_mass = np.log(mass) + top
        off, own = law.shares(self._layer, log_mass, self._rows.start)
        self._own += own
        self._weights.append(weights)
        self._factors.append(np.divide(off, mass, out=np.zeros_like(mass), where=mass > 0.0))
        return True

    def total(self) -> Matrix:
        """Return the sum, shape (R, n)."""
        n = self._layer.n
        total = np.zeros((len(self._rows), n))
        if not self._weights:
            return total
        by_lag = np.stack(self._factors, axis=1) @ np.stack(self._weights)
        by_lag *= self._seen
        for r, i in enumerate(self._rows):
            total[r] = by_lag[r, i : i + n][::-1]
            total[r, i] = self._own[r]
        return total


def _entries(layer: Layer, law: Law, logits: Vector, where: tuple[range, Mask]) -> Matrix:
    """Return the weighted rows of one law, entry by entry, shape (R, n)."""
    rows, visible = where
    n, keys = layer.n, law.keys(layer)
    table = np.stack([logits[i : i + n][::-1] for i in rows])
    if keys is not None:
        table += keys
    table[~visible] = -np.inf
    top = table.max(axis=1, keepdims=True)
    top[np.isneginf(top)] = 0.0
    scores = np.exp(table - top)
    mass = scores.sum(axis=1)
    with np.errstate(divide="ignore"):
        log_mass = np.log(mass) + top[:, 0]
    off, own = law.shares(layer, log_mass, rows.start)
    factors = np.divide(off, mass, out=np.zeros_like(mass), where=mass > 0.0)
    scores *= factors[:, None]
    scores[np.arange(len(rows)), rows] = own
    return np.asarray(scores)


def _two_sided(layer: Layer, law: Law) -> Vector:
    """Return the logits of the lags -(n-1)..n-1, shape (2 n - 1,); -inf for a hidden future."""
    position = law.heads[0].position
    past = position.lag_logits(layer.n)
    future = np.full(layer.n, -np.inf)
    if any(band.future for band in layer.bands):
        future = position.future_logits(layer.n)
    return np.concatenate([future[:0:-1], past]) / layer.temperature
