"""Attention sinks: which keys receive attention without giving information, and what to do."""

from posbias.sinks.detection import (
    LEAST_ATTENTION,
    LEAST_RATIO,
    AttentionSink,
    Sinks,
    detect_sinks,
)
from posbias.sinks.treatment import TreatedKernel, moved_mass, treat_sinks

__all__ = [
    "LEAST_ATTENTION",
    "LEAST_RATIO",
    "AttentionSink",
    "Sinks",
    "TreatedKernel",
    "detect_sinks",
    "moved_mass",
    "treat_sinks",
]
