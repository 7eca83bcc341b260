"""Comparisons under resampled text: predictions move with it, pairs are compared draw by draw."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import synthetic_measurement

from posbias.compare import compare
from posbias.comparison import INTERVAL_FIELDS, Comparison
from posbias.errors import InputError
from posbias.load import load
from posbias.measurement import Measurement
from posbias.metrics import spearman, wasserstein
from posbias.predict import predict
from posbias.profile import Profile
from posbias.rollout import MixingSchedule, Rollout
from posbias.uncertainty import (
    FIGURES,
    KERNEL_ALLOWANCE,
    RESAMPLES,
    SEED,
    Interval,
    Resampled,
    Uncertainty,
    Units,
    predictions,
    resample_comparison,
    resampled_rollouts,
)

STARTS = [[document, 8 * k] for document in range(4) for k in range(3)]


@pytest.fixture(scope="module")
def measurement() -> Measurement:
    return synthetic_measurement.make(STARTS)


@pytest.fixture(scope="module")
def comparison(measurement: Measurement) -> Comparison:
    return compare(measurement, predict(measurement))


def naive_resamples(measurement: Measurement, variant: str, count: int) -> list[tuple[Any, Any]]:
    """Return measured and predicted profile of each draw, one draw at a time."""
    windows = measurement.windows
    rng = np.random.default_rng(SEED)
    draws = rng.multinomial(windows, [1 / windows] * windows, size=RESAMPLES)[:count]
    kind: Any = {"residual": "position", "residual+content": "position+content"}.get(
        variant, "attention"
    )
    kernels = measurement.kernels(kind)
    rows = measurement.arrays["influence.gradient.windows"]
    mixing = measurement.arrays["mixing.norm.windows"]
    found = []
    for draw in draws:
        chosen = [w for w in range(windows) for _ in range(draw[w])]
        measured = sum(rows[w] for w in chosen)
        schedule = np.mean([mixing[w].mean(axis=1) for w in chosen], axis=0)
        rollout = Rollout(kernels, MixingSchedule.custom(schedule))
        found.append((measured / measured.sum(), rollout.profile().mass))
    return found


@pytest.mark.parametrize("variant", ["residual", "residual+content", "residual+measured"])
def test_every_resample_is_a_measurement_of_the_drawn_windows(
    measurement: Measurement, comparison: Comparison, variant: str
) -> None:
    assert comparison.uncertainty is not None
    figures = comparison.uncertainty.predictions[variant].figures
    for b, (measured, predicted) in enumerate(naive_resamples(measurement, variant, 25)):
        assert figures["w1"][b] == pytest.approx(wasserstein(predicted, measured), abs=1e-13)
        assert figures["spearman"][b] == pytest.approx(spearman(predicted, measured))
        assert figures["primacy"][b] == pytest.approx(predicted[0])


def test_intervals_are_the_percentiles_of_the_resamples(comparison: Comparison) -> None:
    assert comparison.uncertainty is not None
    for row in comparison.rows:
        for name in FIGURES:
            found = comparison.intervals[row.variant][name]
            drawn = comparison.uncertainty.predictions[row.variant].figures[name]
            if np.isnan(drawn).any():
                assert not found.is_known
                continue
            assert (found.low, found.high) == pytest.approx(np.quantile(drawn, [0.025, 0.975]))
            assert found.value == getattr(row, name)


def test_profiles_without_measured_coefficients_do_not_move(comparison: Comparison) -> None:
    assert comparison.uncertainty is not None
    fixed = {"attention-only", "fixed-half", "uniform"}
    for name, resampled in comparison.uncertainty.predictions.items():
        assert resampled.moves == (name not in fixed)
        width = comparison.intervals[name]["primacy"].half_width
        assert (width == 0.0) == (name in fixed)
    assert set(comparison.bands()) == {row.variant for row in comparison.rows} - fixed | {
        "measured"
    }
    assert comparison.uncertainty.foreign == ()


def test_bands_hold_the_resampled_profiles(
    measurement: Measurement, comparison: Comparison
) -> None:
    drawn = naive_resamples(measurement, "residual", RESAMPLES)
    for name, k in (("measured", 0), ("residual", 1)):
        low, high = comparison.bands()[name]
        expected = np.quantile([pair[k] for pair in drawn], [0.025, 0.975], axis=0)
        assert low == pytest.approx(expected[0])
        assert high == pytest.approx(expected[1])


def test_foreign_predictions_are_held_fixed_and_named(measurement: Measurement) -> None:
    other = synthetic_measurement.make([[9, 0], [9, 8], [9, 16]])
    spoiled = predict(measurement)["residual"].mass.copy()
    spoiled[[0, 1]] = spoiled[[1, 0]]
    origin = predict(measurement)["residual"].origin
    found = compare(
        measurement,
        {
            "own": predict(measurement)["residual+measured"],
            "other": predict(other)["residual+measured"],
            "plain": Profile(np.full(8, 0.125)),
            "edited": Profile(spoiled, origin=origin),
        },
    )
    assert found.uncertainty is not None
    assert found.uncertainty.foreign == ("other", "plain", "edited")
    assert found.basis.endswith("held fixed: other, plain, edited")
    assert found.intervals["other"]["w1"].is_known
    assert not found.uncertainty.predictions["other"].moves
    assert found.uncertainty.predictions["own"].moves


def test_predictions_read_from_a_table_are_recognised(
    measurement: Measurement, comparison: Comparison, tmp_path: Path
) -> None:
    from posbias.profile_files import write_csv

    write_csv(predict(measurement), tmp_path / "profiles.csv")
    found = compare(measurement, tmp_path / "profiles.csv")
    assert found.uncertainty is not None
    assert found.uncertainty.foreign == ()
    assert found.intervals["residual"] == comparison.intervals["residual"]


def test_other_estimators_move_with_their_own_windows(measurement: Measurement) -> None:
    found = compare(measurement, predict(measurement, estimator="frobenius"))
    assert found.uncertainty is not None
    assert found.uncertainty.foreign == ()
    assert found.uncertainty.predictions["residual"].moves


def test_influence_by_another_method_is_resampled(measurement: Measurement) -> None:
    manifest, arrays = synthetic_measurement.make_parts(STARTS)
    arrays["influence.swap.windows"] = arrays["influence.gradient.windows"] ** 2
    both = Measurement(manifest, arrays)
    found = compare(both, {"by swap": both.influence("swap")})
    assert found.uncertainty is not None
    assert found.uncertainty.predictions["by swap"].moves
    assert found.uncertainty.foreign == ()


def test_profiles_alone_and_single_windows_have_no_intervals(measurement: Measurement) -> None:
    alone = compare(measurement.influence(), predict(measurement))
    one = synthetic_measurement.make([[0, 0]])
    single = compare(one, predict(one))
    off = compare(measurement, predict(measurement), intervals=False)
    for found in (alone, single, off):
        assert found.intervals == {}
        assert found.sampling is None
        assert found.bands() == {}
        assert found.units_needed("residual") is None
        assert "at least two windows" in found.basis
        assert "intervals" not in found.as_dict()
        with pytest.raises(InputError, match="no resamples"):
            found.paired("residual", "uniform")


def test_paired_differences_are_antisymmetric(comparison: Comparison) -> None:
    names = [row.variant for row in comparison.rows]
    opposite = {"closer": "farther", "farther": "closer"}
    for a in names:
        for b in names:
            forth, back = comparison.paired(a, b), comparison.paired(b, a)
            assert forth.difference.value == -back.difference.value
            assert forth.difference.low is not None
            assert back.difference.high is not None
            assert forth.difference.low == pytest.approx(-back.difference.high, abs=1e-15)
            assert forth.share_closer == pytest.approx(1.0 - back.share_closer)
            assert back.verdict == opposite.get(forth.verdict, forth.verdict)
            assert forth.allowance == back.allowance


def test_a_prediction_is_not_distinguished_from_itself(comparison: Comparison) -> None:
    same = comparison.paired("residual", "residual")
    assert (same.difference.low, same.difference.high) == (0.0, 0.0)
    assert (same.share_closer, same.verdict, same.allowance) == (0.5, "not distinguished", 0.0)


def uncertainty(first: Any, second: Any, *, sampled: bool = False) -> Uncertainty:
    """Return an uncertainty over 100 windows with the given W1 of two predictions."""
    empty = np.zeros(2)
    sides = {
        name: Resampled({"w1": np.asarray(w1)}, empty, empty, True, has_sampled_kernels=sampled)
        for name, w1 in (("a", first), ("b", second))
    }
    units = Units("windows", np.arange(100))
    return Uncertainty(units, sides["a"], sides, (), ())


def test_pairs_can_differ_although_their_intervals_overlap() -> None:
    shared = np.random.default_rng(0).normal(0.2, 0.05, 500)
    found = uncertainty(shared, shared + 0.001).paired("a", "b", -0.001)
    assert found.verdict == "closer"
    assert found.share_closer == 1.0
    assert uncertainty(shared, shared[::-1]).paired("a", "b", 0.0).verdict == "not distinguished"


def test_measured_kernels_are_allowed_for() -> None:
    shared = np.full(500, 0.2)
    allowance = KERNEL_ALLOWANCE / 10.0
    for gap, verdict in ((0.9, "not distinguished"), (1.1, "closer")):
        far = shared + gap * allowance
        found = uncertainty(shared, far, sampled=True).paired("a", "b", -gap * allowance)
        assert (found.verdict, found.allowance) == (verdict, allowance)
        assert uncertainty(shared, far).paired("a", "b", -gap * allowance).verdict == "closer"


def test_best_is_compared_with_every_other(comparison: Comparison) -> None:
    best = comparison.best.variant
    assert [p.first for p in comparison.against_best] == [
        row.variant for row in comparison.rows if row.variant != best
    ]
    assert comparison.against_best[0] == comparison.paired(comparison.against_best[0].first, best)
    with pytest.raises(KeyError):
        comparison.paired("residual", "nothing")


def test_files_hold_intervals(comparison: Comparison, tmp_path: Path) -> None:
    document = comparison.as_dict()
    residual = next(row for row in document["rows"] if row["variant"] == "residual")
    assert residual["w1_low"] < residual["w1"] < residual["w1_high"]
    assert document["measured"]["w1_low"] is None
    assert document["measured"]["primacy_low"] < document["measured"]["primacy_high"]
    assert document["intervals"]["unit"] == "windows"
    assert document["intervals"]["units"] == 12
    comparison.write_csv(tmp_path / "c.csv")
    header, *lines = (tmp_path / "c.csv").read_text().splitlines()
    assert header.split(",")[-len(INTERVAL_FIELDS) :] == list(INTERVAL_FIELDS)
    assert len(lines) == 1 + len(comparison.rows)


def test_intervals_come_back_from_files(comparison: Comparison, tmp_path: Path) -> None:
    comparison.write_json(tmp_path / "c.json")
    found = load(tmp_path / "c.json")
    assert isinstance(found, Comparison)
    assert found.as_dict() == comparison.as_dict()
    assert found.against_best == comparison.against_best
    assert found.shown("residual", "w1") == comparison.shown("residual", "w1")
    with pytest.raises(InputError, match="file of an earlier comparison"):
        found.paired("residual", "uniform")


@pytest.mark.parametrize(
    ("path", "value", "words"),
    [
        (("intervals", "units"), "12", "has intervals"),
        (("rows", 0, "w1_low"), "0.1", "interval of w1"),
        (("rows", 0, "w1_low"), None, "interval of w1"),
        (("against_best", 0, "verdict"), "better", "against_best"),
        (("against_best",), None, "against_best"),
    ],
)
def test_damaged_intervals_are_refused(
    comparison: Comparison, tmp_path: Path, path: tuple[Any, ...], value: Any, words: str
) -> None:
    import json

    document = comparison.as_dict()
    part: Any = document
    for key in path[:-1]:
        part = part[key]
    part[path[-1]] = value
    (tmp_path / "c.json").write_text(json.dumps(document))
    with pytest.raises(InputError, match=words):
        load(tmp_path / "c.json")


def test_shown_figures(comparison: Comparison) -> None:
    found = comparison.intervals["residual"]["w1"]
    assert (
        comparison.shown("residual", "w1")
        == f"{found.value:.4f} [{found.low:.3f}, {found.high:.3f}]"
    )
    assert comparison.shown("uniform", "spearman", 3) == "-"
    assert comparison.shown("measured", "trough_position", 0).startswith(
        str(comparison.measured.trough_position)
    )


def test_many_coefficients_at_once_are_one_rollout_each(measurement: Measurement) -> None:
    kernels = measurement.kernels("attention")
    mixing = np.random.default_rng(0).uniform(0.0, 1.0, (9, 3))
    rollout = Rollout(kernels, MixingSchedule.custom(mixing.mean(axis=0)))
    for query in (-1, 3):
        found = resampled_rollouts(rollout, mixing, query)
        for row, values in zip(found, mixing, strict=True):
            expected = Rollout(kernels, MixingSchedule.custom(values)).profile(query).mass
            assert row == pytest.approx(expected, abs=1e-15)
    shared = Rollout(kernels[0], MixingSchedule.custom(mixing[0]))
    assert resampled_rollouts(shared, mixing[:1])[0] == pytest.approx(shared.profile().mass)


def test_first_order_is_close_for_small_deviations(
    measurement: Measurement, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(1)
    center = rng.uniform(0.2, 0.4, 3)
    steps = rng.normal(0.0, 0.01, (40, 3))
    rollout = Rollout(measurement.kernels("attention"), MixingSchedule.custom(center))
    exact = [resampled_rollouts(rollout, center + k * steps) for k in (1.0, 0.5)]
    monkeypatch.setattr(predictions, "WORK_LIMIT", 0)
    assert not predictions.is_exact(rollout, 40)
    first_order = [resampled_rollouts(rollout, center + k * steps) for k in (1.0, 0.5)]
    moved = np.abs(exact[0] - rollout.profile().mass).max()
    errors = [np.abs(a - b).max() for a, b in zip(exact, first_order, strict=True)]
    assert errors[0] < 0.05 * moved
    assert errors[1] < 0.3 * errors[0]  # of second order
    assert resampled_rollouts(rollout, center[None])[0] == pytest.approx(rollout.profile().mass)


def test_first_order_is_stated(
    measurement: Measurement, comparison: Comparison, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(predictions, "WORK_LIMIT", 0)
    found = resample_comparison(measurement, predict(measurement))
    assert found is not None
    assert found.first_order == ("residual", "residual+content", "residual+measured")
    assert found.as_dict()["first_order"] == list(found.first_order)
    w1 = comparison.intervals["residual"]["w1"]
    near = np.quantile(found.predictions["residual"].figures["w1"], [0.025, 0.975])
    assert isinstance(w1, Interval)
    assert w1.half_width is not None
    assert (w1.low, w1.high) == pytest.approx(near, abs=0.1 * w1.half_width)
