"""Violations of stochastic monotonicity: how many in each layer, and where the worst one is."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter

from posbias.errors import InputError
from posbias.kernels import Kernel
from posbias.plot._axes import finish_legend, layer_axis
from posbias.plot.style import INK, PAGE_WIDTH, axes_or_new, new_figure, plot_style
from posbias.theory import Monotonicity

__all__ = ["monotonicity_figure", "plot_violations", "plot_witness"]

_RATE, _WORST, _LATER = "#0072B2", "#D55E00", "#D55E00"
_STACKED_BELOW = 5.0


def plot_violations(
    results: Sequence[Monotonicity], ax: Axes | None = None, *, legend: bool = True
) -> Axes:
    """Draw for every layer how far its kernel is from being stochastically monotone.

    Parameters
    ----------
    results : sequence of Monotonicity
        Of the layers 1..T, as `posbias.theory.monotonicity` returns them.
    ax : Axes, optional
        By default those of a new figure of column width.
    legend : bool
        Whether to draw a legend: inside given axes, under those of a new figure.

    Returns
    -------
    Axes
        Logarithmic: the share of the combinations (rows i < i', position k) that are out of order
        as dots, the largest rise F_i'(k) - F_i(k) as diamonds. Monotone layers have neither, but
        a hollow circle at the bottom.

    Raises
    ------
    InputError
        If there is no layer.
    """
    if not results:
        raise InputError("there is no layer to draw; at least one result is required")
    rates = np.array([result.violation_rate for result in results])
    worst = np.array([result.worst for result in results])
    layers = np.arange(1, rates.size + 1)
    bad = worst > 0.0
    is_new = ax is None
    ax = axes_or_new(ax, height=2.5)
    floor, top = _decades([*rates[bad], *worst[bad]])
    size = 4.0 if rates.size <= 40 else 2.4
    with plot_style():
        if bad.any():
            ax.vlines(layers[bad], floor, rates[bad], color=_RATE, alpha=0.35, linewidth=1.0)
            ax.plot(
                layers[bad], rates[bad], "o", color=_RATE, markersize=size, label="share violated"
            )
            ax.plot(
                layers[bad], worst[bad], "D", color=_WORST, markersize=size - 1, label="worst rise"
            )
        if not bad.all():
            ax.plot(
                layers[~bad],
                np.full(int((~bad).sum()), floor),
                "o",
                color=INK,
                markerfacecolor="white",
                markersize=size,
                clip_on=False,
                zorder=4,
                label="monotone",
            )
        ax.set_yscale("log")
        ax.set_ylim(floor, top)
        ax.yaxis.set_minor_formatter(NullFormatter())
        layer_axis(ax, rates.size)
        ax.set_ylabel("violation of order")
        if legend:
            finish_legend(ax, is_new=is_new)
    return ax


def plot_witness(
    kernel: Kernel, result: Monotonicity, ax: Axes | None = None, *, legend: bool = True
) -> Axes:
    """Draw the two rows of a kernel that are most out of order, as distribution functions.

    Parameters
    ----------
    kernel : Kernel
        The kernel that `result` is about.
    result : Monotonicity
        With a witness: rows i < i' and a position k with F_i(k) < F_i'(k).
    ax : Axes, optional
        By default those of a new figure of column width.
    legend : bool
        Whether to draw a legend: inside given axes, under those of a new figure.

    Returns
    -------
    Axes
        The later row should lie below the earlier one everywhere; a bar at k shows by how much it
        does not.

    Raises
    ------
    InputError
        If the kernel is monotone, so that there is no witness.
    """
    witness = result.witness
    if witness is None:
        raise InputError("the kernel is stochastically monotone; there is no violation to draw")
    is_new = ax is None
    ax = axes_or_new(ax, height=2.5)
    keys = np.arange(kernel.n)
    with plot_style():
        for i, colour, dashes in ((witness.i, INK, "-"), (witness.j, _LATER, (0, (4, 1.5)))):
            ax.step(
                keys,
                np.cumsum(kernel.row(i)),
                where="post",
                color=colour,
                linestyle=dashes,
                linewidth=1.3,
                label=f"row {i}",
            )
        ax.plot(
            [witness.k, witness.k],
            [witness.cdf_i, witness.cdf_j],
            color=_RATE,
            linewidth=2.4,
            solid_capstyle="butt",
            label=f"+{result.worst:.3g} at {witness.k}",
        )
        ax.set_xlim(-0.02 * kernel.n, min(kernel.n, 1.05 * witness.j + 1))
        ax.set_ylim(-0.02, 1.02)
        ax.set_xlabel("key k")
        ax.set_ylabel("attention to keys 0..k")
        if legend:
            finish_legend(ax, is_new=is_new)
    return ax


def monotonicity_figure(
    kernels: Sequence[Kernel],
    results: Sequence[Monotonicity],
    *,
    title: str = "",
    width: float = PAGE_WIDTH,
) -> Figure:
    """Draw the violations of all layers, and the worst one of all beside them.

    Parameters
    ----------
    kernels : sequence of Kernel
        One per layer, or one for all.
    results : sequence of Monotonicity
        One per layer.
    title : str
        Set above everything.
    width : float
        Width in inches; the panels are stacked below 5 inches.

    Returns
    -------
    Figure
        Two axes; one if all layers are monotone.

    Raises
    ------
    InputError
        If the numbers of kernels and results do not fit.
    """
    if len(kernels) not in (1, len(results)) or not results:
        raise InputError(
            f"{len(kernels)} kernels do not fit {len(results)} results; one per layer or one for "
            "all is required"
        )
    top = int(np.argmax([result.worst for result in results]))
    panels = 2 if results[top].witness is not None else 1
    is_wide = width >= _STACKED_BELOW
    figure = new_figure(width, 2.6 if is_wide or panels == 1 else 4.9)
    with plot_style():
        shape = (1, panels) if is_wide else (panels, 1)
        axes = np.ravel(figure.subplots(*shape, squeeze=False))
        if title:
            figure.suptitle(title, fontsize=8.5, x=0.01, ha="left")
    plot_violations(results, axes[0])
    if panels == 2:
        kernel = kernels[top if len(kernels) > 1 else 0]
        plot_witness(kernel, results[top], axes[1])
        with plot_style():
            axes[1].set_title(f"worst: layer {top + 1}", fontsize=7.5)
    return figure


def _decades(values: Sequence[float]) -> tuple[float, float]:
    """Return whole decades around positive values, with room for the stems and the legend."""
    if not values:
        return 1e-3, 1.0
    low, high = np.log10(min(values)), np.log10(max(values))
    return 10.0 ** np.floor(low - 0.3), 10.0 ** np.ceil(high + 0.3)
