"""Figures: functions from data to axes, in one style, and files that are the same every time."""

from __future__ import annotations

from posbias.plot.content import content_figure, plot_heads
from posbias.plot.depth import plot_depth_profiles, plot_infinite_depth
from posbias.plot.ends import profiles_figure, relative_figure
from posbias.plot.figures import comparison_figure, measurement_figure
from posbias.plot.kernels import kernels_figure, mean_by_lag, plot_kernel, plot_lags
from posbias.plot.monotone import monotonicity_figure, plot_violations, plot_witness
from posbias.plot.profiles import plot_cumulative, plot_mixing, plot_profiles, window_band
from posbias.plot.relative import plot_relative
from posbias.plot.save import FIGURE_FORMATS, check_figure_path, save_figure
from posbias.plot.style import COLUMN_WIDTH, LINE_STYLES, PAGE_WIDTH, LineStyle, plot_style
from posbias.plot.theory import FORCE_STYLES, depth_figure, plot_depth, plot_forces

__all__ = [
    "COLUMN_WIDTH",
    "FIGURE_FORMATS",
    "FORCE_STYLES",
    "LINE_STYLES",
    "PAGE_WIDTH",
    "LineStyle",
    "check_figure_path",
    "comparison_figure",
    "content_figure",
    "depth_figure",
    "kernels_figure",
    "mean_by_lag",
    "measurement_figure",
    "monotonicity_figure",
    "plot_cumulative",
    "plot_depth",
    "plot_depth_profiles",
    "plot_forces",
    "plot_heads",
    "plot_infinite_depth",
    "plot_kernel",
    "plot_lags",
    "plot_mixing",
    "plot_profiles",
    "plot_relative",
    "plot_style",
    "plot_violations",
    "plot_witness",
    "profiles_figure",
    "relative_figure",
    "save_figure",
    "window_band",
]
