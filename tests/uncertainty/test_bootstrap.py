"""Draws of text and intervals: oracles, coverage, invariances."""

from __future__ import annotations

import numpy as np
import pytest
import synthetic_measurement
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.stats import bootstrap as scipy_bootstrap

from posbias.errors import InputError
from posbias.metrics import distance_arrays, shape_arrays, shape_figures
from posbias.profile import Profile
from posbias.uncertainty import (
    FEWEST_DOCUMENTS,
    RESAMPLES,
    SEED,
    Draws,
    Interval,
    Units,
    band,
    draw,
    interval,
    mixing_intervals,
    sampling_units,
    units_needed,
    with_range,
)

Array = NDArray[np.float64]


def windows_of(labels: list[int]) -> Units:
    return Units("documents", np.array(labels))


def drawn(units: Units, **options: int) -> Draws:
    found = draw(units, **options)
    assert found is not None
    return found


def naive_profiles(rows: Array, labels: list[int], resamples: int) -> Array:
    """Draw documents, put their windows together one by one, and normalise their sum."""
    documents = max(labels) + 1
    rng = np.random.default_rng(SEED)
    counts = rng.multinomial(documents, [1 / documents] * documents, size=resamples)
    profiles = []
    for count in counts:
        total = np.zeros(rows.shape[1])
        for document in range(documents):
            for _ in range(count[document]):
                for window, label in enumerate(labels):
                    if label == document:
                        total = total + rows[window]
        profiles.append(total / total.sum())
    return np.array(profiles)


def test_cluster_bootstrap_is_the_naive_loop() -> None:
    labels = [0, 0, 1, 2, 2, 2, 3]
    rows = np.random.default_rng(1).exponential(1.0, (7, 5))
    draws = drawn(windows_of(labels), resamples=40)
    assert draws.profiles(rows) == pytest.approx(naive_profiles(rows, labels, 40))


def test_means_weigh_windows_not_documents() -> None:
    labels = [0, 0, 0, 1]
    values = np.array([1.0, 2.0, 3.0, 10.0])
    draws = drawn(windows_of(labels), resamples=60)
    counts = draws.weights[:, [0, 3]]
    expected = (counts[:, 0] * 6.0 + counts[:, 1] * 10.0) / (counts[:, 0] * 3 + counts[:, 1])
    assert draws.means(values) == pytest.approx(expected)
    assert draws.means(values[:, None] * np.ones((4, 2)))[:, 1] == pytest.approx(expected)


def test_interval_of_a_mean_agrees_with_scipy() -> None:
    values = np.random.default_rng(2).gamma(2.0, 1.0, 60)
    ours = interval(values.mean(), drawn(Units("windows", np.arange(60))).means(values))
    theirs = scipy_bootstrap(
        (values,), np.mean, n_resamples=20_000, method="percentile", rng=np.random.default_rng(3)
    ).confidence_interval
    width = theirs.high - theirs.low
    assert (ours.low, ours.high) == pytest.approx((theirs.low, theirs.high), abs=0.08 * width)


@pytest.mark.parametrize("per_document", [1, 3])
def test_intervals_cover_the_truth(per_document: int) -> None:
    # Documents of a known law: influence of position j is base_j times a factor per document.
    rng = np.random.default_rng(4)
    documents, n, repetitions = 40, 12, 250
    base = np.linspace(1.0, 3.0, n)
    tilt = np.linspace(-1.0, 1.0, n)
    truth = base / base.sum()
    prediction = np.full(n, 1.0 / n)
    w1 = distance_arrays(truth, prediction)["w1"]
    labels = np.repeat(np.arange(documents), per_document)
    draws = drawn(Units("documents", labels), resamples=400)
    hits = {"w1": 0, "mean_position": 0, "primacy": 0}
    exact = {**{k: float(v) for k, v in shape_arrays(truth).items()}, "w1": float(w1)}
    for _ in range(repetitions):
        slope = rng.uniform(-0.8, 0.8, documents)[labels]
        noise = rng.uniform(0.5, 1.5, (labels.size, n))
        rows = base * (1.0 + slope[:, None] * tilt) * noise
        resampled = draws.profiles(rows)
        figures = {**shape_arrays(resampled), **distance_arrays(resampled, prediction)}
        for name in hits:
            found = interval(0.0, figures[name])
            assert found.low is not None
            assert found.high is not None
            hits[name] += found.low <= exact[name] <= found.high
    for name, count in hits.items():
        assert 0.90 <= count / repetitions <= 0.99, name


def test_windows_of_one_document_taken_as_independent_cover_too_little() -> None:
    rng = np.random.default_rng(5)
    documents, per_document, repetitions = 30, 8, 150
    labels = np.repeat(np.arange(documents), per_document)
    by_document = drawn(Units("documents", labels), resamples=300)
    by_window = drawn(Units("windows", np.arange(labels.size)), resamples=300)
    hits = [0, 0]
    for _ in range(repetitions):
        values = rng.normal(0.0, 1.0, documents)[labels] + rng.normal(0.0, 0.3, labels.size)
        for k, draws in enumerate((by_document, by_window)):
            found = interval(0.0, draws.means(values))
            assert found.low is not None
            assert found.high is not None
            hits[k] += found.low <= 0.0 <= found.high
    assert hits[0] / repetitions > 0.88
    assert hits[1] / repetitions < 0.70


@given(st.integers(0, 99))
def test_order_of_windows_within_documents_does_not_matter(seed: int) -> None:
    rng = np.random.default_rng(seed)
    labels = np.sort(rng.integers(0, 4, 9))
    labels = np.unique(labels, return_inverse=True)[1]
    rows = rng.exponential(1.0, (9, 6))
    order = rng.permutation(9)
    first = draw(Units("documents", labels), resamples=30)
    second = draw(Units("documents", labels[order]), resamples=30)
    if first is None or second is None:
        assert labels.max() == 0
        return
    assert second.profiles(rows[order]) == pytest.approx(first.profiles(rows), rel=1e-12)


def test_order_of_documents_changes_the_ends_by_resampling_error_only() -> None:
    rng = np.random.default_rng(6)
    values = rng.normal(0.0, 1.0, 50)
    draws = drawn(Units("windows", np.arange(50)), resamples=4000)
    first, second = (interval(0.0, draws.means(v)) for v in (values, rng.permutation(values)))
    assert first.half_width == pytest.approx(second.half_width, rel=0.06)


def test_constant_rows_give_zero_width() -> None:
    rows = np.tile(np.array([0.5, 0.25, 0.25]), (6, 1))
    resampled = drawn(Units("windows", np.arange(6))).profiles(rows)
    for name, values in shape_arrays(resampled).items():
        found = interval(0.0, values.astype(float))
        assert found.half_width == pytest.approx(0.0, abs=1e-15), name
    low, high = band(resampled)
    assert low == pytest.approx(high)


def test_one_unit_has_no_interval() -> None:
    assert draw(Units("windows", np.zeros(1, dtype=int))) is None
    assert draw(windows_of([0, 0, 0])) is None
    assert not interval(1.0, None).is_known
    assert interval(1.0, None).half_width is None


def test_undefined_resamples_give_no_interval() -> None:
    assert not interval(0.5, [0.1, np.nan, 0.9]).is_known


def test_draws_depend_on_seed_and_number_of_units_only() -> None:
    first = drawn(Units("windows", np.arange(9)))
    assert first.count == RESAMPLES
    assert np.array_equal(first.weights, drawn(Units("documents", np.arange(9))).weights)
    assert not np.array_equal(first.weights, drawn(Units("windows", np.arange(9)), seed=1).weights)
    assert (first.weights.sum(axis=1) == 9).all()


def starts(documents: int, each: int = 2) -> list[list[int]]:
    return [[document, 8 * k] for document in range(documents) for k in range(each)]


def test_documents_are_the_units_from_ten_on() -> None:
    few = sampling_units(synthetic_measurement.make(starts(FEWEST_DOCUMENTS - 1)))
    many = sampling_units(synthetic_measurement.make(starts(FEWEST_DOCUMENTS)))
    assert (few.kind, few.count, str(few)) == ("windows", 18, "18 windows")
    assert (many.kind, many.count, many.windows) == ("documents", 10, 20)
    assert many.labels.tolist() == [k // 2 for k in range(20)]
    assert str(windows_of([0])) == "1 document"


def test_packed_windows_are_units_themselves() -> None:
    manifest, arrays = synthetic_measurement.make_parts(starts(12))
    manifest["windows"]["packed"] = True
    packed = synthetic_measurement.Measurement(manifest, arrays)
    assert sampling_units(packed).kind == "windows"


def test_numbers_of_documents_need_not_be_consecutive() -> None:
    units = sampling_units(synthetic_measurement.make([[7 * k, 0] for k in range(11)]))
    assert units.count == 11


def test_intervals_of_mixing_by_hand() -> None:
    measurement = synthetic_measurement.make(starts(5))
    for estimator in ("norm", "frobenius"):
        found = mixing_intervals(measurement, estimator)
        values = measurement.arrays[f"mixing.{estimator}.windows"]
        values = values.mean(axis=2) if values.ndim == 3 else values
        weights = drawn(sampling_units(measurement)).weights
        for t, layer in enumerate(found):
            means = [float(w @ values[:, t]) / w.sum() for w in weights]
            assert (layer.low, layer.high) == pytest.approx(np.quantile(means, [0.025, 0.975]))
            assert layer.value == pytest.approx(values[:, t].mean())
    assert not mixing_intervals(synthetic_measurement.make([[0, 0]]))[0].is_known


def test_four_times_the_text_halves_the_width() -> None:
    rng = np.random.default_rng(8)
    values = rng.normal(0.0, 1.0, 1600)
    small, large = (
        interval(0.0, drawn(Units("windows", np.arange(k))).means(values[:k])) for k in (400, 1600)
    )
    assert large.half_width is not None
    needed = units_needed(small, large.half_width, 400)
    assert needed == pytest.approx(1600, rel=0.15)
    assert units_needed(Interval(1.0), 0.1, 4) is None
    assert units_needed(Interval(1.0, 1.0, 1.0), 0.1, 64) == 2


@pytest.mark.parametrize("width", [0.0, -1.0, float("nan"), float("inf")])
def test_impossible_widths_are_refused(width: float) -> None:
    with pytest.raises(InputError, match="positive number"):
        units_needed(Interval(1.0, 0.9, 1.1), width, 10)


def test_figures_of_many_profiles_are_those_of_each() -> None:
    rng = np.random.default_rng(9)
    profiles = rng.dirichlet(np.full(70, 0.4), 20)
    profiles[3] = 1.0 / 70
    shapes = shape_arrays(profiles)
    distances = distance_arrays(profiles, profiles[::-1])
    single = distance_arrays(profiles[5], profiles[14])
    for name, values in distances.items():
        assert values[5] == pytest.approx(float(single[name]), nan_ok=True)
    assert np.isnan(distances["spearman"][3])
    for k, profile in enumerate(profiles):
        alone = shape_figures(Profile(profile)).as_dict()
        assert {name: values[k] for name, values in shapes.items()} == pytest.approx(alone)


def test_ranges_for_people() -> None:
    assert with_range(Interval(0.5)) == "0.5000"
    assert with_range(Interval(float("nan"))) == "-"
    assert with_range(Interval(3.0, 3.0, 3.0), 0) == "3"
    assert with_range(Interval(-0.5, -0.61, -0.4), 3) == "-0.500 [-0.61, -0.40]"


def test_effective_number_of_units_counts_those_that_weigh() -> None:
    rows = np.array([[1.0, 2.0], [2.0, 1.0], [0.0, 3.0], [0.5, 2.5]])
    assert Units("windows", np.arange(4)).effective(rows) == pytest.approx(4.0)
    assert Units("documents", np.array([0, 0, 1, 1])).effective(rows) == pytest.approx(2.0)
    # One document of totals 9 + 3 beside one of 3: (12 + 3)^2 / (144 + 9).
    heavy = np.array([[9.0, 0.0], [1.0, 2.0], [3.0, 0.0]])
    units = Units("documents", np.array([0, 0, 1]))
    assert units.effective(heavy) == pytest.approx(225 / 153)
    assert units.effective(1e6 * heavy) == pytest.approx(225 / 153)
