"""Sums by lag and counts of pairs against loops."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from posbias.measure import content_sums
from posbias.measure.accumulators import _lag_counts
from posbias.measure.content_sums import CONTENT_SUMS, _sum_by_lag, add_content_sums


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


def sums_by_loops(content, start, n, window):
    """Return the sums by name and by lag of content logits (H, r, k)."""
    sums = {name: np.zeros(len(content)) for name in CONTENT_SUMS}
    lags = np.zeros((len(content), n))
    for h, rows in enumerate(content):
        for i, row in enumerate(rows):
            query = start + i
            for key in range(max(0, query - window + 1), query + 1):
                place = "diagonal" if key == query else "lower"
                sums[place][h] += row[key]
                sums[place + "_square"][h] += row[key] ** 2
                lags[h, query - key] += row[key]
                if key == 0 < query:
                    sums["first"][h] += row[key]
    return sums, lags


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("bias_rows", [0, 1, 5])
@pytest.mark.parametrize("window", [None, 3, 30])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_content_sums_are_those_of_loops(compiled, bias_rows, window, dtype, monkeypatch):
    monkeypatch.setattr(content_sums, "COMPILED_FROM", 0 if compiled else 2**62)
    n, start, heads, rows, keys = 12, 4, 3, 5, 11
    logits = torch.randn(heads, rows, keys, dtype=dtype)
    content = logits.double().numpy()
    # What the mask hides holds anything, also no numbers.
    for i in range(rows):
        logits[:, i, start + i + 1 :] = -torch.inf
    bias = torch.randn(heads, bias_rows, keys, dtype=torch.float64) if bias_rows else None
    if bias is not None:
        content = content - bias.numpy()
    lags = torch.ones(heads, n, dtype=torch.float64)
    result = add_content_sums(logits, bias, lags, start=start, window=window)
    expected, by_lag = sums_by_loops(content, start, n, window or n)
    for name, values in zip(CONTENT_SUMS, result, strict=True):
        np.testing.assert_allclose(values.numpy(), expected[name], atol=1e-12, err_msg=name)
    np.testing.assert_allclose(lags.numpy(), 1.0 + by_lag, atol=1e-12)
    assert (content_sums._compiled() is not None) or not compiled
