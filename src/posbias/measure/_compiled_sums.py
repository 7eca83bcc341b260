"""Compiled sums over attention logits on the CPU: one pass, nothing of their size is kept."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

__all__ = ["content_sums"]

Array = NDArray[Any]


@njit(cache=True, nogil=True, fastmath={"reassoc", "contract"})
def content_sums(
    logits: Array, bias: Array, start: int, window: int, lags: Array, sums: Array
) -> None:
    """Add the sums of the visible content logits of query rows ``start..``.

    Parameters
    ----------
    logits : array, shape (H, r, k)
        As fed to the softmax.
    bias : array, shape (H, 0, k), (H, 1, k) or (H, r, k)
        Position bias to subtract; none, the same in all rows, or one per row.
    start, window : int
        First query; keys that a query sees, its own included.
    lags : array, shape (H, n)
        Sums by lag, added to.
    sums : array, shape (5, H)
        Diagonal, its squares, below the diagonal, their squares, first key; added to.
    """
    heads, rows, _ = logits.shape
    bias_rows = bias.shape[1]
    for h in range(heads):
        for i in range(rows):
            query = start + i
            own = np.float64(logits[h, i, query])
            if bias_rows > 0:
                own -= bias[h, i if bias_rows > 1 else 0, query]
            first = max(query - window + 1, 0)
            total, squares = 0.0, 0.0
            for key in range(first, query):
                value = np.float64(logits[h, i, key])
                if bias_rows > 0:
                    value -= bias[h, i if bias_rows > 1 else 0, key]
                lags[h, query - key] += value
                total += value
                squares += value * value
                if key == 0:
                    sums[4, h] += value
            lags[h, 0] += own
            sums[0, h] += own
            sums[1, h] += own * own
            sums[2, h] += total
            sums[3, h] += squares
