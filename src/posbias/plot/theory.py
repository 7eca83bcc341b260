"""Figures of the theory: profiles with one force removed, and influence against depth."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, get_args

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from posbias.errors import InputError
from posbias.plot._axes import finish_legend, legend_below, log_view, position_axis
from posbias.plot._bins import bins_of
from posbias.plot.style import (
    INK,
    LINE_STYLES,
    PAGE_WIDTH,
    LineStyle,
    axes_or_new,
    new_figure,
    plot_style,
)
from posbias.theory import DepthCurve, DepthCurves, ForcesReport

__all__ = ["FORCE_STYLES", "DepthQuantity", "depth_figure", "plot_depth", "plot_forces"]

DepthQuantity = Literal["first", "last", "mean_position"]

FORCE_STYLES: Mapping[str, LineStyle] = {
    "depth": LineStyle("#D55E00", (0, (5, 1.6)), 1.3, "without depth (top layer alone)"),
    "residual": LineStyle("#0072B2", (0, (5, 1.4, 1, 1.4)), 1.3, "without residual path"),
    "position": LineStyle("#E69F00", (0, (9, 1.6)), 1.3, "without position encoding"),
    "content": LineStyle("#1FB88A", (0, (2, 1.6)), 1.1, "without content", 3.2),
}
"""Style of the profile from which a force is removed, the same in every figure."""

_DEPTH_LABELS: Mapping[str, str] = {
    "first": "mass on token 0",
    "last": "mass on the query itself",
    "mean_position": "mean position",
}


def plot_forces(report: ForcesReport, ax: Axes | None = None, *, legend: bool = True) -> Axes:
    """Draw the profile of all forces and the profiles with each force removed in turn.

    Parameters
    ----------
    report : ForcesReport
        As `posbias.theory.forces` returns it; a force that does not apply is left out.
    ax : Axes, optional
        Where to draw; by default the axes of a new figure of column width.
    legend : bool
        Whether to draw a legend: inside given axes, under those of a new figure.

    Returns
    -------
    Axes
        One line for the complete profile, then one per force in the order of the report.
    """
    profiles = {"all": report.baseline}
    for effect in report.effects:
        if effect.removed is not None:
            profiles[effect.name] = effect.removed.profile
    # Wide and behind: without a force that does little the profile is nearly the same.
    complete = LineStyle(INK, "-", 2.6, "all forces", 2.5)
    is_new = ax is None
    ax = axes_or_new(ax)
    with plot_style():
        bins = bins_of(report.baseline.n)
        curves = {name: bins.means(profile.mass) for name, profile in profiles.items()}
        for name, curve in curves.items():
            style = complete if name == "all" else FORCE_STYLES[name]
            ax.plot(
                bins.centres,
                curve,
                color=style.color,
                linestyle=style.dashes,
                linewidth=style.width,
                zorder=style.layer,
                label=style.label,
            )
        ax.set_yscale("log")
        ax.set_ylim(*log_view(curves.values(), bins.n))
        position_axis(ax, bins.n, bins.axis_label())
        ax.set_ylabel("share of influence")
        if legend:
            finish_legend(ax, is_new=is_new)
    return ax


def plot_depth(
    curves: DepthCurves, quantity: DepthQuantity, ax: Axes | None = None, *, legend: bool = True
) -> Axes:
    """Draw how influence moves with depth, attention alone beside the residual-aware rollout.

    Parameters
    ----------
    curves : DepthCurves
        As `posbias.theory.depth_curves` returns it.
    quantity : {"first", "last", "mean_position"}
        Mass on token 0, mass on the query's own position, or the mean position.
    ax : Axes, optional
        Where to draw; by default the axes of a new figure of column width.
    legend : bool
        Whether to draw a legend: inside given axes, under those of a new figure.

    Returns
    -------
    Axes
        Two lines over depth 0..T: attention only, residual.

    Raises
    ------
    InputError
        If the quantity is unknown.
    """
    if quantity not in get_args(DepthQuantity):
        raise InputError(f"quantity {quantity!r} is unknown; use one of {list(_DEPTH_LABELS)}")
    lines: dict[str, DepthCurve] = {
        "attention-only": curves.attention_only,
        "residual": curves.residual,
    }
    is_new = ax is None
    ax = axes_or_new(ax)
    with plot_style():
        for name, curve in lines.items():
            style, values = LINE_STYLES[name], getattr(curve, quantity)
            ax.plot(
                np.arange(values.size),
                values,
                color=style.color,
                linestyle=style.dashes,
                linewidth=style.width,
                zorder=style.layer,
                label=name,
            )
        top = float(curves.query) if quantity == "mean_position" else 1.0
        ax.set_ylim(-0.02 * top, 1.02 * top)
        ax.margins(x=0.03)
        ax.set_xlabel("depth in layers")
        ax.set_ylabel(_DEPTH_LABELS[quantity])
        if legend:
            finish_legend(ax, is_new=is_new)
    return ax


def depth_figure(curves: DepthCurves, *, title: str = "", width: float = PAGE_WIDTH) -> Figure:
    """Draw the three quantities of `plot_depth` side by side.

    Parameters
    ----------
    curves : DepthCurves
        As `posbias.theory.depth_curves` returns it.
    title : str
        Set above the first panel.
    width : float
        Width in inches; the panels are stacked below 5 inches.

    Returns
    -------
    Figure
        Three axes: token 0, the query itself, mean position.
    """
    is_wide = width >= 5.0
    figure = new_figure(width, 2.5 if is_wide else 6.0)
    with plot_style():
        grid = figure.add_gridspec(*((1, 3) if is_wide else (3, 1)))
        axes = [figure.add_subplot(grid[k]) for k in range(3)]
        if title:
            axes[0].set_title(title)
    for ax, quantity in zip(axes, get_args(DepthQuantity), strict=True):
        plot_depth(curves, quantity, ax, legend=False)
    legend_below(figure, axes[0])
    return figure
