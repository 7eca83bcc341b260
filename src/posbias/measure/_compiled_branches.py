"""Compiled sums over stream and updates on the CPU: two passes, no copies."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

__all__ = ["token_products"]

Array = NDArray[Any]

_FLAGS = {"contract", "reassoc"}


@njit(cache=True, nogil=True, fastmath=_FLAGS)
def token_products(x: Array, a: Array, output: Array, sums: Array) -> None:
    """Fill the products of x, a and m = output - x - a of each token.

    Parameters
    ----------
    x, a, output : array, shape (n, C)
        Of one window.
    sums : float64 array, shape (8, n)
        ``x.x``, ``a.a``, ``m.m``, ``x.a``, then the same less the mean over the tokens.
    """
    n, width = x.shape
    means = np.zeros((3, width))
    for i in range(n):
        for c in range(width):
            means[0, c] += x[i, c]
            means[1, c] += a[i, c]
            means[2, c] += np.float64(output[i, c]) - np.float64(x[i, c]) - np.float64(a[i, c])
    means /= n
    mean_x, mean_a, mean_m = means[0], means[1], means[2]
    for i in range(n):
        xx, aa, mm, xa = 0.0, 0.0, 0.0, 0.0
        cxx, caa, cmm, cxa = 0.0, 0.0, 0.0, 0.0
        row_x, row_a, row_o = x[i], a[i], output[i]
        for c in range(width):
            s, u = np.float64(row_x[c]), np.float64(row_a[c])
            m = np.float64(row_o[c]) - s - u
            xx += s * s
            aa += u * u
            mm += m * m
            xa += s * u
            s -= mean_x[c]
            u -= mean_a[c]
            m -= mean_m[c]
            cxx += s * s
            caa += u * u
            cmm += m * m
            cxa += s * u
        sums[0, i], sums[1, i], sums[2, i], sums[3, i] = xx, aa, mm, xa
        sums[4, i], sums[5, i], sums[6, i], sums[7, i] = cxx, caa, cmm, cxa
