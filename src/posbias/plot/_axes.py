"""Axes of positions and layers, views of logarithmic axes, and legends outside the panels."""

from __future__ import annotations

from collections.abc import Mapping

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from posbias.plot.style import plot_style
from posbias.profile import Profile

__all__ = ["layer_axis", "legend_below", "log_view", "position_axis"]

# How far the view goes below the smallest curve that is not vanishing: an attention-only profile
# falls by hundreds of decades, and showing them all would flatten everything else.
_DECADES_BELOW = 0.7


def legend_below(figure: Figure, ax: Axes) -> None:
    """Put one legend for all panels under them, where it cannot cover a curve."""
    handles, labels = ax.get_legend_handles_labels()
    longest = max(len(label) for label in labels)
    # A character of the legend is about 0.058 inches wide, the line before it 0.45.
    columns = int(figure.get_figwidth() / (0.058 * longest + 0.45))
    with plot_style():
        figure.legend(
            handles, labels, loc="outside lower center", ncols=max(1, min(columns, len(labels)))
        )


def layer_axis(ax: Axes, depth: int) -> None:
    """Set limits, ticks and label of an axis of layers 1..`depth`; there is no layer 0."""
    step = next(s * 10**k for k in range(9) for s in (1, 2, 5) if s * 10**k * 6 >= depth)
    ticks = [t for t in range(0, depth + 1, step) if t > 1] if step > 1 else range(2, depth + 1)
    margin = 0.2 + 0.03 * depth
    ax.set_xlim(1 - margin, depth + margin)
    ax.set_xticks([1, *ticks])
    ax.set_xlabel("layer")


def log_view(profiles: Mapping[str, Profile]) -> tuple[float, float]:
    """Return limits of the logarithmic axis that show every curve that has not vanished."""
    n = next(iter(profiles.values())).n
    floor = 1e-3 / n
    shown = [p.mass[p.mass >= floor] for p in profiles.values()]
    lowest = min(float(mass.min()) for mass in shown)
    highest = max(float(mass.max()) for mass in shown)
    return lowest * 10.0**-_DECADES_BELOW, min(2.0, highest * 1.6)


def position_axis(ax: Axes, n: int) -> None:
    """Set limits, ticks and label of an axis of positions 0..n-1."""
    # A margin on both sides keeps the first and the last position, the two that matter most,
    # off the frame.
    margin = max(0.5, 0.02 * (n - 1))
    ax.set_xlim(-margin, n - 1 + margin)
    ax.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=6))
    ax.set_xlabel("position")
