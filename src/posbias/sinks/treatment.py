"""Kernels with their attention to sinks moved to the diagonal or dropped."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from posbias.errors import InputError
from posbias.estimator import AXES, SinkTreatment
from posbias.kernels import DenseKernel, Kernel, Matrix, Vector

__all__ = ["TreatedKernel", "moved_mass", "treat_sinks"]


def treat_sinks(kernel: Kernel, positions: Sequence[int], treatment: SinkTreatment) -> Kernel:
    """Return a kernel whose attention to sinks is treated.

    Parameters
    ----------
    kernel : Kernel
        Of any kind; a dense one gives a dense one.
    positions : sequence of int
        The sinks S among its keys. Rows of sinks stay as they are.
    treatment : {"keep", "identity", "drop"}
        ``identity``: ``A'[i, i] = A[i, i] + sum_S A[i, s]`` and ``A'[i, s] = 0``: attention to a
        sink changes nothing, as if the token attended to itself. ``drop``: the mass on S is taken
        away and the row divided by what is left; a row with nothing left is 1 on the diagonal.

    Returns
    -------
    Kernel
        `kernel` itself for ``keep`` or without sinks.

    Raises
    ------
    InputError
        If the treatment is unknown or a position is no key of the kernel.

    Notes
    -----
    Products cost one or two of `kernel` and are exact: no mass is subtracted.
    """
    if treatment not in AXES["sinks"]:
        raise InputError(
            f"the treatment of sinks is {treatment!r}; one of {', '.join(AXES['sinks'])} is "
            "required"
        )
    if treatment == "keep" or not len(positions):
        return kernel
    treated = TreatedKernel(kernel, positions, treatment)
    return (
        DenseKernel(treated.toarray(), copy=False) if isinstance(kernel, DenseKernel) else treated
    )


def moved_mass(kernel: Kernel, positions: Sequence[int]) -> Vector:
    """Return how much of each row is on sinks and would be moved or dropped, shape (n,).

    Rows of sinks keep their mass and are 0 here.
    """
    if not len(positions):
        return np.zeros(kernel.n)
    is_sink = _checked_positions(positions, kernel.n)
    return np.where(is_sink, 0.0, kernel.matvec(is_sink.astype(np.float64)))


class TreatedKernel(Kernel):
    """A kernel with its attention to sinks treated, see `treat_sinks`.

    Parameters
    ----------
    kernel : Kernel
        The kernel.
    positions : sequence of int
        The sinks.
    treatment : {"identity", "drop"}
        What becomes of the attention that they receive.
    """

    def __init__(self, kernel: Kernel, positions: Sequence[int], treatment: SinkTreatment) -> None:
        super().__init__(kernel.n)
        self._kernel = kernel
        self._is_sink = _checked_positions(positions, kernel.n)
        self._positions = tuple(np.flatnonzero(self._is_sink).tolist())
        self._treatment: SinkTreatment = treatment
        others = np.where(self._is_sink, 0.0, 1.0)
        # Row i of the result is scale[i] times row i on other keys, plus stay[i] on the diagonal.
        if treatment == "identity":
            self._scale = np.ones(kernel.n)
            self._stay = others * kernel.matvec(1.0 - others)
        else:
            left = np.where(self._is_sink, 1.0, kernel.matvec(others))
            is_empty = left == 0.0
            self._scale = np.where(is_empty, 0.0, 1.0 / np.where(is_empty, 1.0, left))
            self._stay = is_empty.astype(np.float64)

    @property
    def is_causal(self) -> bool:
        """Whether the kernel is."""
        return self._kernel.is_causal

    def rmatvec(self, p: ArrayLike) -> Vector:
        """Return ``p @ A'``, shape (n,)."""
        product: Vector = self.rmatmat(self._vector(p)[None])[0]
        return product

    def rmatmat(self, rows: ArrayLike) -> Matrix:
        """Return ``rows @ A'`` for row vectors stacked as (Q, n), shape (Q, n)."""
        given = np.asarray(rows, dtype=np.float64)
        if given.ndim != 2 or given.shape[1] != self._n:
            raise InputError(
                f"the row vectors have shape {given.shape}; (rows, {self._n}) is required"
            )
        others = np.where(self._is_sink, 0.0, given)
        product = self._kernel.rmatmat(self._scale * others)
        product[:, self._is_sink] = 0.0
        product += self._stay * others
        sinks = np.where(self._is_sink, given, 0.0)
        return product + self._kernel.rmatmat(sinks) if sinks.any() else product

    def matvec(self, v: ArrayLike) -> Vector:
        """Return ``A' @ v``, shape (n,)."""
        v = self._vector(v)
        others = self._scale * self._kernel.matvec(np.where(self._is_sink, 0.0, v))
        return np.where(self._is_sink, self._kernel.matvec(v), others + self._stay * v)

    def row(self, i: int) -> Vector:
        """Return row `i`, shape (n,)."""
        i = self._index(i)
        row = self._kernel.row(i)
        return row if self._is_sink[i] else self._treated(row[None], np.array([i]))[0]

    def toarray(self) -> Matrix:
        """Return the dense matrix, shape (n, n)."""
        matrix = self._kernel.toarray()
        others = np.flatnonzero(~self._is_sink)
        matrix[others] = self._treated(matrix[others], others)
        return matrix

    def restrict(self, n: int) -> Kernel:
        """Return the treated kernel over the first `n` positions."""
        n = self._restricted(n)
        kept = [p for p in self._positions if p < n]
        return treat_sinks(self._kernel.restrict(n), kept, self._treatment)

    def _treated(self, rows: Matrix, index: NDArray[np.intp]) -> Matrix:
        """Return rows of other keys than sinks, treated; `rows` is changed in place."""
        rows[:, self._is_sink] = 0.0
        rows *= self._scale[index, None]
        rows[np.arange(len(index)), index] += self._stay[index]
        return rows


def _checked_positions(positions: Sequence[int], n: int) -> NDArray[np.bool_]:
    """Return which of the n keys are among the positions."""
    for position in positions:
        whole = isinstance(position, (int, np.integer)) and not isinstance(position, bool)
        if not whole or not 0 <= position < n:
            raise InputError(f"the sink {position!r} is no key of a kernel of {n} positions")
    mask = np.zeros(n, dtype=np.bool_)
    mask[list(positions)] = True
    return mask
