"""Closed forms against exact fractions, enumeration and dense products."""

from __future__ import annotations

import itertools
from fractions import Fraction
from math import comb

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import quad
from theory_naive import dense_product, draws, random_kernel

from posbias.errors import InputError
from posbias.kernels import AttentionKernel, DenseKernel, Head
from posbias.theory import (
    alibi_profile,
    free_drift,
    mixture_profile,
    nope_continuum,
    nope_eigenvalues,
    nope_left_eigenvector,
    nope_moments,
    nope_profile,
    poisson_binomial,
)

SCHEDULES = st.lists(st.sampled_from([0.0, 0.125, 0.5, 0.75, 1.0]), min_size=1, max_size=6)


def exact_nope(i: int, mixing) -> list[float]:
    """P[i, j] = C(i, j) sum_k (-1)^k C(i-j, k) mu_{j+k} in exact fractions."""
    mu = [Fraction(1)] * (i + 1)
    for j in range(i + 1):
        for lam in mixing:
            mu[j] *= 1 - Fraction(lam) * Fraction(j, j + 1)
    return [
        float(comb(i, j) * sum((-1) ** k * comb(i - j, k) * mu[j + k] for k in range(i - j + 1)))
        for j in range(i + 1)
    ]


@given(SCHEDULES, st.integers(1, 60))
@settings(max_examples=40)
def test_nope_equals_its_alternating_sum_in_exact_arithmetic(mixing, i):
    profile = nope_profile(64, mixing, query=i).mass
    np.testing.assert_allclose(profile[: i + 1], exact_nope(i, mixing), rtol=1e-12, atol=0.0)
    assert not profile[i + 1 :].any()


def test_nope_with_content_equals_the_dense_product():
    for rng in draws(31, 60):
        n, depth = (int(x) for x in rng.integers((2, 1), (20, 6)))
        diagonal = float(rng.normal(scale=4.0))
        lam = rng.uniform(0.0, 1.0, size=depth)
        i, j = np.indices((n, n))
        a = np.where(j < i, 1.0, 0.0) + np.exp(diagonal) * (i == j)
        a /= a.sum(axis=1, keepdims=True)
        found = nope_profile(n, lam, diagonal=diagonal).mass
        np.testing.assert_allclose(found, dense_product([a] * depth, lam)[-1], rtol=1e-12)


def test_extreme_content_neither_overflows_nor_leaves_row_zero():
    stuck = nope_profile(5, [1.0, 1.0], diagonal=800.0).mass
    np.testing.assert_allclose(stuck, [0, 0, 0, 0, 1.0], atol=1e-300)
    loose = nope_profile(3, [1.0] * 4, diagonal=-800.0).mass
    np.testing.assert_allclose(loose, [1.0, 0.0, 0.0], atol=1e-300)


@pytest.mark.parametrize("diagonal", [0.0, 1.5, -2.0])
def test_left_eigenvectors(diagonal):
    n = 12
    a = AttentionKernel(n, (Head(diagonal=diagonal),)).toarray()
    values = nope_eigenvalues(n, diagonal=diagonal)
    np.testing.assert_allclose(values, np.diag(a), rtol=1e-14)
    for m in range(n):
        u = nope_left_eigenvector(n, m, diagonal=diagonal)
        np.testing.assert_allclose(u @ a, values[m] * u, atol=1e-12 * np.abs(u).max())
        assert u[m] == 1.0
    if diagonal == 0.0:
        np.testing.assert_allclose(
            nope_left_eigenvector(n, 5)[:6], [(-1) ** (5 - j) * comb(5, j) for j in range(6)]
        )


def test_moments_are_eigenvalues_of_the_rollout():
    lam = [0.3, 0.9, 0.5]
    a = AttentionKernel(9, (Head(),)).toarray()
    np.testing.assert_allclose(
        nope_moments(lam, 9), np.diag(dense_product([a] * 3, lam)), rtol=1e-14
    )


@given(st.lists(st.floats(0.0, 1.0), min_size=1, max_size=7))
def test_poisson_binomial_by_enumeration(p):
    expected = np.zeros(len(p) + 1)
    for outcome in itertools.product((0, 1), repeat=len(p)):
        chances = [x if o else 1.0 - x for o, x in zip(outcome, p, strict=True)]
        expected[sum(outcome)] += np.prod(chances)
    np.testing.assert_allclose(poisson_binomial(p), expected, atol=1e-14)


def test_t8_the_mixture_equals_the_product():
    for rng in draws(32, 100):
        a = random_kernel(rng, 6)
        lam = rng.uniform(0.0, 1.0, size=5)
        found = mixture_profile(DenseKernel(a), lam, query=4).mass
        np.testing.assert_allclose(found, dense_product([a] * 5, lam)[4], atol=1e-14)


@pytest.mark.parametrize("slope", [0.0, 0.3, -0.1])
@pytest.mark.parametrize("mixing", [1.0, 0.4])
def test_alibi_of_one_and_two_layers(slope, mixing):
    a = AttentionKernel.alibi(20, (slope,), diagonal=0.75).toarray()
    for depth in (1, 2):
        found = alibi_profile(20, slope, depth=depth, diagonal=0.75, mixing=mixing).mass
        expected = dense_product([a] * depth, [mixing] * depth)[-1]
        np.testing.assert_allclose(found, expected, rtol=1e-12)
    with pytest.raises(InputError, match="got 3"):
        alibi_profile(20, slope, depth=3)


def test_the_continuum_has_mass_one_and_is_the_limit():
    lam = [0.5, 0.8, 0.25]
    law = nope_continuum(lam)
    mass = quad(lambda x: float(law.density(x)), 0.0, 1.0)[0]
    assert mass + law.atom == pytest.approx(1.0, abs=1e-9)
    n = 200_001
    profile = nope_profile(n, lam).mass
    assert profile[-1] == pytest.approx(law.atom, abs=1e-4)
    for x in (0.2, 0.5, 0.9):
        scaled = (n - 1) * profile[round(x * (n - 1))]
        assert scaled == pytest.approx(float(law.density(x)), rel=1e-3)
    with pytest.raises(InputError, match=r"\(0, 1\]"):
        law.density(0.0)


def test_free_drift_against_truncated_sums():
    slopes, diagonals, weights = [0.5, 1.5], [0.3, -1.0], [1.0, 3.0]
    lag = np.arange(400.0)
    law = np.zeros(400)
    for m, d, w in zip(slopes, diagonals, weights, strict=True):
        scores = np.exp(-m * lag + d * (lag == 0))
        law += w / 4.0 * scores / scores.sum()
    lam = np.array([0.2, 0.7, 1.0])
    drift = free_drift(slopes, lam, diagonals=diagonals, weights=weights)
    mean, square = law @ lag, law @ lag**2
    assert drift.step_mean == pytest.approx(mean, rel=1e-12)
    assert drift.step_variance == pytest.approx(square - mean**2, rel=1e-12)
    assert drift.mean == pytest.approx(lam.sum() * mean, rel=1e-12)
    variance = sum(x * square - (x * mean) ** 2 for x in lam)
    assert drift.variance == pytest.approx(variance, rel=1e-12)


@pytest.mark.parametrize(
    "make",
    [
        lambda: poisson_binomial([1.2]),
        lambda: poisson_binomial([[0.5]]),
        lambda: free_drift([0.0], [0.5]),
        lambda: free_drift([], [0.5]),
        lambda: nope_left_eigenvector(4, 4),
    ],
)
def test_bad_arguments_are_refused(make):
    with pytest.raises(InputError):
        make()
