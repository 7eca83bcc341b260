"""Many ALiBi heads held as arrays; a `Head` is made only for whoever looks at it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import overload

import numpy as np
from numpy.typing import NDArray

from posbias.kernels._checks import as_real
from posbias.kernels.head import Head
from posbias.kernels.positions import ALiBi

__all__ = ["AlibiBank"]

Vector = NDArray[np.float64]


class AlibiBank(Sequence[Head]):
    """H heads with a slope, a diagonal term and a weight each.

    Parameters
    ----------
    slopes, diagonals, weights : ndarray, shape (H,)
        Finite; weights >= 0. Not copied.

    Raises
    ------
    InputError
        If a weight is negative.
    """

    def __init__(self, slopes: Vector, diagonals: Vector, weights: Vector) -> None:
        for weight in weights[weights < 0.0]:
            as_real(float(weight), "the weight of a head", low=0.0)
        self.slopes = slopes
        self.diagonals = diagonals
        self.weights = weights

    def __len__(self) -> int:
        return self.slopes.size

    @overload
    def __getitem__(self, index: int) -> Head: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Head, ...]: ...

    def __getitem__(self, index: int | slice) -> Head | tuple[Head, ...]:
        if isinstance(index, slice):
            return tuple(self[k] for k in range(len(self))[index])
        slope, own, weight = self.slopes[index], self.diagonals[index], self.weights[index]
        return Head(ALiBi(float(slope)), weight=float(weight), diagonal=float(own))
