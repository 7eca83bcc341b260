"""Recurrences over positions in NumPy: blocks of about sqrt(n) positions advance together."""

from __future__ import annotations

import math
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

__all__ = ["affine_scan", "log_ratio_scan"]

Matrix = NDArray[np.float64]
Pair: TypeAlias = tuple[Matrix, Matrix]


def affine_scan(keep: Matrix, take: Matrix, x: Matrix, reverse: bool) -> Matrix:
    """Return y_k = x_k + keep_k y_{k-1}, or y_k = x_k + keep_{k+1} y_{k+1} in reverse.

    Parameters
    ----------
    keep, take : ndarray, shape (n, C)
        Factors in [0, 1] with keep + take = 1; each is accurate where it is small, and keep_0
        meets no predecessor.
    x : ndarray, shape (n, C)
        Input of C independent recurrences.
    reverse : bool
        Whether to run from the last position to the first.

    Returns
    -------
    ndarray, shape (n, C)
        A new array. ``keep y`` is computed as ``y - take y`` where keep >= 1/2, so that rounding
        does not grow with the number of steps. Cost O(n C) in about 2 sqrt(n) NumPy steps.
    """
    n, width = x.shape
    size = max(1, math.isqrt(n))
    count = -(-n // size)
    keep, take = (_steps(a, reverse) for a in (keep, take))
    kept, taken = (_blocks(a, count, size) for a in (keep, take))
    y = _blocks(x[::-1] if reverse else x, count, size)
    reach = np.empty_like(y)
    reach[:, 0] = kept[:, 0]
    for t in range(1, size):
        y[:, t] += _kept(kept[:, t], taken[:, t], y[:, t - 1])
        reach[:, t] = _kept(kept[:, t], taken[:, t], reach[:, t - 1])
    for b in range(1, count):
        y[b] += reach[b] * y[b - 1, -1]
    flat = y.reshape(count * size, width)[:n]
    return np.ascontiguousarray(flat[::-1]) if reverse else flat


def log_ratio_scan(decay: Matrix, logits: Matrix) -> Matrix:
    """Return x_k = L_{k-1} + decay_k - logits_k for L_k = logits_k + log(1 + exp(x_k)).

    L_k is the logarithm of a running sum with forgetting, L_{-1} = -inf.

    Parameters
    ----------
    decay : ndarray, shape (n, C)
        Logarithm of the factor on the past; -inf starts afresh.
    logits : ndarray, shape (n, C)
        Finite logarithms of the terms.

    Returns
    -------
    ndarray, shape (n, C)

    Notes
    -----
    L is carried as an unevaluated sum of two numbers: where it has become constant, a rounding
    error would come back at every step and add up to 1 / (1 - exp(decay)) of itself.
    """
    n, width = logits.shape
    size = max(1, math.isqrt(n))
    count = -(-n // size)
    decays, own = (_blocks(a, count, size) for a in (decay, logits))
    nothing = np.full((count, width), -np.inf), np.zeros((count, width))
    ends = _advance(nothing, decays, own)[1]
    reach = decays.sum(axis=1)
    starts = nothing[0].copy(), nothing[1].copy()
    for b in range(1, count):
        before = starts[0][b - 1], starts[1][b - 1]
        _, (starts[0][b], starts[1][b]) = _log_step(
            before, reach[b - 1], ends[0][b - 1], ends[1][b - 1]
        )
    ratios = _advance(starts, decays, own)[0]
    return ratios.reshape(count * size, width)[:n]


def _advance(state: Pair, decay: Matrix, own: Matrix) -> tuple[Matrix, Pair]:
    """Run all blocks (K, B, C) from their states (K, C); return the ratios and the last states."""
    ratios = np.empty_like(own)
    for t in range(own.shape[1]):
        ratios[:, t], state = _log_step(state, decay[:, t], own[:, t], 0.0)
    return ratios, state


def _log_step(state: Pair, decay: Matrix, high: Matrix, low: Matrix | float) -> tuple[Matrix, Pair]:
    """Add the term exp(high + low) to a running sum; return x and the new logarithm."""
    x, first = _two_sum(state[0], decay)
    x, second = _two_sum(x, -high)
    rest = state[1] + first + second - low
    small = np.exp(-np.abs(x))
    above = np.maximum(x, 0.0)
    slope = np.where(x >= 0.0, 1.0, small) / (1.0 + small)
    total, lost = _two_sum(high, above)
    tail = np.log1p(small) + (np.where(np.isneginf(x), 0.0, rest) * slope + lost + low)
    return x + rest, _two_sum(total, tail)


def _two_sum(a: Matrix, b: Matrix) -> Pair:
    """Return the rounded sum and what rounding took away, zero for infinite sums."""
    with np.errstate(invalid="ignore"):
        total = a + b
        other = total - a
        lost = (a - (total - other)) + (b - other)
    return total, np.where(np.isinf(total), 0.0, lost)


def _kept(keep: Matrix, take: Matrix, y: Matrix) -> Matrix:
    return np.where(keep < 0.5, keep * y, y - take * y)


def _steps(factors: Matrix, reverse: bool) -> Matrix:
    """Return the factors in the order in which the recurrence meets them."""
    if not reverse:
        return factors
    return np.concatenate([factors[:1], factors[:0:-1]])


def _blocks(a: Matrix, count: int, size: int) -> Matrix:
    """Return a copy of (n, C) as (count, size, C), zeros after the end."""
    blocks = np.zeros((count * size, a.shape[1]))
    blocks[: a.shape[0]] = a
    return blocks.reshape(count, size, a.shape[1])
