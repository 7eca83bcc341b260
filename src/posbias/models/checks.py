"""What the checks of a model found, by name; what fails is an error at once."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import torch

from posbias.errors import InstrumentationError

__all__ = ["Preflight", "agreement", "overflow_advice", "type_name"]


@dataclass
class Preflight:
    """Results of the checks by name: whether passed, the value found, the tolerance."""

    dtype: torch.dtype = torch.float32
    results: dict[str, dict[str, Any]] = field(default_factory=dict)

    def require(self, name: str, value: float, tolerance: float, advice: str) -> None:
        """Record a check; raise `InstrumentationError` unless ``value <= tolerance``."""
        passed = value <= tolerance
        self.results[name] = {
            "passed": passed,
            "value": value if math.isfinite(value) else None,
            "tolerance": tolerance,
        }
        if not passed:
            raise InstrumentationError(
                f"check {name} failed in {type_name(self.dtype)}: {value:.3g} exceeds "
                f"{tolerance:.3g}. {advice}"
            )

    def not_applicable(self, name: str) -> None:
        """Record that a check cannot be made of this model: no value and no tolerance."""
        self.results[name] = {"passed": True, "value": None, "tolerance": None}


def agreement(dtype: torch.dtype) -> float:
    """Return the relative difference up to which two computations of one thing agree."""
    return {torch.float64: 1e-10, torch.float32: 1e-5, torch.float16: 2e-2}.get(dtype, 1e-1)


def overflow_advice(dtype: torch.dtype) -> str:
    """Return what to do about numbers that left the range of a number format."""
    if dtype in {torch.float16, torch.bfloat16}:
        return "Measure in float32"
    return "Damaged or far too large weights are the usual cause; save or download the model again"


def type_name(dtype: torch.dtype) -> str:
    """Return the name of a number format, e.g. ``"bfloat16"``."""
    return str(dtype).removeprefix("torch.")
