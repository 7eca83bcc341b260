"""Intervals of the mixing coefficients."""

from __future__ import annotations

from posbias.estimator import Estimator, ladder
from posbias.measurement import Measurement
from posbias.plan import DEFAULT_ESTIMATOR, plan_predictions
from posbias.uncertainty.draws import draw
from posbias.uncertainty.intervals import Interval, interval
from posbias.uncertainty.units import sampling_units

__all__ = ["mixing_intervals"]


def mixing_intervals(
    measurement: Measurement, estimator: str | Estimator = DEFAULT_ESTIMATOR
) -> list[Interval]:
    """Return lambda of each layer with its interval over sampling units, bottom layer first.

    That of the variants between ``residual`` and ``residual+measured`` (`posbias.estimator.ladder`)
    under a choice of estimator.

    Raises
    ------
    InputError
        If the estimator is unknown. Cost O(B D T).
    """
    means = measurement.mixing(ladder(estimator).mixing_name)
    draws = draw(sampling_units(measurement))
    if draws is None:
        return [Interval(float(value)) for value in means]
    values = plan_predictions(measurement, estimator=estimator).mixing_windows("residual")
    if values is None:
        return [Interval(float(value)) for value in means]
    resampled = draws.means(values)
    return [interval(float(value), resampled[:, t]) for t, value in enumerate(means)]
