"""Piecewise constant lag weights (T5 buckets, short lag tables) in O(n) per piece.

A product is a weighted sum of sums over windows of lags. A window of L lags is the end of one
block of L positions and the start of the next, so every sum adds non-negative terms only: no
differences, and relative accuracy whatever the length.

Source: posbias.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from posbias.kernels.masks import Band

__all__ = ["Run", "RunBank", "runs_of"]

Vector = NDArray[np.float64]
Matrix = NDArray[np.float64]

_SHORT = 8


@dataclass(frozen=True)
class Run:
    """Lags ``first <= |i - j| <= last`` on one side of the diagonal with one logit.

    Only keys j < keys take part.
    """

    future: bool
    first: int
    last: int
    keys: int
    logit: float


def runs_of(past: Vector, future: Vector, bands: Sequence[Band]) -> tuple[Run, ...]:
    """Return the runs of equal finite logits within the bands.

    Parameters
    ----------
    past, future : ndarray, shape (n,)
        Logits of the lags 0..n-1 towards earlier and later keys; -inf where never attended to.
    bands : sequence of Band
        What the mask shows.
    """
    runs = []
    for band in bands:
        logits = (future if band.future else past)[band.first : band.last + 1]
        starts = np.flatnonzero(np.concatenate([[True], logits[1:] != logits[:-1]]))
        stops = np.append(starts[1:], logits.size)
        for start, stop in zip(starts.tolist(), stops.tolist(), strict=True):
            if np.isfinite(logits[start]):
                lags = band.first + start, band.first + stop - 1
                runs.append(Run(band.future, *lags, band.keys, float(logits[start])))
    return tuple(runs)


class RunBank:
    """The off-diagonal law of one head with piecewise constant lag weights.

    Parameters
    ----------
    n : int
        Number of positions.
    runs : sequence of Run
        At least one.
    keys : ndarray, shape (n,), optional
        Finite logits of the keys. Together with those of the runs they must stay within 300 nats.
    """

    def __init__(self, n: int, runs: Sequence[Run], keys: Vector | None) -> None:
        self._n = n
        self._runs = runs
        top = max(run.logit for run in runs)
        self._weights = [float(np.exp(run.logit - top)) for run in runs]
        key_top = 0.0 if keys is None else float(keys.max())
        self._keys = None if keys is None else np.exp(keys - key_top)
        mass = self._towards_keys(np.ones(n) if self._keys is None else self._keys)
        visible = mass > 0.0
        self._inverse = np.divide(1.0, mass, out=np.zeros(n), where=visible)
        logs = np.log(mass, out=np.full(n, -np.inf), where=visible)
        self.log_mass = (logs + top + key_top)[:, None]
        """Logarithm of the total off-diagonal weight of each row, shape (n, 1)."""

    def rmatvec(self, h: Matrix) -> Vector:
        """Return ``h @ law``, `h` of shape (n, 1); shape (n,)."""
        sent = h[:, 0] * self._inverse
        out = np.zeros(self._n)
        for run, weight in zip(self._runs, self._weights, strict=True):
            if run.future:
                sums = window_sums(sent[: run.keys][::-1], run.first, run.last)[::-1]
            else:
                sums = window_sums(sent, run.first, run.last)
            out[: run.keys] += weight * sums[: run.keys]
        return out if self._keys is None else out * self._keys

    def matvec(self, v: Vector) -> Matrix:
        """Return ``law @ v``, shape (n, 1)."""
        sums = self._towards_keys(v if self._keys is None else v * self._keys)
        return (sums * self._inverse)[:, None]

    def _towards_keys(self, x: Vector) -> Vector:
        """Return for each row the weighted sum of `x` over its keys, shape (n,)."""
        out = np.zeros(self._n)
        for run, weight in zip(self._runs, self._weights, strict=True):
            if run.future:
                out[: run.keys] += weight * window_sums(x[: run.keys], run.first, run.last)
            else:
                seen = x.copy()
                seen[run.keys :] = 0.0
                out += weight * window_sums(seen[::-1], run.first, run.last)[::-1]
        return out


def window_sums(x: Vector, first: int, last: int) -> Vector:
    """Return the sum of x[j + first], ..., x[j + last] for every j, shape (n,).

    Entries beyond the end count as zero. Cost O(n) for any length.
    """
    n = x.size
    out = np.zeros(n)
    if first >= n:
        return out
    ahead = x[first:]
    length = last - first + 1
    if length >= ahead.size:
        out[: ahead.size] = np.cumsum(ahead[::-1])[::-1]
    elif length <= _SHORT:
        for lag in range(first, min(last + 1, n)):
            out[: n - lag] += x[lag:]
    else:
        out[: ahead.size] = _block_sums(ahead, length)
    return out


def _block_sums(x: Vector, length: int) -> Vector:
    """Return the sums of x[j], ..., x[j + length - 1] for every j."""
    count = -(-x.size // length) + 1
    blocks = np.zeros(count * length)
    blocks[: x.size] = x
    rows = blocks.reshape(count, length)
    ends = np.cumsum(rows[:, ::-1], axis=1)[:, ::-1].reshape(-1)[: x.size]
    starts = np.cumsum(rows, axis=1)
    starts[:, -1] = 0.0  # a window that is one whole block is the end of that block
    return np.asarray(ends + starts.reshape(-1)[length - 1 :][: x.size], dtype=np.float64)
