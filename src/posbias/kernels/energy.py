"""The energies of structured attention: squared weights of each head, as a kernel."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from posbias.errors import InputError
from posbias.kernels.attention import AttentionKernel
from posbias.kernels.base import Kernel, Matrix, Vector

__all__ = ["EnergyKernel"]


class EnergyKernel(Kernel):
    """``B[i, j]`` proportional to ``sum over heads h of (weight_h A_h[i, j])^2``, rows divided.

    The share of source j in the squared norm of the update of target i, where the values of
    different tokens and heads are independent and of equal size (posbias).

    Parameters
    ----------
    kernel : AttentionKernel
        The heads, their weights and the mask.

    Raises
    ------
    InputError
        If it is no `AttentionKernel`: a mixture does not tell its heads apart.

    Notes
    -----
    The square of a softmax is proportional to the softmax of twice the logits, S_h, so that
    ``B[i, :]`` is a mixture of the ``S_h[i, :]`` with weights
    ``weight_h^2 sum_j A_h[i, j]^2 = (weight_h A_h[i, i])^2 / S_h[i, i]``. A product costs one
    product of each head.

    Examples
    --------
    >>> EnergyKernel(AttentionKernel.alibi(3, [0.5])).row(2).round(3)
    array([0.09 , 0.245, 0.665])
    """

    def __init__(self, kernel: AttentionKernel) -> None:
        if not isinstance(kernel, AttentionKernel):
            raise InputError(
                f"the energies of {kernel!r} are not known; an AttentionKernel, which tells its "
                "heads apart, is required"
            )
        super().__init__(kernel.n)
        self._kernel = kernel
        self._squares: list[AttentionKernel] = []
        energies = []
        for head, weight in zip(kernel.heads, kernel.weights.tolist(), strict=True):
            if weight > 0.0:
                plain = AttentionKernel(
                    kernel.n, [head], mask=kernel.mask, temperature=kernel.temperature
                )
                square = AttentionKernel(
                    kernel.n, [head], mask=kernel.mask, temperature=kernel.temperature / 2.0
                )
                self._squares.append(square)
                energies.append(weight**2 * _row_energies(plain, square))
        total = np.sum(energies, axis=0)
        self._shares = [energy / total for energy in energies]

    @property
    def is_causal(self) -> bool:
        """Whether the attention is."""
        return self._kernel.is_causal

    def rmatvec(self, p: ArrayLike) -> Vector:
        """Return ``p @ B``, shape (n,)."""
        p = self._vector(p)
        return np.asarray(sum(square.rmatvec(share * p) for square, share in self._parts()))

    def matvec(self, v: ArrayLike) -> Vector:
        """Return ``B @ v``, shape (n,)."""
        v = self._vector(v)
        return np.asarray(sum(share * square.matvec(v) for square, share in self._parts()))

    def diagonal(self) -> Vector:
        """Return B[i, i] for every i, shape (n,)."""
        return np.asarray(sum(share * square.diagonal() for square, share in self._parts()))

    def row(self, i: int) -> Vector:
        """Return row `i`, shape (n,)."""
        i = self._index(i)
        return np.asarray(sum(share[i] * square.row(i) for square, share in self._parts()))

    def toarray(self) -> Matrix:
        """Return the dense matrix, shape (n, n)."""
        return np.asarray(sum(share[:, None] * square.toarray() for square, share in self._parts()))

    def restrict(self, n: int) -> EnergyKernel:
        """Return the kernel of the same heads over the first `n` positions."""
        return EnergyKernel(self._kernel.restrict(n))

    def _parts(self) -> zip[tuple[AttentionKernel, Vector]]:
        return zip(self._squares, self._shares, strict=True)


def _row_energies(plain: AttentionKernel, square: AttentionKernel) -> Vector:
    """Return the sum over keys of the squared weights of one head, shape (n,)."""
    weight, share = plain.diagonal(), square.diagonal()
    energies = np.zeros(plain.n)
    np.divide(weight**2, share, out=energies, where=share > 0.0)
    # A query that does not see itself, or hardly, says nothing about its row on the diagonal.
    for i in np.flatnonzero(share < np.finfo(np.float64).tiny).tolist():
        energies[i] = np.square(plain.row(i)).sum()
    return energies
