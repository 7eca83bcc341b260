"""Predictions under every estimator, against loops over the arrays of a measurement."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import numpy as np
import pytest
from naive_estimators import energy_profile, sinks_of_layer, treated
from synthetic_measurement import HEADS, LAYERS, LENGTH, make, make_parts, with_all_arrays

from posbias.cli._sources import load_rollout
from posbias.compare import compare
from posbias.errors import InputError
from posbias.estimator import AXES, Estimator
from posbias.load import load
from posbias.measure.options import MeasureOptions
from posbias.measurement import Measurement
from posbias.plan import plan_predictions
from posbias.predict import VARIANTS, predict, recorded_estimator
from posbias.profile_files import write_json
from posbias.rollout import MixingSchedule
from posbias.run import run
from posbias.spec import Spec
from posbias.uncertainty.predictions import resampled_rollouts

KERNEL_ARRAYS = {
    ("attention", "amplitudes"): "kernel.attention.sum",
    ("attention", "energies"): "kernel.attention-energy.sum",
    ("value-weighted", "amplitudes"): "kernel.value.sum",
    ("value-weighted", "energies"): "kernel.value-energy.sum",
    ("centred-value-weighted", "amplitudes"): "kernel.centred-value.sum",
    ("centred-value-weighted", "energies"): "kernel.centred-value-energy.sum",
}


def with_sink(*layers: int) -> Measurement:
    """Return a measurement with all arrays in which position 0 is a sink of some layers."""
    whole = with_all_arrays()
    arrays = {name: array.copy() for name, array in whole.arrays.items()}
    for t in layers:
        arrays["kernel.attention.sum"][t] = 0.0
        for i in range(LENGTH):
            arrays["kernel.attention.sum"][t, i, i] += 0.01 * whole.windows
            arrays["kernel.attention.sum"][t, i, 0] += 0.99 * whole.windows
    return Measurement(whole.manifest, arrays)


def naive_measured(measurement: Measurement, estimator: Estimator, query: int) -> np.ndarray:
    """Return residual+measured from the definitions."""
    arrays = measurement.arrays
    name = f"{estimator.mixing}{'+mlp' if estimator.mlp else ''}"
    per_layer = np.moveaxis(arrays[f"mixing.{name}.windows"], 1, 0).reshape(LAYERS, -1)
    shares = per_layer.mean(axis=1).tolist()
    kernels = []
    for t in range(LAYERS):
        total = arrays[KERNEL_ARRAYS[estimator.kernel, estimator.addition]][t]
        attention = arrays["kernel.attention.sum"][t] / measurement.windows
        sinks = sinks_of_layer(attention)
        kernels.append(treated(total / measurement.windows, sinks, estimator.sinks))
    if estimator.addition == "energies":
        return energy_profile(kernels, shares, query)
    product = np.eye(LENGTH)
    for kernel, share in zip(kernels, shares, strict=True):
        product = ((1 - share) * np.eye(LENGTH) + share * kernel) @ product
    return np.asarray(product[query])


@pytest.mark.parametrize("mixing", AXES["mixing"])
def test_every_estimator_against_loops(mixing: str) -> None:
    measurement = with_sink(0, 2)
    assert measurement.sinks().by_layer == ((0,), (), (0,))
    flags = (False,) if mixing in ("frobenius", "jacobian") else (False, True)
    rest = itertools.product(flags, AXES["kernel"], AXES["sinks"], AXES["addition"])
    for mlp, kernel, sinks, addition in rest:
        estimator = Estimator(mixing, mlp, kernel, sinks, addition)  # type: ignore[arg-type]
        profile = plan_predictions(measurement, estimator=estimator).rollout("residual+measured")
        for query in (-1, 4):
            expected = naive_measured(measurement, estimator, query)
            assert np.allclose(profile.profile(query).mass, expected, rtol=1e-10, atol=1e-14), str(
                estimator
            )


def test_auto_has_the_paper_s_ladder_and_the_recommended_row() -> None:
    measurement = with_sink(1)
    profiles = predict(measurement)
    assert list(profiles) == [
        v for v in VARIANTS if v not in ("residual+lag", "paper+mlp", "paper")
    ]
    paper = predict(measurement, estimator="paper")
    assert list(paper) == [name for name in profiles if name != "energy-rollout"]
    for name, profile in paper.items():
        assert np.array_equal(profile.mass, profiles[name].mass)
    expected = naive_measured(measurement, Estimator.parse("energy-rollout"), -1)
    found = profiles["energy-rollout"]
    assert np.allclose(found.mass, expected, rtol=1e-12)
    assert (found.origin["estimator"], found.origin["estimator_choice"]) == (
        "energy-rollout",
        "auto",
    )
    assert [n for n, p in profiles.items() if p.origin.get("recommended")] == ["energy-rollout"]
    assert profiles["residual"].origin["estimator"] == "paper"
    assert not any(p.origin.get("recommended") for p in paper.values())
    assert json.loads(json.dumps(found.origin)) == found.origin


def test_coherent_contributions_recommend_amplitudes_with_the_mlp() -> None:
    measurement = with_sink(1)
    arrays = dict(measurement.arrays)
    arrays["stream.coherence.windows"] = np.full_like(arrays["stream.coherence.windows"], 6.0)
    profiles = predict(Measurement(measurement.manifest, arrays))
    assert [n for n, p in profiles.items() if p.origin.get("recommended")] == ["paper+mlp"]
    expected = naive_measured(measurement, Estimator.parse("paper,mlp=true"), -1)
    assert np.allclose(profiles["paper+mlp"].mass, expected, rtol=1e-12)
    assert "energy-rollout" in profiles


def test_what_a_treatment_moved_is_told() -> None:
    measurement = with_sink(1)
    told = predict(measurement)["energy-rollout"].origin["sinks"]
    total = measurement.arrays["kernel.centred-value-energy.sum"] / measurement.windows
    assert (told["treatment"], told["positions"]) == ("identity", [0])
    assert told["mass_by_layer"] == pytest.approx([0.0, total[1, 1:, 0].sum() / LENGTH, 0.0])
    assert told["mass"] == pytest.approx(np.mean(told["mass_by_layer"]))
    kept = predict(measurement, estimator="energy-rollout,sinks=keep")
    assert "sinks" not in kept["residual+measured"].origin


def test_another_estimator_has_the_paper_s_row_beside_it() -> None:
    measurement = with_all_arrays()
    profiles = predict(measurement, estimator="paper,mixing=centred,sinks=identity")
    assert list(profiles) == [
        v for v in VARIANTS if v not in ("residual+lag", "energy-rollout", "paper+mlp")
    ]
    paper = predict(measurement, estimator="paper")
    assert np.array_equal(profiles["paper"].mass, paper["residual+measured"].mass)
    assert profiles["paper"].origin["estimator"] == "paper"
    assert np.array_equal(profiles["fixed-half"].mass, paper["fixed-half"].mass)
    schedule = plan_predictions(measurement, estimator="paper,mixing=centred").rollout("residual")
    assert schedule.schedule == MixingSchedule(measurement.mixing("centred"))


@pytest.mark.parametrize("alibi", [True, False])
def test_modelled_kernels_add_the_energies_of_their_heads(alibi: bool) -> None:
    whole = with_all_arrays()
    _, arrays = make_parts(alibi=alibi)
    arrays = {**{k: v for k, v in whole.arrays.items() if "slopes" not in k}, **arrays}
    measurement = Measurement(make_parts(alibi=alibi)[0], arrays)
    profiles = predict(
        measurement, estimator="energy-rollout", variants=["attention-only", "residual+content"]
    )
    shares = measurement.mixing("centred-energy+mlp").tolist()
    slopes = [0.5, 0.25] if alibi else [0.0, 0.0]
    bare, full = [], []
    for t in range(LAYERS):
        for d, kernels in ((np.zeros(HEADS), bare), (measurement.content()[t], full)):
            energy = np.zeros((LENGTH, LENGTH))
            for h in range(HEADS):
                for i in range(LENGTH):
                    lags = i - np.arange(i + 1)
                    row = np.exp(-slopes[h] * lags + d[h] * (lags == 0))
                    energy[i, : i + 1] += (row / row.sum()) ** 2
            kernels.append(energy / energy.sum(axis=1, keepdims=True))
    expected = energy_profile(bare, [1.0] * LAYERS, -1)
    assert np.allclose(profiles["attention-only"].mass, expected, rtol=1e-11)
    expected = energy_profile(full, shares, -1)
    assert np.allclose(profiles["residual+content"].mass, expected, rtol=1e-11)


def test_measurements_without_the_arrays_keep_the_paper_s_predictions() -> None:
    profiles = predict(make())
    assert "energy-rollout" not in profiles
    assert profiles["residual+measured"].origin["recommended"]
    for estimator in ("energy-rollout", "paper,mixing=energy", "paper,kernel=value-weighted"):
        with pytest.raises(InputError, match=r"measure again with record=.*--record"):
            predict(make(), estimator=estimator)
    with pytest.raises(InputError, match=r"needs what the source lacks.*--record default"):
        predict(make(), variants=["energy-rollout"])
    with pytest.raises(InputError, match="--jacobian"):
        predict(make(), estimator="paper,mixing=jacobian")


def test_measured_rows_end_at_the_measured_length() -> None:
    measurement = with_all_arrays()
    assert list(predict(measurement, n=12)) == [
        *("attention-only", "residual", "residual+content", "uniform")
    ]
    for name in ("energy-rollout", "paper"):
        with pytest.raises(InputError, match=r"attention at 12 positions.*measured at 8"):
            predict(measurement, variants=[name], n=12)
    shorter = predict(measurement, n=5)["energy-rollout"]
    assert shorter.n == 5
    assert shorter.origin["recommended"]


def test_specs_have_no_estimator() -> None:
    spec = Spec("one", 8, 2, ({"alibi": {"slopes": [0.5]}},), {"type": "constant", "value": 0.3})
    assert list(predict(spec, estimator="paper")) == list(predict(spec)) == ["residual"]
    with pytest.raises(InputError, match="no measurement"):
        predict(spec, estimator="energy-rollout")
    with pytest.raises(InputError, match="measured attention; measure the model"):
        predict(spec, variants=["energy-rollout"])


@pytest.mark.parametrize("choice", ["auto", "paper", "energy-rollout,mlp=false", "frobenius"])
def test_the_choice_of_a_run_is_kept_by_what_reads_it(tmp_path: Path, choice: str) -> None:
    measurement = with_sink(0)
    measurement.save(tmp_path / "run" / "measurement")
    profiles = predict(measurement, estimator=choice)
    write_json(profiles, tmp_path / "run" / "profiles.json")
    assert recorded_estimator(tmp_path / "run") == choice
    again = predict(tmp_path / "run")
    assert list(again) == list(profiles)
    assert all(np.array_equal(again[name].mass, profiles[name].mass) for name in profiles)
    mixing = {"auto": "norm", "paper": "norm", "frobenius": "frobenius"}
    expected = measurement.mixing(mixing.get(choice, "centred-energy"))
    assert np.array_equal(load_rollout(tmp_path / "run").schedule.values, expected)


def test_profiles_of_older_runs_are_understood(tmp_path: Path) -> None:
    measurement = make()
    measurement.save(tmp_path / "run" / "measurement")
    old = {
        name: type(profile)(profile.mass, name=name, origin={"estimator": "norm"})
        for name, profile in predict(measurement).items()
    }
    write_json(old, tmp_path / "run" / "profiles.json")
    assert recorded_estimator(tmp_path / "run") == "norm"
    assert next(iter(predict(tmp_path / "run"))) == "attention-only"


def test_a_comparison_knows_the_recommended_row_and_resamples_it(tmp_path: Path) -> None:
    measurement = with_sink(0)
    found = compare(measurement, predict(measurement))
    assert (found.estimator, found.recommended) == ("auto", "energy-rollout")
    assert found.sampling is not None
    assert (found.sampling["held_fixed"], found.sampling["first_order"]) == ([], [])
    assert found.uncertainty is not None
    assert found.uncertainty.predictions["energy-rollout"].moves
    found.write_json(tmp_path / "c.json")
    read = load(tmp_path / "c.json")
    assert read.as_dict() == found.as_dict()
    explicit = compare(measurement, predict(measurement, estimator="energy-rollout"))
    assert (explicit.estimator, explicit.recommended) == ("energy-rollout", None)
    assert explicit.sampling is not None
    assert explicit.sampling["held_fixed"] == []


def test_resampled_energies_are_those_of_each_set_of_coefficients(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    measurement = with_all_arrays()
    rollout = plan_predictions(measurement).rollout("energy-rollout")
    center = np.asarray(rollout.schedule.values)
    mixing = center + 1e-4 * np.random.default_rng(0).uniform(-1, 1, (5, LAYERS))
    matrices = [kernel.toarray() for kernel in rollout.kernels]
    expected = np.stack([energy_profile(matrices, list(row), -1) for row in mixing])
    assert np.allclose(resampled_rollouts(rollout, mixing), expected, rtol=1e-11)
    monkeypatch.setattr("posbias.uncertainty.predictions.WORK_LIMIT", 0)
    assert np.allclose(resampled_rollouts(rollout, mixing), expected, rtol=0, atol=1e-7)


@pytest.mark.parametrize(
    ("options", "estimator", "fragment"),
    [
        ({"record": "paper"}, "energy-rollout", "--record default"),
        ({}, "paper,kernel=value-weighted", "--record all"),
        ({}, "paper,addition=energies", "--record all"),
        ({"record": "paper"}, "paper,mixing=jacobian", "--jacobian 8"),
        ({"kernels": "summary"}, "energy-rollout", "kernels in full"),
        ({}, "mean", "unknown"),
    ],
)
def test_a_run_refuses_what_it_would_not_measure(
    options: dict[str, str], estimator: str, fragment: str, tmp_path: Path
) -> None:
    with pytest.raises(InputError) as caught:
        run(out=tmp_path / "o", options=MeasureOptions(**options), estimator=estimator)  # type: ignore[arg-type]
    assert fragment in str(caught.value)
