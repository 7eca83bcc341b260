"""Figures: functions from data to axes, in one style, and files that are the same every time."""

from __future__ import annotations

from posbias.plot.content import content_figure, plot_heads
from posbias.plot.figures import comparison_figure, measurement_figure
from posbias.plot.profiles import plot_cumulative, plot_mixing, plot_profiles, window_band
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
    "measurement_figure",
    "plot_cumulative",
    "plot_depth",
    "plot_forces",
    "plot_heads",
    "plot_mixing",
    "plot_profiles",
    "plot_style",
    "save_figure",
    "window_band",
]
