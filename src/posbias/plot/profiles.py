"""Influence profiles over positions, and mixing coefficients over layers."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from matplotlib.axes import Axes
from numpy.typing import ArrayLike, NDArray

from posbias.errors import InputError, ProfileError
from posbias.plot._axes import finish_legend, layer_axis, log_view, position_axis
from posbias.plot._bins import Bins, bins_of
from posbias.plot.style import INK, LINE_STYLES, axes_or_new, line_styles, plot_style
from posbias.profile import Profile, ProfileSet
from posbias.uncertainty import LEVEL

__all__ = [
    "SPREAD_PERCENTILES",
    "Bands",
    "plot_cumulative",
    "plot_mixing",
    "plot_profiles",
    "window_band",
]

Bands = Mapping[str, tuple[ArrayLike, ArrayLike]]
"""By name of a profile: lower and upper end at each position, shape (n,) each."""

SPREAD_PERCENTILES = (16.0, 84.0)
"""Percentiles over windows between which the band of the measured influence lies."""


def plot_profiles(
    profiles: Mapping[str, Profile],
    ax: Axes | None = None,
    *,
    bands: Bands | None = None,
    windows: ArrayLike | None = None,
    labels: Mapping[str, str] | None = None,
    legend: bool = True,
) -> Axes:
    """Draw influence against position on a logarithmic axis.

    Parameters
    ----------
    profiles : mapping of str to Profile
        Profiles of equal length; ``"measured"`` is drawn as the reference, in front.
    ax : Axes, optional
        Where to draw; by default the axes of a new figure of column width.
    bands : mapping of str to pair of array_like, shape (n,), optional
        95 % interval of profiles at each position, by name, drawn in the colour of the profile;
        `posbias.comparison.Comparison.bands` has them. In bins the ends are means, and so at
        least as far apart as those of the mean.
    windows : array_like, shape (D, n), optional
        Non-negative scores of each text window. Their spread is drawn as a band, each row
        normalised to sum 1 first (see `window_band`): how windows differ, not how uncertain
        their mean is.
    labels : mapping of str to str, optional
        Names for the legend.
    legend : bool
        Whether to draw a legend: inside given axes, under those of a new figure.

    Returns
    -------
    Axes
        One line per profile, in the order given; positions on x, share of influence per position
        on y. More than 512 positions are drawn as means over bins, finer at both ends, which keep
        the mass; the label of the axis says so.

    Raises
    ------
    ProfileError
        If there is no profile, their lengths differ, or those of a band do.
    """
    n = ProfileSet(profiles).n
    names = labels or {}
    is_new = ax is None
    ax = axes_or_new(ax)
    bins = bins_of(n)
    intervals = _binned_bands(bands or {}, profiles, bins)
    band = () if windows is None else _binned_band(windows, bins)
    curves = {name: bins.means(profile.mass) for name, profile in profiles.items()}
    styles = line_styles(list(profiles))
    with plot_style():
        if band:
            low, high = band
            label = "windows, {:.0f}-{:.0f} %".format(*SPREAD_PERCENTILES)
            ax.fill_between(
                bins.centres, low, high, color=INK, alpha=0.16, linewidth=0, zorder=1, label=label
            )
        for k, (name, (low, high)) in enumerate(intervals.items()):
            ax.fill_between(
                bins.centres,
                low,
                high,
                color=styles[name].color,
                alpha=0.22,
                linewidth=0,
                zorder=1,
                label=f"{100 * LEVEL:.0f} % interval, bootstrap" if k == 0 else None,
            )
        for name, curve in curves.items():
            style = styles[name]
            ax.plot(
                bins.centres,
                curve,
                color=style.color,
                linestyle=style.dashes,
                linewidth=style.width,
                zorder=style.layer,
                label=names.get(name, style.label or name),
            )
        ax.set_yscale("log")
        ax.set_ylim(*log_view(curves.values(), n, band=band))
        position_axis(ax, n, bins.axis_label())
        ax.set_ylabel("share of influence")
        if legend:
            finish_legend(ax, is_new=is_new)
    return ax


def plot_cumulative(
    profiles: Mapping[str, Profile],
    ax: Axes | None = None,
    *,
    labels: Mapping[str, str] | None = None,
    legend: bool = True,
) -> Axes:
    """Draw the cumulated influence; the area between two curves over n - 1 is their W1 distance.

    Parameters
    ----------
    profiles : mapping of str to Profile
        Profiles of equal length.
    ax : Axes, optional
        Where to draw; by default the axes of a new figure of column width.
    labels : mapping of str to str, optional
        Names for the legend.
    legend : bool
        Whether to draw a legend: inside given axes, under those of a new figure.

    Returns
    -------
    Axes
        One stepped line per profile, in the order given.

    Raises
    ------
    ProfileError
        If there is no profile or their lengths differ.
    """
    n = ProfileSet(profiles).n
    names = labels or {}
    is_new = ax is None
    ax = axes_or_new(ax)
    styles = line_styles(list(profiles))
    with plot_style():
        for name, profile in profiles.items():
            style = styles[name]
            ax.plot(
                np.arange(n),
                profile.cdf,
                color=style.color,
                linestyle=style.dashes,
                linewidth=style.width,
                zorder=style.layer,
                drawstyle="steps-post",
                label=names.get(name, style.label or name),
            )
        ax.set_ylim(-0.02, 1.02)
        position_axis(ax, n)
        ax.set_ylabel("cumulated influence")
        if legend:
            finish_legend(ax, is_new=is_new)
    return ax


def plot_mixing(
    mixing: ArrayLike, ax: Axes | None = None, *, spread: ArrayLike | None = None
) -> Axes:
    """Draw the mixing coefficient of each layer.

    Parameters
    ----------
    mixing : array_like, shape (T,)
        Mixing coefficients, layer 1 first.
    ax : Axes, optional
        Where to draw; by default the axes of a new figure of column width.
    spread : array_like, shape (T,), optional
        Standard deviation over tokens and windows, drawn as error bars.

    Returns
    -------
    Axes
        One line with a point per layer; layers 1..T on x.

    Raises
    ------
    InputError
        If the shapes are not (T,).
    """
    values = np.asarray(mixing, dtype=np.float64)
    errors = None if spread is None else np.asarray(spread, dtype=np.float64)
    if (
        values.ndim != 1
        or values.size == 0
        or (errors is not None and errors.shape != values.shape)
    ):
        shape = None if errors is None else errors.shape
        raise InputError(
            f"mixing has shape {values.shape} and its spread {shape}; both need one value per layer"
        )
    ax = axes_or_new(ax, height=2.1)
    layers = np.arange(1, values.size + 1)
    half = LINE_STYLES["fixed-half"]
    with plot_style():
        ax.axhline(0.5, color=half.color, linestyle=half.dashes, linewidth=half.width, zorder=1)
        if errors is not None:
            ax.vlines(
                layers, values - errors, values + errors, color=INK, alpha=0.25, linewidth=2.2
            )
        size = 3.0 if values.size <= 40 else 1.8
        ax.plot(layers, values, color=INK, marker="o", markersize=size, linewidth=0.9, zorder=4)
        top = float((values + (0.0 if errors is None else errors)).max())
        ax.set_ylim(0.0, max(0.55, 1.06 * top))
        layer_axis(ax, values.size)
        ax.set_ylabel("mixing coefficient λ")
    return ax


def _binned_bands(
    bands: Bands, profiles: Mapping[str, Profile], bins: Bins
) -> dict[str, tuple[NDArray[np.float64], NDArray[np.float64]]]:
    """Return the bands of the profiles that are drawn, as means over the bins."""
    found = {}
    for name, profile in profiles.items():
        if name not in bands:
            continue
        low, high = (np.asarray(end, dtype=np.float64) for end in bands[name])
        if not low.shape == high.shape == profile.mass.shape:
            raise ProfileError(
                f"the band of {name!r} has shapes {low.shape} and {high.shape}; two ends of "
                f"({profile.n},) are required, one value per position"
            )
        found[name] = (bins.means(low), bins.means(high))
    return found


def window_band(windows: ArrayLike) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the 16th and the 84th percentile over windows of each position's share.

    Parameters
    ----------
    windows : array_like, shape (D, n)
        Non-negative scores per window and position; each row is normalised to sum 1.

    Returns
    -------
    low, high : ndarray, shape (n,)
        Percentiles `SPREAD_PERCENTILES` over the D windows.

    Raises
    ------
    ProfileError
        If the shape is not (D, n) or the scores of a window sum to zero.
    """
    scores = np.asarray(windows, dtype=np.float64)
    if scores.ndim != 2 or scores.shape[0] == 0:
        raise ProfileError(f"windows have shape {scores.shape}; (windows, positions) is required")
    totals = scores.sum(axis=1, keepdims=True)
    if not np.all(totals > 0.0):
        raise ProfileError("the scores of a window sum to zero, so it has no shares of influence")
    low, high = np.percentile(scores / totals, SPREAD_PERCENTILES, axis=0)
    return low, high


def _binned_band(windows: ArrayLike, bins: Bins) -> tuple[NDArray[np.float64], ...]:
    """Return the band of the mean share per position of each bin, shape (B,) twice."""
    scores = np.asarray(windows, dtype=np.float64)
    if scores.ndim == 2 and scores.shape[1] != bins.n:
        raise ProfileError(f"windows have {scores.shape[1]} positions, profiles have {bins.n}")
    # Sums keep the total of each window, by which window_band divides.
    summed = bins.sums(scores) if scores.ndim == 2 else scores
    return tuple(edge / bins.widths for edge in window_band(summed))
