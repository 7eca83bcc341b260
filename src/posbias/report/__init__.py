"""One self-contained HTML file about one measurement, or comparing several."""

from posbias.report.writing import render_report, write_report

__all__ = ["render_report", "write_report"]
