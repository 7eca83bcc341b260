"""The rollout that an estimator makes of a measurement."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import numpy as np

from posbias.estimator import Estimator
from posbias.kernels import AttentionKernel, EnergyKernel, Kernel
from posbias.measurement._kernels import KernelKind
from posbias.measurement._mixing import ONLY_WITH_ALL, why_absent
from posbias.measurement.artifact import Measurement
from posbias.measurement.estimator_arrays import (
    ESTIMATOR_ARRAYS,
    JACOBIAN,
    MEASURED_KERNELS,
    mixing_array,
)
from posbias.rollout import Rollout
from posbias.sinks import moved_mass, treat_sinks

__all__ = ["measured_rollout", "modelled_rollout", "record_for", "sinks_moved", "why_not"]


def record_for(estimator: Estimator) -> str:
    """Return the ``record`` of a measurement that has all that an estimator needs.

    ``paper``, ``default`` or ``all``; the mixing ``jacobian`` needs its own option beside it.
    """
    needed = {name for name in _needed(estimator) if name in ESTIMATOR_ARRAYS}
    if needed & set(ONLY_WITH_ALL):
        return "all"
    return "default" if needed - {mixing_array(JACOBIAN)} else "paper"


def why_not(measurement: Measurement, estimator: Estimator) -> str | None:
    """Return which array an estimator needs and the measurement lacks, and why; None if none."""
    needed = _needed(estimator)
    if measurement.has_summarised_kernels:  # they stand for the measured attention
        needed = [name for name in needed if name != MEASURED_KERNELS["attention"]]
    for name in needed:
        if name not in measurement.arrays:
            return f"{name}; {why_absent(name, measurement.manifest.get('run', {}))}"
    return None


def measured_rollout(
    measurement: Measurement, estimator: Estimator, *, n: int | None = None
) -> Rollout:
    """Return the rollout of measured kernels, with their sinks treated.

    Parameters
    ----------
    measurement : Measurement
        The measurement.
    estimator : Estimator
        All five axes count.
    n : int, optional
        Number of positions, by default that of the measurement, which is the most.

    Raises
    ------
    InputError
        If something that the estimator needs was not recorded, or `n` is too large.
    """
    schedule = measurement.schedule(estimator.mixing_name)
    kernels = measurement.kernels(_kind(estimator), n=n)
    if estimator.sinks != "keep":
        kernels = [
            treat_sinks(kernel, [s for s in sinks if s < kernel.n], estimator.sinks)
            for kernel, sinks in zip(kernels, measurement.sinks().by_layer, strict=True)
        ]
    return Rollout(kernels, schedule, addition=estimator.addition)


def modelled_rollout(
    measurement: Measurement, kind: KernelKind, estimator: Estimator, *, n: int | None = None
) -> Rollout:
    """Return the rollout of kernels that a model of attention gives: position, content, lag.

    Mixing and addition of the estimator count; its kernel weights and its treatment of sinks
    speak about measured kernels. Where energies add, the energies of the heads take the place of
    their mean (`posbias.kernels.EnergyKernel`), which is exact for independent values of one size.

    Raises
    ------
    InputError
        If the mixing was not recorded, or `n` is too large for the kind.
    """
    kernels = measurement.kernels(kind, n=n)
    if estimator.addition == "energies":
        energies: dict[int, Kernel] = {}
        for kernel in kernels:  # layers may share one object
            if id(kernel) not in energies:
                energies[id(kernel)] = EnergyKernel(cast(AttentionKernel, kernel))
        kernels = [energies[id(kernel)] for kernel in kernels]
    schedule = measurement.schedule(estimator.mixing_name)
    return Rollout(kernels, schedule, addition=estimator.addition)


def sinks_moved(
    measurement: Measurement, estimator: Estimator, *, n: int | None = None
) -> Mapping[str, Any]:
    """Return what the treatment of sinks does to the kernels, JSON-serialisable.

    Returns
    -------
    dict
        ``treatment``, ``positions`` of the sinks, and ``mass``: the share of the kernel that is
        moved to the diagonal or dropped, mean over queries and layers, with ``mass_by_layer``.
        Empty for ``keep``.
    """
    if estimator.sinks == "keep":
        return {}
    sinks = measurement.sinks()
    kernels = measurement.kernels(_kind(estimator), n=n)
    masses = [
        float(moved_mass(kernel, [s for s in positions if s < kernel.n]).mean())
        for kernel, positions in zip(kernels, sinks.by_layer, strict=True)
    ]
    return {
        "treatment": estimator.sinks,
        "positions": list(sinks.positions),
        "mass": float(np.mean(masses)),
        "mass_by_layer": masses,
    }


def _needed(estimator: Estimator) -> list[str]:
    """Return the arrays that an estimator is made of."""
    return [mixing_array(estimator.mixing_name), MEASURED_KERNELS[estimator.kernel_kind]]


def _kind(estimator: Estimator) -> KernelKind:
    return cast(KernelKind, estimator.kernel_kind)
