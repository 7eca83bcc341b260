"""Heat maps over layers and heads: how well a constant plus a diagonal term describes content."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from numpy.typing import ArrayLike

from posbias.errors import InputError
from posbias.measurement import ContentFit
from posbias.plot.style import (
    PAGE_WIDTH,
    SEQUENTIAL,
    axes_or_new,
    figure_of,
    new_figure,
    plot_style,
)

__all__ = ["content_figure", "plot_heads"]

_DIVERGING = "PuOr_r"
_STACKED_BELOW = 5.0


def plot_heads(
    values: ArrayLike,
    ax: Axes | None = None,
    *,
    label: str = "",
    around_zero: bool = False,
    limits: tuple[float, float] | None = None,
) -> Axes:
    """Draw one number per layer and head as a heat map, the first layer at the bottom.

    Parameters
    ----------
    values : array_like, shape (T, H)
        Values that are not finite are left blank.
    ax : Axes, optional
        By default those of a new figure.
    label : str
        Quantity and unit, set above the map.
    around_zero : bool
        Two colours that meet at zero, for signed values.
    limits : (float, float), optional
        Ends of the colour scale; by default those of the values.

    Raises
    ------
    InputError
        If the array has another shape or no finite value.
    """
    table = np.asarray(values, dtype=np.float64)
    if table.ndim != 2 or not np.isfinite(table).any():
        raise InputError(
            f"heads have shape {table.shape}; (layers, heads) with at least one finite value is "
            "required"
        )
    shown = np.ma.masked_invalid(table)
    if limits is None:
        largest = float(np.abs(shown).max()) or 1.0
        limits = (-largest, largest) if around_zero else (float(shown.min()), float(shown.max()))
    layers, heads = table.shape
    with plot_style():
        target = axes_or_new(ax)
        mesh = target.pcolormesh(
            np.arange(heads + 1) + 0.5,
            np.arange(layers + 1) + 0.5,
            shown,
            cmap=_DIVERGING if around_zero else SEQUENTIAL,
            vmin=limits[0],
            vmax=limits[1],
            rasterized=layers * heads > 2000,
        )
        target.grid(visible=False)
        target.set_xlabel("head")
        target.set_ylabel("layer")
        target.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=6, min_n_ticks=1))
        target.yaxis.set_major_locator(MaxNLocator(integer=True, nbins=8, min_n_ticks=1))
        target.set_title(label)
        bar = figure_of(target).colorbar(mesh, ax=target, fraction=0.08, pad=0.03)
        bar.outline.set_visible(False)
    return target


def content_figure(
    d: ArrayLike, fit: ContentFit, *, title: str = "", width: float = PAGE_WIDTH
) -> Figure:
    """Draw the content term and how well it describes the logits, over layers and heads.

    Parameters
    ----------
    d : array_like, shape (T, H)
        The content term, in logits.
    fit : ContentFit
        Spreads, separation and share of variance explained; both spreads share one scale.
    title : str
        Set above everything, e.g. model and text.
    width : float
        Width in inches; two maps stand side by side below 5 inches, three above.

    Returns
    -------
    Figure
        Five maps: content term, separation, variance explained, spread on the diagonal, spread
        below it.
    """
    layers = np.shape(d)[0]
    rows, columns = (2, 3) if width >= _STACKED_BELOW else (3, 2)
    figure = new_figure(width, rows * min(max(1.6, 0.5 + 0.12 * layers), 4.5))
    with plot_style():
        panels = np.ravel(figure.subplots(rows, columns))
        if title:
            figure.suptitle(title, fontsize=8.5, x=0.01, ha="left")
    most = float(fit.explained.max()) or 1.0
    widest = float(max(fit.diagonal_std.max(), fit.lower_std.max())) or 1.0
    plot_heads(d, panels[0], label="content term d, logits", around_zero=True)
    plot_heads(fit.separation, panels[1], label="separation, in spreads", around_zero=True)
    plot_heads(fit.explained, panels[2], label="variance explained", limits=(0.0, most))
    spreads = {"spread on the diagonal": fit.diagonal_std, "spread below it": fit.lower_std}
    for ax, (name, spread) in zip(panels[3:], spreads.items(), strict=False):
        plot_heads(spread, ax, label=f"{name}, logits", limits=(0.0, widest))
    panels[-1].set_axis_off()
    if columns == 2:  # titles of whole panels do not fit into half a column
        for ax in panels[:-1]:
            with plot_style():
                ax.set_title(ax.get_title(loc="left").partition(",")[0], fontsize=7.0)
    return figure
