"""Draw the pictures of the concepts page: ``python docs/_figures.py [folder]``."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine

from posbias.kernels import AttentionKernel, Head
from posbias.plot import plot_profiles, plot_style, save_figure
from posbias.profile import Profile
from posbias.rollout import MixingSchedule, Rollout

FOLDER = Path(__file__).with_name("images")
N = 48
LAYERS = 12
MIXING = 0.3
SLOPES = (0.2, 0.05)


def main(folder: Path) -> None:
    """Write one PNG or SVG per concept into `folder`, replacing what is there."""
    for name, draw in FIGURES.items():
        with plot_style():
            save_figure(draw(), folder / name, overwrite=True)


def draw_from_attention_to_rollout() -> Figure:
    """Draw one layer's attention, its transition, and the product of all layers."""
    n = 24
    kernel = AttentionKernel.alibi(n, (0.2, 0.05))
    one, many = (Rollout([kernel], MixingSchedule.constant(t, MIXING)) for t in (1, LAYERS))
    panels = {
        "attention A": kernel.toarray(),
        "transition R = 0.7 I + 0.3 A": one.matrix(),
        f"rollout P of {LAYERS} layers": many.matrix(),
    }
    figure = _figure(6.9, 2.4)
    every = figure.subplots(1, 3, sharey=True)
    for axes, (title, matrix) in zip(every, panels.items(), strict=True):
        seen = np.where(matrix > 0.0, matrix, np.nan)
        axes.grid(visible=False)
        image = axes.imshow(seen, norm=LogNorm(1e-3, 1.0), cmap="viridis")
        axes.set_title(title, fontsize=9)
        axes.set(xlabel="key j", xticks=[0, n - 1], yticks=[0, n - 1])
    every[0].set_ylabel("query i")
    figure.colorbar(image, ax=list(every), label="weight", shrink=0.9)
    return figure


def draw_two_forces() -> Figure:
    """Draw the profile with the mask alone, with the residual path, and with ALiBi too."""
    uniform = AttentionKernel(N, (Head(),))
    alibi = AttentionKernel.alibi(N, SLOPES)
    rollouts = {
        "causal mask alone": Rollout([uniform], MixingSchedule.constant(LAYERS, 1.0)),
        "with the residual path": Rollout([uniform], MixingSchedule.constant(LAYERS, MIXING)),
        "with ALiBi too": Rollout([alibi], MixingSchedule.constant(LAYERS, MIXING)),
    }
    return _profiles({name: rollout.profile() for name, rollout in rollouts.items()})


def draw_depth() -> Figure:
    """Draw the profile after several numbers of layers."""
    uniform = AttentionKernel(N, (Head(),))
    depths = (1, 4, 12, 32)
    return _profiles(
        {
            f"{depth} layer{'s' if depth > 1 else ''}": Rollout(
                [uniform], MixingSchedule.constant(depth, MIXING)
            ).profile()
            for depth in depths
        }
    )


def draw_distance() -> Figure:
    """Draw two profiles, and the area between their cumulative masses, which is W1."""
    uniform = AttentionKernel(N, (Head(),))
    rollout = Rollout([uniform], MixingSchedule.constant(LAYERS, MIXING))
    first, second = rollout.profile().cdf, np.arange(1, N + 1) / N
    figure = _figure(3.6, 2.5)
    axes = figure.subplots()
    positions = np.arange(N) / (N - 1)
    axes.step(positions, first, where="post", color="#222222", label="one profile")
    axes.step(positions, second, where="post", color="#0072B2", ls="--", label="another: uniform")
    axes.fill_between(positions, first, second, step="post", alpha=0.25, color="#0072B2")
    area = float(np.abs(first - second)[:-1].sum() / (N - 1))
    axes.set(xlabel="position / (n - 1)", ylabel="mass up to here", title=f"area: W1 = {area:.3f}")
    axes.legend()
    return figure


def _profiles(profiles: dict[str, Profile]) -> Figure:
    figure = _figure(4.6, 2.6)
    plot_profiles(profiles, figure.subplots())
    return figure


def _figure(width: float, height: float) -> Figure:
    return Figure(figsize=(width, height), layout=ConstrainedLayoutEngine())


FIGURES = {
    "concept-rollout.png": draw_from_attention_to_rollout,
    "concept-forces.svg": draw_two_forces,
    "concept-depth.svg": draw_depth,
    "concept-distance.svg": draw_distance,
}


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER)
