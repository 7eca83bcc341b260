"""The prediction of every resample: one rollout for many sets of mixing coefficients."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from posbias.kernels import Kernel
from posbias.rollout import Rollout
from posbias.rollout.rollout import SMALLEST

__all__ = ["WORK_LIMIT", "is_exact", "resampled_rollouts"]

Array = NDArray[np.float64]

WORK_LIMIT = 2**35
"""Largest B T n**2 for which every resample is unrolled."""


def is_exact(rollout: Rollout, resamples: int) -> bool:
    """Whether every resample is unrolled, or followed to first order in the logarithm."""
    return resamples * rollout.depth * rollout.n**2 <= WORK_LIMIT


def resampled_rollouts(rollout: Rollout, mixing: Array, query: int = -1) -> Array:
    """Return row `query` of the rollout under each of B sets of coefficients, shape (B, n).

    Parameters
    ----------
    rollout : Rollout
        The kernels, held as they are, and the schedule (one coefficient per layer) around which
        the sets lie.
    mixing : ndarray, shape (B, T)
        Coefficients in [0, 1].
    query : int
        Output position.

    Notes
    -----
    Up to `WORK_LIMIT` all B row vectors go through the dense kernels together: O(B T n^2). Beyond
    it the logarithm of the profile is followed to first order around the schedule (`_slopes`),
    T (T + 1) / 2 products, and the result normalised: the error is of second order in the
    deviations of the coefficients.
    """
    if is_exact(rollout, mixing.shape[0]):
        return rollout.influence_of(_unrolled(rollout, mixing, query))
    center, slopes = _slopes(rollout, query)
    changes = (mixing - rollout.schedule.values) @ slopes
    profiles = center * np.exp(changes)
    return rollout.influence_of(np.asarray(profiles / profiles.sum(axis=1, keepdims=True)))


def _unrolled(rollout: Rollout, mixing: Array, query: int) -> Array:
    rows = np.zeros((mixing.shape[0], rollout.n))
    rows[:, query] = 1.0
    dense: Array | None = None
    last: Kernel | None = None
    for t in range(rollout.depth - 1, -1, -1):
        kernel = rollout.kernels[t if len(rollout.kernels) > 1 else 0]
        if dense is None or kernel is not last:
            dense, last = kernel.toarray(), kernel
        mixed = mixing[:, t, None]
        rows = _flushed((1.0 - mixed) * rows + mixed * (rows @ dense))
    return rows


def _slopes(rollout: Rollout, query: int) -> tuple[Array, Array]:
    """Return the profile and d log(profile) / d lambda_t, shapes (n,) and (T, n).

    The derivative of ``e R_T ... R_1`` in lambda_t has ``A_t - I`` in place of R_t: one more row
    joins the rollout at each layer. Where the profile is zero it stays zero.
    """
    depth, n = rollout.depth, rollout.n
    rows = np.zeros((1, n))
    rows[0, query] = 1.0
    for t in range(depth - 1, -1, -1):
        kernel = rollout.kernels[t if len(rollout.kernels) > 1 else 0]
        mixed = rollout.schedule.values[t]
        products = kernel.rmatmat(rows)
        newest = products[:1] - rows[:1]
        rows = _flushed(np.concatenate([(1.0 - mixed) * rows + mixed * products, newest]))
    profile = rows[0]
    relative = np.zeros((depth, n))
    np.divide(rows[1:], profile, out=relative, where=profile > 0.0)
    return profile, relative[::-1]


def _flushed(rows: Array) -> Array:
    """Set masses below `SMALLEST` to zero: products with denormal numbers are slow."""
    rows[np.abs(rows) < SMALLEST] = 0.0
    return rows
