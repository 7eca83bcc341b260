"""Naive oracles and random draws for the tests of the theory: dense matrices, plain loops."""

from __future__ import annotations

import itertools

import numpy as np

from posbias.kernels import DenseKernel
from posbias.rollout import MixingSchedule, Rollout

DRAWS = 300


def draws(seed: int, count: int = DRAWS):
    """Yield independent random generators, one per draw."""
    for child in np.random.SeedSequence(seed).spawn(count):
        yield np.random.default_rng(child)


def random_kernel(rng, n: int) -> np.ndarray:
    """Return a causal stochastic matrix with a few heavy entries."""
    a = np.tril(rng.exponential(size=(n, n)) ** rng.uniform(0.5, 3.0))
    return a / a.sum(axis=1, keepdims=True)


def random_monotone_kernel(rng, n: int) -> np.ndarray:
    """Return a causal monotone matrix: running minima of the CDFs of a random one."""
    cdfs = np.minimum.accumulate(np.cumsum(random_kernel(rng, n), axis=1), axis=0)
    cdfs[np.triu_indices(n)] = 1.0
    return np.diff(cdfs, axis=1, prepend=0.0)


def later_rows(rng, a: np.ndarray) -> np.ndarray:
    """Return a kernel whose every row is later than that of `a`: reweighted upwards."""
    n = len(a)
    tilt = np.cumsum(rng.exponential(size=n)) * rng.uniform(0.0, 1.0)
    b = a * np.exp(tilt)
    return b / b.sum(axis=1, keepdims=True)


def jump_kernel(law: np.ndarray, leave: np.ndarray) -> np.ndarray:
    """Return the kernel that leaves row i with probability leave[i] by a strictly lower law."""
    a = law * leave[:, None]
    np.fill_diagonal(a, 1.0 - a.sum(axis=1))
    return a


def random_jump_law(rng, n: int) -> np.ndarray:
    """Return a strictly lower triangular stochastic matrix, row 0 empty."""
    law = np.tril(rng.exponential(size=(n, n)) ** 2, -1)
    law[1:] /= law[1:].sum(axis=1, keepdims=True)
    return law


def dense_product(kernels, mixing) -> np.ndarray:
    """Return R_T ... R_1 of dense kernels."""
    n = len(kernels[0])
    result = np.eye(n)
    for a, lam in zip(kernels, mixing, strict=True):
        result = ((1.0 - lam) * np.eye(n) + lam * a) @ result
    return result


def rollout(kernels, mixing) -> Rollout:
    """Wrap dense kernels in a rollout."""
    return Rollout([DenseKernel(a) for a in kernels], MixingSchedule(mixing))


def worst_rise(earlier: np.ndarray, later: np.ndarray) -> float:
    """Return how far the rows of `earlier` are from being earlier: max of CDF_later - CDF."""
    return float((np.cumsum(later, axis=1) - np.cumsum(earlier, axis=1)).max())


def count_violations(a: np.ndarray, margin: float) -> tuple[int, float]:
    """Count triples i < i', k with F_i(k) < F_i'(k) - margin, and the largest rise."""
    n = len(a)
    cdfs = [[sum(row[: k + 1]) for k in range(n)] for row in a.tolist()]
    count, worst = 0, 0.0
    for i, j in itertools.combinations(range(n), 2):
        for k in range(n):
            count += cdfs[i][k] < cdfs[j][k] - margin
            worst = max(worst, cdfs[j][k] - cdfs[i][k])
    return count, worst
