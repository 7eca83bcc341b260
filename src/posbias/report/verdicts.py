"""What the theory says about a measured model: forces, monotone layers, more depth."""

from __future__ import annotations

import math
from dataclasses import dataclass

from posbias.estimator import ladder
from posbias.kernels import Kernel
from posbias.measurement import Measurement
from posbias.rollout import Rollout
from posbias.theory import (
    FiniteDepth,
    ForcesReport,
    InfiniteDepth,
    InfiniteSchedule,
    Monotonicity,
    finite_depth,
    forces,
    infinite_depth,
    monotone_criterion,
    monotonicity,
)

__all__ = ["WORK_LIMIT", "LayerVerdict", "Verdicts", "theory_length", "verdicts"]

WORK_LIMIT = 2**22
"""Largest T n**2 for which the theorems are checked at full length."""

_STEP = 32


@dataclass(frozen=True, eq=False)
class LayerVerdict:
    """Monotonicity of one layer.

    Parameters
    ----------
    measured : Monotonicity
        Of the measured attention.
    is_model_monotone : bool or None
        Of the structured kernel (mask, position bias, content), by its analytic criterion; None
        if that does not decide.
    """

    measured: Monotonicity
    is_model_monotone: bool | None


@dataclass(frozen=True, eq=False)
class Verdicts:
    """The theory on one measurement.

    Parameters
    ----------
    length : int
        Positions at which the theorems were checked: the first ones of the context.
    forces : ForcesReport
        Of mask, position bias, content and the measured mixing.
    layers : tuple of LayerVerdict
        One per layer, bottom first.
    finite : FiniteDepth
        How far the layers have gone towards collapse.
    infinite : InfiniteDepth
        If the layers were repeated for ever with the mean mixing of the top quarter.
    """

    length: int
    forces: ForcesReport
    layers: tuple[LayerVerdict, ...]
    finite: FiniteDepth
    infinite: InfiniteDepth

    @property
    def monotone_layers(self) -> int:
        """Number of layers whose measured attention is monotone."""
        return sum(layer.measured.holds for layer in self.layers)


def theory_length(n: int, layers: int) -> int:
    """Return the largest length up to n whose checks stay within `WORK_LIMIT`."""
    if layers * n * n <= WORK_LIMIT:
        return n
    return max(_STEP, math.isqrt(WORK_LIMIT // layers) // _STEP * _STEP)


def verdicts(measurement: Measurement, attention: list[Kernel], estimator: str) -> Verdicts:
    """Check the theorems on the kernels and the mixing of a measurement.

    Parameters
    ----------
    measurement : Measurement
        With at least two positions.
    attention : list of Kernel
        Its measured kernels.
    estimator : str
        Choice of estimator, whose mixing coefficients hold (`posbias.estimator.ladder`).

    Returns
    -------
    Verdicts
        Cost O(T n^2 log n) at the length of `theory_length`.
    """
    length = min(measurement.n, theory_length(measurement.n, measurement.layers))
    structured = measurement.kernels("position+content", n=length)
    schedule = measurement.schedule(ladder(estimator).mixing_name)
    rollout = Rollout(structured, schedule)
    finite = finite_depth(rollout)
    first = tuple(float(value) for value in schedule.values)
    endless = InfiniteSchedule("constant", finite.tail_mixing, first=first)
    cut = [k if k.n == length else k.restrict(length) for k in attention]
    return Verdicts(
        length=length,
        forces=forces(rollout),
        layers=tuple(
            LayerVerdict(monotonicity(kernel), _by_criterion(model))
            for kernel, model in zip(cut, structured, strict=True)
        ),
        finite=finite,
        infinite=infinite_depth(structured, endless),
    )


def _by_criterion(kernel: Kernel) -> bool | None:
    criterion = monotone_criterion(kernel)
    return criterion.holds if criterion is not None and criterion.decides else None
