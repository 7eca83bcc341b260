"""Which kernels and mixing coefficients each variant of a prediction is made of."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from posbias.errors import InputError
from posbias.estimator import AUTO, ENERGY_ROLLOUT, PAPER, Estimator, checked_choice
from posbias.kernels import Kernel
from posbias.measurement import KernelKind, Measurement
from posbias.measurement.estimates import (
    measured_rollout,
    modelled_rollout,
    sinks_moved,
    why_not,
)
from posbias.measurement.estimator_arrays import mixing_array
from posbias.recommend import PAPER_MLP, recommend
from posbias.rollout import MixingSchedule, Rollout
from posbias.spec import Spec

__all__ = ["DEFAULT_ESTIMATOR", "VARIANTS", "Ingredients", "Plan", "plan_predictions"]

Array = NDArray[np.float64]

VARIANTS = (
    "attention-only",
    "residual",
    "residual+content",
    "residual+lag",
    "residual+measured",
    "energy-rollout",
    "paper+mlp",
    "paper",
    "fixed-half",
    "uniform",
)
"""Every variant of a prediction, in the order of tables and plots."""

DEFAULT_ESTIMATOR = AUTO
"""Estimator of the predictions of a measurement if none is named: the choice of a rule."""


@dataclass(frozen=True, eq=False)
class Ingredients:
    """What one prediction is made of.

    Attributes
    ----------
    rollout : callable
        Builds the rollout, kernels included.
    mixing_windows : ndarray, shape (D, T), or None
        Coefficients per window of text, whose mean over windows is the schedule of the rollout;
        None if the coefficients are assumed or given, not measured on windows.
    has_sampled_kernels : bool
        Whether another draw of text would give other kernels: they hold measured attention,
        logits or content terms, not mask and position bias alone.
    estimator : str or None
        Text of the estimator, None where nothing is estimated.
    sinks : callable or None
        Tells what a treatment of sinks moved, see `posbias.measurement.estimates.sinks_moved`;
        None where sinks are kept.
    """

    rollout: Callable[[], Rollout]
    mixing_windows: Array | None = None
    has_sampled_kernels: bool = False
    estimator: str | None = None
    sinks: Callable[[], Mapping[str, Any]] | None = None


@dataclass(frozen=True, eq=False)
class Plan:
    """What a source can predict at one length.

    Attributes
    ----------
    n : int
        Number of positions.
    ingredients : mapping of str to Ingredients
        By variant: each one that the source supports but ``uniform``, which has none.
    missing : mapping of str to str
        What the source lacks for each other variant.
    default : tuple of str
        Variants if none are named.
    origin : mapping
        Provenance of the source, JSON-serialisable.
    recommended : str or None
        The variant to look at first, None where no rule chose one.
    """

    n: int
    ingredients: Mapping[str, Ingredients]
    missing: Mapping[str, str]
    default: tuple[str, ...]
    origin: Mapping[str, Any] = field(default_factory=dict)
    recommended: str | None = None

    def origin_of(self, variant: str) -> dict[str, Any]:
        """Return the provenance of one variant, JSON-serialisable.

        Beside that of the source: ``variant``, ``n``, the ``estimator`` behind it, what was done
        with ``sinks``, and ``recommended`` if it is.
        """
        found = {**self.origin, "variant": variant, "n": self.n}
        part = self.ingredients.get(variant)
        if part is not None and part.estimator is not None:
            found["estimator"] = part.estimator
        if part is not None and part.sinks is not None:
            found["sinks"] = dict(part.sinks())
        return {**found, "recommended": True} if variant == self.recommended else found

    def rollout(self, variant: str) -> Rollout:
        """Return the rollout of a supported variant other than ``uniform``."""
        return self.ingredients[variant].rollout()

    def kernels(self, variant: str) -> tuple[Kernel, ...]:
        """Return its kernels: one per layer, bottom first, or one that all layers share."""
        return self.rollout(variant).kernels

    def mixing_windows(self, variant: str) -> Array | None:
        """Return its coefficients per window, shape (D, T), None if they are not measured."""
        return self.ingredients[variant].mixing_windows


def plan_predictions(
    source: Measurement | Spec | Rollout,
    *,
    n: int | None = None,
    estimator: str | Estimator = DEFAULT_ESTIMATOR,
) -> Plan:
    """Return what a source can predict; no kernel is built before it is asked for.

    Parameters
    ----------
    source : Measurement, Spec or Rollout
        Where kernels and mixing coefficients come from.
    n : int, optional
        Context length, by default that of the source.
    estimator : str or Estimator
        Of a measurement: ``auto``, or a text that `posbias.estimator.Estimator.parse` reads.

    Raises
    ------
    InputError
        If `n` or `estimator` is out of range, the measurement lacks what the estimator needs, or
        an estimator is named for what is no measurement.
    """
    if n is not None and (isinstance(n, bool) or not isinstance(n, (int, np.integer)) or n < 2):
        raise InputError(f"n is {n!r}; a context of at least 2 positions is required")
    choice = checked_choice(estimator)
    if isinstance(source, Measurement):
        return _plan_measurement(source, source.n if n is None else int(n), choice)
    if choice not in (AUTO, str(PAPER)):
        raise InputError(
            f"estimator {choice!r} was asked for, but the source is no measurement: its mixing "
            "coefficients are given, not estimated"
        )
    if isinstance(source, Spec):
        return _plan_spec(source, source.length if n is None else int(n))
    return _plan_rollout(source, source.n if n is None else int(n))


def _plan_measurement(source: Measurement, n: int, choice: str) -> Plan:
    chosen = PAPER if choice == AUTO else Estimator.parse(choice)
    lacking = why_not(source, chosen)
    if lacking is not None:
        raise InputError(f"estimator {str(chosen)!r} needs {lacking}")
    advice = recommend(source).estimator if choice == AUTO else None
    parts = {
        **_modelled_parts(source, n, chosen),
        "residual+measured": _measured_part(source, n, chosen),
        "paper": _measured_part(source, n, PAPER),
        "fixed-half": Ingredients(
            lambda: Rollout(
                source.kernels("attention", n=n), MixingSchedule.constant(source.layers, 0.5)
            ),
            has_sampled_kernels=True,
        ),
    }
    missing = {}
    for name, beside in (("energy-rollout", ENERGY_ROLLOUT), ("paper+mlp", PAPER_MLP)):
        lacking = why_not(source, beside)
        if lacking is None:
            parts[name] = _measured_part(source, n, beside)
        else:
            missing[name] = lacking
    if n > source.n:
        reason = f"attention at {n} positions; it was measured at {source.n}"
        measured = ("residual+measured", "energy-rollout", "paper+mlp", "paper", "fixed-half")
        missing.update({name: reason for name in measured if name in parts})
        missing["residual+lag"] = f"logits by lag at {n} positions; they end at {source.n}"
    if "logits.lag.sum" not in source.arrays:
        missing["residual+lag"] = "logits by lag, which were not recorded; measure again"
    kept = {name: parts[name] for name in VARIANTS if name in parts and name not in missing}
    # One estimator beside that of the ladder: the recommended one, or else the paper's.
    hidden = {"paper"} if chosen == PAPER else {"energy-rollout"}
    hidden |= set() if choice == AUTO else {"energy-rollout"}
    favourite = "residual+measured"
    if advice is not None:
        favourite = {ENERGY_ROLLOUT: "energy-rollout", PAPER_MLP: "paper+mlp"}.get(
            advice, favourite
        )
    hidden |= {"paper+mlp"} - {favourite}
    hidden |= set() if source.slopes() is None else {"residual+lag"}
    return Plan(
        n,
        kept,
        missing,
        (*(name for name in kept if name not in hidden), "uniform"),
        {**source.origin(), "estimator": str(chosen), "estimator_choice": choice},
        favourite if advice is not None and favourite in kept else None,
    )


def _modelled_parts(source: Measurement, n: int, chosen: Estimator) -> dict[str, Ingredients]:
    """Return the variants whose kernels are a model of attention."""
    per_window = _mixing_windows(source, chosen)
    all_mixed = MixingSchedule.constant(source.layers, 1.0)

    def build(kind: KernelKind) -> Callable[[], Rollout]:
        return lambda: modelled_rollout(source, kind, chosen, n=n)

    def without_residual() -> Rollout:
        residual = modelled_rollout(source, "position", chosen, n=n)
        return Rollout(residual.kernels, all_mixed, addition=chosen.addition)

    return {
        "attention-only": Ingredients(without_residual),
        "residual": Ingredients(build("position"), per_window),
        "residual+content": Ingredients(build("position+content"), per_window, True),
        "residual+lag": Ingredients(build("lag"), per_window, True),
    }


def _measured_part(source: Measurement, n: int, chosen: Estimator) -> Ingredients:
    """Return a variant of measured kernels."""
    return Ingredients(
        rollout=lambda: measured_rollout(source, chosen, n=n),
        mixing_windows=_mixing_windows(source, chosen),
        has_sampled_kernels=True,
        estimator=str(chosen),
        sinks=None if chosen.sinks == "keep" else lambda: sinks_moved(source, chosen, n=n),
    )


def _mixing_windows(source: Measurement, chosen: Estimator) -> Array:
    """Return the coefficients per window, shape (D, T)."""
    values: Array = source.arrays[mixing_array(chosen.mixing_name)]
    # One coefficient per token: the schedule is their mean.
    return values.mean(axis=2) if values.ndim == 3 else values


def _plan_spec(source: Spec, n: int) -> Plan:
    rollouts: dict[str, Callable[[], Rollout]] = {
        "attention-only": lambda: source.without_content().with_mixing(1.0).rollout(n),
        "residual": lambda: source.without_content().rollout(n),
        "residual+content": lambda: source.rollout(n),
        "fixed-half": lambda: source.with_mixing(0.5).rollout(n),
    }
    measured = ("residual+measured", "energy-rollout", "paper+mlp", "paper")
    missing = {
        "residual+lag": "logits by lag; measure the model",
        **dict.fromkeys(measured, "measured attention; measure the model"),
    }
    if not source.has_content:
        missing["residual+content"] = "diagonal terms, per-key logits or sinks in its heads"
        del rollouts["residual+content"]
    default = "residual"
    if source.has_content:
        default = "residual+content"
    elif source.mixing is not None and _is_attention_only(source.schedule()):
        default = "attention-only"
    provenance = source.provenance
    origin = {
        "source": provenance.get("file", source.name),
        "sha256": provenance.get("sha256"),
    }
    return Plan(n, _given(rollouts), missing, (default,), origin)


def _plan_rollout(source: Rollout, n: int) -> Plan:
    if n > source.n:
        raise InputError(
            f"n is {n}, the rollout has {source.n} positions; build its kernels at {n} positions"
        )
    kernels: Sequence[Kernel] = source.kernels
    if n < source.n:
        kernels = [kernel.restrict(n) for kernel in kernels]
    ones, halves = (MixingSchedule.constant(source.depth, share) for share in (1.0, 0.5))
    added = source.addition
    rollouts: dict[str, Callable[[], Rollout]] = {
        "attention-only": lambda: Rollout(kernels, ones, addition=added),
        "residual": lambda: Rollout(kernels, source.schedule.restrict(n), addition=added),
        "fixed-half": lambda: Rollout(kernels, halves, addition=added),
    }
    reason = "kernels that tell content and position apart; use a Measurement or a Spec"
    own = ("attention-only", "residual", "fixed-half", "uniform")
    missing = dict.fromkeys([name for name in VARIANTS if name not in own], reason)
    default = "attention-only" if _is_attention_only(source.schedule) else "residual"
    return Plan(n, _given(rollouts), missing, (default,), {"source": "rollout", "sha256": None})


def _given(rollouts: Mapping[str, Callable[[], Rollout]]) -> dict[str, Ingredients]:
    """Return ingredients whose coefficients are not measured."""
    return {name: Ingredients(build) for name, build in rollouts.items()}


def _is_attention_only(schedule: MixingSchedule) -> bool:
    return bool((schedule.values == 1.0).all())
