"""A kernel given as an array, such as measured attention."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from posbias.errors import InputError
from posbias.kernels._checks import as_matrix, as_stack
from posbias.kernels.base import Kernel, Matrix, Vector

__all__ = ["ROW_SUM_TOLERANCE", "DenseKernel"]

ROW_SUM_TOLERANCE = 1e-6
"""How far the sum of a row may be from one (attention measured in single precision)."""


class DenseKernel(Kernel):
    """A row-stochastic matrix held in full.

    Parameters
    ----------
    array : array_like, shape (n, n)
        Non-negative, rows summing to one within `ROW_SUM_TOLERANCE`; never renormalised.
    copy : bool
        Whether to copy a float64 array. Without a copy the caller must not change it afterwards.

    Raises
    ------
    InputError
        If the array is not square, an entry is negative or not finite, or a row sum is off.

    Notes
    -----
    Memory 8 n^2 bytes; a product reads the array once.
    """

    def __init__(self, array: ArrayLike, *, copy: bool = True) -> None:
        matrix = as_matrix(array, "the kernel")
        super().__init__(matrix.shape[0])
        if matrix.min() < 0.0:
            i, j = (int(k) for k in np.argwhere(matrix < 0.0)[0])
            raise InputError(
                f"entry [{i}, {j}] of the kernel is {matrix[i, j]:g}; non-negative weights are "
                "required"
            )
        with np.errstate(over="ignore"):
            sums = matrix.sum(axis=1)
        worst = int(np.argmax(np.abs(sums - 1.0)))
        if abs(sums[worst] - 1.0) > ROW_SUM_TOLERANCE:
            raise InputError(
                f"row {worst} of the kernel sums to {sums[worst]:.8g}; rows must sum to 1 within "
                f"{ROW_SUM_TOLERANCE:g}. Divide by the row sums if the rows are raw scores"
            )
        self._array = np.array(matrix, order="C") if copy else np.ascontiguousarray(matrix)[:]
        self._array.setflags(write=False)
        self._causal: bool | None = None

    @property
    def is_causal(self) -> bool:
        """Whether every entry above the diagonal is zero; cost O(n^2) once."""
        if self._causal is None:
            self._causal = not any(self._array[i, i + 1 :].any() for i in range(self._n - 1))
        return self._causal

    def rmatvec(self, p: ArrayLike) -> Vector:
        """Return ``p @ A``, shape (n,)."""
        return np.asarray(self._vector(p) @ self._array)

    def matvec(self, v: ArrayLike) -> Vector:
        """Return ``A @ v``, shape (n,)."""
        return np.asarray(self._array @ self._vector(v))

    def rmatmat(self, rows: ArrayLike) -> Matrix:
        """Return ``rows @ A`` for row vectors stacked as (Q, n), reading the array once."""
        return np.asarray(as_stack(rows, "the row vectors", self._n) @ self._array)

    def row(self, i: int) -> Vector:
        """Return a copy of row `i`, shape (n,)."""
        return np.array(self._array[self._index(i)])

    def diagonal(self) -> Vector:
        """Return a copy of the diagonal, shape (n,)."""
        return self._array.diagonal().copy()

    def toarray(self) -> Matrix:
        """Return a copy of the matrix, shape (n, n)."""
        return self._array.copy()

    def restrict(self, n: int) -> DenseKernel:
        """Return the kernel over the first `n` positions.

        Mass on removed keys is shared among the others in proportion, as a softmax over fewer
        keys does; for a causal kernel there is none.
        """
        n = self._restricted(n)
        block = self._array[:n, :n]
        if self.is_causal:
            return DenseKernel(block)
        sums = block.sum(axis=1, keepdims=True)
        empty = np.flatnonzero(sums == 0.0)
        if empty.size:
            raise InputError(
                f"row {int(empty[0])} of the kernel puts no mass on the first {n} positions; "
                "it has no restriction to them"
            )
        return DenseKernel(block / sums)
