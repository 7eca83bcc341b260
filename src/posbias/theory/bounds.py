"""Bounds on the mass that has not reached token 0 after finitely many layers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from posbias.errors import InputError
from posbias.kernels import Kernel
from posbias.rollout import Rollout
from posbias.theory.closed_forms import poisson_binomial
from posbias.theory.layers import layer_pairs, require_causal, shared_kernel

__all__ = ["EscapeBounds", "Lyapunov", "diagonal_mass", "escape_bounds", "lyapunov"]

Vector = NDArray[np.float64]


@dataclass(frozen=True)
class EscapeBounds:
    """Bounds on e_i = 1 - P[i, 0], the mass of row i not on token 0.

    With h_t(k) = lambda_t (1 - A_t[k, k]), k over 1..i and m_t the largest mean step
    max_k (k - sum_j j A_t[k, j]):

    ``diagonal``
        P[i, i] = prod_t (1 - h_t(i)), exact and a lower bound of e_i (T5).
    ``lower_first_column``
        prod_t (1 - lambda_t max_k A_t[k, 0]).
    ``lower_mean``
        1 - sum_t lambda_t m_t / i, at least 0: by Markov's inequality the walk is unlikely to
        have come i positions down.
    ``upper_first_column``
        prod_t (1 - lambda_t min_k A_t[k, 0]).
    ``upper_down_steps``
        P(PB(lambda_t min_k (1 - A_t[k, k])) <= i - 1): i moves always suffice.
    ``upper_lyapunov``
        V(i) prod_t (1 - lambda_t (1 - kappa)), at most 1, with the pair of `lyapunov`; None
        unless all layers share one kernel that has such a pair.
    ``exact``
        e_i itself.
    """

    row: int
    diagonal: float
    lower_first_column: float
    lower_mean: float
    upper_first_column: float
    upper_down_steps: float
    upper_lyapunov: float | None
    exact: float

    @property
    def lower(self) -> float:
        """The largest lower bound."""
        return max(self.diagonal, self.lower_first_column, self.lower_mean)

    @property
    def upper(self) -> float:
        """The smallest upper bound."""
        values = (self.upper_first_column, self.upper_down_steps, self.upper_lyapunov)
        return min(value for value in values if value is not None)

    def as_dict(self) -> dict[str, Any]:
        """Return all figures as JSON-serialisable values."""
        return {**asdict(self), "lower": self.lower, "upper": self.upper}


@dataclass(frozen=True, eq=False)
class Lyapunov:
    """A V = kappa V with V(0) = 0, V(1) = 1 and V(k) >= 1: then e_i <= V(i) prod_t rate_t.

    Parameters
    ----------
    kappa : float
        Second largest eigenvalue, A[1, 1]; one layer contracts by 1 - lambda (1 - kappa).
    values : ndarray, shape (n,)
        V.
    """

    kappa: float
    values: Vector

    def rate(self, mixing: float) -> float:
        """Return the factor by which one layer of the given mixing contracts E V."""
        return 1.0 - mixing * (1.0 - self.kappa)


def escape_bounds(rollout: Rollout, *, row: int = -1) -> EscapeBounds:
    """Bound the mass of one row that has not reached token 0.

    Parameters
    ----------
    rollout : Rollout
        Causal kernels and a schedule with one mixing coefficient per layer.
    row : int
        Query position i >= 1; negative counts from the end.

    Returns
    -------
    EscapeBounds
        Cost O(T^2) plus T products with the kernels and, for one shared kernel, O(n^2).

    Raises
    ------
    InputError
        If a kernel is not causal, the schedule is per position, or the row is token 0.

    Examples
    --------
    >>> from posbias.kernels import AttentionKernel, Head
    >>> from posbias.rollout import MixingSchedule
    >>> nope = AttentionKernel(32, (Head(),))
    >>> b = escape_bounds(Rollout([nope], MixingSchedule.constant(24, 0.3)), row=8)
    >>> b.lower <= b.exact <= b.upper
    True
    """
    i = row % rollout.n if -rollout.n <= row < rollout.n else 0
    if i == 0:
        raise InputError(f"row {row} has no escape bound; a row in 1..{rollout.n - 1} is required")
    require_causal(rollout, "the bounds on the mass at token 0")
    figures = np.array(
        [_layer_figures(kernel, mixing, i) for kernel, mixing in layer_pairs(rollout)]
    )
    stay, low_column, high_column, drift, move = figures.T.reshape(5, -1)
    weights = poisson_binomial(move)
    profile = rollout.profile(i).mass
    return EscapeBounds(
        row=i,
        diagonal=float(np.prod(stay)),
        lower_first_column=float(np.prod(1.0 - high_column)),
        lower_mean=max(0.0, 1.0 - float(drift.sum()) / i),
        upper_first_column=float(np.prod(1.0 - low_column)),
        upper_down_steps=min(1.0, float(weights[:i].sum())),
        upper_lyapunov=_lyapunov_bound(rollout, i),
        exact=float(profile[1:].sum()),
    )


def diagonal_mass(rollout: Rollout) -> Vector:
    """Return P[i, i] = prod_t (1 - h_t(i)) for every row (T5), shape (n,).

    Exact for causal kernels. Cost: T diagonals.

    Raises
    ------
    InputError
        If a kernel is not causal.
    """
    require_causal(rollout, "P[i, i] = prod(1 - h_t(i))")
    result = np.ones(rollout.n)
    for kernel, mixing in layer_pairs(rollout):
        result *= 1.0 - mixing * (1.0 - kernel.diagonal())
    return result


def lyapunov(kernel: Kernel | ArrayLike) -> Lyapunov | None:
    """Return the eigenvector of the second largest eigenvalue of a causal kernel, if it bounds.

    Solves A V = kappa V with V(0) = 0 and V(1) = 1 by forward substitution, kappa = A[1, 1].

    Parameters
    ----------
    kernel : Kernel or array_like, shape (n, n)
        Lower triangular, n >= 2.

    Returns
    -------
    Lyapunov or None
        None unless A[1, 1] is the strictly largest diagonal entry of the rows 1..n-1 and every
        V(k) with k >= 1 is at least 1. Cost O(n^2).
    """
    array = kernel.toarray() if isinstance(kernel, Kernel) else np.asarray(kernel, np.float64)
    n = array.shape[0]
    diagonal = np.diag(array)
    kappa = float(diagonal[1])
    if n > 2 and float(diagonal[2:].max()) >= kappa:
        return None
    values = np.zeros(n)
    values[1] = 1.0
    for i in range(2, n):
        off_diagonal = array[i, :i].sum()
        # kappa - A[i, i] = (1 - A[i, i]) - (1 - A[1, 1]): exact where both are close to one.
        gap = off_diagonal - array[1, 0] if kappa > 0.5 else kappa - diagonal[i]
        values[i] = array[i, :i] @ values[:i] / gap
    if not np.isfinite(values).all() or float(values[1:].min()) < 1.0 - 1e-12:
        return None
    return Lyapunov(kappa, values)


def _lyapunov_bound(rollout: Rollout, row: int) -> float | None:
    """Return min(1, V(row) prod_t rate_t), or None without a shared kernel that has the pair."""
    kernel = shared_kernel(rollout)
    pair = None if kernel is None else lyapunov(kernel.restrict(row + 1))
    if pair is None:
        return None
    rates = [pair.rate(float(mixing)) for _, mixing in layer_pairs(rollout)]
    return min(1.0, float(pair.values[row]) * float(np.prod(rates)))


def _layer_figures(kernel: Kernel, mixing: float, row: int) -> Sequence[float]:
    """Return 1 - h(row) and lambda times: least and largest A[k, 0], step, least 1 - A[k, k]."""
    n = kernel.n
    below = slice(1, row + 1)
    first = np.zeros(n)
    first[0] = 1.0
    column = kernel.matvec(first)[below]
    diagonal = kernel.diagonal()
    positions = np.arange(n, dtype=np.float64)
    step = (positions - kernel.matvec(positions))[below]
    return (
        1.0 - mixing * (1.0 - float(diagonal[row])),
        mixing * float(column.min()),
        mixing * float(column.max()),
        mixing * float(step.max()),
        mixing * float((1.0 - diagonal[below]).min()),
    )
