"""Stochastic monotonicity of kernels: whether row laws move later as the query moves later."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from posbias.errors import InputError
from posbias.kernels import Kernel
from posbias.theory._pairs import count_rising_pairs
from posbias.theory.criteria import monotone_criterion
from posbias.theory.order import ORDER_TOLERANCE
from posbias.theory.verdict import POSBIAS, Hypothesis, Verdict

__all__ = [
    "NUMERIC_LIMIT",
    "MonotoneWitness",
    "Monotonicity",
    "is_monotone",
    "monotonicity",
    "row_cdfs",
]

NUMERIC_LIMIT = 8192
"""Largest n for which the dense row distribution functions are formed."""

Matrix = NDArray[np.float64]


@dataclass(frozen=True)
class MonotoneWitness:
    """The worst violation: F_i(k) < F_j(k) although the row i lies before the row j."""

    i: int
    j: int
    k: int
    cdf_i: float
    cdf_j: float


@dataclass(frozen=True)
class Monotonicity:
    """Whether a kernel is stochastically monotone, and how far it is from it.

    Parameters
    ----------
    holds : bool
        No pair of rows is out of order by more than the tolerance.
    violations, combinations : int
        Triples (i < i', k) with F_i(k) < F_i'(k) - tolerance, out of n * C(n, 2).
    worst : float
        Largest F_i'(k) - F_i(k) over i < i', 0 when none exceeds the tolerance.
    witness : MonotoneWitness or None
        Where `worst` is attained.
    residual_half_holds : bool
        The same question for the matrix I/2 + A/2.
    verdict : Verdict
        The analytic criterion where one exists, else the exact numeric check.
    """

    holds: bool
    violations: int
    combinations: int
    worst: float
    witness: MonotoneWitness | None
    residual_half_holds: bool
    verdict: Verdict

    @property
    def violation_rate(self) -> float:
        """Share of the n * C(n, 2) combinations that are violated."""
        return self.violations / self.combinations if self.combinations else 0.0

    def as_dict(self) -> dict[str, Any]:
        """Return all figures as JSON-serialisable values."""
        values = asdict(self)
        values["verdict"] = self.verdict.as_dict()
        return {**values, "violation_rate": self.violation_rate}


def monotonicity(kernel: Kernel | ArrayLike, *, tolerance: float = ORDER_TOLERANCE) -> Monotonicity:
    """Measure how far a kernel is from stochastic monotonicity.

    Parameters
    ----------
    kernel : Kernel or array_like, shape (n, n)
        A row-stochastic matrix.
    tolerance : float
        Violations up to this size count as rounding.

    Returns
    -------
    Monotonicity
        Decision by running extrema in O(n^2); the count, made only for the columns that hold a
        violation, sorts each of them: O(n^2 log n) in all.

    Raises
    ------
    InputError
        If n exceeds `NUMERIC_LIMIT`; `is_monotone` still answers from the analytic criterion.

    Examples
    --------
    >>> from posbias.kernels import AttentionKernel
    >>> monotonicity(AttentionKernel.alibi(32, (0.125,), diagonal=-6.0)).violations
    0
    """
    cdfs = row_cdfs(kernel)
    n = cdfs.shape[0]
    worst, witness = _worst_violation(cdfs)
    violated = worst > tolerance
    violations = _count_violations(cdfs, tolerance) if violated else 0
    half = 0.5 * cdfs + 0.5 * (np.arange(n) >= np.arange(n)[:, None])
    verdict = _verdict(kernel, worst, witness, tolerance)
    return Monotonicity(
        holds=not violated,
        violations=violations,
        combinations=n * (n * (n - 1) // 2),
        worst=worst if violated else 0.0,
        witness=witness if violated else None,
        residual_half_holds=_worst_violation(half)[0] <= tolerance,
        verdict=verdict,
    )


def is_monotone(kernel: Kernel, *, tolerance: float = ORDER_TOLERANCE) -> bool | None:
    """Decide monotonicity: the analytic criterion, else running extrema in O(n^2).

    Returns
    -------
    bool or None
        None when no criterion exists and n exceeds `NUMERIC_LIMIT`.
    """
    criterion = monotone_criterion(kernel)
    if criterion is not None and criterion.decides:
        return criterion.holds
    if kernel.n > NUMERIC_LIMIT:
        return None
    return _worst_violation(row_cdfs(kernel))[0] <= tolerance


def row_cdfs(kernel: Kernel | ArrayLike) -> Matrix:
    """Return F[i, k] = sum of A[i, :k+1], shape (n, n).

    The sums are carried in extended precision where the platform has it, in blocks of rows, so
    that the rounding does not grow with n.

    Raises
    ------
    InputError
        If n exceeds `NUMERIC_LIMIT` or the array is not square.
    """
    if isinstance(kernel, Kernel):
        if kernel.n > NUMERIC_LIMIT:
            raise InputError(
                f"the row distribution functions of {kernel.n} positions need a dense matrix; "
                f"at most {NUMERIC_LIMIT} positions are supported, use kernel.restrict(n)"
            )
        array = kernel.toarray()
    else:
        array = np.asarray(kernel, dtype=np.float64)
    if array.ndim != 2 or array.shape[0] != array.shape[1]:
        raise InputError(f"a square matrix is required, got shape {array.shape}")
    cdfs = np.empty(array.shape)
    block = max(1, 2**20 // array.shape[0])
    for start in range(0, array.shape[0], block):
        rows = slice(start, start + block)
        cdfs[rows] = np.cumsum(array[rows], axis=1, dtype=np.longdouble)
    return cdfs


def _worst_violation(cdfs: Matrix) -> tuple[float, MonotoneWitness | None]:
    """Return max over i < j, k of F_j(k) - F_i(k) and where it is, in O(n^2)."""
    n = cdfs.shape[0]
    if n < 2:
        return 0.0, None
    lowest = np.minimum.accumulate(cdfs[:-1], axis=0)
    rise = cdfs[1:] - lowest
    row, k = (int(x) for x in np.unravel_index(int(np.argmax(rise)), rise.shape))
    worst = float(rise[row, k])
    if worst <= 0.0:
        return 0.0, None
    j = row + 1
    i = int(np.argmin(cdfs[:j, k]))
    return worst, MonotoneWitness(i, j, k, float(cdfs[i, k]), float(cdfs[j, k]))


def _count_violations(cdfs: Matrix, tolerance: float) -> int:
    """Count violated triples, sorting only the columns that hold one."""
    lowest = np.minimum.accumulate(cdfs[:-1], axis=0)
    bad = np.flatnonzero((cdfs[1:] - lowest > tolerance).any(axis=0))
    return count_rising_pairs(np.ascontiguousarray(cdfs[:, bad].T), tolerance)


def _verdict(
    kernel: Kernel | ArrayLike, worst: float, witness: MonotoneWitness | None, tolerance: float
) -> Verdict:
    """Join the analytic criterion, if any, with the numbers."""
    criterion = monotone_criterion(kernel) if isinstance(kernel, Kernel) else None
    holds = worst <= tolerance
    if criterion is not None and criterion.decides:
        hypotheses = (Hypothesis(criterion.name, criterion.holds, criterion.detail),)
        guaranteed = criterion.holds
    else:
        detail = f"largest rise of a column of the row CDFs {worst:.3g}"
        hypotheses = (Hypothesis("every pair of rows is ordered", holds, detail),)
        guaranteed = holds
    return Verdict(
        claim="the kernel is stochastically monotone",
        theorem="monotone kernels",
        source=POSBIAS,
        hypotheses=hypotheses,
        guaranteed=guaranteed,
        holds_numerically=holds,
        margin=-worst,
        witness=asdict(witness) if witness is not None else {},
    )
