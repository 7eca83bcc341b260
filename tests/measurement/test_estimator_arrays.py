"""Arrays behind further estimators: accessors, checks, merging, and why they may be absent."""

from __future__ import annotations

import numpy as np
import pytest
from synthetic_measurement import make, make_parts, with_all_arrays

from posbias.errors import ArtifactError, InputError
from posbias.measurement import Measurement, merge
from posbias.measurement.estimator_arrays import ESTIMATOR_ARRAYS, FURTHER_MIXINGS, VALUE_KERNELS


@pytest.mark.parametrize("name", FURTHER_MIXINGS)
def test_mixing_is_the_mean_over_windows(name: str) -> None:
    measurement = with_all_arrays()
    values = measurement.arrays[f"mixing.{name}.windows"]
    np.testing.assert_allclose(measurement.mixing(name), values.mean(0), rtol=1e-15)
    np.testing.assert_allclose(measurement.mixing_std(name), values.std(0), rtol=1e-15)
    np.testing.assert_allclose(measurement.schedule(name).values, values.mean(0), rtol=1e-15)
    assert name in measurement.mixing_estimators


@pytest.mark.parametrize("kind", VALUE_KERNELS)
def test_kernels_are_the_mean_over_windows(kind: str) -> None:
    measurement = with_all_arrays()
    total = measurement.arrays[VALUE_KERNELS[kind]]
    for layer, kernel in enumerate(measurement.kernels(kind)):
        np.testing.assert_allclose(kernel.toarray(), total[layer] / 4, rtol=1e-12)
    shorter = measurement.kernels(kind, n=5)[0].toarray()
    np.testing.assert_allclose(shorter, total[0, :5, :5] / 4, rtol=1e-12)


@pytest.mark.parametrize("name", FURTHER_MIXINGS)
def test_mixing_that_was_not_recorded_says_how_to_get_it(name: str) -> None:
    wanted = "--jacobian" if name == "jacobian" else "--record default"
    with pytest.raises(InputError, match=wanted):
        make().mixing(name)


def test_a_kernel_that_was_not_recorded_says_how_to_get_it() -> None:
    with pytest.raises(InputError, match="--record default"):
        make().kernels("centred-value-weighted-energy")
    with pytest.raises(InputError, match="--record all"):
        make().kernels("value-weighted")


def test_the_reason_why_something_could_not_be_recorded_is_told() -> None:
    manifest, arrays = make_parts()
    manifest["run"] = {"values": "no output projection", "mlp": "a norm on the stream"}
    measurement = Measurement(manifest, arrays)
    with pytest.raises(InputError, match="no output projection"):
        measurement.kernels("centred-value-weighted-energy")
    with pytest.raises(InputError, match="a norm on the stream"):
        measurement.mixing("energy+mlp")


def test_parts_merge_to_the_whole() -> None:
    starts = [[0, 0], [0, 8], [0, 16], [2, 5]]
    whole = with_all_arrays(starts)
    joined = merge([with_all_arrays(starts[2:]), with_all_arrays(starts[:2])])
    for name in ESTIMATOR_ARRAYS:
        np.testing.assert_allclose(joined.arrays[name], whole.arrays[name], rtol=1e-14)


def test_parts_with_other_arrays_are_not_merged() -> None:
    with pytest.raises(InputError, match="same statistics"):
        merge([with_all_arrays([[0, 0]]), make([[0, 8]])])


@pytest.mark.parametrize("name", VALUE_KERNELS.values())
def test_a_kernel_above_the_diagonal_is_refused(name: str) -> None:
    measurement = with_all_arrays()
    arrays = {key: array.copy() for key, array in measurement.arrays.items()}
    arrays[name][1, 2, 3] = 0.5
    with pytest.raises(ArtifactError, match=f"{name}.*zero above the diagonal"):
        Measurement(measurement.manifest, arrays)


@pytest.mark.parametrize("name", VALUE_KERNELS.values())
def test_a_kernel_whose_rows_do_not_sum_to_the_windows_is_refused(name: str) -> None:
    measurement = with_all_arrays()
    arrays = {key: array.copy() for key, array in measurement.arrays.items()}
    arrays[name] *= 0.9
    with pytest.raises(ArtifactError, match=f"{name}.*sums to"):
        Measurement(measurement.manifest, arrays)
