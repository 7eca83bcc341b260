"""Which kernels and mixing coefficients each variant of a prediction is made of."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from posbias.errors import InputError
from posbias.kernels import Kernel
from posbias.measurement import Measurement
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
    "fixed-half",
    "uniform",
)
"""Every variant of a prediction, in the order of tables and plots."""

DEFAULT_ESTIMATOR = "norm"
"""Estimator of the mixing coefficients if none is named."""


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
    """

    rollout: Callable[[], Rollout]
    mixing_windows: Array | None = None
    has_sampled_kernels: bool = False


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
    """

    n: int
    ingredients: Mapping[str, Ingredients]
    missing: Mapping[str, str]
    default: tuple[str, ...]
    origin: Mapping[str, Any] = field(default_factory=dict)

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
    estimator: str = DEFAULT_ESTIMATOR,
) -> Plan:
    """Return what a source can predict; no kernel is built before it is asked for.

    Parameters
    ----------
    source : Measurement, Spec or Rollout
        Where kernels and mixing coefficients come from.
    n : int, optional
        Context length, by default that of the source.
    estimator : str
        Estimator of the mixing coefficients of a measurement.

    Raises
    ------
    InputError
        If `n` or `estimator` is out of range, or an estimator is named for what is no measurement.
    """
    if n is not None and (isinstance(n, bool) or not isinstance(n, (int, np.integer)) or n < 2):
        raise InputError(f"n is {n!r}; a context of at least 2 positions is required")
    if isinstance(source, Measurement):
        return _plan_measurement(source, source.n if n is None else int(n), estimator)
    if estimator != DEFAULT_ESTIMATOR:
        raise InputError(
            f"estimator {estimator!r} was asked for, but the source is no measurement: its mixing "
            "coefficients are given, not estimated"
        )
    if isinstance(source, Spec):
        return _plan_spec(source, source.length if n is None else int(n))
    return _plan_rollout(source, source.n if n is None else int(n))


def _plan_measurement(source: Measurement, n: int, estimator: str) -> Plan:
    measured = source.schedule(estimator)
    per_window = source.arrays[f"mixing.{estimator}.windows"]
    if per_window.ndim == 3:  # a coefficient per token; the schedule is their mean
        per_window = per_window.mean(axis=2)
    layers = source.layers
    parts = {
        "attention-only": Ingredients(
            lambda: Rollout(source.kernels("position", n=n), MixingSchedule.constant(layers, 1.0))
        ),
        "residual": Ingredients(
            lambda: Rollout(source.kernels("position", n=n), measured), per_window
        ),
        "residual+content": Ingredients(
            lambda: Rollout(source.kernels("position+content", n=n), measured), per_window, True
        ),
        "residual+lag": Ingredients(
            lambda: Rollout(source.kernels("lag", n=n), measured), per_window, True
        ),
        "residual+measured": Ingredients(
            lambda: Rollout(source.kernels("attention", n=n), measured), per_window, True
        ),
        "fixed-half": Ingredients(
            lambda: Rollout(source.kernels("attention", n=n), MixingSchedule.constant(layers, 0.5)),
            has_sampled_kernels=True,
        ),
    }
    missing = {}
    if n > source.n:
        reason = f"attention at {n} positions; it was measured at {source.n}"
        missing = dict.fromkeys(("residual+measured", "fixed-half"), reason)
        missing["residual+lag"] = f"logits by lag at {n} positions; they end at {source.n}"
    if "logits.lag.sum" not in source.arrays:
        missing["residual+lag"] = "logits by lag, which were not recorded; measure again"
    kept = {name: part for name, part in parts.items() if name not in missing}
    hidden = set() if source.slopes() is None else {"residual+lag"}
    default = [name for name in kept if name not in hidden]
    origin = {**source.origin(), "estimator": estimator}
    if source.has_summarised_kernels:
        origin["kernels"] = "summarised by block and lag"
    return Plan(n, kept, missing, (*default, "uniform"), origin)


def _plan_spec(source: Spec, n: int) -> Plan:
    rollouts: dict[str, Callable[[], Rollout]] = {
        "attention-only": lambda: source.without_content().with_mixing(1.0).rollout(n),
        "residual": lambda: source.without_content().rollout(n),
        "residual+content": lambda: source.rollout(n),
        "fixed-half": lambda: source.with_mixing(0.5).rollout(n),
    }
    missing = {
        "residual+lag": "logits by lag; measure the model",
        "residual+measured": "measured attention; measure the model",
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
    depth = source.depth
    rollouts: dict[str, Callable[[], Rollout]] = {
        "attention-only": lambda: Rollout(kernels, MixingSchedule.constant(depth, 1.0)),
        "residual": lambda: Rollout(kernels, source.schedule.restrict(n)),
        "fixed-half": lambda: Rollout(kernels, MixingSchedule.constant(depth, 0.5)),
    }
    reason = "kernels that tell content and position apart; use a Measurement or a Spec"
    missing = dict.fromkeys(("residual+content", "residual+lag", "residual+measured"), reason)
    default = "attention-only" if _is_attention_only(source.schedule) else "residual"
    return Plan(n, _given(rollouts), missing, (default,), {"source": "rollout", "sha256": None})


def _given(rollouts: Mapping[str, Callable[[], Rollout]]) -> dict[str, Ingredients]:
    """Return ingredients whose coefficients are not measured."""
    return {name: Ingredients(build) for name, build in rollouts.items()}


def _is_attention_only(schedule: MixingSchedule) -> bool:
    return bool((schedule.values == 1.0).all())
