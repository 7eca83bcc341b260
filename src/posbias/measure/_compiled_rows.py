"""Compiled statistics of attention rows on the CPU: softmax and sums while a row is in the cache.

A row of logits is read once from memory. The exponential is Cody and Waite's reduction to
``[-log(2)/2, log(2)/2]`` with the polynomial of Cephes' ``expf``: relative error below 2e-7, and
nothing in its loop keeps a compiler from using vector instructions.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numpy as np
from numba import njit
from numpy.typing import NDArray

__all__ = ["add_rows"]

Array = NDArray[Any]
Function = TypeVar("Function", bound=Callable[..., Any])

_LANES = 64
_LEAST = np.float32(-87.0)  # Below, exponentials are no normal numbers.
_PER_LOG2 = np.float32(1.44269504088896341)
_LOG2_HIGH = np.float32(0.693359375)
_LOG2_LOW = np.float32(-2.12194440e-4)
_MAGIC = np.float32(12582912.0)  # 1.5 * 2**23: a sum with it is rounded to a whole number.
_MAGIC_BITS = np.int32(127 - 0x4B400000)
_ONE, _HALF = np.float32(1.0), np.float32(5.0000001201e-1)
_C3, _C4 = np.float32(1.6666665459e-1), np.float32(4.1665795894e-2)
_C5, _C6 = np.float32(8.3334519073e-3), np.float32(1.3981999507e-3)
_C7 = np.float32(1.9875691500e-4)


def _exact(function: Function) -> Function:
    """Compile; sums keep their order, as the rounding by `_MAGIC` needs it."""
    return cast("Function", njit(cache=True, nogil=True, fastmath={"contract"})(function))


def _summing(function: Function) -> Function:
    """Compile; sums may be taken in any order."""
    flags = {"contract", "reassoc"}
    return cast("Function", njit(cache=True, nogil=True, fastmath=flags)(function))


@_exact
def _largest(x: Array, lanes: Array) -> Any:
    """Return the largest entry."""
    top = x[0]
    whole = x.size // _LANES * _LANES
    lanes[:] = top
    for k in range(0, whole, _LANES):
        part = x[k : k + _LANES]
        for j in range(_LANES):
            lanes[j] = part[j] if part[j] > lanes[j] else lanes[j]
    for j in range(_LANES):
        top = max(top, lanes[j])
    for k in range(whole, x.size):
        top = max(top, x[k])
    return top


@_exact
def _exponentials(x: Array, top: Any, out: Array, rounded: Array) -> None:
    """Fill exp(x - top) as ``out`` times two to the power of what ``rounded`` holds."""
    for k in range(x.size):
        d = x[k] - top
        d = d if d > _LEAST else _LEAST
        sum_ = d * _PER_LOG2 + _MAGIC
        rounded[k] = sum_
        power = sum_ - _MAGIC
        f = d - power * _LOG2_HIGH - power * _LOG2_LOW
        p = ((((_C7 * f + _C6) * f + _C5) * f + _C4) * f + _C3) * f + _HALF
        out[k] = p * f * f + f + _ONE


@_summing
def _scaled(values: Array, rounded: Array, bits: Array) -> float:
    """Multiply by the powers of two and return the sum; ``bits`` is the memory of `rounded`."""
    for k in range(values.size):
        bits[k] = (bits[k] + _MAGIC_BITS) << np.int32(23)
    mass = 0.0
    for k in range(values.size):
        value = values[k] * rounded[k]
        values[k] = value
        mass += np.float64(value)
    return mass


@_summing
def _content(x: Array, lags: Array) -> tuple[float, float]:
    """Return the sum of the logits and of their squares, and add them to `lags`."""
    total, squares = 0.0, 0.0
    for k in range(x.size):
        value = np.float64(x[k])
        lags[k] += value
        total += value
        squares += value * value
    return total, squares


@_summing
def _biased_content(x: Array, bias: Array, lags: Array) -> tuple[float, float]:
    """Return what `_content` does for logits less a position bias."""
    total, squares = 0.0, 0.0
    for k in range(x.size):
        value = np.float64(x[k]) - bias[k]
        lags[k] += value
        total += value
        squares += value * value
    return total, squares


@_exact
def add_rows(
    logits: Array, bias: Array, place: tuple[int, int, int, int], mean: Array, lags: Array
) -> Array:
    """Add the statistics of some rows of a block of logits of one window.

    Parameters
    ----------
    logits : float32 array, shape (H, r, k)
        As fed to the softmax, over the keys 0..k-1.
    bias : float64 array, shape (H, 0, k), (H, 1, k) or (H, r, k)
        Position bias to subtract; none, the same in all rows, or one per row.
    place : tuple of int
        Query of the block's first row; keys that a query sees, its own included; first row and
        one past the last row to work on.
    mean : float64 array, shape (r, k)
        Filled with the mean of the probabilities over heads, at visible keys only.
    lags : float64 array, shape (H, n)
        Sums of the logits without bias, added to; lag l is in column n - 1 - l.

    Returns
    -------
    array, shape (rows, 7, H)
        Per row: the own key's logit and its square, the sums of earlier keys' logits and of their
        squares, the first key's logit where it is an earlier one, the probabilities of the own key
        and of the first key where it is an earlier one.
    """
    start, window, low, high = place
    heads, _, keys = logits.shape
    n, bias_rows = lags.shape[1], bias.shape[1]
    sums = np.zeros((high - low, 7, heads))
    values, lanes = np.empty(keys, np.float32), np.empty(_LANES, np.float32)
    rounded = np.empty(keys, np.float32)
    bits = rounded.view(np.int32)
    for i in range(low, high):
        query = start + i
        first = max(query - window + 1, 0)
        past = query - first
        row = mean[i, first : query + 1]
        row[:] = 0.0
        for h in range(heads):
            x = logits[h, i, first : query + 1]
            own, zero = np.float64(x[past]), np.float64(x[0])
            reached = lags[h, n - 1 - past : n - 1]
            if bias_rows > 0:
                shift = bias[h, i if bias_rows > 1 else 0, first : query + 1]
                own, zero = own - shift[past], zero - shift[0]
                total, squares = _biased_content(x[:past], shift[:past], reached)
            else:
                total, squares = _content(x[:past], reached)
            lags[h, n - 1] += own
            some = values[: past + 1]
            _exponentials(x, _largest(x, lanes), some, rounded)
            share = 1.0 / _scaled(some, rounded, bits)
            for k in range(past + 1):
                row[k] += np.float64(some[k]) * share
            out = sums[i - low]
            out[0, h], out[1, h], out[2, h], out[3, h] = own, own * own, total, squares
            out[5, h] = np.float64(some[past]) * share
            if first == 0 and past > 0:
                out[4, h], out[6, h] = zero, np.float64(some[0]) * share
        for k in range(past + 1):
            row[k] /= heads
    return sums
