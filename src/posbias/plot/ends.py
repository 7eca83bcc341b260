"""Long profiles in three panels: both ends enlarged, and what lies between them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from numpy.typing import ArrayLike

from posbias.plot._axes import legend_below
from posbias.plot._bins import END_SHARE, bins_of
from posbias.plot.profiles import plot_profiles
from posbias.plot.relative import plot_relative
from posbias.plot.style import PAGE_WIDTH, new_figure, plot_style
from posbias.profile import Profile, ProfileSet

__all__ = ["profiles_figure", "relative_figure"]

_SHORTEST_RELATIVE = 100
_RATIOS = (1.0, 2.1, 1.0)
_RELATIVE_TICKS = ((0.0, 0.01), (0.2, 0.4, 0.6, 0.8), (0.99, 1.0))


def profiles_figure(
    profiles: Mapping[str, Profile],
    *,
    windows: ArrayLike | None = None,
    title: str = "",
    width: float = PAGE_WIDTH,
) -> Figure:
    """Draw profiles over the whole context, long ones with both ends enlarged.

    Parameters
    ----------
    profiles : mapping of str to Profile
        Of equal length; ``"measured"`` is drawn as the reference.
    windows : array_like, shape (D, n), optional
        Scores of each window of text, for the band (see `plot_profiles`).
    title : str
        Set above everything.
    width : float
        Width in inches.

    Returns
    -------
    Figure
        One axes for up to 512 positions; else three that share the vertical axis: the first 2 %
        of the positions, those between, the last 2 %. All show the same bins, which keep the mass.

    Raises
    ------
    ProfileError
        If there is no profile or lengths differ.
    """
    bins = bins_of(ProfileSet(profiles).n)
    if not bins.end:
        figure = new_figure(width, 3.0)
        with plot_style():
            ax = figure.add_subplot()
            ax.set_title(title)
        plot_profiles(profiles, ax, windows=windows, legend=False)
        legend_below(figure, ax)
        return figure

    def draw(ax: Axes) -> None:
        plot_profiles(profiles, ax, windows=windows, legend=False)

    n, end = bins.n, bins.end
    cuts = [-0.5, end - 0.5, n - end - 0.5, n - 0.5]
    figure = _three_panels(draw, cuts, title, width)
    left, middle, right = figure.axes
    left.set_xticks([0, end - 1])
    middle.xaxis.set_major_locator(MaxNLocator(nbins=4 if width >= 5.0 else 3, integer=True))
    right.set_xticks([n - end, n - 1])
    return figure


def relative_figure(
    profiles: Mapping[str, Profile],
    *,
    labels: Mapping[str, str] | None = None,
    ordered: bool = False,
    title: str = "",
    width: float = PAGE_WIDTH,
) -> Figure:
    """Draw profiles of several models or lengths on relative positions, both ends enlarged.

    Parameters
    ----------
    profiles, labels, ordered
        As in `plot_relative`.
    title : str
        Set above everything.
    width : float
        Width in inches.

    Returns
    -------
    Figure
        Three axes: the first 2 % of the context, what lies between, the last 2 %. One axes if a
        profile has fewer than 100 positions, of which 2 % would be nearly nothing.
    """

    def draw(ax: Axes) -> None:
        plot_relative(profiles, ax, labels=labels, ordered=ordered, legend=False)

    if min((profile.n for profile in profiles.values()), default=0) < _SHORTEST_RELATIVE:
        figure = new_figure(width, 3.0)
        with plot_style():
            ax = figure.add_subplot()
            ax.set_title(title)
        draw(ax)
        legend_below(figure, ax)
        return figure
    figure = _three_panels(draw, [0.0, END_SHARE, 1.0 - END_SHARE, 1.0], title, width)
    for ax, ticks in zip(figure.axes, _RELATIVE_TICKS, strict=True):
        ax.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    return figure


def _three_panels(
    draw: Callable[[Axes], None], cuts: Sequence[float], title: str, width: float
) -> Figure:
    """Draw the same curves three times, between consecutive `cuts` of the horizontal axis."""
    figure = new_figure(width, 3.0)
    with plot_style():
        axes = list(figure.subplots(1, 3, sharey=True, width_ratios=_RATIOS))
        if title:
            figure.suptitle(title, fontsize=8.5, x=0.01, ha="left")
    share = f"{100 * END_SHARE:g} %"
    names = (f"first {share}", "between", f"last {share}")
    bounds = list(pairwise(cuts))
    for ax, name, (low, high) in zip(axes, names, bounds, strict=True):
        draw(ax)
        with plot_style():
            ax.set_title(name, loc="center", fontsize=7.5)
            # Margins at the outer ends only: no panel shows what belongs to its neighbour.
            margin = 0.03 * (high - low)
            ax.set_xlim(low - margin * (ax is axes[0]), high + margin * (ax is axes[2]))
            if ax is not axes[0]:
                ax.set_ylabel("")
                ax.spines["left"].set_visible(False)
                ax.tick_params(axis="y", which="both", length=0)
            if ax is not axes[1]:
                ax.set_xlabel("")
    legend_below(figure, axes[0])
    return figure
