from __future__ import annotations

import csv
import json
import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.optimize import linprog
from scipy.spatial.distance import jensenshannon
from scipy.stats import spearmanr, wasserstein_distance

from posbias import metrics
from posbias.errors import ProfileError
from posbias.profile import Profile

Vector = NDArray[np.float64]
Distance = Callable[[Vector, Vector], float]
DISTANCES = [
    metrics.wasserstein,
    metrics.spearman,
    metrics.jensen_shannon,
    metrics.total_variation,
]


def normalised(weights: list[int]) -> Vector:
    values = np.array(weights, dtype=float)
    values[0] += not values.any()
    return values / values.sum()


@st.composite
def pairs(draw: st.DrawFn, count: int = 2, largest: int = 40) -> list[Vector]:
    n = draw(st.integers(2, largest))
    weights = st.lists(st.integers(0, 1000), min_size=n, max_size=n)
    return [normalised(draw(weights)) for _ in range(count)]


def transport_cost(p: Vector, q: Vector) -> float:
    """Solve the optimal transport problem as a linear programme."""
    n = len(p)
    cost = np.abs(np.subtract.outer(np.arange(n), np.arange(n))).ravel()
    rows = np.kron(np.eye(n), np.ones(n))
    columns = np.kron(np.ones(n), np.eye(n))
    plan = linprog(cost, A_eq=np.vstack([rows, columns]), b_eq=np.concatenate([p, q]))
    assert plan.success
    return float(plan.fun)


# --- distances ----------------------------------------------------------------------------------


@settings(max_examples=30)
@given(pairs(largest=6))
def test_wasserstein_is_the_cost_of_optimal_transport(given_pair: list[Vector]) -> None:
    p, q = given_pair
    assert metrics.wasserstein(p, q) * (len(p) - 1) == pytest.approx(transport_cost(p, q), abs=1e-8)


@given(pairs())
def test_wasserstein_agrees_with_scipy(given_pair: list[Vector]) -> None:
    p, q = given_pair
    x = np.arange(len(p))
    expected = wasserstein_distance(x, x, p, q) / (len(p) - 1)
    assert metrics.wasserstein(p, q) == pytest.approx(expected, abs=1e-13)


@given(pairs(count=1), st.integers(0, 10))
def test_wasserstein_of_a_translation_is_its_length(given_one: list[Vector], shift: int) -> None:
    (p,) = given_one
    before = np.concatenate([p, np.zeros(shift)])
    after = np.concatenate([np.zeros(shift), p])
    distance = metrics.wasserstein(before, after)
    assert distance * (len(before) - 1) == pytest.approx(shift, abs=1e-11)


@given(pairs())
def test_wasserstein_bounds_the_difference_of_means(given_pair: list[Vector]) -> None:
    p, q = given_pair
    difference = abs(
        metrics.shape_figures(p).mean_position - metrics.shape_figures(q).mean_position
    )
    assert metrics.wasserstein(p, q) * (len(p) - 1) >= difference - 1e-11


def test_wasserstein_in_closed_form() -> None:
    n = 1001
    first, last, uniform = np.eye(n)[0], np.eye(n)[-1], np.full(n, 1 / n)
    assert metrics.wasserstein(first, last) == pytest.approx(1.0)
    assert metrics.wasserstein(first, uniform) == pytest.approx(0.5)


@given(pairs())
def test_spearman_agrees_with_scipy(given_pair: list[Vector]) -> None:
    p, q = given_pair
    if np.ptp(p) == 0 or np.ptp(q) == 0:
        assert math.isnan(metrics.spearman(p, q))
    else:
        assert metrics.spearman(p, q) == pytest.approx(spearmanr(p, q).statistic, abs=1e-12)


def test_spearman_with_the_uniform_profile_is_undefined() -> None:
    assert math.isnan(metrics.spearman(np.full(7, 1 / 7), np.arange(7) / 21))


@given(pairs())
def test_jensen_shannon_agrees_with_scipy(given_pair: list[Vector]) -> None:
    p, q = given_pair
    expected = jensenshannon(p, q) ** 2
    assert metrics.jensen_shannon(p, q) == pytest.approx(expected, abs=1e-12)


@given(pairs())
def test_total_variation_is_the_largest_difference_over_sets(given_pair: list[Vector]) -> None:
    p, q = given_pair
    expected = sum(max(float(x), 0.0) for x in p - q)
    assert metrics.total_variation(p, q) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize(
    "distance", [metrics.wasserstein, metrics.jensen_shannon, metrics.total_variation]
)
@given(triple=pairs(count=3))
def test_divergences_are_symmetric_bounded_and_zero_on_the_diagonal(
    distance: Distance, triple: list[Vector]
) -> None:
    p, q, r = triple
    assert distance(p, p) == 0.0
    assert 0.0 <= distance(p, q) <= 1.0 + 1e-12
    assert distance(p, q) == pytest.approx(distance(q, p), abs=1e-15)
    root = math.sqrt if distance is metrics.jensen_shannon else float
    tolerance = 1e-7
    assert root(distance(p, r)) <= root(distance(p, q)) + root(distance(q, r)) + tolerance


def test_jensen_shannon_of_disjoint_profiles_is_log_two() -> None:
    assert metrics.jensen_shannon([1.0, 0.0], [0.0, 1.0]) == pytest.approx(math.log(2))


@pytest.mark.parametrize("distance", DISTANCES)
def test_profiles_are_accepted_and_lengths_compared(distance: Distance) -> None:
    p, q = [0.5, 0.3, 0.2], [0.1, 0.2, 0.7]
    assert distance(Profile(p), Profile(q)) == distance(p, q)
    with pytest.raises(ProfileError, match="3 and 2 positions"):
        distance(p, [0.5, 0.5])
    for bad in ([0.5, 0.1, 0.1], [-0.5, 1.0, 0.5], [math.nan, 0.5, 0.5]):
        with pytest.raises(ProfileError):
            distance(p, bad)


def test_published_distances(published_dir: Path) -> None:
    file = published_dir / "bloom-176b_fineweb-edu_256_profiles.csv"
    with file.open() as lines:
        rows = list(csv.DictReader(lines))
    columns = {name: np.array([float(row[name]) for row in rows]) for name in rows[0]}
    measured = columns["measured"]
    for name, w1, rank in (
        ("no_residual", 0.6511, None),  # its tail is below the resolution of the figure
        ("residual", 0.0790, 0.907),
        ("residual_content", 0.0159, 0.831),
    ):
        assert metrics.wasserstein(columns[name], measured) == pytest.approx(w1, abs=6e-5)
        if rank is not None:
            assert metrics.spearman(columns[name], measured) == pytest.approx(rank, abs=6e-4)
    uniform = np.full(256, 1 / 256)
    assert metrics.wasserstein(uniform, measured) == pytest.approx(0.1516, abs=6e-5)
    assert metrics.shape_figures(measured).is_u_shaped
    assert not metrics.shape_figures(columns["no_residual"]).is_u_shaped


# --- shape --------------------------------------------------------------------------------------


def naive_smooth(values: Vector) -> Vector:
    n = len(values)
    result = []
    for j in range(n):
        g = min(n // 32, j, n - 1 - j)
        result.append(math.fsum(values[j - g : j + g + 1]) / (2 * g + 1))
    return np.array(result)


@given(pairs(count=1, largest=200))
def test_smooth_is_the_centred_average(given_one: list[Vector]) -> None:
    (p,) = given_one
    np.testing.assert_allclose(metrics.smooth(p), naive_smooth(p), rtol=1e-13, atol=0)


@pytest.mark.parametrize("n", [31, 32, 33, 63, 64, 65, 96, 97, 1000])
def test_smooth_keeps_lines_and_ends(n: int) -> None:
    line = 1.0 + np.arange(n)
    np.testing.assert_allclose(metrics.smooth(line), line, rtol=1e-13)
    spike = np.eye(n)[0]
    assert metrics.smooth(spike)[0] == 1.0


def test_smooth_keeps_the_digits_of_small_values() -> None:
    values = np.exp(-0.5 * np.arange(512))
    np.testing.assert_allclose(metrics.smooth(values), naive_smooth(values), rtol=1e-13)


@given(pairs(count=1, largest=120))
def test_shape_figures_by_their_definitions(given_one: list[Vector]) -> None:
    (p,) = given_one
    n = len(p)
    share = math.ceil(n / 10)
    curve = naive_smooth(p)
    least = curve.min()
    trough = next(j for j in range(n) if curve[j] <= least * (1 + 1e-12))
    shape = metrics.shape_figures(p)
    assert shape.primacy == pytest.approx(math.fsum(p[:share]), abs=1e-14)
    assert shape.recency == pytest.approx(math.fsum(p[n - share :]), abs=1e-14)
    assert curve[shape.trough_position] == pytest.approx(least, rel=1e-11)
    assert abs(shape.trough_position - trough) == 0 or curve[trough] == pytest.approx(least)
    assert shape.trough_depth == pytest.approx(1 - n * least, abs=1e-12)
    assert shape.mean_position == pytest.approx(sum(j * x for j, x in enumerate(p)), abs=1e-11)
    entropy = -math.fsum(x * math.log(x) for x in p if x > 0)
    assert shape.entropy == pytest.approx(entropy, abs=1e-12)


@pytest.mark.parametrize("n", [2, 10, 100, 250, 257])
def test_shape_of_the_uniform_profile(n: int) -> None:
    shape = metrics.shape_figures(np.full(n, 1 / n))
    assert shape.trough_position == 0
    assert shape.trough_depth == pytest.approx(0.0, abs=1e-12)
    assert shape.mean_position == pytest.approx((n - 1) / 2)
    assert shape.entropy == pytest.approx(math.log(n))
    assert shape.primacy == pytest.approx(math.ceil(n / 10) / n)
    assert not shape.is_u_shaped


@pytest.mark.parametrize("n", [16, 64, 256])
def test_u_shape_needs_an_inner_trough_and_two_high_ends(n: int) -> None:
    x = np.linspace(-1.0, 1.0, n)
    curves = {
        "u": 1 + x**2,
        "falling": 2 - x,
        "rising": 2 + x,
        "hill": 2 - x**2,
        "one end": 1 + np.where(x < 0, x**2, 0.1 * x**2),
    }
    shapes = {
        name: metrics.shape_figures(curve / curve.sum()).is_u_shaped
        for name, curve in curves.items()
    }
    assert shapes == {"u": True, "falling": False, "rising": False, "hill": False, "one end": False}


@pytest.mark.parametrize(("rise", "expected"), [(0.24, False), (0.26, True)])
def test_u_margin_is_a_share_of_the_uniform_mass(rise: float, expected: bool) -> None:
    n = 20
    mass = np.full(n, (n - 2 * rise) / n / n)
    mass[[0, -1]] += rise / n
    mass[n // 2] -= 1e-9
    mass[n // 2 + 1] += 1e-9
    assert metrics.shape_figures(mass).is_u_shaped is expected


def test_shape_figures_are_plain_values() -> None:
    shape = metrics.shape_figures([0.5, 0.1, 0.4]).as_dict()
    assert json.loads(json.dumps(shape, allow_nan=False)) == shape
    assert list(shape) == [
        "primacy",
        "recency",
        "trough_position",
        "trough_depth",
        "mean_position",
        "entropy",
        "is_u_shaped",
    ]


def test_shape_of_no_profile_is_refused() -> None:
    with pytest.raises(ProfileError):
        metrics.shape_figures([0.5])
