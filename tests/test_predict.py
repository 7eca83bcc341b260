"""Predictions against dense products of transitions, written out here."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from synthetic_measurement import HEADS, LAYERS, LENGTH, make, make_parts

from posbias.errors import ArtifactError, InputError, SpecError
from posbias.kernels import DenseKernel
from posbias.measurement import Measurement
from posbias.predict import VARIANTS, predict
from posbias.rollout import MixingSchedule, Rollout
from posbias.spec import Spec, save_spec

SLOPES = [0.5, 0.25]


def alibi_kernel(n: int, diagonals: list[float]) -> np.ndarray:
    """Mean over heads of softmax(-slope * lag + diagonal)."""
    kernel = np.zeros((n, n))
    for slope, diagonal in zip(SLOPES, diagonals, strict=True):
        for i in range(n):
            weights = [math.exp(-slope * (i - j) + diagonal * (i == j)) for j in range(i + 1)]
            kernel[i, : i + 1] += np.array(weights) / sum(weights) / len(SLOPES)
    return kernel


def dense_rollout(kernels: list[np.ndarray], mixing: list[float], query: int = -1) -> np.ndarray:
    """Row `query` of the product of all transitions, formed as a matrix."""
    n = len(kernels[0])
    product = np.eye(n)
    for kernel, share in zip(kernels, mixing, strict=True):
        product = ((1 - share) * np.eye(n) + share * kernel) @ product
    return product[query]


def make_spec(mixing: Any = 0.3, *, diagonal: float = 0.0, n: int = 9) -> Spec:
    layer = {"alibi": {"slopes": SLOPES, "diagonal": diagonal}}
    spec = Spec("example", n, LAYERS, (layer,))
    return spec if mixing is None else spec.with_mixing(mixing)


@pytest.mark.parametrize("estimator", ["norm", "frobenius"])
@pytest.mark.parametrize("query", [-1, 5])
@pytest.mark.parametrize("n", [None, 6, 14])
def test_variants_of_a_measurement(estimator: str, query: int, n: int | None) -> None:
    measurement = make()
    size = LENGTH if n is None else n
    mixing = measurement.mixing(estimator).tolist()
    bare = [alibi_kernel(size, [0.0] * HEADS)] * LAYERS
    content = [alibi_kernel(size, d) for d in measurement.content().tolist()]
    sums = measurement.arrays["kernel.attention.sum"] / measurement.windows
    attention = [layer[:size, :size] for layer in sums]
    expected = {
        "attention-only": dense_rollout(bare, [1.0] * LAYERS, query),
        "residual": dense_rollout(bare, mixing, query),
        "residual+content": dense_rollout(content, mixing, query),
    }
    if size <= LENGTH:
        expected["residual+measured"] = dense_rollout(attention, mixing, query)
        if estimator == "frobenius":
            norm = measurement.mixing("norm").tolist()
            expected["paper"] = dense_rollout(attention, norm, query)
        expected["fixed-half"] = dense_rollout(attention, [0.5] * LAYERS, query)
    last = size - 1 if query == -1 else query
    expected["uniform"] = np.array([1 / (last + 1)] * (last + 1) + [0.0] * (size - last - 1))
    profiles = predict(measurement, n=n, query=query, estimator=estimator)
    assert list(profiles) == list(expected)
    for name, mass in expected.items():
        assert np.allclose(profiles[name].mass, mass, rtol=0, atol=1e-13), name
        assert profiles[name].name == name


def test_without_alibi_the_content_free_kernel_is_uniform() -> None:
    measurement = make(alibi=False)
    kernel = np.tril(np.ones((LENGTH, LENGTH))) / np.arange(1, LENGTH + 1)[:, None]
    mass = dense_rollout([kernel] * LAYERS, measurement.mixing().tolist())
    assert np.allclose(predict(measurement)["residual"].mass, mass, atol=1e-14)


@pytest.mark.parametrize(("alibi", "windows"), [(False, None), (True, None), (False, [3, None, 1])])
@pytest.mark.parametrize("n", [None, 5])
def test_lag_kernels_have_the_mean_logits_by_lag(
    alibi: bool, windows: list[int | None] | None, n: int | None
) -> None:
    measurement = make(alibi=alibi, layer_windows=windows)
    size = n or LENGTH
    total, count = (measurement.arrays[f"logits.lag.{name}"] for name in ("sum", "count"))
    kernels = []
    for t in range(LAYERS):
        reach = LENGTH if windows is None or windows[t] is None else windows[t]
        kernel = np.zeros((size, size))
        for h in range(HEADS):
            for i in range(size):
                seen = range(max(0, i - reach + 1), i + 1)
                logits = {j: total[t, h, i - j] / count[t, i - j] for j in seen}
                if alibi:
                    logits = {j: x - SLOPES[h] * (i - j) for j, x in logits.items()}
                weights = {j: math.exp(x) for j, x in logits.items()}
                for j, weight in weights.items():
                    kernel[i, j] += weight / sum(weights.values()) / HEADS
        kernels.append(kernel)
    mass = dense_rollout(kernels, measurement.mixing().tolist())
    profiles = predict(measurement, variants=["residual+lag"], n=n)
    assert np.allclose(profiles["residual+lag"].mass, mass, rtol=0, atol=1e-12)


def test_lag_variant_is_offered_by_what_has_it() -> None:
    assert "residual+lag" in predict(make(alibi=False))
    assert "residual+lag" not in predict(make(alibi=True))
    with pytest.raises(InputError, match=r"logits by lag at 9 positions.*end at 8"):
        predict(make(alibi=False), variants=["residual+lag"], n=9)
    with pytest.raises(InputError, match="logits by lag were measured at 8"):
        make().kernels("lag", n=9)
    manifest, arrays = make_parts(alibi=False)
    kept = {name: array for name, array in arrays.items() if not name.startswith("logits.")}
    old = Measurement(manifest, kept)
    assert "residual+lag" not in predict(old)
    for source in (old, make_spec()):
        with pytest.raises(InputError, match="logits by lag"):
            predict(source, variants=["residual+lag"])


def test_measured_variants_need_attention_at_that_length() -> None:
    for name in ("residual+measured", "fixed-half"):
        with pytest.raises(InputError, match=r"attention at 9 positions.*measured at 8"):
            predict(make(), variants=[name], n=9)


@pytest.mark.parametrize(
    ("mixing", "diagonal", "name"),
    [
        (0.3, 0.0, "residual"),
        (1.0, 0.0, "attention-only"),
        ([1.0, 1.0, 0.9], 0.0, "residual"),
        (0.3, 1.5, "residual+content"),
        (1.0, 1.5, "residual+content"),
    ],
)
def test_a_spec_gives_the_one_profile_that_it_says(mixing: Any, diagonal: float, name: str) -> None:
    profiles = predict(make_spec(mixing, diagonal=diagonal))
    assert list(profiles) == [name]
    shares = [mixing] * LAYERS if isinstance(mixing, float) else mixing
    mass = dense_rollout([alibi_kernel(9, [diagonal] * 2)] * LAYERS, shares)
    assert np.allclose(profiles[name].mass, mass, atol=1e-14)


def test_named_variants_of_a_spec() -> None:
    profiles = predict(
        make_spec(diagonal=1.5),
        variants=["uniform", "fixed-half", "residual+content", "residual", "attention-only"],
        n=12,
    )
    bare, full = (alibi_kernel(12, [d] * HEADS) for d in (0.0, 1.5))
    assert [name for name in VARIANTS if name in profiles] == list(profiles)
    for name, kernel, share in [
        ("attention-only", bare, 1.0),
        ("residual", bare, 0.3),
        ("residual+content", full, 0.3),
        ("fixed-half", full, 0.5),
    ]:
        mass = dense_rollout([kernel] * LAYERS, [share] * LAYERS)
        assert np.allclose(profiles[name].mass, mass, atol=1e-14), name
    assert profiles["uniform"].mass == pytest.approx(np.full(12, 1 / 12))


def test_a_spec_without_mixing_predicts_what_needs_none() -> None:
    bare = make_spec(None)
    assert list(predict(bare, variants=["attention-only", "fixed-half", "uniform"])) == [
        "attention-only",
        "fixed-half",
        "uniform",
    ]
    with pytest.raises(SpecError, match="no mixing"):
        predict(bare)


@pytest.mark.parametrize("name", ["residual+measured", "residual+content"])
def test_a_spec_lacks_what_only_content_or_measurement_gives(name: str) -> None:
    with pytest.raises(InputError, match="needs what the source lacks"):
        predict(make_spec(), variants=[name])


def test_a_rollout_gives_its_own_profile_and_two_others() -> None:
    array = np.tril(np.random.default_rng(1).uniform(0.1, 1.0, (7, 7)))
    array /= array.sum(axis=1, keepdims=True)
    rollout = Rollout([DenseKernel(array)], MixingSchedule.constant(4, 0.2))
    assert np.array_equal(predict(rollout)["residual"].mass, rollout.profile().mass)
    only = Rollout([DenseKernel(array)], MixingSchedule.constant(4, 1.0))
    assert list(predict(only)) == ["attention-only"]
    short = predict(rollout, variants=["fixed-half", "attention-only"], n=5)
    for name, share in (("attention-only", 1.0), ("fixed-half", 0.5)):
        mass = dense_rollout([array[:5, :5]] * 4, [share] * 4)
        assert np.allclose(short[name].mass, mass, atol=1e-14)
    with pytest.raises(InputError, match="the rollout has 7 positions"):
        predict(rollout, n=8)
    with pytest.raises(InputError, match="content and position apart"):
        predict(rollout, variants=["residual+content"])


def test_mixing_per_position_is_shortened_with_the_rollout() -> None:
    values = np.random.default_rng(2).uniform(0.0, 1.0, (3, 6))
    kernel = np.tril(np.ones((6, 6))) / np.arange(1, 7)[:, None]
    rollout = Rollout([DenseKernel(kernel)], MixingSchedule.custom(values))
    expected = np.eye(4)
    for shares in values[:, :4]:
        step = np.diag(1 - shares) + np.diag(shares) @ kernel[:4, :4]
        expected = step @ expected
    assert np.allclose(predict(rollout, n=4)["residual"].mass, expected[-1], atol=1e-14)


def test_paths_of_measurements_and_specs(tmp_path: Path) -> None:
    folder = make().save(tmp_path / "m")
    stored, direct = predict(str(folder)), predict(make())
    assert all(np.array_equal(stored[name].mass, direct[name].mass) for name in direct)
    save_spec(make_spec(), tmp_path / "spec.yaml")
    assert np.array_equal(
        predict(tmp_path / "spec.yaml")["residual"].mass, predict(make_spec())["residual"].mass
    )
    with pytest.raises(SpecError):
        predict(tmp_path / "nothing.yaml")
    with pytest.raises(ArtifactError):
        predict(tmp_path)


def test_the_origin_tells_where_a_profile_comes_from(tmp_path: Path) -> None:
    folder = make().save(tmp_path / "m")
    save_spec(make_spec(), tmp_path / "spec.yaml")
    measured = predict(folder, estimator="frobenius", query=-2)["residual+measured"].origin
    assert measured["source"] == str(folder)
    assert len(measured["sha256"]) == 64
    assert (measured["variant"], measured["estimator"]) == ("residual+measured", "frobenius")
    assert (measured["n"], measured["query"]) == (LENGTH, LENGTH - 2)
    from_spec = predict(tmp_path / "spec.yaml", n=30)["residual"].origin
    assert (from_spec["source"], from_spec["n"]) == ("spec.yaml", 30)
    assert "posbias_version" in from_spec
    assert json.loads(json.dumps(measured)) == measured


@pytest.mark.parametrize(
    ("arguments", "fragment"),
    [
        ({"variants": ["residuals"]}, "did you mean 'residual'"),
        ({"variants": [3]}, "variant 3 is unknown"),
        ({"variants": []}, "a list of names"),
        ({"variants": "residual"}, "a list of names"),
        ({"variants": ["uniform", "uniform"]}, "may be named once"),
        ({"n": 1}, "at least 2"),
        ({"n": True}, "at least 2"),
        ({"n": 4.0}, "at least 2"),
        ({"query": 9}, "-9..8"),
        ({"query": -10}, "-9..8"),
        ({"query": 1.0}, "integer position"),
        ({"estimator": "frobenius"}, "no measurement"),
    ],
)
def test_wrong_arguments(arguments: dict[str, Any], fragment: str) -> None:
    with pytest.raises(InputError) as caught:
        predict(make_spec(), **arguments)
    assert fragment in str(caught.value)


def test_wrong_sources_and_estimators() -> None:
    with pytest.raises(InputError, match="cannot predict from dict"):
        predict({})  # type: ignore[arg-type]
    with pytest.raises(InputError, match="estimator 'mean'"):
        predict(make(), estimator="mean")
