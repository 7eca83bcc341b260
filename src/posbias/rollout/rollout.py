"""Attention rollout with residuals: what every layer together does to one output position."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from posbias.errors import InputError
from posbias.kernels import Kernel
from posbias.profile import Profile
from posbias.rollout.schedule import MixingSchedule

__all__ = ["ADDITIONS", "SMALLEST", "Addition", "Rollout"]

Vector = NDArray[np.float64]
Matrix = NDArray[np.float64]
Addition = Literal["amplitudes", "energies"]
"""How layers add up, see `Rollout`."""


ADDITIONS: tuple[Addition, ...] = get_args(Addition)
"""How layers add up, see `Rollout`."""

SMALLEST = 1e-290
"""Masses below this are set to zero between layers."""

_SMALL = 64
"""Number of positions up to which dense products are fast."""


class Rollout:
    """The product ``P = R_T ... R_1`` of the transitions ``R_t = (1 - lambda_t) I + lambda_t A_t``.

    Row i of P is the influence of every input position on output position i. Where layers add
    energies, P is made of shares of squared norms, and the influence is the square root of its
    row, divided by its sum.

    Parameters
    ----------
    kernels : sequence of Kernel
        ``A_t`` of the layers t = 1..T, bottom first, or one kernel that all layers share.
    schedule : MixingSchedule
        lambda_t of the T layers.
    addition : {"amplitudes", "energies"}
        ``amplitudes`` is the rollout of the paper: what reaches a token along several paths adds
        up. ``energies``: it adds in squared norm, as incoherent contributions do; kernels and
        schedule are then shares of energy (posbias).

    Raises
    ------
    InputError
        If there is no kernel, sizes differ, numbers of layers do not fit, or the addition is
        unknown.

    Notes
    -----
    A row costs T products ``p @ A_t``, top layer first; P itself is formed only by `matrix`.
    Between layers masses below 1e-290 are set to zero. The theorems of `posbias.theory` speak
    about amplitudes.

    Examples
    --------
    >>> from posbias.kernels import AttentionKernel, Head
    >>> rollout = Rollout([AttentionKernel(3, [Head()])], MixingSchedule.constant(2, 0.5))
    >>> rollout.profile().mass.round(4)
    array([0.3194, 0.2361, 0.4444])
    """

    def __init__(
        self,
        kernels: Sequence[Kernel] | Kernel,
        schedule: MixingSchedule,
        *,
        addition: Addition = "amplitudes",
    ) -> None:
        parts = (kernels,) if isinstance(kernels, Kernel) else tuple(kernels)
        if not isinstance(schedule, MixingSchedule):
            raise InputError(f"the schedule is {schedule!r}; a MixingSchedule is required")
        for index, part in enumerate(parts):
            if not isinstance(part, Kernel):
                raise InputError(f"kernel {index} is {part!r}; a Kernel is required")
        if len(parts) not in (1, schedule.depth):
            raise InputError(
                f"{len(parts)} kernels do not fit a schedule of {schedule.depth} layers; one per "
                "layer or one for all is required"
            )
        sizes = sorted({part.n for part in parts})
        if len(sizes) > 1:
            raise InputError(f"the kernels have {sizes} positions; all must have the same number")
        if schedule.positions not in (None, sizes[0]):
            raise InputError(
                f"the schedule has {schedule.positions} positions, the kernels have {sizes[0]}"
            )
        if addition not in ADDITIONS:
            raise InputError(
                f"the addition of a rollout is {addition!r}; one of {', '.join(ADDITIONS)} is "
                "required"
            )
        self._kernels = parts
        self._schedule = schedule
        self._addition = addition

    @property
    def kernels(self) -> tuple[Kernel, ...]:
        """The kernels as given: one per layer, bottom first, or one for all."""
        return self._kernels

    @property
    def schedule(self) -> MixingSchedule:
        """The mixing coefficients."""
        return self._schedule

    @property
    def addition(self) -> Addition:
        """How layers add up: ``amplitudes`` or ``energies``."""
        return self._addition

    @property
    def n(self) -> int:
        """Number of positions."""
        return self._kernels[0].n

    @property
    def depth(self) -> int:
        """T, the number of layers."""
        return self._schedule.depth

    def profile(self, query: int = -1) -> Profile:
        """Return the influence on position `query`, row `query` of P; T row-vector products.

        Parameters
        ----------
        query : int
            Output position, negative values counting from the end.
        """
        i = self._query(query)
        return Profile(
            self.influence_of(self._row(i)),
            quantity="rollout",
            origin={"query": i, "n": self.n, "depth": self.depth},
        )

    def profiles(self, queries: Sequence[int] | None = None) -> Matrix:
        """Return the influence on several positions, rows of P, shape (Q, n).

        Parameters
        ----------
        queries : sequence of int, optional
            Output positions; all of them by default, shape (n, n).
        """
        if queries is None:
            return self.matrix()
        rows = np.zeros((len(queries), self.n))
        for k, query in enumerate(queries):
            rows[k, self._query(query)] = 1.0
        for t in range(self.depth - 1, -1, -1):
            rows = self._step_rows(rows, t)
        return self.influence_of(rows)

    def depth_profiles(self, query: int = -1) -> Matrix:
        """Return the profile after t = 0..T layers, row `query` of ``R_t ... R_1``, (T + 1, n).

        Row 0 is the unit vector of `query`, row T the profile. Cost T (T + 1) / 2 products, or
        O(T n^3) from dense matrices where there are more than 2 n layers and n is small.
        """
        i = self._query(query)
        if self.depth > 2 * self.n and self.n <= _SMALL:
            return self.influence_of(np.stack([product[i] for product in self._products()]))
        rows = np.zeros((self.depth + 1, self.n))
        rows[:, i] = 1.0
        for t in range(self.depth - 1, -1, -1):
            # The product of the layers up to t + 1 starts here; those of more layers go on.
            rows[t + 1 :] = self._step_rows(rows[t + 1 :], t)
        return self.influence_of(rows)

    def matrix(self) -> Matrix:
        """Return the influence on every position, P, shape (n, n).

        Memory O(n^2), cost O(T n^3).
        """
        product = np.eye(self.n)
        for following in self._products():
            product = following
        return self.influence_of(product)

    def influence_of(self, rows: Matrix) -> Matrix:
        """Return the influence that rows of the product of transitions stand for.

        Parameters
        ----------
        rows : ndarray, shape (..., n)
            Non-negative, each with a positive entry.

        Returns
        -------
        ndarray, shape (..., n)
            `rows` themselves where amplitudes add; else their square roots divided by their sums.
        """
        if self._addition == "amplitudes":
            return rows
        roots = np.sqrt(rows)
        return np.asarray(roots / roots.sum(axis=-1, keepdims=True))

    def _products(self) -> Iterator[Matrix]:
        """Yield ``R_t ... R_1`` for t = 0..T, each of shape (n, n)."""
        product = np.eye(self.n)
        yield product
        dense: Matrix | None = None
        for t in range(self.depth):
            if dense is None or len(self._kernels) > 1:
                dense = self._kernel(t).toarray()
            kept, mixed = self._shares(t)
            product = _flushed(kept[..., None] * product + mixed[..., None] * (dense @ product))
            yield product

    def _row(self, i: int) -> Vector:
        """Return row `i` of P, shape (n,), top layer first."""
        p = np.zeros(self.n)
        p[i] = 1.0
        for t in range(self.depth - 1, -1, -1):
            kept, mixed = self._shares(t)
            if mixed.any():
                p = _flushed(kept * p + self._kernel(t).rmatvec(mixed * p))
        return p

    def _step_rows(self, rows: Matrix, t: int) -> Matrix:
        """Return ``rows @ R`` for the transition of layer index `t`, shape (Q, n)."""
        kept, mixed = self._shares(t)
        if not mixed.any():
            return rows
        return _flushed(kept * rows + self._kernel(t).rmatmat(mixed * rows))

    def _kernel(self, t: int) -> Kernel:
        return self._kernels[t if len(self._kernels) > 1 else 0]

    def _shares(self, t: int) -> tuple[Vector, Vector]:
        """Return 1 - lambda and lambda of layer index `t`: shape () or (n,)."""
        mixed = np.asarray(self._schedule.values[t])
        return 1.0 - mixed, mixed

    def _query(self, query: int) -> int:
        n = self.n
        if isinstance(query, bool) or not isinstance(query, (int, np.integer)):
            raise InputError(f"the query is {query!r}; an integer position is required")
        if not -n <= query < n:
            raise InputError(f"the query is {query}; a position in {-n}..{n - 1} is required")
        return int(query) % n

    def __repr__(self) -> str:
        return f"Rollout(n={self.n}, depth={self.depth}, kernels={len(self._kernels)})"


def _flushed(rows: Matrix) -> Matrix:
    """Set masses below `SMALLEST` to zero: products with denormal numbers are slow."""
    rows[np.abs(rows) < SMALLEST] = 0.0
    return rows
