"""Influence through depth: the profile after each layer, and where mass goes in the long run."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from numpy.typing import ArrayLike

from posbias.errors import InputError
from posbias.plot._axes import finish_legend, log_view, position_axis
from posbias.plot._bins import bins_of
from posbias.plot.style import INK, LineStyle, axes_or_new, plot_style, ramp
from posbias.theory import DepthCurve, InfiniteDepth

__all__ = ["plot_depth_profiles", "plot_infinite_depth"]

_MOST_LINES = 7
_FIRST, _BETWEEN, _OWN = "#D55E00", "#E3E3E3", "#0072B2"


def plot_depth_profiles(rows: ArrayLike, ax: Axes | None = None, *, legend: bool = True) -> Axes:
    """Draw the profile of one position after growing numbers of layers.

    Parameters
    ----------
    rows : array_like, shape (T + 1, n)
        Row t is the profile after t layers, as `Rollout.depth_profiles` returns them.
    ax : Axes, optional
        By default those of a new figure of column width.
    legend : bool
        Whether to draw a legend: inside given axes, under those of a new figure.

    Returns
    -------
    Axes
        At most seven lines from few layers (dark) to many (light), evenly spaced, and all layers
        in black. Long profiles are binned as in `plot_profiles`.

    Raises
    ------
    InputError
        If the shape is another or there is no layer.
    """
    table = np.asarray(rows, dtype=np.float64)
    if table.ndim != 2 or table.shape[0] < 2 or table.shape[1] < 2:
        raise InputError(
            f"depth profiles have shape {table.shape}; (layers + 1, positions) with at least one "
            "layer is required, as Rollout.depth_profiles returns them"
        )
    depth, n = table.shape[0] - 1, table.shape[1]
    count = min(depth, _MOST_LINES)
    depths = [int(t) for t in np.unique(np.round(np.linspace(1, depth, count)))]
    bins = bins_of(n)
    curves = {t: bins.means(table[t]) for t in depths}
    looks = ramp([str(t) for t in depths])
    is_new = ax is None
    ax = axes_or_new(ax)
    with plot_style():
        for t, curve in curves.items():
            last = t == depth
            style = LineStyle(INK, "-", 1.6, "", 4.0) if last else looks[str(t)]
            ax.plot(
                bins.centres,
                curve,
                color=style.color,
                linewidth=style.width,
                zorder=style.layer,
                label=f"{t} layer{'s' if t > 1 else ''}",
            )
        ax.set_yscale("log")
        ax.set_ylim(*log_view([curves[t] for t in reversed(depths)], n))
        position_axis(ax, n, bins.axis_label())
        ax.set_ylabel("share of influence")
        if legend:
            finish_legend(ax, is_new=is_new)
    return ax


def plot_infinite_depth(
    curve: DepthCurve,
    verdict: InfiniteDepth,
    ax: Axes | None = None,
    *,
    query: int = -1,
    legend: bool = True,
) -> Axes:
    """Draw where the mass of a position lies after many layers, and what infinitely many leave.

    Parameters
    ----------
    curve : DepthCurve
        After 0..T layers along the schedule of the verdict, T at least 1.
    verdict : InfiniteDepth
        As `posbias.theory.infinite_depth` returns it.
    ax : Axes, optional
        By default those of a new figure of column width.
    query : int
        The position that the curve is about, one after the first.
    legend : bool
        Whether to draw a legend: inside given axes, under those of a new figure.

    Returns
    -------
    Axes
        Three areas that add up to one over a logarithmic axis of layers: token 0, the tokens
        between, the position itself. A dashed line marks what never moves, ``lim P[i, i]`` (T5),
        if that is not zero; the title is the outcome (T6).

    Raises
    ------
    InputError
        If the curve has no layer, or the query is the first position or beyond the verdict.
    """
    depth, n = curve.first.size - 1, len(verdict.row_diverges)
    if depth < 1 or not -n <= query < n or query % n == 0:
        raise InputError(
            f"the curve has {depth} layers and the query is {query}; at least one layer and a "
            f"position in 1..{n - 1} are required: the first position only sees itself"
        )
    layers = np.arange(1, depth + 1)
    first, own = curve.first[1:], curve.last[1:]
    is_new = ax is None
    ax = axes_or_new(ax, height=2.7)
    with plot_style():
        ax.stackplot(
            layers,
            [first, np.maximum(1.0 - first - own, 0.0), own],
            colors=[_FIRST, _BETWEEN, _OWN],
            labels=["token 0", "tokens between", "the query itself"],
            linewidth=0,
        )
        limit = 0.0 if verdict.diagonal is None else float(verdict.diagonal[query])
        if limit > 0.0:
            ax.axhline(
                1.0 - limit,
                color=INK,
                linestyle=(0, (4, 2)),
                linewidth=1.1,
                label=f"above: never moves, {limit:.3g}",
            )
        if depth > 10:
            ax.set_xscale("log")
        ax.set_xlim(1, depth)
        ax.set_ylim(0.0, 1.0)
        ax.set_xlabel("layers")
        ax.set_ylabel("share of influence")
        ax.set_title(f"infinite depth: {verdict.outcome}")
        if legend:
            finish_legend(ax, is_new=is_new)
    return ax
