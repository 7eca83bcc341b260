"""Measurements of a model: schema, store, merge and tables. No torch."""

from posbias.measurement.artifact import KERNEL_KINDS, KernelKind, Measurement
from posbias.measurement.content import ContentFit
from posbias.measurement.merge import merge
from posbias.measurement.store import is_measurement

__all__ = [
    "KERNEL_KINDS",
    "ContentFit",
    "KernelKind",
    "Measurement",
    "is_measurement",
    "merge",
    "open_measurement",
]

open_measurement = Measurement.open
"""Open a stored measurement, the same as `Measurement.open`."""
