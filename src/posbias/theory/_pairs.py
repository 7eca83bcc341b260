"""Counting pairs of rows whose distribution functions are out of order."""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

__all__ = ["count_rising_pairs"]


def count_rising_pairs(columns: NDArray[np.float64], margin: float) -> int:
    """Count, over all rows of `columns`, pairs i < i' with x[i'] > x[i] + margin.

    Parameters
    ----------
    columns : ndarray, shape (m, n)
        m independent sequences of length n, C-contiguous.
    margin : float
        Differences up to this size do not count.

    Returns
    -------
    int
        Total number of pairs. Cost O(m n log n), memory O(n): a merge sort per sequence, whose
        merge steps count the pairs across the two halves with two pointers.
    """
    return int(_count_all(np.ascontiguousarray(columns), margin))


@njit(cache=True)
def _count_all(columns, margin):  # type: ignore[no-untyped-def]
    m, n = columns.shape
    total = 0
    values = np.empty(n)
    buffer = np.empty(n)
    for c in range(m):
        values[:] = columns[c]
        width = 1
        while width < n:
            for start in range(0, n - width, 2 * width):
                total += _merge(
                    values, buffer, start, start + width, min(start + 2 * width, n), margin
                )
            width *= 2
    return total


@njit(cache=True)
def _merge(values, buffer, start, middle, stop, margin):  # type: ignore[no-untyped-def]
    count = 0
    left = start
    for right in range(middle, stop):
        while left < middle and values[left] + margin < values[right]:
            left += 1
        count += left - start
    a, b = start, middle
    for k in range(start, stop):
        if b >= stop or (a < middle and values[a] <= values[b]):
            buffer[k] = values[a]
            a += 1
        else:
            buffer[k] = values[b]
            b += 1
    values[start:stop] = buffer[start:stop]
    return count
