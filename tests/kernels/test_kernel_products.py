"""Fast products against naive dense sums, on random structured kernels."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from naive_kernels import MASKS, POSITIONS, naive_matrix, relative_error

from posbias.kernels import _scan, kernel_from_description

SIZES = st.integers(min_value=1, max_value=26)


@st.composite
def layers(draw: st.DrawFn) -> tuple[dict[str, Any], int, np.random.Generator]:
    """Return a random layer of up to three heads, a size, and a generator of test vectors."""
    n = draw(SIZES)
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    heads = []
    for _ in range(draw(st.integers(1, 3))):
        head: dict[str, Any] = {
            "position": draw(st.sampled_from(POSITIONS)),
            "weight": draw(st.sampled_from([1.0, 0.3])),
            "diagonal": draw(st.sampled_from([0.0, 0.5, -2.0, 40.0, -40.0, -900.0, 1500.0])),
        }
        if draw(st.booleans()):
            head["key"] = (rng.normal(size=n) * draw(st.sampled_from([1.0, 30.0, 500.0]))).tolist()
        if draw(st.booleans()):
            logit = draw(st.sampled_from([3.0, -3.0, 700.0]))
            head["sink"] = {"count": draw(st.integers(0, 4)), "logit": logit}
        heads.append(head)
    layer = {
        "heads": heads,
        "mask": draw(st.sampled_from(MASKS)),
        "temperature": draw(st.sampled_from([1.0, 0.5, 3.0])),
    }
    return layer, n, rng


@pytest.mark.parametrize("threshold", [0, 2**62], ids=["compiled", "numpy"])
@settings(max_examples=80)
@given(case=layers())
def test_products_have_relative_accuracy(threshold: int, case) -> None:
    layer, n, rng = case
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_scan, "COMPILED_FROM", threshold)
        kernel, due = kernel_from_description(layer, n), naive_matrix(layer, n)
        last = (np.arange(n) == n - 1).astype(np.float64)
        for p in (rng.random(n), rng.random(n) * np.exp(-200.0 * rng.random(n)), last):
            assert relative_error(kernel.rmatvec(p), p @ due) < 3e-12
            assert relative_error(kernel.matvec(p), due @ p) < 3e-12
            assert np.all(kernel.rmatvec(p)[p @ due == 0.0] == 0.0)
        signed = rng.normal(size=n)
        np.testing.assert_allclose(kernel.rmatvec(signed), signed @ due, rtol=0, atol=1e-12)
        np.testing.assert_allclose(kernel.matvec(signed), due @ signed, rtol=0, atol=1e-12)
        assert relative_error(kernel.toarray(), due) < 3e-12
        assert relative_error(kernel.diagonal(), due.diagonal()) < 3e-12
        i = int(rng.integers(n))
        assert relative_error(kernel.row(i), due[i]) < 3e-12


@pytest.mark.parametrize("n", [127, 128, 129, 300])
@pytest.mark.parametrize("position", POSITIONS, ids=lambda p: p["type"])
def test_products_of_longer_sequences(position, n: int, recurrences: str) -> None:
    masks = [{"type": "causal"}, {"type": "window_sink", "window": 40, "sinks": 3}]
    rng = np.random.default_rng(n)
    for mask in masks:
        layer = {"heads": [{"position": position, "diagonal": -1.0}], "mask": mask}
        kernel = kernel_from_description(layer, n)
        rows = np.stack([kernel.row(i) for i in range(n)])
        p = rng.random(n) * np.exp(-100.0 * rng.random(n))
        assert relative_error(kernel.rmatvec(p), p @ rows, least=1e-200) < 1e-12
        assert relative_error(kernel.matvec(p), rows @ p, least=1e-200) < 1e-12
        assert recurrences in ("compiled", "numpy")


def test_products_of_row_stacks_match_single_products() -> None:
    kernel = kernel_from_description({"alibi": {"slopes": [0.5, 0.1]}}, 40)
    rows = np.random.default_rng(0).random((5, 40))
    np.testing.assert_array_equal(
        kernel.rmatmat(rows), np.stack([kernel.rmatvec(row) for row in rows])
    )
