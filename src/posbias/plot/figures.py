"""Whole figures: panels of one measurement or one comparison side by side."""

from __future__ import annotations

from collections.abc import Mapping

from matplotlib.figure import Figure
from numpy.typing import ArrayLike

from posbias.errors import InputError
from posbias.plot._axes import legend_below
from posbias.plot.profiles import Bands, plot_cumulative, plot_mixing, plot_profiles
from posbias.plot.style import PAGE_WIDTH, line_styles, new_figure, plot_style
from posbias.profile import Profile

__all__ = ["comparison_figure", "measurement_figure"]

_STACKED_BELOW = 5.0


def measurement_figure(
    profiles: Mapping[str, Profile],
    mixing: ArrayLike,
    *,
    bands: Bands | None = None,
    windows: ArrayLike | None = None,
    spread: ArrayLike | None = None,
    labels: Mapping[str, str] | None = None,
    title: str = "",
    width: float = PAGE_WIDTH,
) -> Figure:
    """Draw measured and predicted influence, and the mixing coefficients beside them.

    Parameters
    ----------
    profiles : mapping of str to Profile
        The measured influence under ``"measured"`` and the variants.
    mixing : array_like, shape (T,)
        Mixing coefficient of each layer.
    bands : mapping of str to pair of array_like, shape (n,), optional
        95 % intervals of the profiles (see `plot_profiles`).
    windows : array_like, shape (D, n), optional
        Raw influence per window, for the band (see `plot_profiles`).
    spread : array_like, shape (T,), optional
        Standard deviation of the mixing coefficients.
    labels : mapping of str to str, optional
        Names of profiles for the legend.
    title : str
        Set above the profiles, e.g. the model and the number of windows.
    width : float
        Width in inches; the panels are stacked below 5 inches.

    Returns
    -------
    Figure
        Two axes: profiles, mixing.
    """
    if width >= _STACKED_BELOW:
        figure = new_figure(width, 3.1)
        grid = figure.add_gridspec(1, 2, width_ratios=(2.4, 1.0))
    else:
        figure = new_figure(width, 4.8)
        grid = figure.add_gridspec(2, 1, height_ratios=(1.7, 1.0))
    with plot_style():
        left = figure.add_subplot(grid[0])
        right = figure.add_subplot(grid[1])
        if title:
            left.set_title(title)
    plot_profiles(profiles, left, bands=bands, windows=windows, labels=labels, legend=False)
    plot_mixing(mixing, right, spread=spread)
    legend_below(figure, left)
    return figure


def comparison_figure(
    measured: Profile,
    predicted: Mapping[str, Profile],
    distances: Mapping[str, float],
    *,
    bands: Bands | None = None,
    title: str = "",
    width: float = PAGE_WIDTH,
) -> Figure:
    """Draw a measured profile, predictions over it, and the cumulated influence of all.

    Parameters
    ----------
    measured : Profile
        The reference.
    predicted : mapping of str to Profile
        Predictions of the same length, by name.
    distances : mapping of str to float
        Wasserstein-1 distance of each prediction to `measured`, shown in the legend.
    bands : mapping of str to pair of array_like, shape (n,), optional
        95 % intervals of the profiles, ``"measured"`` among them (see `plot_profiles`).
    title : str
        Set above the profiles.
    width : float
        Width in inches; the panels are stacked below 5 inches.

    Returns
    -------
    Figure
        Two axes: profiles, cumulated influence.

    Raises
    ------
    InputError
        If a distance is missing or a prediction is named ``"measured"``.
    """
    missing = [name for name in predicted if name not in distances]
    if missing or "measured" in predicted:
        raise InputError(
            f"predictions {list(predicted)} need a distance each (missing: {missing}) and must "
            "not be named 'measured'"
        )
    if width >= _STACKED_BELOW:
        figure = new_figure(width, 3.0)
        grid = figure.add_gridspec(1, 2, width_ratios=(1.35, 1.0))
    else:
        figure = new_figure(width, 5.2)
        grid = figure.add_gridspec(2, 1, height_ratios=(1.2, 1.0))
    profiles = {"measured": measured, **predicted}
    styles = line_styles(list(predicted))
    labels = {name: f"{styles[name].label or name}  W1 {distances[name]:.4f}" for name in predicted}
    with plot_style():
        left = figure.add_subplot(grid[0])
        right = figure.add_subplot(grid[1])
        if title:
            left.set_title(title)
    plot_profiles(profiles, left, bands=bands, labels=labels, legend=False)
    plot_cumulative(profiles, right, labels=labels, legend=False)
    legend_below(figure, left)
    return figure
