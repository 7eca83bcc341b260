"""The rollout of one shared kernel at infinite depth, and the continuous-time limit."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from posbias.errors import InputError
from posbias.kernels import DenseKernel, Kernel
from posbias.profile import Profile
from posbias.rollout import Rollout
from posbias.theory.layers import layer_pairs, scalar_mixing, shared_kernel
from posbias.theory.schedules import InfiniteSchedule

__all__ = [
    "ContinuousLimit",
    "absorption_matrix",
    "closed_classes",
    "continuous_limit",
    "limit_matrix",
]

Vector = NDArray[np.float64]
Matrix = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class ContinuousLimit:
    """The profile of prod_t exp(lambda_t (A_t - I)) and its distance from the rollout (T7).

    Parameters
    ----------
    profile : Profile
        The continuous-time profile of the query.
    total_time : float
        sum_t lambda_t.
    distance : float
        Total variation between it and the rollout's profile, for this query.
    bound_le_cam : float
        sum_t lambda_t (1 - exp(-lambda_t)), a bound on the distance for every row.
    bound_squares : float
        sum_t lambda_t^2, weaker.
    bound_barbour_hall : float or None
        (1 - exp(-L)) / L * sum_t lambda_t^2 with L the total time; only for a shared kernel.
    """

    profile: Profile
    total_time: float
    distance: float
    bound_le_cam: float
    bound_squares: float
    bound_barbour_hall: float | None

    def as_dict(self) -> dict[str, Any]:
        """Return the figures without the profile as JSON-serialisable values."""
        return {
            "total_time": self.total_time,
            "distance": self.distance,
            "bound_le_cam": self.bound_le_cam,
            "bound_squares": self.bound_squares,
            "bound_barbour_hall": self.bound_barbour_hall,
        }


def continuous_limit(rollout: Rollout, *, query: int = -1) -> ContinuousLimit:
    """Replace every layer by continuous time and bound the error (T7).

    Each factor exp(lambda (A - I)) is a Poisson mixture of powers of A, applied to the row
    vector term by term, so nothing cancels.

    Parameters
    ----------
    rollout : Rollout
        Any kernels, one mixing coefficient per layer.
    query : int
        Row of the rollout.

    Returns
    -------
    ContinuousLimit
        Cost about 20 products with each kernel, fewer where neighbours share one.

    Examples
    --------
    >>> from posbias.kernels import AttentionKernel, Head
    >>> from posbias.rollout import MixingSchedule
    >>> nope = AttentionKernel(24, (Head(),))
    >>> limit = continuous_limit(Rollout([nope], MixingSchedule.constant(40, 0.05)))
    >>> limit.distance <= limit.bound_le_cam
    True
    """
    mixing = scalar_mixing(rollout)
    discrete = rollout.profile(query)
    row = np.zeros(rollout.n)
    row[query] = 1.0
    # Layers of one kernel commute, so neighbours that share it are one exponential.
    for kernel, run in groupby(reversed(list(layer_pairs(rollout))), key=lambda pair: pair[0]):
        row = _poisson_power(kernel, sum(time for _, time in run), row)
    squares, total = float((mixing**2).sum()), float(mixing.sum())
    shared = shared_kernel(rollout) is not None and total > 0.0
    return ContinuousLimit(
        profile=Profile(row, name="continuous", origin={"total_time": total, "query": query}),
        total_time=total,
        distance=0.5 * float(np.abs(row - discrete.mass).sum()),
        bound_le_cam=float(-(mixing * np.expm1(-mixing)).sum()),
        bound_squares=squares,
        bound_barbour_hall=-float(np.expm1(-total)) / total * squares if shared else None,
    )


def limit_matrix(kernel: Kernel | ArrayLike, schedule: InfiniteSchedule) -> Matrix:
    """Return lim R_T ... R_1 for one kernel shared by infinitely many layers, shape (n, n).

    A summable schedule gives f(A) with f(x) = prod_t (1 - lambda_t (1 - x)): the first layers
    are multiplied, the others enter through exp(-sum_k S_k (I - A)^k / k) with the exact tail
    sums S_k of lambda_t^k. A divergent one gives the absorption probabilities.

    Parameters
    ----------
    kernel : Kernel or array_like, shape (n, n)
        Row-stochastic.
    schedule : InfiniteSchedule
        The mixing coefficients.

    Returns
    -------
    ndarray, shape (n, n)
        Cost O(n^3) times the number of early layers, so for small n.

    Raises
    ------
    InputError
        If lambda_t stays at 1 and the kernel is periodic: no limit exists.
    """
    operator = kernel if isinstance(kernel, Kernel) else DenseKernel(np.asarray(kernel))
    array = operator.toarray()
    if not schedule.sum_diverges:
        return _summable_limit(array, schedule)
    limit = absorption_matrix(array)
    if schedule.is_eventually_one and np.abs(array @ limit - limit).max() < 1e-9:
        _require_aperiodic(array)
    # Explicit first layers commute with the rest and leave the limit as it is.
    return limit


def closed_classes(array: ArrayLike) -> list[NDArray[np.intp]]:
    """Return the closed communicating classes of a stochastic matrix, each as sorted indices.

    Cost O(n^2).
    """
    from scipy.sparse.csgraph import connected_components

    edges = np.asarray(array) > 0.0
    count, labels = connected_components(edges, directed=True, connection="strong")
    members = [np.flatnonzero(labels == c) for c in range(count)]
    closed = [m for m in members if not np.delete(edges[m].any(axis=0), m).any()]
    return sorted(closed, key=lambda m: int(m[0]))


def absorption_matrix(array: ArrayLike) -> Matrix:
    """Return the limit of the averaged powers of a stochastic matrix, shape (n, n).

    Row i holds the probability of ending in each closed class, spread over the class by its
    stationary law. For a causal kernel whose rows i >= 1 all move it is the first unit vector.
    Cost O(n^3).
    """
    a = np.asarray(array, dtype=np.float64)
    n = a.shape[0]
    classes = closed_classes(a)
    recurrent = np.concatenate(classes)
    transient = np.setdiff1d(np.arange(n), recurrent)
    limit = np.zeros((n, n))
    if transient.size:
        inner = a[np.ix_(transient, transient)]
        entering = np.stack([a[np.ix_(transient, m)].sum(axis=1) for m in classes], axis=1)
        reached = np.linalg.solve(np.eye(transient.size) - inner, entering)
    for c, members in enumerate(classes):
        law = _stationary(a[np.ix_(members, members)])
        limit[np.ix_(members, members)] = law
        if transient.size:
            limit[np.ix_(transient, members)] = np.outer(reached[:, c], law)
    return limit


def _stationary(block: Matrix) -> Vector:
    """Return the stationary law of an irreducible stochastic matrix."""
    size = block.shape[0]
    system = np.vstack([block.T - np.eye(size), np.ones(size)])
    target = np.append(np.zeros(size), 1.0)
    return np.asarray(np.linalg.lstsq(system, target, rcond=None)[0])


def _summable_limit(array: Matrix, schedule: InfiniteSchedule) -> Matrix:
    n = array.shape[0]
    head = schedule.head_length()
    result = np.eye(n)
    for value in schedule.values(head):
        result = (1.0 - value) * result + value * (result @ array)
    result = _poisson_power(DenseKernel(array), schedule.tail_power_sum(1, head), result)
    weights = []
    for k in range(2, 40):
        weights.append(schedule.tail_power_sum(k, head) / k)
        if weights[-1] * 2.0**k < 1e-20:
            break
    # exp(-sum_k S_k / k (I - A)^k) by its Taylor series; the exponent is small.
    difference = np.eye(n) - array
    exponent = np.zeros((n, n))
    for weight in reversed(weights):
        exponent = (exponent + weight * np.eye(n)) @ difference
    exponent = exponent @ difference
    term = result.copy()
    for order in range(1, 30):
        term = -(term @ exponent) / order
        result = result + term
        if np.abs(term).max() < 1e-18:
            break
    return result


def _poisson_power(kernel: Kernel, time: float, rows: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return rows @ exp(time (A - I)) as a Poisson mixture of powers; rows is (n,) or (m, n)."""
    from scipy.special import gammaln

    if time == 0.0:
        return rows
    # Chernoff: the terms left out weigh less than 1e-20 for every time.
    order = np.arange(np.ceil(time + 10.0 * np.sqrt(time) + 30.0))
    weights = np.exp(order * np.log(time) - time - gammaln(order + 1.0))
    total = weights[0] * rows
    power = rows
    for weight in weights[1:]:
        power = kernel.rmatvec(power) if power.ndim == 1 else power @ kernel.toarray()
        total = total + weight * power
    return np.asarray(total)


def _require_aperiodic(array: Matrix) -> None:
    """Raise unless every closed class is aperiodic: some power of its block is positive."""
    for members in closed_classes(array):
        block = (array[np.ix_(members, members)] > 0.0).astype(np.float64)
        power, exponent = block.copy(), 1
        while exponent < members.size**2 + 1 and not power.all():
            power = (power @ power > 0.0).astype(np.float64)
            exponent *= 2
        if not power.all():
            raise InputError(
                "the rollout has no limit: lambda stays at 1 and the kernel cycles among "
                f"positions {members[:5].tolist()}; any lambda below 1 removes the cycle"
            )
