"""Axes of positions and layers, views of logarithmic axes, and legends outside the panels."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from posbias.plot.style import figure_of, plot_style

Vector = NDArray[np.float64]

__all__ = ["finish_legend", "layer_axis", "legend_below", "log_view", "position_axis"]


def finish_legend(ax: Axes, *, is_new: bool) -> None:
    """Draw the legend: under the axes of a new figure, inside the axes that a caller gave."""
    if is_new:
        legend_below(figure_of(ax), ax)
    else:
        ax.legend(loc="best")


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
    step = next(s * 10**k for k in range(9) for s in (1, 2, 5) if s * 10**k * 8 >= depth)
    ticks = [t for t in range(0, depth + 1, step) if t > 1] if step > 1 else range(2, depth + 1)
    margin = 0.2 + 0.03 * depth
    ax.set_xlim(1 - margin, depth + margin)
    ax.set_xticks([1, *ticks])
    ax.set_xlabel("layer")


def log_view(
    curves: Iterable[Vector], n: int, *, band: Sequence[Vector] = ()
) -> tuple[float, float]:
    """Return limits of the logarithmic axis: the first curve as a whole, the others as needed.

    A band belongs to the first. The first is followed down to a millionth of the uniform mass of
    `n` positions, the others to a hundredth: an attention-only profile falls by hundreds of
    decades, which would flatten everything else.
    """
    first, *others = curves
    lowest, highest = [], []
    for k, mass in enumerate((first, *band, *others)):
        shown = mass[mass >= (1e-2 if k > len(band) else 1e-6) / n]
        if shown.size:  # a curve may lie below the view altogether
            lowest.append(float(shown.min()))
            highest.append(float(shown.max()))
    return min(lowest) / 1.6, min(1.25, max(highest) * 1.6)


def position_axis(ax: Axes, n: int, label: str = "position") -> None:
    """Set limits, ticks and label of an axis of positions 0..n-1."""
    # A margin on both sides keeps the first and the last position, the two that matter most,
    # off the frame.
    margin = max(0.5, 0.02 * (n - 1))
    ax.set_xlim(-margin, n - 1 + margin)
    ax.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=6))
    ax.set_xlabel(label)
