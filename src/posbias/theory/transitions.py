"""Row distribution functions of the transitions R_t, and the comparisons the theorems need."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from posbias.kernels import Kernel
from posbias.rollout import Rollout
from posbias.theory.criteria import monotone_criterion
from posbias.theory.layers import is_causal, layer_kernels
from posbias.theory.logit_order import is_logit_order, same_kernel
from posbias.theory.monotone import NUMERIC_LIMIT, row_cdfs

__all__ = ["EXACT", "TransitionCache", "Transitions"]

EXACT = 1e-12
"""Rounding of row distribution functions below which an order still counts as exact."""

Vector = NDArray[np.float64]
Matrix = NDArray[np.float64]


@dataclass
class TransitionCache:
    """What is known about kernels, to share between rollouts that have kernels in common.

    Keys hold the identity of a kernel; the kernel is kept beside, so that it stays taken.
    """

    kernels: dict[int, Kernel] = field(default_factory=dict)
    cdfs: dict[tuple[int, int], Matrix] = field(default_factory=dict)
    moving: dict[tuple[int, int], Vector] = field(default_factory=dict)
    monotone: dict[tuple[int, int, bytes], bool] = field(default_factory=dict)


class Transitions:
    """The transitions of one rollout, restricted to the rows that one query can reach.

    Comparisons first try what needs no matrix (the same kernel, an analytic criterion) and then
    the dense row distribution functions; a question whose matrices would not fit is answered
    with False, "not shown", never guessed.

    Parameters
    ----------
    rollout : Rollout
        Any kernels and schedule.
    size : int
        Number of rows that the query can reach: row + 1 under causal kernels, else n.
    cache : TransitionCache, optional
        Shared with other rollouts.
    """

    def __init__(
        self, rollout: Rollout, size: int, *, cache: TransitionCache | None = None
    ) -> None:
        self.kernels = layer_kernels(rollout)
        self.is_causal = is_causal(rollout)
        self.size = size
        values = np.asarray(rollout.schedule.values, dtype=np.float64)
        if values.ndim == 1:
            values = np.repeat(values[:, None], rollout.n, axis=1)
        self.mixing: Matrix = values[:, : self.size]
        distinct = len({id(kernel) for kernel in self.kernels})
        self.fits = self.size <= NUMERIC_LIMIT and distinct * self.size**2 <= 2**28
        self._cache = TransitionCache() if cache is None else cache
        self._cache.kernels.update((id(kernel), kernel) for kernel in self.kernels)

    @property
    def depth(self) -> int:
        """Number of layers."""
        return len(self.kernels)

    def leaving(self, t: int) -> Vector:
        """Return h_t(i) = lambda_t(i) (1 - A_t[i, i]), shape (size,)."""
        kernel = self.kernels[t]
        key = (id(kernel), self.size)
        if key not in self._cache.moving:
            self._cache.moving[key] = 1.0 - kernel.diagonal()[: self.size]
        return np.asarray(self.mixing[t] * self._cache.moving[key])

    def is_identity(self, t: int) -> bool:
        """Whether layer t (from 0) leaves every row where it is."""
        return bool((self.leaving(t) == 0.0).all())

    def is_monotone(self, t: int) -> bool:
        """Whether the rows of R_t move later with the query."""
        key = (id(self.kernels[t]), self.size, self.mixing[t].tobytes())
        if key not in self._cache.monotone:
            self._cache.monotone[key] = self._decide_monotone(t)
        return self._cache.monotone[key]

    def is_row_order(self, t: int, other: Transitions, s: int) -> bool:
        """Whether every row of R_t is earlier than the same row of the other's R_s."""
        a, b = self.kernels[t], other.kernels[s]
        same_mixing = np.array_equal(self.mixing[t], other.mixing[s])
        # A <= I for a causal kernel: more mixing moves every row earlier.
        more_mixing = a.is_causal and bool((self.mixing[t] >= other.mixing[s]).all())
        if (same_mixing or more_mixing) and (same_kernel(a, b) or is_logit_order(a, b)):
            return True
        if not (self.fits and other.fits):
            return False
        # Two rows settle most negative answers without the matrices.
        for row in (self.size - 1, self.size // 2):
            if (self._cdf_row(t, row) - other._cdf_row(s, row) < -EXACT).any():
                return False
        return bool((self.cdfs(t) - other.cdfs(s) >= -EXACT).all())

    def is_equal(self, t: int, other: Transitions, s: int) -> bool:
        """Whether R_t equals the other's R_s up to rounding."""
        if not np.array_equal(self.mixing[t], other.mixing[s]):
            return self.is_identity(t) and other.is_identity(s)
        return self.has_kernel(t, other, s)

    def has_kernel(self, t: int, other: Transitions, s: int) -> bool:
        """Whether A_t equals the other's A_s up to rounding."""
        if same_kernel(self.kernels[t], other.kernels[s]):
            return True
        if not (self.fits and other.fits):
            return False
        last = self.size - 1
        if np.abs(self.kernels[t].row(last) - other.kernels[s].row(last)).max() > EXACT:
            return False
        return bool(np.abs(self._kernel_cdfs(t) - other._kernel_cdfs(s)).max() <= EXACT)

    def cdfs(self, t: int) -> Matrix:
        """Return the row distribution functions of R_t, shape (size, size)."""
        lam = self.mixing[t][:, None]
        result = lam * self._kernel_cdfs(t)
        result += (1.0 - lam) * (np.arange(self.size) >= np.arange(self.size)[:, None])
        return np.asarray(result)

    def _cdf_row(self, t: int, row: int) -> Vector:
        lam = self.mixing[t][row]
        cdf = np.cumsum(self.kernels[t].row(row)[: self.size])
        return np.asarray(lam * cdf + (1.0 - lam) * (np.arange(self.size) >= row))

    def _decide_monotone(self, t: int) -> bool:
        criterion = monotone_criterion(self.kernels[t])
        even = bool((self.mixing[t] == self.mixing[t][0]).all())
        if even and criterion is not None and criterion.decides and criterion.holds:
            return True
        if not self.fits:
            return False
        cdfs = self.cdfs(t)
        return bool((cdfs[:-1] - cdfs[1:] >= -EXACT).all())

    def jump_row(self, t: int) -> Vector:
        """Return the last row of `jump_law`, shape (size,)."""
        row = np.array(self.kernels[t].row(self.size - 1)[: self.size])
        row[-1] = 0.0
        total = row.sum()
        return np.asarray(row / total if total > 0.0 else np.full(self.size, np.nan))

    def jump_law(self, t: int) -> Matrix:
        """Return A_t[i, j] / (1 - A_t[i, i]) for j != i, rows that never move set to nan."""
        array = np.array(self.kernels[t].restrict(self.size).toarray())
        np.fill_diagonal(array, 0.0)
        total = array.sum(axis=1)
        law = np.full_like(array, np.nan)
        law[total > 0.0] = array[total > 0.0] / total[total > 0.0, None]
        return law

    def _kernel_cdfs(self, t: int) -> Matrix:
        kernel = self.kernels[t]
        key = (id(kernel), self.size)
        if key not in self._cache.cdfs:
            self._cache.cdfs[key] = row_cdfs(kernel.restrict(self.size))
        return self._cache.cdfs[key]
