"""Dense kernels and mixtures."""

from __future__ import annotations

import numpy as np
import pytest

from posbias.errors import InputError
from posbias.kernels import AttentionKernel, DenseKernel, Head, MixtureKernel

ROWS = np.array([[1.0, 0.0, 0.0], [0.25, 0.75, 0.0], [0.5, 0.25, 0.25]])
FULL = np.array([[0.5, 0.25, 0.25], [0.0, 0.0, 1.0], [0.25, 0.5, 0.25]])


def test_products_are_those_of_the_array() -> None:
    kernel = DenseKernel(ROWS)
    p = np.array([0.2, 0.3, 0.5])
    np.testing.assert_allclose(kernel.rmatvec(p), p @ ROWS, rtol=1e-15)
    np.testing.assert_allclose(kernel.matvec(p), ROWS @ p, rtol=1e-15)
    np.testing.assert_array_equal(kernel.diagonal(), [1.0, 0.75, 0.25])


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int64])
def test_other_number_types_become_float64(dtype: type) -> None:
    kernel = DenseKernel(np.eye(3, dtype=dtype))
    assert kernel.toarray().dtype == np.float64


def test_the_array_is_copied_unless_asked_otherwise() -> None:
    array = ROWS.copy()
    kernel, view = DenseKernel(array), DenseKernel(array, copy=False)
    array[2] = [1.0, 0.0, 0.0]
    assert kernel.row(2)[0] == 0.5
    assert view.row(2)[0] == 1.0
    assert array.flags.writeable


def test_row_sums_are_kept_within_the_tolerance_and_refused_outside() -> None:
    near = ROWS * (1.0 + 5e-7)
    np.testing.assert_array_equal(DenseKernel(near).toarray(), near)
    with pytest.raises(InputError, match=r"row 0 of the kernel sums to 1.000002;"):
        DenseKernel(ROWS * (1.0 + 2e-6))


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (np.ones((2, 3)), r"\(2, 3\)"),
        (np.ones(3), r"\(3,\)"),
        (np.zeros((0, 0)), r"\(0, 0\)"),
        ([[1.0, 0.0], [np.nan, 1.0]], r"\[\(1, 0\)\] is nan"),
        ([[1.0, 0.0], [np.inf, 0.0]], "inf"),
        ([[1.5, -0.5], [0.0, 1.0]], r"\[0, 1\] of the kernel is -0.5"),
        (np.eye(2, dtype=bool), "bool"),
        (np.eye(2) * 1j, "complex"),
        ([[1.0], [0.5, 0.5]], "rectangular"),
        (np.zeros((2, 2)), "sums to 0"),
        (np.full((2, 2), 1e308), "sums to"),
    ],
)
def test_wrong_arrays_are_refused(array, message: str) -> None:
    with pytest.raises(InputError, match=message):
        DenseKernel(array)


def test_causality_is_read_from_the_array() -> None:
    assert DenseKernel(ROWS).is_causal
    assert DenseKernel([[1.0]]).is_causal
    assert not DenseKernel(FULL).is_causal


def test_restriction_shares_the_removed_mass_like_a_softmax() -> None:
    np.testing.assert_array_equal(DenseKernel(ROWS).restrict(2).toarray(), ROWS[:2, :2])
    np.testing.assert_allclose(
        DenseKernel(FULL[[0, 2, 1]]).restrict(2).toarray(), [[2 / 3, 1 / 3], [1 / 3, 2 / 3]]
    )
    with pytest.raises(InputError, match="row 1 of the kernel puts no mass on the first 2"):
        DenseKernel(FULL).restrict(2)


def test_stacked_rows_are_checked() -> None:
    kernel = DenseKernel(ROWS)
    booleans, undefined = np.ones((2, 3), dtype=bool), np.full((1, 3), np.nan)
    for wrong in (np.ones(3), np.ones((2, 4)), booleans, undefined):
        with pytest.raises(InputError):
            kernel.rmatmat(wrong)


def test_mixture_is_the_weighted_sum() -> None:
    parts = [DenseKernel(ROWS), DenseKernel(FULL), AttentionKernel(3, [Head()])]
    mixture = MixtureKernel(parts, [1.0, 2.0, 5.0])
    due = (ROWS + 2 * FULL + 5 * parts[2].toarray()) / 8
    np.testing.assert_allclose(mixture.toarray(), due, rtol=1e-15)
    np.testing.assert_allclose(mixture.weights, [0.125, 0.25, 0.625])
    assert mixture.kernels == tuple(parts)
    assert not mixture.is_causal
    assert MixtureKernel(parts, [1.0, 0.0, 1.0]).is_causal
    np.testing.assert_allclose(MixtureKernel(parts[::2]).toarray(), (ROWS + parts[2].toarray()) / 2)


@pytest.mark.parametrize(
    ("kernels", "weights", "message"),
    [
        ([], None, "at least one"),
        ([np.eye(2)], None, "part 0"),
        ([DenseKernel(np.eye(2)), DenseKernel(np.eye(3))], None, r"\[2, 3\]"),
        ([DenseKernel(np.eye(2))], [1.0, 1.0], r"\(2,\)"),
        ([DenseKernel(np.eye(2))], [-1.0], "-1"),
        ([DenseKernel(np.eye(2))], [0.0], "all zero"),
        ([DenseKernel(np.eye(2))], [np.nan], "nan"),
    ],
)
def test_wrong_mixtures_are_refused(kernels, weights, message: str) -> None:
    with pytest.raises(InputError, match=message):
        MixtureKernel(kernels, weights)


def test_kernels_without_a_description_say_so() -> None:
    with pytest.raises(InputError, match="DenseKernel has no description"):
        DenseKernel(ROWS).describe()
