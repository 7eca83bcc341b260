"""One self-contained HTML file about one measurement, or comparing several."""

from posbias.report.writing import default_path, render_report, write_report

__all__ = ["default_path", "render_report", "write_report"]
