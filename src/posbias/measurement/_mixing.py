"""Mixing coefficients from the arrays of a measurement, and why some are absent."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from posbias.errors import InputError
from posbias.measurement.estimator_arrays import FURTHER_MIXINGS, JACOBIAN, mixing_array
from posbias.measurement.schema import ESTIMATORS

__all__ = ["ONLY_WITH_ALL", "mixing_values", "over_layers", "why_absent"]

Array = NDArray[np.float64]


def mixing_values(
    arrays: Mapping[str, NDArray[Any]], estimator: str, reasons: Mapping[str, Any]
) -> Array:
    """Return the mixing of each window, shape (D, T), or (D, T, n) for ``norm``.

    Raises
    ------
    InputError
        If the estimator is unknown or was not recorded.
    """
    known = (*ESTIMATORS, *FURTHER_MIXINGS)
    if estimator not in known:
        raise InputError(
            f"estimator {estimator!r} of the mixing coefficient is unknown; use one of {known}"
        )
    name = mixing_array(estimator)
    if name not in arrays:
        raise InputError(
            f"this measurement has no mixing of type {estimator!r}; {why_absent(name, reasons)}"
        )
    return arrays[name]


def over_layers(reduce: Callable[..., Any], values: Array) -> Array:
    """Reduce all axes but that of the layers."""
    result: Array = reduce(values, axis=(0, 2) if values.ndim == 3 else 0)
    return result


def why_absent(name: str, reasons: Mapping[str, Any]) -> str:
    """Return why a measurement may lack an optional array and what to do.

    Parameters
    ----------
    name : str
        Of the array.
    reasons : mapping
        The section ``run`` of the manifest, which holds what could not be recorded: ``values``,
        ``mlp`` and ``kernels``, each with the reason; of merged measurements in ``parts``.
    """
    for run in (reasons, *reasons.get("parts", ())):
        for part, concerned in _PARTS.items():
            if run.get(part) and any(mark in name for mark in concerned):
                return f"it could not be recorded: {run[part]}"
    if name == mixing_array(JACOBIAN):
        return "it was not recorded, measure again with jacobian=8 (--jacobian 8) or more"
    if name.startswith(("logits.", "content.")):
        return "it was not recorded, measure again with logit statistics on"
    record = "default" if name not in ONLY_WITH_ALL else "all"
    return f"it was not recorded, measure again with record={record!r} (--record {record})"


_PARTS = {"mlp": ("+mlp",), "values": ("value.", "value-", "centred-norm"), "kernels": ("kernel.",)}
ONLY_WITH_ALL = (
    "kernel.attention-energy.sum",
    "kernel.value.sum",
    "kernel.value-energy.sum",
    "kernel.centred-value.sum",
)
"""Arrays that a measurement has with ``record='all'`` only."""
