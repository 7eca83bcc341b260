"""Evaluate every estimator on a measurement: distances to the influence, with intervals."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fidelity_study.estimators import BASELINES, LADDER, PAPER, estimators
from posbias.errors import InputError
from posbias.measurement import Measurement
from posbias.metrics import distance_arrays
from posbias.plan import Plan, plan_predictions
from posbias.recommend import quantities, recommend
from posbias.uncertainty import (
    Draws,
    Interval,
    Resampled,
    Uncertainty,
    draw,
    interval,
    resampled_rollouts,
    sampling_units,
)

__all__ = ["COLUMNS", "RESAMPLES", "Evaluation", "evaluate"]

Array = NDArray[np.float64]

RESAMPLES = 1000
"""Resamples behind every interval."""

COLUMNS = (
    *("w1", "w1_low", "w1_high", "spearman", "spearman_low", "spearman_high"),
    *("against_paper_low", "against_paper_high", "against_uniform_low", "against_uniform_high"),
    *("verdict_paper", "verdict_uniform"),
)
"""What is kept of an estimator under one influence method; ``against`` is its W1 less the other's.
"""

_VERDICTS = {"closer": 1, "not distinguished": 0, "farther": -1}


@dataclass(frozen=True)
class Evaluation:
    """What a measurement says about every estimator.

    Parameters
    ----------
    document : dict
        JSON-serialisable: ``units``, ``default``, ``quantities``, ``missing`` and ``methods``
        (by influence method, then estimator: values of `COLUMNS`, verdicts as 1, 0 or -1).
    resampled : mapping of str to ndarray, shape (B,)
        W1 of every resample under ``METHOD/ESTIMATOR``.
    """

    document: dict[str, Any]
    resampled: Mapping[str, Array]


@dataclass(frozen=True, eq=False)
class _Prediction:
    """A profile, and its resamples of shape (B, n) or (1, n)."""

    name: str
    mass: Array
    moved: Array
    has_sampled_kernels: bool


def evaluate(measurement: Measurement, *, resamples: int = RESAMPLES) -> Evaluation:
    """Compare the prediction of every estimator with the influence by every method.

    Each resample draws documents or windows with replacement. The measured profile and the mixing
    coefficients are those of the drawn windows; kernels stay at their mean, which paired verdicts
    allow for (`posbias.uncertainty`). Cost O(B T n^2) per estimator.

    Raises
    ------
    InputError
        If the measurement has fewer than two sampling units or lacks the paper's arrays.
    """
    draws = draw(sampling_units(measurement), resamples=resamples)
    if draws is None:
        raise InputError("the study needs at least two sampling units; measure more windows")
    missing: dict[str, str] = {}
    predictions = list(_predictions(measurement, draws, missing))
    methods: dict[str, Any] = {}
    resampled: dict[str, Array] = {}
    for method in measurement.influence_methods:
        rows = measurement.influence_windows(method)
        methods[method], found = _against(predictions, rows, draws)
        resampled.update({f"{method}/{name}": values for name, values in found.items()})
    document = {
        "units": {"kind": draws.units.kind, "count": draws.units.count},
        "windows": measurement.windows,
        "default": recommend(measurement).as_dict(),
        "quantities": _quantities(measurement, draws),
        "missing": missing,
        "methods": methods,
    }
    return Evaluation(document, resampled)


def _predictions(
    measurement: Measurement, draws: Draws, missing: dict[str, str]
) -> Iterator[_Prediction]:
    """Yield every prediction that the measurement supports; say of the others what is missing."""
    n = measurement.n
    uniform = np.full(n, 1.0 / n)
    yield _Prediction("uniform", uniform, uniform[None], False)
    paper = plan_predictions(measurement, estimator=PAPER)
    for name in (BASELINES[1], *LADDER):
        if name in paper.ingredients:
            yield _unrolled(name, paper, name, draws)
        else:
            missing[name] = paper.missing[name]
    for name, estimator in estimators().items():
        try:
            plan = plan_predictions(measurement, estimator=estimator)
        except InputError as error:
            missing[name] = str(error)
            continue
        yield _unrolled(name, plan, "residual+measured", draws)


def _unrolled(name: str, plan: Plan, variant: str, draws: Draws) -> _Prediction:
    rollout = plan.rollout(variant)
    mass = rollout.profile(-1).mass
    per_window = plan.mixing_windows(variant)
    moved = mass[None]
    if per_window is not None:
        moved = resampled_rollouts(rollout, draws.means(per_window))
    return _Prediction(name, mass, moved, plan.ingredients[variant].has_sampled_kernels)


def _against(
    predictions: list[_Prediction], rows: Array, draws: Draws
) -> tuple[dict[str, list[float | int | None]], dict[str, Array]]:
    """Return the columns of every prediction and the W1 of all resamples."""
    measured, moved = rows.mean(axis=0), draws.profiles(rows)
    values: dict[str, dict[str, float]] = {}
    sides: dict[str, Resampled] = {}
    for prediction in predictions:
        whole = distance_arrays(prediction.mass, measured)
        each = distance_arrays(prediction.moved, moved)
        values[prediction.name] = {key: float(whole[key]) for key in ("w1", "spearman")}
        sides[prediction.name] = Resampled(
            figures={key: each[key] for key in ("w1", "spearman")},
            low=measured,
            high=measured,
            moves=len(prediction.moved) > 1,
            has_sampled_kernels=prediction.has_sampled_kernels,
        )
    everything = Uncertainty(draws.units, sides["uniform"], sides, (), ())
    table: dict[str, list[float | int | None]] = {}
    for name, own in values.items():
        row: list[float | int | None] = []
        for key in ("w1", "spearman"):
            row += _three(interval(own[key], sides[name].figures[key]))
        verdicts = []
        for other in (PAPER, "uniform"):
            pair = everything.paired(name, other, own["w1"] - values[other]["w1"])
            row += [_short(pair.difference.low), _short(pair.difference.high)]
            verdicts.append(_VERDICTS[pair.verdict])
        table[name] = [*row, *verdicts]
    return table, {name: np.asarray(side.figures["w1"]) for name, side in sides.items()}


def _quantities(measurement: Measurement, draws: Draws) -> dict[str, Any]:
    """Return what the cell shows of the inside of the model, with intervals where there are any."""
    found: dict[str, Any] = {
        "layers": measurement.layers,
        "heads": measurement.heads,
        "parameters": measurement.manifest["model"]["parameters"],
        "position": measurement.manifest["model"]["position_scheme"]["type"],
        "sinks": measurement.sinks().as_dict(),
    }
    found["coherence"] = _coherence(measurement, draws)
    for name in ("alignment", "centred-alignment"):
        values = measurement.arrays.get(f"stream.{name}.windows")
        if values is not None:
            found[name] = _mean_over_layers(values, draws)
    for name in ("norm", "centred-energy", "centred-energy+mlp"):
        if name in measurement.mixing_estimators:
            values = measurement.arrays[f"mixing.{name}.windows"]
            found[f"mixing {name}"] = _mean_over_layers(
                values.mean(axis=2) if values.ndim == 3 else values, draws
            )
    return found


def _coherence(measurement: Measurement, draws: Draws) -> list[float | None] | None:
    """Return the coherence that the rule looks at, see `posbias.recommend`, with its interval."""
    value = quantities(measurement).coherence
    if value is None:
        return None
    each = draws.means(measurement.arrays["stream.coherence.windows"])
    weights = draws.means(measurement.arrays["mixing.centred-energy.windows"])
    return _three(interval(value, (each * weights).sum(axis=1) / weights.sum(axis=1)))


def _mean_over_layers(values: Array, draws: Draws) -> list[float | None]:
    """Return the mean size over layers of means over windows of (D, T), with its interval."""
    means = np.abs(draws.means(values)).mean(axis=1)
    return _three(interval(float(np.abs(values.mean(axis=0)).mean()), means))


def _three(found: Interval) -> list[float | None]:
    return [_number(found.value), _short(found.low), _short(found.high)]


def _number(value: float) -> float | None:
    return None if math.isnan(value) else value


def _short(value: float | None) -> float | None:
    """Return the end of an interval to six significant digits: its own error is far larger."""
    return None if value is None or math.isnan(value) else float(f"{value:.6g}")
