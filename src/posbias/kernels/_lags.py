"""The off-diagonal law of a head with any lag weights."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from posbias.kernels._toeplitz import SAFE, ToeplitzPlan
from posbias.kernels.masks import Band

__all__ = ["LagBank"]

Vector = NDArray[np.float64]
Matrix = NDArray[np.float64]


@dataclass(frozen=True)
class _Side:
    """One band: its operator over the first `size` positions.

    ``logits`` holds the lags 0..size-1, -inf outside the band; ``keys`` the logits of the keys,
    -inf for those outside the band.
    """

    logits: Vector
    plan: ToeplitzPlan
    future: bool
    keys: Vector


class LagBank:
    """The off-diagonal law of one head whose lag weights have no structure to use.

    Parameters
    ----------
    past, future : ndarray, shape (n,)
        Logits of the lags 0..n-1 towards earlier and later keys; -inf where never attended to.
    keys : ndarray, shape (n,), optional
        Finite logits of the keys.
    bands : sequence of Band
        What the mask shows.

    Notes
    -----
    Cost O(n log^2 n) per product for smooth weights; see `posbias.kernels._toeplitz`.
    """

    def __init__(
        self, past: Vector, future: Vector, keys: Vector | None, bands: Sequence[Band]
    ) -> None:
        self._n = past.size
        self._sides = [_side(future if b.future else past, keys, b) for b in bands]
        mass = np.full(self._n, -np.inf)
        for side in self._sides:
            rows = slice(0, side.logits.size)
            mass[rows] = np.logaddexp(mass[rows], _mass(side, keys is None))
        self.log_mass = mass[:, None]
        """Logarithm of the total off-diagonal weight of each row, shape (n, 1)."""

    def rmatvec(self, h: Matrix) -> Vector:
        """Return ``h @ law``, `h` of shape (n, 1); shape (n,)."""
        out = np.zeros(self._n)
        x, scale = h[:, 0], self._row_scale()
        for side in self._sides:
            rows = slice(0, side.logits.size)
            if side.future:
                given = (x[rows][::-1], scale[rows][::-1], side.keys[::-1])
                out[rows] += side.plan.apply(*given)[::-1]
            else:
                out[rows] += side.plan.apply(x[rows], scale[rows], side.keys)
        return out

    def matvec(self, v: Vector) -> Matrix:
        """Return ``law @ v``, shape (n, 1)."""
        out = np.zeros(self._n)
        scale = self._row_scale()
        for side in self._sides:
            rows = slice(0, side.logits.size)
            if side.future:
                out[rows] += side.plan.apply(v[rows], side.keys, scale[rows])
            else:
                given = (v[rows][::-1], side.keys[::-1], scale[rows][::-1])
                out[rows] += side.plan.apply(*given)[::-1]
        return out[:, None]

    def _row_scale(self) -> Vector:
        """Return minus the log masses, -inf for rows that see no other key."""
        mass = self.log_mass[:, 0]
        return np.where(np.isneginf(mass), -np.inf, -mass)


def _side(logits: Vector, keys: Vector | None, band: Band) -> _Side:
    """Restrict lag and key logits to a band."""
    size = band.keys if band.future else logits.size
    own = np.full(size, -np.inf)
    own[band.first : band.last + 1] = logits[:size][band.first : band.last + 1]
    inside = np.full(size, -np.inf)
    inside[: band.keys] = 0.0 if keys is None else keys[: band.keys]
    return _Side(own, ToeplitzPlan(own), band.future, inside)


def _mass(side: _Side, is_plain: bool) -> Vector:
    """Return the log of the total weight of each row within a band."""
    if is_plain and not np.isneginf(side.keys[-1]):
        total = _running_total(side.logits)
        return total[::-1] if side.future else total
    if side.future:
        return side.plan.log_apply(side.keys)
    return side.plan.log_apply(side.keys[::-1])[::-1]


def _running_total(logits: Vector) -> Vector:
    """Return log(sum of exp(logits[0..i])) for every i."""
    finite = logits[np.isfinite(logits)]
    if not finite.size:
        return np.full(logits.size, -np.inf)
    if np.ptp(finite) > SAFE:
        return np.asarray(np.logaddexp.accumulate(logits), dtype=np.float64)
    top = finite.max()
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(np.cumsum(np.exp(logits - top))) + top, dtype=np.float64)
