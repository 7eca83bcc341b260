"""Sums by lag and counts of pairs against loops."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from posbias.measure.accumulators import _lag_counts, _sum_by_lag


@given(n=st.integers(2, 12), data=st.data())
def test_sum_by_lag_adds_the_diagonals(n, data):
    start = data.draw(st.integers(0, n - 1))
    stop = data.draw(st.integers(start + 1, n))
    keys = data.draw(st.integers(stop, n))
    values = torch.randn(3, stop - start, keys, dtype=torch.float64)
    expected = np.zeros((3, n))
    for row in range(start, stop):
        for key in range(keys):
            if key > row:
                values[:, row - start, key] = 0.0
            else:
                expected[:, row - key] += values[:, row - start, key].numpy()
    np.testing.assert_allclose(_sum_by_lag(values, start, n).numpy(), expected, atol=1e-12)


@pytest.mark.parametrize("window", [None, 2, 5, 9, 20])
def test_lag_counts_are_those_of_the_visible_pairs(window):
    n, counts = 9, np.zeros(9, dtype=int)
    for query in range(n):
        for key in range(query + 1):
            if window is None or query - key < window:
                counts[query - key] += 1
    np.testing.assert_array_equal(_lag_counts((window,), n)[0], counts)
