"""Measure a model on a text: windows, capture, statistics and influence (needs torch).

`measure` is the front door. Text sources and windows are in `posbias.measure.text` and
`posbias.measure.windows`; the statistics of one forward pass in `posbias.measure.accumulators`.
"""

from __future__ import annotations

from posbias.measure.options import MeasureOptions
from posbias.measure.runner import measure

__all__ = ["MeasureOptions", "measure"]
