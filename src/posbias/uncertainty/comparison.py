"""Resampled figures of a comparison: every profile under the same draws of text."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from posbias.errors import InputError
from posbias.measurement import Measurement
from posbias.metrics import distance_arrays, shape_arrays
from posbias.plan import DEFAULT_ESTIMATOR, Plan, plan_predictions
from posbias.profile import Profile
from posbias.uncertainty.draws import RESAMPLES, SEED, Draws, draw
from posbias.uncertainty.intervals import LEVEL, TAILS, Interval, band
from posbias.uncertainty.predictions import is_exact, resampled_rollouts
from posbias.uncertainty.units import Units, sampling_units

__all__ = [
    "DISTANCES",
    "FIGURES",
    "KERNEL_ALLOWANCE",
    "VERDICTS",
    "Paired",
    "Resampled",
    "Uncertainty",
    "Verdict",
    "resample_comparison",
]

Array = NDArray[np.float64]
Verdict = Literal["closer", "farther", "not distinguished"]
VERDICTS: tuple[Verdict, ...] = get_args(Verdict)
"""What a paired comparison says of the first prediction."""

DISTANCES = ("w1", "spearman", "js", "tv")
"""Figures of a profile against the measured one."""

FIGURES = (
    *DISTANCES,
    *("primacy", "recency", "trough_position", "trough_depth", "mean_position", "entropy"),
)
"""Figures that have intervals."""

KERNEL_ALLOWANCE = 0.03
"""Allowance in W1 for the sampling of kernels, times the square root of the number of windows."""

_SAME = 1e-9
"""Largest difference of masses at which a profile counts as the one that the plan predicts."""


@dataclass(frozen=True)
class Paired:
    """Whether one prediction is closer to the measured profile than another.

    Parameters
    ----------
    first, second : str
        Names of the predictions.
    difference : Interval
        W1 of the first minus W1 of the second, both resampled with the same draws.
    allowance : float
        What `difference` may be off because measured kernels are not resampled: 0 if both have
        kernels of mask and position bias alone, else `KERNEL_ALLOWANCE` over the square root of
        the number of windows (docs/uncertainty.md has its evidence).
    share_closer : float
        Share of the resamples in which the first is closer; ties count half.
    verdict : {"closer", "farther", "not distinguished"}
        Of the first against the second: the last one where the interval, widened by the allowance
        at both ends, holds zero.
    """

    first: str
    second: str
    difference: Interval
    allowance: float
    share_closer: float
    verdict: Verdict

    def as_dict(self) -> dict[str, Any]:
        """Return names, difference, its ends, share and verdict, JSON-serialisable."""
        return {
            "first": self.first,
            "second": self.second,
            "difference": self.difference.value,
            "difference_low": self.difference.low,
            "difference_high": self.difference.high,
            "allowance": self.allowance,
            "share_closer": self.share_closer,
            "verdict": self.verdict,
        }


@dataclass(frozen=True, eq=False)
class Resampled:
    """One profile under every draw.

    Parameters
    ----------
    figures : mapping of str to ndarray, shape (B,)
        `FIGURES` and ``is_u_shaped`` of each resample.
    low, high : ndarray, shape (n,)
        Central `LEVEL` of the mass at each position.
    moves : bool
        Whether the profile itself is resampled; else only what it is compared with.
    has_sampled_kernels : bool
        Whether its kernels come from the text, and stay as they are in every resample.
    """

    figures: Mapping[str, Array]
    low: Array
    high: Array
    moves: bool
    has_sampled_kernels: bool = False


@dataclass(frozen=True, eq=False)
class Uncertainty:
    """What the sampling of text leaves open in a comparison.

    Parameters
    ----------
    units : Units
        What was drawn.
    measured : Resampled
        The measured profile.
    predictions : mapping of str to Resampled
        By name.
    foreign : tuple of str
        Predictions that are not those of the measurement: held fixed.
    first_order : tuple of str
        Predictions whose resamples follow the coefficients to first order only.
    effective : float or None
        Units that the measured profile effectively averages (`Units.effective`); None if not known.
    """

    units: Units
    measured: Resampled
    predictions: Mapping[str, Resampled]
    foreign: tuple[str, ...]
    first_order: tuple[str, ...]
    effective: float | None = None

    @property
    def resamples(self) -> int:
        """Number of resamples B."""
        return int(self.measured.figures["w1"].size)

    def paired(self, first: str, second: str, difference: float) -> Paired:
        """Compare the W1 of two predictions resample by resample.

        Parameters
        ----------
        first, second : str
            Names of predictions.
        difference : float
            W1 of the first minus W1 of the second over all windows.

        Raises
        ------
        KeyError
            If there is no prediction of that name.
        """
        sides = self.predictions[first], self.predictions[second]
        a, b = (side.figures["w1"] for side in sides)
        low, high = np.quantile(a - b, TAILS)
        allowance = 0.0
        if first != second and any(side.has_sampled_kernels for side in sides):
            allowance = KERNEL_ALLOWANCE / math.sqrt(self.units.windows)
        verdict: Verdict = "not distinguished"
        if high + allowance < 0.0:
            verdict = "closer"
        elif low - allowance > 0.0:
            verdict = "farther"
        share = float((a < b).mean() + (a == b).mean() / 2.0)
        found = Interval(difference, float(low), float(high))
        return Paired(first, second, found, allowance, share, verdict)

    def as_dict(self) -> dict[str, Any]:
        """Return how the intervals were made, JSON-serialisable."""
        return {
            "level": LEVEL,
            "method": "percentile bootstrap",
            "resamples": self.resamples,
            "seed": SEED,
            "unit": self.units.kind,
            "units": self.units.count,
            "effective_units": self.effective,
            "windows": self.units.windows,
            "held_fixed": list(self.foreign),
            "first_order": list(self.first_order),
        }


def resample_comparison(
    measurement: Measurement,
    predicted: Mapping[str, Profile],
    *,
    resamples: int = RESAMPLES,
    seed: int = SEED,
) -> Uncertainty | None:
    """Return the figures of a comparison with the measured influence under resampled text.

    Each resample draws sampling units with replacement. The measured profile is that of the drawn
    windows, and so are the mixing coefficients, with which every prediction of this measurement is
    unrolled again. Kernels and content terms stay at their means over all windows, as the
    measurement stores no more; profiles that do not come from this measurement stay as they are.

    Parameters
    ----------
    measurement : Measurement
        With measured influence.
    predicted : mapping of str to Profile
        Of the length of the measurement. Which of them are its own predictions, or its influence
        by another method, is told by their origin and checked by their values.
    resamples, seed
        Of the draws.

    Returns
    -------
    Uncertainty or None
        None for a single sampling unit. Cost O(B n (D + log n)) per profile, plus that of
        `posbias.uncertainty.predictions.resampled_rollouts` per prediction with measured
        coefficients.

    Raises
    ------
    InputError
        If the measurement has no measured influence.
    """
    rows = measurement.influence_windows()
    draws = draw(sampling_units(measurement), resamples=resamples, seed=seed)
    if draws is None:
        return None
    measured = draws.profiles(rows)
    own = _Own(measurement, draws)
    found: dict[str, Resampled] = {}
    for name, profile in predicted.items():
        moved = own.resampled(name, profile)
        fixed = profile.mass[None] if moved is None else moved
        found[name] = replace(
            _resampled(fixed, measured, moves=moved is not None),
            has_sampled_kernels=name in own.sampled_kernels,
        )
    return Uncertainty(
        units=draws.units,
        measured=_resampled(measured, measured, moves=True),
        predictions=found,
        foreign=tuple(own.foreign),
        first_order=tuple(own.first_order),
        effective=draws.units.effective(rows),
    )


def _resampled(profiles: Array, measured: Array, *, moves: bool) -> Resampled:
    """Return figures of profiles, shape (B, n) or (1, n), against the measured ones."""
    count = measured.shape[0]
    figures = {**distance_arrays(profiles, measured), **shape_arrays(profiles)}
    low, high = band(profiles)
    return Resampled(
        figures={name: np.broadcast_to(values, count) for name, values in figures.items()},
        low=low,
        high=high,
        moves=moves,
    )


class _Own:
    """Tells which profiles come from a measurement, and resamples those that move with its text.

    Parameters
    ----------
    measurement : Measurement
        The measurement.
    draws : Draws
        Of its windows.
    """

    def __init__(self, measurement: Measurement, draws: Draws) -> None:
        self._measurement = measurement
        self._draws = draws
        self._plans: dict[str, Plan] = {}
        self.foreign: list[str] = []
        self.first_order: list[str] = []
        self.sampled_kernels: list[str] = []

    def resampled(self, name: str, profile: Profile) -> Array | None:
        """Return the profile of each resample, shape (B, n), None if it does not move."""
        moved = self._influence(profile)
        if moved is not None:
            return moved
        variant = str(profile.origin.get("variant", profile.name))
        if variant == "uniform":
            return None
        query = profile.origin.get("query", -1)
        plan = self._plan(profile, variant, query)
        if plan is None:
            self.foreign.append(name)
            return None
        if plan.ingredients[variant].has_sampled_kernels:
            self.sampled_kernels.append(name)
        windows = plan.mixing_windows(variant)
        if windows is None:
            return None
        rollout = plan.rollout(variant)
        if not is_exact(rollout, self._draws.count):
            self.first_order.append(name)
        return resampled_rollouts(rollout, self._draws.means(windows), query)

    def _influence(self, profile: Profile) -> Array | None:
        """Return the resamples of a profile that is influence by a method of the measurement."""
        method = profile.origin.get("method")
        if method not in self._measurement.influence_methods:
            return None
        rows = self._measurement.influence_windows(method)
        if not _is_same(rows.mean(axis=0), profile.mass):
            return None
        return self._draws.profiles(rows)

    def _plan(self, profile: Profile, variant: str, query: int) -> Plan | None:
        """Return the plan that predicts exactly this profile from the measurement, if any does."""
        origin = profile.origin
        estimator = str(origin.get("estimator_choice", origin.get("estimator", DEFAULT_ESTIMATOR)))
        if estimator not in self._plans:
            try:
                self._plans[estimator] = plan_predictions(self._measurement, estimator=estimator)
            except InputError:  # the estimator of another measurement
                return None
        plan = self._plans[estimator]
        if variant not in plan.ingredients or not -plan.n <= query < plan.n:
            return None
        predicted = plan.rollout(variant).profile(query).mass
        return plan if _is_same(predicted, profile.mass) else None


def _is_same(a: Array, b: Array) -> bool:
    return a.shape == b.shape and bool((np.abs(a - b) <= _SAME).all())
