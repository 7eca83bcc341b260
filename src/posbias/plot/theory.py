"""Figures of the theory: profiles with one force removed, and influence against depth."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import ArrayLike, NDArray

from posbias.errors import InputError
from posbias.plot._axes import finish_legend, legend_below, log_view, position_axis
from posbias.plot.style import (
    INK,
    PAGE_WIDTH,
    LineStyle,
    axes_or_new,
    line_styles,
    new_figure,
    plot_style,
)
from posbias.profile import Profile, ProfileSet

__all__ = ["FORCE_STYLES", "DepthQuantity", "depth_figure", "plot_depth", "plot_forces"]

DepthQuantity = Literal["first", "last", "mean"]

FORCE_STYLES: Mapping[str, LineStyle] = {
    "mask depth": LineStyle("#D55E00", (0, (5, 1.6)), 1.3),
    "residual": LineStyle("#0072B2", (0, (5, 1.4, 1, 1.4)), 1.3),
    "position encoding": LineStyle("#E69F00", "-", 1.3),
    "content": LineStyle("#009E73", (0, (2, 1.2)), 1.3),
}
"""Style of the profile from which a force is removed, the same in every figure."""

_DEPTH_LABELS: Mapping[str, str] = {
    "first": "influence of the first position",
    "last": "influence of the last position",
    "mean": "mean position / (n - 1)",
}


def plot_forces(
    complete: Profile,
    without: Mapping[str, Profile],
    ax: Axes | None = None,
    *,
    legend: bool = True,
) -> Axes:
    """Draw the profile of all forces and the profiles with each force removed in turn.

    Parameters
    ----------
    complete : Profile
        The prediction with all forces.
    without : mapping of str to Profile
        The prediction without the force of that name.
    ax : Axes, optional
        Where to draw; by default the axes of a new figure of column width.
    legend : bool
        Whether to draw a legend: inside given axes, under those of a new figure.

    Returns
    -------
    Axes
        One line for the complete profile, then one per force in the order given.

    Raises
    ------
    ProfileError
        If lengths differ.
    """
    profiles = ProfileSet({"": complete, **without})
    is_new = ax is None
    ax = axes_or_new(ax)
    spare = line_styles(list(without))
    positions = np.arange(profiles.n)
    with plot_style():
        ax.plot(positions, complete.mass, color=INK, linewidth=1.6, zorder=5, label="all forces")
        for force, profile in without.items():
            style = FORCE_STYLES.get(force, spare[force])
            ax.plot(
                positions,
                profile.mass,
                color=style.color,
                linestyle=style.dashes,
                linewidth=style.width,
                label=f"without {force}",
            )
        ax.set_yscale("log")
        ax.set_ylim(*log_view(profiles))
        position_axis(ax, profiles.n)
        ax.set_ylabel("share of influence")
        if legend:
            finish_legend(ax, is_new=is_new)
    return ax


def plot_depth(
    curves: Mapping[str, ArrayLike],
    quantity: DepthQuantity,
    ax: Axes | None = None,
    *,
    legend: bool = True,
) -> Axes:
    """Draw how influence moves with depth.

    Parameters
    ----------
    curves : mapping of str to array_like, shape (T + 1, n)
        Profiles after 0..T layers for each variant, as `Rollout.depth_profiles` gives them.
    quantity : {"first", "last", "mean"}
        Mass on the first position, on the last one, or the mean position over n - 1.
    ax : Axes, optional
        Where to draw; by default the axes of a new figure of column width.
    legend : bool
        Whether to draw a legend: inside given axes, under those of a new figure.

    Returns
    -------
    Axes
        One line per variant over depth 0..T.

    Raises
    ------
    InputError
        If an array has another shape or the quantity is unknown.
    """
    if quantity not in _DEPTH_LABELS:
        raise InputError(f"quantity {quantity!r} is unknown; use one of {list(_DEPTH_LABELS)}")
    values = {name: _reduce(name, rows, quantity) for name, rows in curves.items()}
    is_new = ax is None
    ax = axes_or_new(ax)
    styles = line_styles(list(curves))
    with plot_style():
        for name, value in values.items():
            style = styles[name]
            ax.plot(
                np.arange(value.size),
                value,
                color=style.color,
                linestyle=style.dashes,
                linewidth=style.width,
                zorder=style.layer,
                label=style.label or name,
            )
        ax.set_ylim(-0.02, 1.02)
        ax.margins(x=0.03)
        ax.set_xlabel("depth in layers")
        ax.set_ylabel(_DEPTH_LABELS[quantity])
        if legend:
            finish_legend(ax, is_new=is_new)
    return ax


def depth_figure(
    curves: Mapping[str, ArrayLike], *, title: str = "", width: float = PAGE_WIDTH
) -> Figure:
    """Draw the three quantities of `plot_depth` side by side.

    Parameters
    ----------
    curves : mapping of str to array_like, shape (T + 1, n)
        Profiles after 0..T layers for each variant.
    title : str
        Set above the first panel.
    width : float
        Width in inches; the panels are stacked below 5 inches.

    Returns
    -------
    Figure
        Three axes: first position, last position, mean position.
    """
    quantities: tuple[DepthQuantity, ...] = ("first", "last", "mean")
    is_wide = width >= 5.0
    figure = new_figure(width, 2.6 if is_wide else 6.0)
    with plot_style():
        grid = figure.add_gridspec(*((1, 3) if is_wide else (3, 1)))
        axes = [figure.add_subplot(cell) for cell in grid]
        if title:
            axes[0].set_title(title)
    for ax, quantity in zip(axes, quantities, strict=True):
        plot_depth(curves, quantity, ax, legend=False)
    legend_below(figure, axes[0])
    return figure


def _reduce(name: str, rows: ArrayLike, quantity: DepthQuantity) -> NDArray[np.float64]:
    table = np.asarray(rows, dtype=np.float64)
    if table.ndim != 2 or table.shape[1] < 2:
        raise InputError(
            f"{name!r} has shape {table.shape}; (depth + 1, n) with n >= 2 is required"
        )
    if quantity == "first":
        return table[:, 0]
    if quantity == "last":
        return table[:, -1]
    return table @ np.linspace(0.0, 1.0, table.shape[1])
