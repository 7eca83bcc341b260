"""The estimators that the study compares."""

from __future__ import annotations

from posbias.estimator import Estimator

__all__ = ["ABLATIONS", "BASELINES", "ENERGY", "LADDER", "PAPER", "estimators"]

PAPER = "paper"
ENERGY = "energy-rollout"

BASELINES = ("uniform", "fixed-half")
"""Predictions that measure nothing, or no mixing."""

LADDER = ("attention-only", "residual", "residual+content", "residual+lag")
"""Variants of the paper's estimator with modelled attention."""

ABLATIONS = (
    *("paper,mixing=frobenius", "paper,mixing=centred", "paper,mixing=energy"),
    *("paper,mixing=centred-energy", "paper,mixing=jacobian", "paper,mlp=true"),
    *("paper,kernel=value-weighted", "paper,kernel=centred-value-weighted"),
    *("paper,sinks=identity", "paper,sinks=drop", "paper,addition=energies"),
    *("energy-rollout,mixing=norm", "energy-rollout,mixing=centred"),
    *("energy-rollout,mixing=energy", "energy-rollout,mixing=jacobian,mlp=false"),
    *("energy-rollout,mlp=false", "energy-rollout,kernel=attention"),
    *("energy-rollout,kernel=value-weighted", "energy-rollout,sinks=keep"),
    *("energy-rollout,sinks=drop", "energy-rollout,addition=amplitudes"),
)
"""Each estimator that differs from one of the two on a single axis (the Jacobian has no MLP)."""


def estimators() -> dict[str, Estimator]:
    """Return the estimators of measured attention by their text in the study."""
    return {text: Estimator.parse(text) for text in (PAPER, ENERGY, *ABLATIONS)}
