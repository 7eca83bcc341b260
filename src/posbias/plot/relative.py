"""Profiles of different lengths in one figure: density over the position relative to the length."""

from __future__ import annotations

from collections.abc import Mapping

from matplotlib.axes import Axes

from posbias.errors import ProfileError
from posbias.plot._axes import finish_legend
from posbias.plot._bins import bins_of
from posbias.plot.style import INK, axes_or_new, distinct_styles, plot_style, ramp
from posbias.profile import Profile

__all__ = ["plot_relative"]


def plot_relative(
    profiles: Mapping[str, Profile],
    ax: Axes | None = None,
    *,
    labels: Mapping[str, str] | None = None,
    ordered: bool = False,
    legend: bool = True,
) -> Axes:
    """Draw the density of influence against the position relative to the length.

    Parameters
    ----------
    profiles : mapping of str to Profile
        Profiles of one or several lengths, e.g. measured ones by model.
    ax : Axes, optional
        Where to draw; by default the axes of a new figure of column width.
    labels : mapping of str to str, optional
        Names for the legend.
    ordered : bool
        Colours along a scale, in the order given, as for growing lengths; else distinct ones.
    legend : bool
        Whether to draw a legend: inside given axes, under those of a new figure.

    Returns
    -------
    Axes
        One stepped curve per profile. Position j of n fills j / n to (j + 1) / n, with the height
        n times its share: the area under every curve is its mass, 1 for all lengths, and a height
        of 1 is the fair share. Long profiles are binned as in `plot_profiles`.

    Raises
    ------
    ProfileError
        If there is no profile.
    """
    if not profiles:
        raise ProfileError("there is no profile to draw; at least one is required")
    names = labels or {}
    is_new = ax is None
    ax = axes_or_new(ax)
    looks = ramp(list(profiles)) if ordered else distinct_styles(list(profiles))
    longest = 0
    highest, lowest = 1.0, 1.0
    with plot_style():
        ax.axhline(1.0, color=INK, linewidth=0.6, alpha=0.5, zorder=1)
        for name, profile in profiles.items():
            bins = bins_of(profile.n)
            heights = bins.means(profile.mass) * profile.n
            shown = heights[heights >= 1e-3]
            lowest, highest = min(lowest, shown.min()), max(highest, shown.max())
            longest = max(longest, int(bins.widths.max()))
            style = looks[name]
            ax.stairs(
                heights,
                bins.edges / profile.n,
                baseline=None,
                color=style.color,
                linestyle=style.dashes,
                linewidth=style.width,
                zorder=style.layer,
                label=names.get(name, name),
            )
        ax.set_yscale("log")
        ax.set_ylim(lowest / 1.6, highest * 1.6)
        ax.set_xlim(-0.02, 1.02)
        note = f"; means over up to {longest}, ends finer" if longest > 1 else ""
        ax.set_xlabel(f"position / length{note}")
        ax.set_ylabel("influence / fair share")
        if legend:
            finish_legend(ax, is_new=is_new)
    return ax
