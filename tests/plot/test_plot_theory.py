"""Figures of forces and depth show the numbers of the reports."""

from __future__ import annotations

import numpy as np
import pytest

from posbias.errors import InputError
from posbias.kernels import AttentionKernel, Head
from posbias.plot import FORCE_STYLES, LINE_STYLES, depth_figure, plot_depth, plot_forces
from posbias.rollout import MixingSchedule, Rollout
from posbias.theory import FORCES, depth_curves, forces

DEPTH, N = 5, 24


@pytest.fixture(scope="module")
def rollout() -> Rollout:
    kernel = AttentionKernel.alibi(N, (0.3, 0.05), diagonal=0.5)
    return Rollout([kernel], MixingSchedule.constant(DEPTH, 0.4))


def test_one_line_per_force_and_one_for_all(rollout: Rollout) -> None:
    report = forces(rollout)
    first, *others = plot_forces(report).lines
    assert np.array_equal(first.get_ydata(), rollout.profile().mass)
    assert len(others) == len(FORCES) == len(FORCE_STYLES)
    for line, force in zip(others, FORCES, strict=True):
        removed = report[force].removed
        assert removed is not None
        assert np.array_equal(line.get_ydata(), removed.profile.mass)
        assert line.get_color() == FORCE_STYLES[force].color


def test_a_force_that_does_not_apply_has_no_line() -> None:
    uniform = Rollout([AttentionKernel(N, [Head()])], MixingSchedule.constant(DEPTH, 0.4))
    labels = [line.get_label() for line in plot_forces(forces(uniform)).lines]
    assert labels == ["all forces", "without depth (top layer alone)", "without residual path"]


@pytest.mark.parametrize("quantity", ["first", "last", "mean_position"])
def test_depth_lines(rollout: Rollout, quantity: str) -> None:
    bare = Rollout(rollout.kernels, MixingSchedule.constant(DEPTH, 1.0))
    ax = plot_depth(depth_curves(rollout), quantity)
    for line, name, one in zip(
        ax.lines, ("attention-only", "residual"), (bare, rollout), strict=True
    ):
        rows = one.depth_profiles()
        expected = {
            "first": [row[0] for row in rows],
            "last": [row[-1] for row in rows],
            "mean_position": [sum(j * x for j, x in enumerate(row)) for row in rows],
        }[quantity]
        assert np.array_equal(line.get_xdata(), np.arange(DEPTH + 1))
        assert np.allclose(line.get_ydata(), expected, rtol=1e-12, atol=0)
        assert line.get_color() == LINE_STYLES[name].color


@pytest.mark.parametrize("width", [3.3, 6.9])
def test_depth_figure_has_three_panels(rollout: Rollout, width: float) -> None:
    figure = depth_figure(depth_curves(rollout), title="small", width=width)
    assert [ax.get_ylabel() for ax in figure.axes] == [
        "mass on token 0",
        "mass on the query itself",
        "mean position",
    ]


def test_unknown_quantity_is_refused(rollout: Rollout) -> None:
    with pytest.raises(InputError, match="'median' is unknown"):
        plot_depth(depth_curves(rollout), "median")
