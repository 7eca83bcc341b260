"""Results of a measurement against loops over its arrays."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from synthetic_measurement import HEADS, LAYERS, LENGTH, make, make_parts

from posbias.errors import InputError
from posbias.measurement import Measurement


def softmax_kernel(
    slopes: list[float], diagonals: list[float], n: int, window: int | None
) -> np.ndarray:
    """Head mean of softmax(-slope * lag + diagonal), entry by entry."""
    kernel = np.zeros((n, n))
    for slope, diagonal in zip(slopes, diagonals, strict=True):
        for i in range(n):
            first = 0 if window is None else max(0, i - window + 1)
            weights = {
                j: math.exp(-slope * (i - j) + (diagonal if i == j else 0.0))
                for j in range(first, i + 1)
            }
            for j, weight in weights.items():
                kernel[i, j] += weight / sum(weights.values()) / len(slopes)
    return kernel


def test_sizes() -> None:
    measurement = make()
    sizes = (measurement.windows, measurement.layers, measurement.heads, measurement.n)
    assert sizes == (4, LAYERS, HEADS, LENGTH)


def test_mixing_is_the_mean_over_tokens_and_windows() -> None:
    measurement = make()
    tokens = measurement.arrays["mixing.norm.windows"]
    matrices = measurement.arrays["mixing.frobenius.windows"]
    for t in range(LAYERS):
        values = [tokens[w, t, i] for w in range(4) for i in range(LENGTH)]
        mean = sum(values) / len(values)
        assert measurement.mixing()[t] == pytest.approx(mean, rel=1e-14)
        spread = math.sqrt(sum((v - mean) ** 2 for v in values) / len(values))
        assert measurement.mixing_std()[t] == pytest.approx(spread, rel=1e-13)
        means = [matrices[w, t] for w in range(4)]
        assert measurement.mixing("frobenius")[t] == pytest.approx(sum(means) / 4, rel=1e-14)
        assert measurement.mixing_std("frobenius")[t] == pytest.approx(np.std(means), rel=1e-13)
        for i in range(LENGTH):
            column = sum(tokens[w, t, i] for w in range(4)) / 4
            assert measurement.mixing_per_position()[t, i] == pytest.approx(column, rel=1e-14)
    assert np.array_equal(measurement.schedule("frobenius").values, measurement.mixing("frobenius"))


def test_content_is_the_mean_difference_of_diagonal_and_lower_triangle() -> None:
    measurement = make()
    diagonal = measurement.arrays["content.diagonal.windows"]
    lower = measurement.arrays["content.lower.windows"]
    for t in range(LAYERS):
        for h in range(HEADS):
            values = [diagonal[w, t, h] - lower[w, t, h] for w in range(4)]
            assert measurement.content()[t, h] == pytest.approx(sum(values) / 4, rel=1e-13)
            assert measurement.content_std()[t, h] == pytest.approx(np.std(values), rel=1e-13)


def test_content_fit() -> None:
    measurement = make()
    fit, arrays = measurement.content_fit(), measurement.arrays
    a = math.sqrt(sum(arrays["content.diagonal.std.windows"][w, 1, 0] ** 2 for w in range(4)) / 4)
    b = math.sqrt(sum(arrays["content.lower.std.windows"][w, 1, 0] ** 2 for w in range(4)) / 4)
    assert fit.diagonal_std[1, 0] == pytest.approx(a)
    assert fit.lower_std[1, 0] == pytest.approx(b)
    separation = measurement.content()[1, 0] / math.sqrt((a * a + b * b) / 2)
    assert fit.separation[1, 0] == pytest.approx(separation)
    assert fit.explained[1, 0] == pytest.approx(
        arrays["content.explained.windows"][:, 1, 0].sum() / 4
    )


def test_separation_without_spread_is_infinite() -> None:
    manifest, arrays = make_parts()
    for name in ("content.diagonal.std.windows", "content.lower.std.windows"):
        arrays[name][:] = 0.0
    measurement = Measurement(manifest, arrays)
    signs = np.sign(measurement.content())
    assert np.array_equal(measurement.content_fit().separation, signs * np.inf)


def test_lag_logits_are_means_over_pairs_and_nan_without_pairs() -> None:
    measurement = make(layer_windows=[None, 3, None])
    sums, counts = (measurement.arrays[f"logits.lag.{what}"] for what in ("sum", "count"))
    curve = measurement.lag_logits()
    assert curve[0, 1, 5] == sums[0, 1, 5] / counts[0, 5]
    assert np.array_equal(np.isnan(curve[1]), np.tile(np.arange(LENGTH) >= 3, (HEADS, 1)))


def test_attention_kernels_are_the_mean_over_windows() -> None:
    measurement = make(layer_windows=[None, 3, None])
    kernels = measurement.kernels("attention")
    for t, kernel in enumerate(kernels):
        mean = measurement.arrays["kernel.attention.sum"][t] / 4
        assert np.allclose(kernel.toarray(), mean, rtol=1e-14, atol=0)
    assert np.array_equal(measurement.kernels()[0].toarray(), kernels[0].toarray())


def test_rows_that_half_precision_left_short_become_stochastic() -> None:
    manifest, arrays = make_parts()
    arrays["kernel.attention.sum"][:, 3] *= 0.996
    kernel = Measurement(manifest, arrays).kernels()[0]
    assert np.allclose(kernel.toarray().sum(axis=1), 1.0, rtol=1e-14)


def test_shorter_attention_kernels_are_the_first_rows() -> None:
    measurement = make()
    full, short = measurement.kernels()[1], measurement.kernels(n=5)[1]
    assert np.allclose(short.toarray(), full.toarray()[:5, :5], rtol=1e-14)


@pytest.mark.parametrize("alibi", [True, False])
@pytest.mark.parametrize("n", [None, 4, 13])
def test_content_free_kernels(alibi: bool, n: int | None) -> None:
    widths = [None, 3, 100]
    measurement = make(alibi=alibi, layer_windows=widths)
    slopes = [0.5, 0.25] if alibi else [0.0, 0.0]
    size = LENGTH if n is None else n
    bare = measurement.kernels("position", n=n)
    full = measurement.kernels("position+content", n=n)
    for t, width in enumerate(widths):
        d = measurement.content()[t].tolist()
        expected = softmax_kernel(slopes, [0.0, 0.0], size, width)
        assert np.allclose(bare[t].toarray(), expected, atol=1e-14)
        assert np.allclose(full[t].toarray(), softmax_kernel(slopes, d, size, width), atol=1e-14)


def test_influence_is_the_normalised_mean_with_the_delta_method() -> None:
    measurement = make()
    raw = measurement.arrays["influence.gradient.windows"]
    total = sum(raw[w, j] for w in range(4) for j in range(LENGTH))
    profile = measurement.influence()
    for j in range(LENGTH):
        mass = sum(raw[w, j] for w in range(4)) / total
        assert profile.mass[j] == pytest.approx(mass, rel=1e-13)
        squares = sum((raw[w, j] - mass * raw[w].sum()) ** 2 for w in range(4))
        error = math.sqrt(squares / (4 * 3)) / (total / 4)
        assert profile.stderr is not None
        assert profile.stderr[j] == pytest.approx(error, rel=1e-12)
    assert profile.name == "measured"
    assert json.loads(json.dumps(profile.origin))["method"] == "gradient"
    assert np.allclose(measurement.influence_windows().mean(axis=0), profile.mass, rtol=1e-14)
    rows = measurement.influence_windows()
    assert np.allclose(rows / rows[0, 0], raw / raw[0, 0], rtol=1e-13)


def test_the_standard_error_is_that_of_a_bootstrap() -> None:
    rng = np.random.default_rng(0)
    manifest, arrays = make_parts([[0, 8 * k] for k in range(400)])
    raw = arrays["influence.gradient.windows"]
    stderr = Measurement(manifest, arrays).influence().stderr
    draws = raw[rng.integers(0, 400, (2000, 400))].sum(axis=1)
    spread = (draws / draws.sum(axis=1, keepdims=True)).std(axis=0)
    assert stderr == pytest.approx(spread, rel=0.1)


def test_one_window_has_no_standard_error() -> None:
    assert make([[0, 0]]).influence().stderr is None


def test_influence_methods_the_default_first() -> None:
    manifest, arrays = make_parts()
    arrays["influence.ablation.windows"] = np.ones((4, LENGTH))
    measurement = Measurement(manifest, arrays)
    assert measurement.influence_methods == ("gradient", "ablation")
    assert measurement.influence("ablation").mass == pytest.approx(np.full(LENGTH, 1 / LENGTH))
    assert measurement.influence("ablation").quantity == "ablation influence"
    with pytest.raises(InputError, match="'other' was not recorded"):
        measurement.influence("other")


def test_without_influence() -> None:
    manifest, arrays = make_parts()
    manifest["influence_method"] = None
    del arrays["influence.gradient.windows"]
    measurement = Measurement(manifest, arrays)
    assert "not measured" in measurement.summary()
    with pytest.raises(InputError, match="no measured influence"):
        measurement.influence()


def test_without_optional_arrays() -> None:
    manifest, arrays = make_parts()
    for name in ("content.lower.std.windows", "logits.lag.sum", "logits.lag.count"):
        del arrays[name]
    measurement = Measurement(manifest, arrays)
    for compute in (measurement.content_fit, measurement.lag_logits):
        with pytest.raises(InputError, match="was not recorded"):
            compute()


def test_wrong_arguments() -> None:
    measurement = make()
    with pytest.raises(InputError, match="estimator 'mean'"):
        measurement.mixing("mean")
    with pytest.raises(InputError, match="kind 'all' is unknown"):
        measurement.kernels("all")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="measured at 8 positions"):
        measurement.kernels("attention", n=9)
    for n in (0, True, 2.5):
        with pytest.raises(InputError, match="at least 1"):
            measurement.kernels("position", n=n)  # type: ignore[arg-type]


def test_texts_for_people() -> None:
    measurement = make(layer_windows=[None, 3, None])
    assert repr(measurement) == (
        "Measurement(model='example/tiny', layers=3, heads=2, n=8, windows=4)"
    )
    summary = measurement.summary()
    for fragment in ("example/tiny", "4 of 8 tokens", "sliding windows of 3", "all passed"):
        assert fragment in summary
    manifest, arrays = make_parts()
    manifest["preflight"]["identity"]["passed"] = False
    assert "failed: identity" in Measurement(manifest, arrays).summary()
