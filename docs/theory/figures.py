"""Draw the figures of the theory pages: ``python docs/theory/figures.py [folder]``."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure

from posbias.kernels import ALiBi, AttentionKernel, Head, T5Buckets
from posbias.rollout import MixingSchedule, Rollout
from posbias.theory import (
    continuous_limit,
    depth_curves,
    escape_bounds,
    nope_continuum,
    nope_profile,
    row_cdfs,
)

N = 64
DEPTH = 12


def main(folder: Path) -> None:
    """Write one small PNG per page into `folder`."""
    style = {"font.size": 9, "axes.spines.top": False, "axes.spines.right": False}
    with mpl.rc_context(style):
        for name, draw in FIGURES.items():
            figure = Figure(figsize=(4.8, 2.9), layout="constrained")
            axes = figure.subplots()
            draw(axes)
            axes.legend(frameon=False, fontsize=8)
            # Without the software entry the file does not depend on the version of matplotlib.
            figure.savefig(folder / f"{name}.png", dpi=100, metadata={"Software": None})


def stack(*, slope: float = 0.1, mixing: float = 0.3, diagonal: float = 0.0) -> Rollout:
    """Return the rollout that most figures vary: two ALiBi heads, twelve layers."""
    kernel = AttentionKernel.alibi(N, (slope, slope / 8.0), diagonal=diagonal)
    return Rollout([kernel], MixingSchedule.constant(DEPTH, mixing))


def draw_profiles(axes: Any, name: str, values: tuple[float, ...], label: str) -> None:
    """Draw the profile for several values of one parameter of `stack`."""
    for value in values:
        profile = stack(**{name: value}).profile()
        axes.semilogy(profile.mass, label=f"{label} = {value:g}")
    axes.set(xlabel="position", ylabel="influence")


def draw_monotone(axes: Any) -> None:
    """Draw row distribution functions of a monotone kernel and of one that is not."""
    last = [0.0] * 15 + [2.5]
    kernels = {
        "ALiBi": AttentionKernel(N, (Head(ALiBi(0.1)),)),
        "rising last bucket": AttentionKernel(N, (Head(T5Buckets(16, 40, last)),)),
    }
    for (name, kernel), style in zip(kernels.items(), ("-", "--"), strict=True):
        cdfs = row_cdfs(kernel)
        for row, color in zip((30, 42), ("C0", "C1"), strict=True):
            axes.plot(cdfs[row], style, color=color, label=f"{name}, row {row}")
    axes.set(xlabel="k", ylabel="F_i(k)")


def draw_depth(axes: Any) -> None:
    """Draw the mean position against depth, attention alone beside the residual."""
    curves = depth_curves(stack())
    axes.plot(curves.residual.mean_position, label="lambda = 0.3")
    axes.plot(curves.attention_only.mean_position, label="lambda = 1")
    axes.set(xlabel="layers", ylabel="mean position", ylim=(0, N))


def draw_diagonal(axes: Any) -> None:
    """Draw the mass on the query against depth for three schedules."""
    kernel = AttentionKernel(12, (Head(),))
    depth = np.arange(1, 201)
    for beta in (0.5, 1.0, 2.0):
        moved = 1.0 - 0.9 / depth**beta * (1.0 - kernel.diagonal()[-1])
        axes.loglog(depth, np.cumprod(moved), label=f"lambda = 0.9 / t^{beta:g}")
    axes.set(xlabel="layers", ylabel="P[i, i], i = 11", ylim=(1e-6, 1))


def draw_collapse(axes: Any) -> None:
    """Draw the mass not on token 0 against depth between its bounds."""
    kernel = AttentionKernel(32, (Head(),))
    depths = np.arange(1, 41)
    bounds = [
        escape_bounds(Rollout([kernel], MixingSchedule.constant(int(t), 0.3)), row=8)
        for t in depths
    ]
    axes.semilogy(depths, [b.upper for b in bounds], "--", label="upper bound")
    axes.semilogy(depths, [b.exact for b in bounds], label="exact")
    axes.semilogy(depths, [b.lower for b in bounds], ":", label="lower bound")
    axes.set(xlabel="layers", ylabel="1 - P[8, 0]")


def draw_continuous(axes: Any) -> None:
    """Draw the distance to the continuous limit at fixed total time."""
    kernel = AttentionKernel(24, (Head(),))
    depths = np.array([4, 6, 10, 20, 40, 80, 160])
    limits = [
        continuous_limit(Rollout([kernel], MixingSchedule.constant(int(t), 2.0 / t)))
        for t in depths
    ]
    axes.loglog(depths, [x.bound_le_cam for x in limits], "--", label="bound, any kernels")
    axes.loglog(depths, [x.bound_barbour_hall for x in limits], "-.", label="bound, one kernel")
    axes.loglog(depths, [x.distance for x in limits], label="total variation")
    axes.set(xlabel="layers, sum of lambda = 2", ylabel="distance")


def draw_shared(axes: Any) -> None:
    """Draw uniform attention at several lengths with its continuum density."""
    mixing = [0.4] * 6
    grid = np.linspace(0.005, 1.0, 200)
    for n in (32, 256):
        x = np.arange(n) / (n - 1)
        axes.semilogy(x[:-1], (n - 1) * nope_profile(n, mixing).mass[:-1], label=f"n = {n}")
    axes.semilogy(grid, nope_continuum(mixing).density(grid), "k:", label="continuum")
    axes.set(xlabel="x = j / (n - 1)", ylabel="density")


FIGURES: dict[str, Callable[[Any], None]] = {
    "monotone": draw_monotone,
    "t1-depth": draw_depth,
    "t2-residual": lambda axes: draw_profiles(axes, "mixing", (0.1, 0.3, 0.6, 1.0), "lambda"),
    "t3-position": lambda axes: draw_profiles(axes, "slope", (0.02, 0.1, 0.5), "slope"),
    "t4-content": lambda axes: draw_profiles(axes, "diagonal", (-2.0, 0.0, 2.0), "d"),
    "t5-diagonal": draw_diagonal,
    "t6-collapse": draw_collapse,
    "t7-continuous-limit": draw_continuous,
    "t8-shared-kernel": draw_shared,
}


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent)
