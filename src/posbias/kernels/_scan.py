"""Choice between the compiled and the NumPy recurrences.

Loading numba takes about half a second, so small problems stay in NumPy; the choice depends on
the size alone, so that a result never depends on what ran before it. Without numba everything
runs in NumPy.
"""

from __future__ import annotations

import functools
from types import ModuleType

import numpy as np
from numpy.typing import NDArray

from posbias.kernels import _numpy_scan

__all__ = ["COMPILED_FROM", "affine_scan", "compiled", "log_ratio_scan"]

Matrix = NDArray[np.float64]

COMPILED_FROM = 2**17
"""Number of positions times recurrences from which the compiled code is used."""


@functools.cache
def _load() -> ModuleType | None:
    try:
        from posbias.kernels import _numba_scan
    except ImportError:
        return None
    return _numba_scan


def compiled(work: int) -> ModuleType | None:
    """Return the compiled recurrences for a problem of this size, or None for NumPy."""
    return _load() if work >= COMPILED_FROM else None


def affine_scan(keep: Matrix, take: Matrix, x: Matrix, *, reverse: bool) -> Matrix:
    """Return y_k = x_k + keep_k y_{k-1}; see `posbias.kernels._numpy_scan.affine_scan`."""
    module = compiled(x.size) or _numpy_scan
    return np.asarray(module.affine_scan(keep, take, np.ascontiguousarray(x), reverse))


def log_ratio_scan(decay: Matrix, logits: Matrix) -> Matrix:
    """Return x_k = L_{k-1} + decay_k - logits_k; see `posbias.kernels._numpy_scan`."""
    module = compiled(logits.size) or _numpy_scan
    inputs = np.ascontiguousarray(decay), np.ascontiguousarray(logits)
    return np.asarray(module.log_ratio_scan(*inputs))
