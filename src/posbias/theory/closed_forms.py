"""Closed forms: constant kernels, uniform attention, ALiBi of one and two layers, free drift.

All of them avoid the alternating sums of the textbook formulas, which lose every digit beyond
n of about 50, by evaluating the same quantities as mixtures of non-negative terms.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from posbias.errors import InputError
from posbias.kernels import Kernel
from posbias.profile import Profile

__all__ = [
    "Continuum",
    "Drift",
    "alibi_profile",
    "free_drift",
    "mixture_profile",
    "nope_continuum",
    "nope_eigenvalues",
    "nope_left_eigenvector",
    "nope_moments",
    "nope_profile",
    "poisson_binomial",
]

Vector = NDArray[np.float64]


def poisson_binomial(probabilities: ArrayLike) -> Vector:
    """Return the law of the number of successes of independent trials, shape (T+1,).

    Parameters
    ----------
    probabilities : array_like, shape (T,)
        Success probabilities in [0, 1], e.g. lambda_t.

    Returns
    -------
    ndarray, shape (T+1,)
        Weights of 0..T successes, by convolution: O(T^2), all terms non-negative.

    Raises
    ------
    InputError
        If a probability is outside [0, 1].

    Examples
    --------
    >>> poisson_binomial([0.5, 0.5]).tolist()
    [0.25, 0.5, 0.25]
    """
    values = _mixing(probabilities)
    weights = np.ones(1)
    for p in values:
        longer = np.zeros(weights.size + 1)
        longer[:-1] = (1.0 - p) * weights
        longer[1:] += p * weights
        weights = longer
    return weights


def mixture_profile(kernel: Kernel, mixing: ArrayLike, *, query: int = -1) -> Profile:
    """Return the profile of layers that share one kernel: sum_k PB_k(lambda) A^k (T8).

    Parameters
    ----------
    kernel : Kernel
        The shared kernel.
    mixing : array_like, shape (T,)
        lambda_t; their order does not matter.
    query : int
        Row.

    Returns
    -------
    Profile
        Cost T products with the kernel plus O(T^2).
    """
    weights = poisson_binomial(mixing)
    row = np.zeros(kernel.n)
    row[query] = 1.0
    total = weights[0] * row
    for weight in weights[1:]:
        row = kernel.rmatvec(row)
        total = total + weight * row
    return Profile(total, name="mixture", origin={"theorem": "T8", "query": query})


def nope_moments(mixing: ArrayLike, count: int) -> Vector:
    """Return mu_j = prod_t (1 - lambda_t j / (j+1)) for j = 0..count-1 (uniform attention).

    These are the moments of the continuum law and the eigenvalues of the rollout.
    """
    lam = _mixing(mixing)
    j = np.arange(count, dtype=np.float64)
    return np.asarray(np.prod(1.0 - np.multiply.outer(lam, j / (j + 1.0)), axis=0))


def nope_profile(n: int, mixing: ArrayLike, *, query: int = -1, diagonal: float = 0.0) -> Profile:
    """Return the profile of uniform causal attention, optionally with diagonal content d.

    Without content it equals P[i, j] = C(i, j) sum_k (-1)^k C(i-j, k) mu_{j+k}, whose terms
    cancel. The same numbers are sum_k PB_k(lambda) A^k, and one power is a running sum from the
    query down, so that every term is non-negative and the relative error stays near 1e-15.

    Parameters
    ----------
    n : int
        Number of positions, at least 2.
    mixing : array_like, shape (T,)
        lambda_t of the layers, in any order.
    query : int
        Row i.
    diagonal : float
        Content d on the diagonal, in log units.

    Returns
    -------
    Profile
        Cost O(T n + T^2).
    """
    weights = poisson_binomial(mixing)
    row = np.zeros(n)
    row[query] = 1.0
    total = weights[0] * row
    past, own = _nope_row_weights(n, diagonal)
    for weight in weights[1:]:
        scaled = row * past
        later = np.append(np.cumsum(scaled[::-1])[-2::-1], 0.0)
        row = row * own + later
        total = total + weight * row
    return Profile(total, name="NoPE", origin={"diagonal": diagonal, "query": query})


def nope_eigenvalues(n: int, *, diagonal: float = 0.0) -> Vector:
    """Return the eigenvalues e^d / (i + e^d), i = 0..n-1, of uniform attention with content d."""
    return _nope_row_weights(n, diagonal)[1]


def nope_left_eigenvector(n: int, index: int, *, diagonal: float = 0.0) -> Vector:
    """Return u with u A = a_m u, u[m] = 1, for the eigenvalue a_m of row `index` = m.

    With y_j = u_j / (j + e^d), the difference of neighbouring equations is a first-order
    recursion down from m: with c_j = e^d - a_m (j + e^d),
    ``c_j y_j = (c_{j+1} - 1) y_{j+1}`` for j < m.

    Parameters
    ----------
    n : int
        Number of positions.
    index : int
        m in 0..n-1.
    diagonal : float
        Content d.

    Returns
    -------
    ndarray, shape (n,)
        Zero above m. Without content the entries are (-1)^(m-j) C(m, j).
    """
    if not 0 <= index < n:
        raise InputError(f"eigenvector {index} does not exist for {n} positions")
    # In units of 1 / (m + e^d): c_j = e^d (m - j) / (m + e^d), free of cancellation.
    scale = np.exp(diagonal) / (index + np.exp(diagonal))
    u = np.zeros(n)
    u[index] = 1.0
    y = 1.0 / (index + np.exp(diagonal))
    for j in range(index - 1, -1, -1):
        y *= (scale * (index - j - 1) - 1.0) / (scale * (index - j))
        u[j] = y * (j + np.exp(diagonal))
    return u


@dataclass(frozen=True, eq=False)
class Continuum:
    """The law of x = j / (n-1) under uniform attention as n grows.

    Parameters
    ----------
    atom : float
        Mass at x = 1: prod_t (1 - lambda_t).
    weights : ndarray, shape (T+1,)
        Poisson-binomial weights of lambda.
    """

    atom: float
    weights: Vector

    def density(self, x: ArrayLike) -> Vector:
        """Return sum_{k>=1} PB_k (-ln x)^(k-1) / (k-1)! for x in (0, 1].

        Raises
        ------
        InputError
            If an x is outside (0, 1].
        """
        points = np.asarray(x, dtype=np.float64)
        if np.any((points <= 0.0) | (points > 1.0)):
            raise InputError("the continuum density is defined for x in (0, 1]")
        depth = -np.log(points)
        term = np.ones_like(depth)
        total = np.zeros_like(depth)
        for k, weight in enumerate(self.weights[1:], start=1):
            total += weight * term
            term = term * depth / k
        return total


def nope_continuum(mixing: ArrayLike) -> Continuum:
    """Return the continuum law of uniform attention at the last query, any schedule.

    Examples
    --------
    >>> law = nope_continuum([1.0] * 4)
    >>> law.atom, round(float(law.density(0.1)), 12)
    (0.0, 2.034678592293)
    """
    weights = poisson_binomial(mixing)
    return Continuum(atom=float(weights[0]), weights=weights)


def alibi_profile(
    n: int, slope: float, *, depth: int, diagonal: float = 0.0, mixing: float = 1.0
) -> Profile:
    """Return the last row of one or two layers of causal ALiBi in closed form.

    With r = exp(-m), N = n-1 and Z_k = e^d + r (1 - r^k) / (1 - r) the two-layer attention row is
    ``r^(N-j) / Z_N (e^d / Z_N + e^d / Z_j + sum_{j<k<N} 1 / Z_k)`` for j < N and (e^d / Z_N)^2
    at N; a mixing coefficient mixes it with the row of one layer and the unit vector.

    Parameters
    ----------
    n : int
        Number of positions, at least 2.
    slope : float
        m.
    depth : int
        1 or 2.
    diagonal : float
        d.
    mixing : float
        lambda of both layers.

    Returns
    -------
    Profile
        Cost O(n).

    Raises
    ------
    InputError
        If `depth` is neither 1 nor 2.
    """
    if depth not in (1, 2):
        raise InputError(f"the closed form covers 1 or 2 layers, got {depth}; use a Rollout")
    lag = np.arange(n, dtype=np.float64)
    own = np.exp(diagonal)
    past = np.concatenate([[0.0], np.cumsum(np.exp(-slope * lag[1:]))])
    z = own + past
    decay = np.exp(-slope * lag[::-1])
    one = decay / z[-1]
    one[-1] = own / z[-1]
    inverse = 1.0 / z
    between = np.append(np.cumsum(inverse[-2:0:-1])[::-1], [0.0, 0.0])
    two = decay / z[-1] * (own * inverse[-1] + own * inverse + between)
    two[-1] = (own / z[-1]) ** 2
    weights = poisson_binomial([mixing] * depth)
    total = np.zeros(n)
    total[-1] = weights[0]
    for weight, row in zip(weights[1:], (one, two), strict=False):
        total = total + weight * row
    return Profile(total, name="ALiBi", origin={"slope": slope, "diagonal": diagonal})


@dataclass(frozen=True)
class Drift:
    """Mean and variance of the way down of ALiBi far from token 0, in positions.

    Parameters
    ----------
    step_mean, step_variance : float
        Of one attention step.
    mean, variance : float
        Of the whole rollout: each layer steps with probability lambda_t.
    """

    step_mean: float
    step_variance: float
    mean: float
    variance: float


def free_drift(
    slopes: Sequence[float],
    mixing: ArrayLike,
    *,
    diagonals: Sequence[float] | None = None,
    weights: Sequence[float] | None = None,
) -> Drift:
    """Return the drift of a head mixture of ALiBi kernels on a line without an end.

    Head h steps l >= 1 positions down with weight exp(-m_h l) against exp(d_h) for staying.

    Parameters
    ----------
    slopes : sequence of float
        m_h > 0.
    mixing : array_like, shape (T,)
        lambda_t.
    diagonals, weights : sequence of float, optional
        d_h, default 0; head weights, default equal.

    Raises
    ------
    InputError
        If a slope is not positive: the step then has no mean.
    """
    m = np.asarray(slopes, dtype=np.float64)
    if m.size == 0 or np.any(~(m > 0.0)):
        raise InputError("free drift needs slopes > 0; without decay the mean step is infinite")
    d = np.zeros(m.size) if diagonals is None else np.asarray(diagonals, dtype=np.float64)
    share = np.ones(m.size) if weights is None else np.asarray(weights, dtype=np.float64)
    share = share / share.sum()
    lam = _mixing(mixing)
    ratio, leave = np.exp(-m), -np.expm1(-m)
    # sum r^l, sum l r^l and sum l^2 r^l over l >= 1.
    total = np.exp(d) + ratio / leave
    mean = float(share @ (ratio / leave**2 / total))
    square = float(share @ (ratio * (1.0 + ratio) / leave**3 / total))
    return Drift(
        step_mean=mean,
        step_variance=square - mean**2,
        mean=float(lam.sum()) * mean,
        variance=float((lam * square - lam**2 * mean**2).sum()),
    )


def _nope_row_weights(n: int, diagonal: float) -> tuple[Vector, Vector]:
    """Return 1 / Z_i and e^d / Z_i with Z_i = i + e^d, scaled so that large d cannot overflow."""
    i = np.arange(n, dtype=np.float64)
    if diagonal > 0.0:
        small = np.exp(-diagonal)
        return small / (1.0 + i * small), 1.0 / (1.0 + i * small)
    own = np.exp(diagonal)
    own_weight = np.concatenate([[1.0], own / (i[1:] + own)])
    return np.concatenate([[1.0], 1.0 / (i[1:] + own)]), own_weight


def _mixing(values: ArrayLike) -> Vector:
    lam = np.asarray(values, dtype=np.float64)
    if lam.ndim != 1 or np.any(~((lam >= 0.0) & (lam <= 1.0))):
        raise InputError("mixing coefficients must be one list of numbers in [0, 1]")
    return lam
