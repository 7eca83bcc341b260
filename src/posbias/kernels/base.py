"""The interface of every attention kernel."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from posbias.errors import InputError
from posbias.kernels._checks import as_reals, as_stack

__all__ = ["Kernel", "Matrix", "Vector"]

Vector = NDArray[np.float64]
"""Numbers of shape (n,)."""

Matrix = NDArray[np.float64]
"""Numbers of shape (n, n) or (m, n), as the method says."""


class Kernel(ABC):
    """A row-stochastic n x n matrix A, held as a linear operator.

    ``A[i, j]`` is the weight of source (key) j in target (query) i. The interface is a subset of
    :class:`scipy.sparse.linalg.LinearOperator` (``shape``, ``dtype``, ``matvec``, ``rmatvec``),
    so a kernel can be handed to SciPy through ``aslinearoperator``.

    A subclass implements `rmatvec`, `matvec`, `row` and `restrict`; `diagonal`, `toarray` and
    `rmatmat` have general implementations that cost n calls of `row` or one `rmatvec` per vector.
    :func:`posbias.kernels.testing.check_kernel` tests an implementation.

    Parameters
    ----------
    n : int
        Number of positions, at least 1.

    Raises
    ------
    InputError
        If `n` is not an integer >= 1.

    Examples
    --------
    A kernel of one's own, where every token attends to itself and to token 0:

    >>> import numpy as np
    >>> class FirstAndSelf(Kernel):
    ...     def row(self, i):
    ...         i = self._index(i)
    ...         return 0.5 * (np.arange(self.n) == i) + 0.5 * (np.arange(self.n) == 0)
    ...     def rmatvec(self, p):
    ...         p = self._vector(p)
    ...         return 0.5 * p + 0.5 * p.sum() * (np.arange(self.n) == 0)
    ...     def matvec(self, v):
    ...         v = self._vector(v)
    ...         return 0.5 * v + 0.5 * v[0]
    ...     def restrict(self, n):
    ...         return FirstAndSelf(self._restricted(n))
    >>> FirstAndSelf(4).toarray()[2]
    array([0.5, 0. , 0.5, 0. ])
    """

    def __init__(self, n: int) -> None:
        if isinstance(n, bool) or not isinstance(n, (int, np.integer)) or n < 1:
            raise InputError(f"a kernel needs n >= 1 positions, got {n!r}")
        self._n = int(n)

    @property
    def n(self) -> int:
        """Number of positions."""
        return self._n

    @property
    def shape(self) -> tuple[int, int]:
        """The pair (n, n)."""
        return self._n, self._n

    @property
    def dtype(self) -> np.dtype[np.float64]:
        """Always float64."""
        return np.dtype(np.float64)

    @property
    def is_causal(self) -> bool:
        """Whether A[i, j] = 0 for every j > i by construction."""
        return True

    @abstractmethod
    def rmatvec(self, p: ArrayLike) -> Vector:
        """Return ``p @ A`` for a row vector `p`, shape (n,)."""

    @abstractmethod
    def matvec(self, v: ArrayLike) -> Vector:
        """Return ``A @ v`` for a column vector `v`, shape (n,)."""

    @abstractmethod
    def row(self, i: int) -> Vector:
        """Return row `i`, shape (n,); negative `i` counts from the end."""

    @abstractmethod
    def restrict(self, n: int) -> Kernel:
        """Return the kernel of the same rule over the first `n` positions."""

    def rmatmat(self, rows: ArrayLike) -> Matrix:
        """Return ``rows @ A`` for row vectors stacked as (Q, n), shape (Q, n)."""
        stacked = as_stack(rows, "the row vectors", self._n)
        products = [self.rmatvec(row) for row in stacked]
        return np.stack(products) if products else np.zeros((0, self._n))

    def diagonal(self) -> Vector:
        """Return A[i, i] for every i, shape (n,)."""
        return np.array([self.row(i)[i] for i in range(self._n)])

    def toarray(self) -> Matrix:
        """Return the dense matrix, shape (n, n)."""
        return np.stack([self.row(i) for i in range(self._n)])

    def describe(self) -> Mapping[str, Any]:
        """Return a JSON-serialisable description, the layer entry of a spec file."""
        raise InputError(f"{type(self).__name__} has no description for a spec file")

    def _index(self, i: int) -> int:
        """Return `i` as an index in 0..n-1 or raise `InputError`."""
        if (
            isinstance(i, bool)
            or not isinstance(i, (int, np.integer))
            or not -self._n <= i < self._n
        ):
            raise InputError(f"row {i!r} does not exist in a kernel of {self._n} positions")
        return int(i) % self._n

    def _restricted(self, n: int) -> int:
        """Return `n` as a number of positions in 1..self.n or raise `InputError`."""
        if isinstance(n, bool) or not isinstance(n, (int, np.integer)) or not 1 <= n <= self._n:
            raise InputError(
                f"a kernel of {self._n} positions cannot be restricted to {n!r}; "
                f"an integer in 1..{self._n} is required"
            )
        return int(n)

    def _vector(self, x: ArrayLike) -> Vector:
        """Return `x` as a float64 vector of n finite reals or raise `InputError`."""
        return as_reals(x, "the vector", size=self._n)

    def __repr__(self) -> str:
        return f"{type(self).__name__}(n={self._n})"
