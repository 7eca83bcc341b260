"""How far the sampling of text leaves a figure open: the bootstrap over documents or windows."""

from posbias.uncertainty.comparison import (
    DISTANCES,
    FIGURES,
    KERNEL_ALLOWANCE,
    VERDICTS,
    Paired,
    Resampled,
    Uncertainty,
    resample_comparison,
)
from posbias.uncertainty.draws import RESAMPLES, SEED, Draws, draw
from posbias.uncertainty.intervals import (
    LEVEL,
    TAILS,
    W1_TARGET,
    Interval,
    band,
    interval,
    units_needed,
    with_range,
)
from posbias.uncertainty.mixing import mixing_intervals
from posbias.uncertainty.predictions import resampled_rollouts
from posbias.uncertainty.units import FEWEST_DOCUMENTS, Units, sampling_units

__all__ = [
    "DISTANCES",
    "FEWEST_DOCUMENTS",
    "FIGURES",
    "KERNEL_ALLOWANCE",
    "LEVEL",
    "RESAMPLES",
    "SEED",
    "TAILS",
    "VERDICTS",
    "W1_TARGET",
    "Draws",
    "Interval",
    "Paired",
    "Resampled",
    "Uncertainty",
    "Units",
    "band",
    "draw",
    "interval",
    "mixing_intervals",
    "resample_comparison",
    "resampled_rollouts",
    "sampling_units",
    "units_needed",
    "with_range",
]
