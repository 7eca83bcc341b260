"""Recurrences over positions, compiled by numba. Imported only when it is worth its start."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numpy as np
from numba import njit
from numpy.typing import NDArray

__all__ = ["affine_scan", "alibi_pull", "alibi_push", "log_ratio_scan"]

Vector = NDArray[np.float64]
Matrix = NDArray[np.float64]
Function = TypeVar("Function", bound=Callable[..., Any])

FLUSH = 1e-290
BLOCK = 256
STATIONARY = 38.0


def _compile(function: Function) -> Function:
    """Compile to machine code, cached on disk where a place for it can be written."""
    try:
        return cast("Function", njit(cache=True)(function))
    except RuntimeError:  # no writable place for the cache
        return cast("Function", njit(function))


@_compile
def affine_scan(keep: Matrix, take: Matrix, x: Matrix, reverse: bool) -> Matrix:
    """Return y_k = x_k + keep_k y_{k-1}; see `posbias.kernels._numpy_scan.affine_scan`."""
    n, width = x.shape
    y = np.empty((n, width))
    first = n - 1 if reverse else 0
    for c in range(width):
        y[first, c] = x[first, c]
    for s in range(1, n):
        k = n - 1 - s if reverse else s
        before = k + 1 if reverse else k - 1
        link = k + 1 if reverse else k
        for c in range(width):
            last = y[before, c]
            kept = keep[link, c]
            moved = kept * last if kept < 0.5 else last - take[link, c] * last
            total = x[k, c] + moved
            y[k, c] = total if abs(total) >= FLUSH else 0.0
    return y


@_compile
def _two_sum(a: float, b: float) -> tuple[float, float]:
    """Return the rounded sum and what rounding took away, zero for infinite sums."""
    total = a + b
    if np.isinf(total):
        return total, 0.0
    other = total - a
    return total, (a - (total - other)) + (b - other)


@_compile
def log_ratio_scan(decay: Matrix, logits: Matrix) -> Matrix:
    """Return x_k = L_{k-1} + decay_k - logits_k; see `posbias.kernels._numpy_scan`."""
    n, width = logits.shape
    ratios = np.empty((n, width))
    for c in range(width):
        high, low = -np.inf, 0.0
        for k in range(n):
            own = logits[k, c]
            x, first = _two_sum(high, decay[k, c])
            x, second = _two_sum(x, -own)
            rest = low + first + second
            ratios[k, c] = x + rest
            small = np.exp(-abs(x))
            slope = (1.0 if x >= 0.0 else small) / (1.0 + small)
            total, lost = _two_sum(own, max(x, 0.0))
            known = 0.0 if np.isinf(x) else rest * slope
            high, low = _two_sum(total, np.log1p(small) + known + lost)
    return ratios


@_compile
def _shares(start: int, heads: Matrix, first: int, share: Matrix) -> None:
    """Fill weight / (own + past G_i) of the heads from `first` on, rows start..start + BLOCK."""
    slope, weight, own, past = (
        heads[0][first:],
        heads[1][first:],
        heads[2][first:],
        heads[3][first:],
    )
    rate, loss = np.exp(-slope), -np.expm1(-slope)
    mass = np.empty(slope.size)
    for h in range(slope.size):
        grown = -np.expm1(-slope[h] * start) / loss[h] if loss[h] > 0.0 else float(start)
        mass[h] = rate[h] * grown
    for i in range(share.shape[0]):
        row = share[i][first:]
        for h in range(slope.size):
            row[h] = weight[h] / (own[h] + past[h] * mass[h])
            total = 1.0 + mass[h]
            mass[h] = total - total * loss[h] if rate[h] >= 0.5 else total * rate[h]


@_compile
def _sum(x: Vector) -> float:
    """Return the sum with eight running sums, which the processor adds at once."""
    a = b = c = d = e = f = g = h = 0.0
    stop = x.size // 8 * 8
    for k in range(0, stop, 8):
        a += x[k]
        b += x[k + 1]
        c += x[k + 2]
        d += x[k + 3]
        e += x[k + 4]
        f += x[k + 5]
        g += x[k + 6]
        h += x[k + 7]
    for k in range(stop, x.size):
        a += x[k]
    return ((a + b) + (c + d)) + ((e + f) + (g + h))


@_compile
def _push_block(p: Vector, share: Matrix, first: int, flow: Vector, heads: Matrix) -> Vector:
    """Return what the keys of one block receive and move `flow` to the block before it."""
    own, past = heads[2][first:], heads[3][first:]
    rate, loss = np.exp(-heads[0][first:]), -np.expm1(-heads[0][first:])
    received, out = np.empty(own.size), np.empty(p.size)
    for i in range(p.size - 1, -1, -1):
        row, mass = share[i][first:], p[i]
        for h in range(own.size):
            sent = mass * row[h]
            received[h] = flow[h] + sent * own[h]
            total = flow[h] + sent * past[h]
            flow[h] = total - total * loss[h] if rate[h] >= 0.5 else total * rate[h]
        out[i] = _sum(received)
    for h in range(own.size):  # before they become denormal, which is slow
        if abs(flow[h]) < FLUSH:
            flow[h] = 0.0
    return out


@_compile
def alibi_push(p: Vector, heads: Matrix) -> Vector:
    """Return ``p @ A`` for causal ALiBi heads with diagonal content.

    Parameters
    ----------
    p : ndarray, shape (n,)
    heads : ndarray, shape (4, H)
        Slopes m >= 0 in descending order, weights, and the scaled weights ``min(1, e^d)`` of the
        diagonal and ``min(1, e^-d)`` of the past.

    Notes
    -----
    One pass from the last position to the first, in blocks within which the normalisers
    ``Z_i = own + past G_i`` grow by ``G_{i+1} = r (1 + G_i)`` from the closed form at the block's
    start; they are constant from m i = `STATIONARY` on. The flow f_j = r (f_{j+1} + u_{j+1}) is
    computed as a difference where r >= 1/2, so that rounding does not grow with the distance. A
    head is dropped when its flow and all of `p` before it are zero.
    """
    n = p.size
    slope = heads[0]
    width = slope.size
    share, flow = np.empty((BLOCK, width)), np.zeros(width)
    out = np.zeros(n)
    low, high = 0, n
    while low < n and p[low] == 0.0:
        low += 1
    while high > low and p[high - 1] == 0.0:
        high -= 1
    first, is_constant = 0, False
    while high > 0 and first < width:
        start = (high - 1) // BLOCK * BLOCK
        if not is_constant:
            _shares(start, heads, first, share)
        is_constant = slope[width - 1] * (start - BLOCK) >= STATIONARY
        out[start:high] = _push_block(p[start:high], share, first, flow[first:], heads)
        while start <= low and first < width and flow[first] == 0.0:
            first += 1
        high = start
    return out


@_compile
def alibi_pull(v: Vector, heads: Matrix) -> Vector:
    """Return ``A @ v`` for the heads of `alibi_push`: one pass from the first position."""
    n = v.size
    slope, own, past = heads[0], heads[2], heads[3]
    width = slope.size
    rate, loss = np.exp(-slope), -np.expm1(-slope)
    share, flow, received = np.empty((BLOCK, width)), np.zeros(width), np.zeros(width)
    out, is_constant = np.zeros(n), False
    for start in range(0, n, BLOCK):
        if not is_constant:
            _shares(start, heads, 0, share)
            is_constant = slope[width - 1] * start >= STATIONARY
        for i in range(start, min(start + BLOCK, n)):
            row, value = share[i - start], v[i]
            for h in range(width):
                received[h] = row[h] * (own[h] * value + past[h] * flow[h])
                total = flow[h] + value
                flow[h] = total - total * loss[h] if rate[h] >= 0.5 else total * rate[h]
            out[i] = _sum(received)
    return out
