"""Summarised kernels: the contract, the definition entry by entry, and how far they are off."""

from __future__ import annotations

import numpy as np
import pytest

from posbias.errors import InputError
from posbias.kernels import AttentionKernel, SlidingWindow
from posbias.kernels.summary import SummaryKernel, block_edges, pair_counts
from posbias.kernels.testing import check_kernel


def summary_of(dense, *, lags=8, edges=None, window=None):
    """Return the summary of a dense kernel by loops over all its entries."""
    n = len(dense)
    bounds = block_edges(n) if edges is None else np.asarray(edges)
    block = np.searchsorted(bounds, np.arange(n), side="right") - 1
    blocks = len(bounds) - 1
    far, near = np.zeros((blocks, blocks)), np.zeros((blocks, lags))
    far_count, near_count = np.zeros_like(far), np.zeros_like(near)
    for i in range(n):
        for j in range(max(0, i - (window or n) + 1), i + 1):
            if i - j < lags:
                near[block[i], i - j] += dense[i, j]
                near_count[block[i], i - j] += 1
            else:
                far[block[i], block[j]] += dense[i, j]
                far_count[block[i], block[j]] += 1
    counts = pair_counts(bounds, lags=lags, window=window)
    assert np.array_equal(counts[0], far_count)
    assert np.array_equal(counts[1], near_count)
    means = [s / np.maximum(c, 1) for s, c in ((near, near_count), (far, far_count))]
    kernel = SummaryKernel(n, near=means[0], far=means[1], edges=bounds, window=window)
    weights = np.zeros((n, n))
    for i in range(n):
        for j in range(max(0, i - (window or n) + 1), i + 1):
            near_by = i - j < lags
            weights[i, j] = means[0][block[i], i - j] if near_by else means[1][block[i], block[j]]
    return kernel, weights / weights.sum(axis=1, keepdims=True)


def random_kernel(n, window=None):
    rng = np.random.default_rng(n)
    lags = np.arange(n)[:, None] - np.arange(n)
    dense = np.where((lags >= 0) & (lags < (window or n)), rng.random((n, n)) + 0.01, 0.0)
    return dense / dense.sum(axis=1, keepdims=True)


@pytest.mark.parametrize("n", [1, 2, 7, 60, 131])
@pytest.mark.parametrize("lags", [1, 5, 40])
@pytest.mark.parametrize("window", [None, 1, 3, 12, 70])
def test_every_entry_is_the_mean_of_its_block_or_lag(n, lags, window):
    bounds = np.unique(np.linspace(0, n, min(n, 9) + 1).astype(int))
    for edges in (None, bounds):
        kernel, expected = summary_of(
            random_kernel(n, window), lags=lags, edges=edges, window=window
        )
        np.testing.assert_allclose(kernel.toarray(), expected, atol=1e-15)
        check_kernel(kernel)


def test_single_positions_are_exact():
    dense = random_kernel(50)
    kernel, _ = summary_of(dense)
    np.testing.assert_allclose(kernel.toarray(), dense, atol=1e-15)


@pytest.mark.parametrize("n", [1, 16, 80, 81, 1000, 32768, 1_000_000])
def test_blocks_cover_all_positions_and_stay_few(n):
    edges = block_edges(n)
    sizes = np.diff(edges)
    assert edges[0] == 0
    assert edges[-1] == n
    assert (sizes >= 1).all()
    assert sizes.max() <= -(-n // 80)
    assert (sizes[:16] == 1).all()
    assert len(sizes) < 170


@pytest.mark.parametrize(
    ("slopes", "diagonal", "mask"),
    [([0.0], 1.0, None), ([0.3, 0.02, 0.001], 2.0, None), ([0.01], 0.0, SlidingWindow(200))],
)
def test_profiles_of_structured_kernels_survive_the_summary(slopes, diagonal, mask):
    """The error is that of a mean over a block of n/80 positions."""
    n, window = 900, None if mask is None else 200
    full = AttentionKernel.alibi(n, slopes, diagonal=diagonal, mask=mask)
    short, _ = summary_of(full.toarray(), lags=64, window=window)
    p = q = np.eye(n)[-1]
    for _ in range(12):
        p, q = 0.7 * p + 0.3 * full.rmatvec(p), 0.7 * q + 0.3 * short.rmatvec(q)
    distance = np.abs(np.cumsum(p - q)).sum() / (n - 1)
    assert distance < 1e-3


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"near": [[1.0]]}, "have shape"),
        ({"far": np.ones((3, 2))}, "have shape"),
        ({"near": [[-1.0], [0.5], [0.5]]}, "negative"),
        ({"far": np.full((3, 3), np.nan)}, "negative or infinite"),
        ({"edges": [0, 2, 1, 3]}, "ascending whole numbers"),
        ({"near": [[0.0], [0.5], [0.5]]}, "row 0 of the summary has no weight"),
        ({"window": 0}, "the window"),
    ],
)
def test_what_is_no_summary_is_refused(change, words):
    given = {"near": [[1.0], [0.5], [0.5]], "far": np.tril(np.ones((3, 3)), -1) / 4}
    with pytest.raises(InputError, match=words):
        SummaryKernel(3, **{**given, **change})
