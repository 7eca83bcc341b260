"""The numbers of a report: bins, block masses, shares, resampled intervals."""

from __future__ import annotations

import base64
import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from posbias.binning import bin_edges, block_masses, end_size, mean_shares
from posbias.kernels import AttentionKernel, DenseKernel
from posbias.metrics import shape_figures
from posbias.profile import Profile
from posbias.report.heatmaps import (
    BUDGET,
    encode_blocks,
    grid_for,
    kernel_figures,
)
from posbias.report.several import relative_distance
from posbias.report.verdicts import WORK_LIMIT, theory_length
from posbias.report.zones import Zones, zone_figures


def random_profile(seed: int, n: int) -> np.ndarray:
    return np.random.default_rng(seed).dirichlet(np.full(n, 0.3))


@given(st.integers(2, 700), st.integers(1, 300), st.integers(0, 99))
def test_bins_keep_all_mass_and_differ_by_one_position(n: int, most: int, seed: int) -> None:
    edges = bin_edges(n, most)
    widths = np.diff(edges)
    assert edges[0] == 0
    assert edges[-1] == n
    assert widths.size == min(n, most)
    assert widths.max() - widths.min() <= 1
    mass = random_profile(seed, n)
    shares = mean_shares(mass, edges, n)
    for b, width in enumerate(widths):
        expected = sum(mass[j] for j in range(edges[b], edges[b + 1]))
        assert shares[b] * width / n == pytest.approx(expected, abs=1e-15)


def test_short_profiles_have_no_enlarged_ends() -> None:
    assert [end_size(n) for n in (2, 63, 64, 256, 100_000)] == [0, 0, 8, 32, 64]


def test_shares_of_the_zones_by_hand() -> None:
    mass = np.array([0.1, 0.05, 0.05, 0.1, 0.05, 0.05, 0.1, 0.1, 0.1, 0.1, 0.2])
    zones = Zones(11)
    assert zones.size == 2
    start, middle, end = zones.shares(mass)
    assert (start, middle, end) == pytest.approx((0.15, 0.55, 0.3))
    figures = zone_figures(mass)
    assert figures.end_ratio is not None
    assert figures.end_ratio.value == pytest.approx((0.3 / 2) / (0.55 / 7))
    assert not figures.end_ratio.is_known
    assert figures.u_shaped_resamples is None


def test_two_positions_have_no_middle() -> None:
    figures = zone_figures(np.array([0.25, 0.75]), np.array([[1.0, 3.0], [1.0, 3.0]]))
    assert figures.end_ratio is None
    assert figures.middle.value == 0.0


def test_no_influence_in_the_middle_is_an_infinite_ratio() -> None:
    figures = zone_figures(np.array([0.5, 0.0, 0.5]))
    assert figures.end_ratio is not None
    assert figures.end_ratio.value == np.inf


def test_intervals_of_ratios() -> None:
    resampled = np.random.default_rng(3).dirichlet(np.ones(30), 200)
    figures = zone_figures(resampled.mean(axis=0), resampled)
    ratios = [(q[-3:].sum() / 3) / (q[3:-3].sum() / 24) for q in resampled]
    assert figures.end_ratio is not None
    expected = np.quantile(ratios, [0.025, 0.975])
    assert (figures.end_ratio.low, figures.end_ratio.high) == pytest.approx(expected)
    shaped = [shape_figures(q).is_u_shaped for q in resampled]
    assert figures.u_shaped_resamples == np.mean(shaped)


@given(st.integers(2, 40), st.integers(1, 12), st.integers(0, 50))
def test_block_masses_against_loops(n: int, most: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    array = np.zeros((n, n))
    for i in range(n):
        array[i, : i + 1] = rng.dirichlet(np.ones(i + 1))
    edges = bin_edges(n, most)
    masses = block_masses(DenseKernel(array), edges)
    assert masses.sum(axis=1) == pytest.approx(np.ones(len(edges) - 1))
    for b in range(len(edges) - 1):
        for c in range(len(edges) - 1):
            block = array[edges[b] : edges[b + 1], edges[c] : edges[c + 1]]
            expected = block.sum() / (edges[b + 1] - edges[b])
            assert masses[b, c] == pytest.approx(expected, abs=1e-14)


def decode(code: str) -> list[float]:
    raw = base64.b64decode(code)
    words = struct.unpack(f"<{len(raw) // 2}H", raw)
    return [0.0 if c == 0 else 10 ** ((c - 1) / 65534 * 12 - 12) for c in words]


def test_codes_hold_masses_to_a_few_parts_in_ten_thousand() -> None:
    masses = np.tril(np.array([[1.0, 0, 0], [1e-11, 0.5, 0], [1e-13, 0.0, 0.99999]]))
    found = decode(encode_blocks(masses))
    assert found == pytest.approx([1.0, 1e-11, 0.5, 0.0, 0.0, 0.99999], rel=3e-4)
    assert found[3] == 0.0


def test_shared_kernels_are_stored_once() -> None:
    one, other = (AttentionKernel.alibi(20, (slope,)) for slope in (0.1, 0.5))
    figures = kernel_figures({"a": [one, one, other], "b": [other, one, one]})
    assert len(figures["codes"]) == 2
    assert figures["layers"] == {"a": [0, 0, 1], "b": [1, 0, 0]}
    rows = decode(figures["codes"][0])
    array = one.toarray()
    assert rows == pytest.approx(array[np.tril_indices(20)], rel=3e-4)


@pytest.mark.parametrize("count", [1, 60, 200, 500])
def test_grids_of_many_layers_stay_within_the_budget(count: int) -> None:
    size = grid_for(4096, count)
    assert count * len(encode_blocks(np.ones((size, size)))) <= BUDGET + 4 * count


def test_long_contexts_are_checked_at_a_shorter_length() -> None:
    assert theory_length(256, 8) == 256
    assert theory_length(2, 10_000_000) == 32
    for n, layers in ((4096, 8), (2048, 70), (1024, 24)):
        length = theory_length(n, layers)
        assert length < n
        assert layers * length**2 <= WORK_LIMIT


def test_distance_of_profiles_of_different_lengths() -> None:
    start, end = Profile([1.0, 0.0, 0.0]), Profile([0.0, 0.0, 0.0, 0.0, 1.0])
    assert relative_distance(start, end) == pytest.approx(1.0)
    spread = Profile([0.25, 0.5, 0.25])
    assert relative_distance(start, spread) == pytest.approx(0.5)
