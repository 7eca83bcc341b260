"""Kernels: heat maps of attention per layer, and attention against lag."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.collections import QuadMesh
from matplotlib.colors import BoundaryNorm, ListedColormap, LogNorm
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from posbias.binning import bin_edges, block_masses
from posbias.errors import InputError
from posbias.kernels import Kernel
from posbias.plot._axes import finish_legend
from posbias.plot.style import (
    INK,
    PAGE_WIDTH,
    SEQUENTIAL,
    axes_or_new,
    figure_of,
    new_figure,
    plot_style,
    ramp,
)

__all__ = [
    "LARGEST_LAG_KERNEL",
    "MOST_NAMED_LINES",
    "kernels_figure",
    "mean_by_lag",
    "plot_kernel",
    "plot_lags",
]

Array = NDArray[np.float64]

LARGEST_LAG_KERNEL = 16_384
"""Largest n for which attention by lag is computed: it visits every pair of positions."""

MOST_NAMED_LINES = 8
"""More lines by lag get a colour bar in place of names."""

_MOST_BLOCKS = 128
_MOST_MAPS = 12
_DECADES = 4.0
_BINS_PER_DECADE = 20
_FAINT = "#DADADA"


@dataclass(frozen=True)
class _Layers:
    """A kernel and the layers that use it, counted from 1."""

    kernel: Kernel
    numbers: tuple[int, ...]

    @property
    def label(self) -> str:
        """The layers in words, such as ``layers 1-2, 4``."""
        runs: list[list[int]] = []
        for t in self.numbers:
            if runs and t == runs[-1][-1] + 1:
                runs[-1].append(t)
            else:
                runs.append([t])
        words = [str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs]
        shown = ", ".join(words if len(words) <= 3 else [*words[:2], "…", words[-1]])
        return f"layer{'s' if len(self.numbers) > 1 else ''} {shown}"


def plot_kernel(
    kernel: Kernel,
    ax: Axes | None = None,
    *,
    limits: tuple[float, float] | None = None,
    bar: bool = True,
) -> Axes:
    """Draw a kernel as a heat map: queries downwards, keys to the right, logarithmic colours.

    Parameters
    ----------
    kernel : Kernel
        More than 128 positions are drawn in blocks, whose colour is the mean weight of the pairs
        that the mask lets see each other. Cost: at most 128 row products.
    ax : Axes, optional
        By default those of a new figure of column width.
    limits : (float, float), optional
        Ends of the colour scale; by default four decades down from the largest weight, or a tenth
        of 1 / n if that is less. Smaller weights, zero included, are light grey; pairs that no
        causal query sees are left blank.
    bar : bool
        Whether to draw the colour bar.
    """
    weights, edges = _block_weights(kernel)
    target = axes_or_new(ax, height=2.9)
    mesh = _draw_map(target, weights, edges, limits or _weight_limits([weights], kernel.n))
    if bar:
        _weight_bar(target.figure, mesh, [target])
    return target


def kernels_figure(
    kernels: Sequence[Kernel], *, title: str = "", width: float = PAGE_WIDTH
) -> Figure:
    """Draw the kernels of all layers as heat maps on one colour scale.

    Parameters
    ----------
    kernels : sequence of Kernel
        Bottom layer first. Layers that share one object share one map. Of more than 12 different
        kernels 12 are drawn, evenly spaced, the first and the last among them; the title says so.
    title : str
        Set above everything.
    width : float
        Width in inches.

    Returns
    -------
    Figure
        One axes per map and that of the colour bar.
    """
    groups = _grouped(kernels)
    shown = _spaced(groups, _MOST_MAPS)
    note = f"{len(shown)} of {len(groups)} layers" if len(shown) < len(groups) else ""
    maps = [_block_weights(group.kernel) for group in shown]
    limits = _weight_limits((weights for weights, _ in maps), kernels[0].n)
    columns = min(len(shown), 4 if width >= 5.0 else 3)
    rows = -(-len(shown) // columns)
    side = (width - 1.0) / columns  # labels and colour bar take about an inch
    figure = new_figure(width, rows * (side + 0.3) + 0.55)
    with plot_style():
        panels = list(np.ravel(figure.subplots(rows, columns, squeeze=False)))
        heading = " · ".join(part for part in (title, note) if part)
        if heading:
            figure.suptitle(heading, fontsize=8.5, x=0.01, ha="left")
        for ax in panels[len(shown) :]:
            ax.set_axis_off()
    for k, (group, (weights, edges)) in enumerate(zip(shown, maps, strict=True)):
        mesh = _draw_map(panels[k], weights, edges, limits)
        with plot_style():
            panels[k].set_title(group.label, fontsize=7.5)
            if k % columns:
                panels[k].set_ylabel("")
                panels[k].set_yticklabels([])
            if k < (rows - 1) * columns:
                panels[k].set_xlabel("")
                panels[k].set_xticklabels([])
    _weight_bar(figure, mesh, panels)
    return figure


def plot_lags(kernels: Sequence[Kernel], ax: Axes | None = None, *, legend: bool = True) -> Axes:
    """Draw the mean attention against the lag, one line per layer, both axes logarithmic.

    Parameters
    ----------
    kernels : sequence of Kernel
        Causal, bottom layer first; layers that share one object share one line.
    ax : Axes, optional
        By default those of a new figure of column width.
    legend : bool
        Whether to name the lines; more than eight get a colour bar instead.

    Returns
    -------
    Axes
        Lag 0 stands one step left of lag 1. From lag 16 on, points are means over bins of lags,
        every pair of positions counting alike.

    Raises
    ------
    InputError
        If a kernel is not causal or has more than `LARGEST_LAG_KERNEL` positions. Cost O(n^2 H)
        per different kernel.
    """
    groups = _grouped(kernels)
    is_new = ax is None
    ax = axes_or_new(ax)
    looks = ramp([group.label for group in groups])
    few = len(groups) <= MOST_NAMED_LINES
    n = kernels[0].n
    edges = _lag_edges(n)
    with plot_style():
        for group in groups:
            means, pairs = mean_by_lag(group.kernel), np.arange(n, 0, -1.0)
            total = np.add.reduceat(means * pairs, edges[:-1])
            weights = total / np.add.reduceat(pairs, edges[:-1])
            centres = (edges[:-1] + edges[1:] - 1) / 2.0
            colour = INK if len(groups) == 1 else looks[group.label].color
            seen = weights > 0.0
            ax.plot(centres[seen], weights[seen], color=colour, linewidth=1.1, label=group.label)
        ax.axhline(1.0 / n, color=INK, linewidth=0.6, linestyle=(0, (1, 1.8)), label="1 / n")
        ax.set_xscale("symlog", linthresh=1.0, linscale=0.5)
        ax.set_xlim(-0.2, 1.1 * max(n - 1, 1))
        ticks = [0, *(10**k for k in range(9) if 10**k < n)]
        ax.set_xticks(ticks, [f"{tick:,}" for tick in ticks])
        ax.set_yscale("log")
        low, high = ax.get_ylim()
        ax.set_ylim(max(low, 1e-3 / n), high)
        ax.set_xlabel("lag, query - key")
        ax.set_ylabel("mean attention")
        if legend and few:
            finish_legend(ax, is_new=is_new)
        elif legend:
            _layer_bar(ax, [looks[g.label].color for g in groups], [g.numbers[0] for g in groups])
    return ax


def mean_by_lag(kernel: Kernel) -> Array:
    """Return the mean of A[i, i - l] over the n - l queries i >= l, for every lag l, shape (n,).

    Raises
    ------
    InputError
        If the kernel is not causal or has more than `LARGEST_LAG_KERNEL` positions.
    """
    n = kernel.n
    if not kernel.is_causal:
        raise InputError(
            "attention by lag is drawn for causal kernels only; this one attends to later positions"
        )
    if n > LARGEST_LAG_KERNEL:
        raise InputError(
            f"attention by lag of {n} positions would visit {n * n:.2g} pairs; at most "
            f"{LARGEST_LAG_KERNEL} positions are supported, choose a smaller length"
        )
    sums = np.zeros(n)
    step = max(1, 2**21 // n)
    for start in range(0, n, step):
        queries = np.arange(start, min(start + step, n))
        unit = np.zeros((queries.size, n))
        unit[np.arange(queries.size), queries] = 1.0
        rows = kernel.rmatmat(unit)
        for i, row in zip(queries, rows, strict=True):
            sums[: i + 1] += row[i::-1]
    return sums / np.arange(n, 0, -1.0)


def _grouped(kernels: Sequence[Kernel]) -> list[_Layers]:
    """Return the different kernels in the order of their first layer."""
    if not kernels or len({kernel.n for kernel in kernels}) > 1:
        raise InputError("at least one kernel is required, all of the same number of positions")
    numbers: dict[int, list[int]] = {}
    for t, kernel in enumerate(kernels, start=1):
        numbers.setdefault(id(kernel), []).append(t)
    by_id = {id(kernel): kernel for kernel in kernels}
    return [_Layers(by_id[key], tuple(layers)) for key, layers in numbers.items()]


def _spaced(groups: list[_Layers], most: int) -> list[_Layers]:
    if len(groups) <= most:
        return groups
    chosen = np.round(np.linspace(0, len(groups) - 1, most)).astype(int)
    return [groups[k] for k in chosen]


def _block_weights(kernel: Kernel) -> tuple[Array, NDArray[np.int64]]:
    """Return the mean weight of the visible pairs per block, NaN where none is visible."""
    edges = bin_edges(kernel.n, _MOST_BLOCKS)
    widths = np.diff(edges)
    pairs = np.outer(widths, widths).astype(np.float64)
    if kernel.is_causal:
        pairs = np.tril(pairs)
        np.fill_diagonal(pairs, widths * (widths + 1) / 2.0)
    weights = np.full(pairs.shape, np.nan)
    mass = block_masses(kernel, edges) * widths[:, None]
    np.divide(mass, pairs, out=weights, where=pairs > 0.0)
    return weights, edges


def _weight_limits(maps: Iterable[Array], n: int) -> tuple[float, float]:
    highest = max(float(np.nanmax(weights)) for weights in maps)
    return min(highest * 10.0**-_DECADES, 0.1 / n), highest


def _draw_map(
    ax: Axes, weights: Array, edges: NDArray[np.int64], limits: tuple[float, float]
) -> QuadMesh:
    scale = colormaps[SEQUENTIAL].with_extremes(under=_FAINT)
    with plot_style():
        mesh = ax.pcolormesh(
            edges - 0.5,
            edges - 0.5,
            np.ma.masked_invalid(np.maximum(weights, 1e-300)),
            cmap=scale,
            norm=LogNorm(*limits),
            rasterized=True,
        )
        ax.set_aspect("equal")
        ax.invert_yaxis()
        ax.grid(visible=False)
        for axis in (ax.xaxis, ax.yaxis):
            axis.set_major_locator(MaxNLocator(integer=True, nbins=3, min_n_ticks=1))
        ax.set_xlabel("key")
        ax.set_ylabel("query")
    return mesh


def _weight_bar(figure: Any, mesh: QuadMesh, axes: list[Axes]) -> None:
    with plot_style():
        bar = figure.colorbar(mesh, ax=axes, fraction=0.05, pad=0.02, extend="min", aspect=25)
        bar.outline.set_visible(False)
        bar.set_label("attention weight")


def _layer_bar(ax: Axes, colours: list[str], numbers: list[int]) -> None:
    """Draw a colour bar with one step per line, ticks at a few layers."""
    count = len(colours)
    norm = BoundaryNorm(np.arange(count + 1) - 0.5, count)
    mappable = ScalarMappable(norm, ListedColormap(colours))
    ticks = np.unique(np.round(np.linspace(0, count - 1, min(count, 7))).astype(int))
    bar = figure_of(ax).colorbar(mappable, ax=ax, fraction=0.05, pad=0.02, ticks=ticks)
    bar.ax.set_yticklabels([str(numbers[k]) for k in ticks])
    bar.ax.minorticks_off()
    bar.outline.set_visible(False)
    bar.set_label("layer")


def _lag_edges(n: int) -> NDArray[np.int64]:
    """Return single lags up to 16, then bins of equal width on a logarithmic scale."""
    if n <= 16:
        return np.arange(n + 1, dtype=np.int64)
    count = int(np.ceil(_BINS_PER_DECADE * np.log10(n / 16)))
    beyond = np.round(np.geomspace(16, n, count + 1)).astype(np.int64)
    return np.unique(np.concatenate([np.arange(17, dtype=np.int64), beyond]))
