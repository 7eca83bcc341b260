"""Weighted mixtures of kernels."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from posbias.errors import InputError
from posbias.kernels._checks import as_weights
from posbias.kernels.base import Kernel, Matrix, Vector

__all__ = ["MixtureKernel"]


class MixtureKernel(Kernel):
    """``A = sum_k weight_k A_k`` with weights divided by their sum.

    Parameters
    ----------
    kernels : sequence of Kernel
        At least one, all over the same number of positions.
    weights : array_like, shape (K,), optional
        Non-negative, not all zero; equal by default.

    Raises
    ------
    InputError
        If there is no kernel, sizes differ, or the weights do not fit.
    """

    def __init__(self, kernels: Sequence[Kernel], weights: ArrayLike | None = None) -> None:
        parts = tuple(kernels)
        if not parts:
            raise InputError("a mixture needs at least one kernel, got none")
        for index, part in enumerate(parts):
            if not isinstance(part, Kernel):
                raise InputError(f"part {index} of the mixture is {part!r}; a Kernel is required")
        sizes = [part.n for part in parts]
        if len(set(sizes)) > 1:
            raise InputError(f"the kernels of a mixture have {sizes} positions; they must be equal")
        super().__init__(sizes[0])
        self._kernels = parts
        self._weights = as_weights(weights, len(parts), "the mixture weights")

    @property
    def kernels(self) -> tuple[Kernel, ...]:
        """The parts, in order."""
        return self._kernels

    @property
    def weights(self) -> Vector:
        """The weights, summing to one, shape (K,)."""
        return self._weights.copy()

    @property
    def is_causal(self) -> bool:
        """Whether every part with a positive weight is causal."""
        return all(part.is_causal for part, _ in self._parts())

    def rmatvec(self, p: ArrayLike) -> Vector:
        """Return ``p @ A``, shape (n,)."""
        p = self._vector(p)
        return np.asarray(sum(weight * part.rmatvec(p) for part, weight in self._parts()))

    def matvec(self, v: ArrayLike) -> Vector:
        """Return ``A @ v``, shape (n,)."""
        v = self._vector(v)
        return np.asarray(sum(weight * part.matvec(v) for part, weight in self._parts()))

    def rmatmat(self, rows: ArrayLike) -> Matrix:
        """Return ``rows @ A`` for row vectors stacked as (Q, n), shape (Q, n)."""
        return np.asarray(sum(weight * part.rmatmat(rows) for part, weight in self._parts()))

    def row(self, i: int) -> Vector:
        """Return row `i`, shape (n,)."""
        i = self._index(i)
        return np.asarray(sum(weight * part.row(i) for part, weight in self._parts()))

    def diagonal(self) -> Vector:
        """Return A[i, i] for every i, shape (n,)."""
        return np.asarray(sum(weight * part.diagonal() for part, weight in self._parts()))

    def toarray(self) -> Matrix:
        """Return the dense matrix, shape (n, n)."""
        return np.asarray(sum(weight * part.toarray() for part, weight in self._parts()))

    def restrict(self, n: int) -> MixtureKernel:
        """Return the mixture of the restricted parts."""
        n = self._restricted(n)
        return MixtureKernel([part.restrict(n) for part in self._kernels], self._weights)

    def _parts(self) -> list[tuple[Kernel, float]]:
        """Return the parts that have a positive weight."""
        pairs = zip(self._kernels, self._weights.tolist(), strict=True)
        return [(part, weight) for part, weight in pairs if weight > 0.0]
