"""Figures of depth and of monotonicity show the numbers of the reports."""

from __future__ import annotations

import numpy as np
import pytest

from posbias.errors import InputError
from posbias.kernels import AttentionKernel, DenseKernel, Head
from posbias.plot import (
    COLUMN_WIDTH,
    monotonicity_figure,
    plot_depth_profiles,
    plot_infinite_depth,
    plot_violations,
    plot_witness,
)
from posbias.rollout import MixingSchedule, Rollout
from posbias.theory import InfiniteSchedule, depth_curves, infinite_depth, monotonicity

N = 12


def stack(depth: int, n: int = N) -> Rollout:
    return Rollout([AttentionKernel.alibi(n, (0.2,))], MixingSchedule.constant(depth, 0.3))


def broken_kernel(seed: int) -> DenseKernel:
    array = np.tril(np.random.default_rng(seed).random((N, N)) ** 3 + 1e-3)
    return DenseKernel(array / array.sum(axis=1, keepdims=True))


@pytest.mark.parametrize(("depth", "shown"), [(1, [1]), (5, [1, 2, 3, 4, 5]), (40, None)])
def test_lines_are_profiles_of_growing_depth(depth: int, shown: list[int] | None) -> None:
    rows = stack(depth).depth_profiles()
    ax = plot_depth_profiles(rows)
    depths = [int(str(line.get_label()).split()[0]) for line in ax.lines]
    assert depths == shown or (depths[0], depths[-1], len(depths)) == (1, 40, 7)
    for t, line in zip(depths, ax.lines, strict=True):
        assert np.array_equal(line.get_ydata(), rows[t])


def test_long_profiles_of_depth_keep_their_mass() -> None:
    ax = plot_depth_profiles(stack(2, 900).depth_profiles())
    assert "means over" in ax.get_xlabel()


@pytest.mark.parametrize(
    ("schedule", "outcome"),
    [
        (InfiniteSchedule.constant(0.3), "collapse"),
        (InfiniteSchedule.power(0.5, 2.0), "no collapse"),
    ],
)
def test_areas_are_the_masses_and_the_line_is_the_limit(
    schedule: InfiniteSchedule, outcome: str
) -> None:
    kernel = AttentionKernel(N, [Head()])
    verdict = infinite_depth(kernel, schedule)
    rollout = Rollout([kernel], MixingSchedule(schedule.values(300)))
    ax = plot_infinite_depth(depth_curves(rollout).residual, verdict)
    rows = rollout.depth_profiles()[1:]
    first, between, own = (area.get_paths()[0].vertices for area in ax.collections)
    assert first[:, 1].max() == pytest.approx(rows[:, 0].max())
    assert between[:, 1].max() == pytest.approx(1.0 - rows[:, -1].min())
    assert own[:, 1].max() == pytest.approx(1.0)
    assert ax.get_title(loc="left") == f"infinite depth: {outcome}"
    lines = [line.get_ydata()[0] for line in ax.lines]
    assert verdict.diagonal is not None
    assert lines == ([] if outcome == "collapse" else [1.0 - verdict.diagonal[-1]])


def test_violations_by_layer() -> None:
    kernels = [broken_kernel(0), AttentionKernel.alibi(N, (0.2,)), broken_kernel(1)]
    results = [monotonicity(kernel) for kernel in kernels]
    rates, worst, monotone = plot_violations(results).lines
    assert np.array_equal(rates.get_xdata(), [1, 3])
    assert np.allclose(rates.get_ydata(), [results[0].violation_rate, results[2].violation_rate])
    assert np.allclose(worst.get_ydata(), [results[0].worst, results[2].worst])
    assert np.array_equal(monotone.get_xdata(), [2])
    assert monotone.get_label() == "monotone"
    low, high = rates.axes.get_ylim()
    assert low < min(rates.get_ydata())
    assert high > max(worst.get_ydata())


def test_witness_rows_and_the_rise_between_them() -> None:
    kernel = broken_kernel(0)
    result = monotonicity(kernel)
    witness = result.witness
    assert witness is not None
    earlier, later, rise = plot_witness(kernel, result).lines
    array = kernel.toarray()
    for line, i in ((earlier, witness.i), (later, witness.j)):
        assert np.allclose(line.get_ydata(), [array[i, : k + 1].sum() for k in range(N)])
    assert np.array_equal(rise.get_xdata(), [witness.k, witness.k])
    assert np.diff(rise.get_ydata())[0] == pytest.approx(result.worst)


def test_figure_shows_the_worst_layer_or_none() -> None:
    kernels = [AttentionKernel.alibi(N, (0.2,)), broken_kernel(0)]
    results = [monotonicity(kernel) for kernel in kernels]
    figure = monotonicity_figure(kernels, results, title="two", width=COLUMN_WIDTH)
    assert [ax.get_title(loc="left") for ax in figure.axes] == ["", "worst: layer 2"]
    assert len(monotonicity_figure(kernels[:1], results[:1] * 3).axes) == 1


def test_what_does_not_fit_is_refused() -> None:
    kernel = AttentionKernel.alibi(N, (0.2,))
    result = monotonicity(kernel)
    curves = depth_curves(stack(3)).residual
    verdict = infinite_depth(kernel, InfiniteSchedule.constant(0.3))
    calls = {
        r"shape \(12,\)": lambda: plot_depth_profiles(np.full(N, 1 / N)),
        "at least one result": lambda: plot_violations([]),
        "no violation": lambda: plot_witness(kernel, result),
        "do not fit": lambda: monotonicity_figure([kernel] * 2, [result] * 3),
        "query is 0": lambda: plot_infinite_depth(curves, verdict, query=0),
    }
    for words, call in calls.items():
        with pytest.raises(InputError, match=words):
            call()
