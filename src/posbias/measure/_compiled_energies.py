"""Compiled energies of weighted values on the CPU: a query row is made and used in the cache."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from posbias.measure._compiled_rows import _LANES, _exponentials, _largest, _scaled

__all__ = ["add_rows_of_logits", "add_rows_of_probabilities"]

Array = NDArray[Any]

_FLAGS = {"contract", "reassoc"}


@njit(cache=True, nogil=True, fastmath=_FLAGS)
def _add_row(
    p: Array, grams: Array, first: int, work: Array, row: Array, how: tuple[float, bool]
) -> None:
    """Add the shares of one query.

    Parameters
    ----------
    p : array, shape (H, at least size)
        Attention to the visible keys, from key `first`.
    grams : array, shape (H, H, n)
        Upper triangle, off-diagonal entries doubled.
    work : array of the type of `grams`, shape (2, at least size)
        Overwritten.
    row : float64 array, shape (size,)
        Added to.
    how : (float, bool)
        Total up to which a row has no energy; whether to take square roots.
    """
    heads, size = p.shape[0], row.size
    energy, part = work[0, :size], work[1, :size]
    energy[:] = 0
    for h in range(heads):
        own, gram = p[h, :size], grams[h, h, first : first + size]
        for k in range(size):
            part[k] = gram[k] * own[k]
        for g in range(h + 1, heads):
            other, gram = p[g, :size], grams[h, g, first : first + size]
            for k in range(size):
                part[k] += gram[k] * other[k]
        for k in range(size):
            energy[k] += part[k] * own[k]
    least, root = how
    total = 0.0
    for k in range(size):
        energy[k] = max(energy[k], 0)
        total += np.float64(energy[k])
    if total <= least:
        row[size - 1] += 1.0
        return
    if root:
        total = 0.0
        for k in range(size):
            energy[k] = np.sqrt(energy[k])
            total += np.float64(energy[k])
    share = 1.0 / total
    for k in range(size):
        row[k] += np.float64(energy[k]) * share


@njit(cache=True, nogil=True)
def add_rows_of_logits(
    logits: Array, grams: Array, target: Array, place: tuple[int, int], how: tuple[float, bool]
) -> None:
    """Add the shares of a block of query rows, whose softmax is taken here.

    Parameters
    ----------
    logits : float32 array, shape (H, r, k)
        As fed to the softmax.
    grams, how
        As in `_add_row`.
    target : float64 array, shape (r, k)
        Added to.
    place : tuple of int
        Query of the first row; keys that a query sees, its own included.
    """
    start, window = place
    heads, rows, keys = logits.shape
    work = np.empty((2, keys), grams.dtype)
    p, lanes = np.empty((heads, keys), np.float32), np.empty(_LANES, np.float32)
    rounded = np.empty(keys, np.float32)
    bits = rounded.view(np.int32)
    for i in range(rows):
        query = start + i
        first = max(query - window + 1, 0)
        size = query + 1 - first
        for h in range(heads):
            x, some = logits[h, i, first : query + 1], p[h, :size]
            _exponentials(x, _largest(x, lanes), some, rounded)
            share = np.float32(1.0 / _scaled(some, rounded, bits))
            for k in range(size):
                some[k] *= share
        _add_row(p, grams, first, work, target[i, first : query + 1], how)


@njit(cache=True, nogil=True)
def add_rows_of_probabilities(
    p: Array, grams: Array, target: Array, place: tuple[int, int], how: tuple[float, bool]
) -> None:
    """Do what `add_rows_of_logits` does from probabilities, shape (H, r, k)."""
    start, window = place
    heads, rows, keys = p.shape
    work, seen = np.empty((2, keys), grams.dtype), np.empty((heads, keys), p.dtype)
    for i in range(rows):
        query = start + i
        first = max(query - window + 1, 0)
        for h in range(heads):
            seen[h, : query + 1 - first] = p[h, i, first : query + 1]
        _add_row(seen, grams, first, work, target[i, first : query + 1], how)
