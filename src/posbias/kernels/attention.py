"""The attention kernel of one layer: a mixture of structured heads under one mask."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from posbias.errors import InputError
from posbias.kernels._bank import AlibiBank
from posbias.kernels._checks import as_real, as_reals, as_weights
from posbias.kernels._dense_rows import dense_blocks, dense_rows
from posbias.kernels._groups import Group, bank_groups, groups_of
from posbias.kernels._layer import Law, Layer, laws_of
from posbias.kernels.base import Kernel, Matrix, Vector
from posbias.kernels.head import Head
from posbias.kernels.masks import MASKS, Causal, Mask
from posbias.kernels.positions import POSITIONS, ALiBi

__all__ = ["AttentionKernel"]


_LARGEST_LOGIT = 1e12


class AttentionKernel(Kernel):
    """Softmax attention of one layer, averaged over its heads, as a linear operator.

    ``A[i, j] = sum over heads h of weight_h softmax_j(logit_h(i, j) / temperature)`` over the
    keys that `mask` shows to query i; the weights are divided by their sum.

    Parameters
    ----------
    n : int
        Number of positions.
    heads : sequence of Head
        At least one; heads with per-key logits need one for each of the `n` positions.
    mask : Mask
        Which keys each query sees.
    temperature : float
        Positive divisor of all logits.

    Raises
    ------
    InputError
        If a value is out of range or a row would see no key.

    Notes
    -----
    No product forms the matrix; memory is O(n). Heads that differ in weight and diagonal term
    alone are computed once. Cost of a product per distinct head:

    - NoPE and ALiBi of any slope, with any mask, keys and sinks: O(n);
    - T5 buckets and tables of at most 128 runs of equal logits: O(n) per run;
    - Kerple, cosines, rotary sums, long tables, positions of a user's own: O(n log^2 n) by FFT of
      blocks.

    All are accurate relative to each entry, also to tiny ones: about 1e-13, and 1e-13 per 1000
    nats of the largest logit. Irregular tables and cosines of amplitude above 3 lose up to
    six digits beyond 16000 positions; see `posbias.kernels._toeplitz`.

    Examples
    --------
    >>> kernel = AttentionKernel.alibi(4, [0.5, 0.25], diagonal=1.0)
    >>> kernel.rmatvec([0.0, 0.0, 0.0, 1.0]).round(3)
    array([0.08 , 0.113, 0.163, 0.644])
    """

    def __init__(
        self,
        n: int,
        heads: Sequence[Head],
        *,
        mask: Mask | None = None,
        temperature: float = 1.0,
    ) -> None:
        super().__init__(n)
        self._given = heads if isinstance(heads, AlibiBank) else tuple(heads)
        self._mask = Causal() if mask is None else mask
        self._temperature = as_real(temperature, "the temperature", above=0.0)
        if not self._given:
            raise InputError("an attention kernel needs at least one head, got none")
        if isinstance(self._given, tuple):
            self._check_heads(self._given)
        if not isinstance(self._mask, Mask):
            raise InputError(f"the mask is {self._mask!r}; a Mask is required")
        self._layer = Layer(self._n, self._mask, self._temperature)
        groups = self._groups_of_bank()
        if groups is None:
            for law in self._laws:
                self._check_size(law)
            groups = groups_of(self._layer, self._laws)
        self._groups = groups

    @classmethod
    def alibi(
        cls,
        n: int,
        slopes: ArrayLike,
        *,
        diagonal: ArrayLike = 0.0,
        weights: ArrayLike | None = None,
        mask: Mask | None = None,
        temperature: float = 1.0,
    ) -> AttentionKernel:
        """Return the kernel of ALiBi heads.

        Parameters
        ----------
        n : int
            Number of positions.
        slopes : array_like, shape (H,)
            Slope of each head.
        diagonal : float or array_like, shape (H,)
            Diagonal content of all heads or of each.
        weights : array_like, shape (H,), optional
            Weight of each head; equal by default.
        mask, temperature
            As in the class.
        """
        m = as_reals(slopes, "slopes")
        if not np.ndim(diagonal):
            diagonal = np.full(m.size, as_real(diagonal, "the diagonal term"))
        d = as_reals(diagonal, "the diagonal terms", size=m.size)
        w = np.ones(m.size) if weights is None else as_reals(weights, "the weights", size=m.size)
        bank = AlibiBank(*(np.array(values) for values in (m, d, w)))
        return cls(n, bank, mask=mask, temperature=temperature)

    @property
    def heads(self) -> tuple[Head, ...]:
        """The heads, in order."""
        return self._heads

    @property
    def mask(self) -> Mask:
        """The mask."""
        return self._mask

    @property
    def temperature(self) -> float:
        """The divisor of all logits."""
        return self._temperature

    @property
    def weights(self) -> Vector:
        """Weights of the heads, summing to one, shape (H,)."""
        return self._weights.copy()

    @property
    def is_causal(self) -> bool:
        """Whether the mask hides every later key."""
        return self._mask.is_causal(self._n)

    def rmatvec(self, p: ArrayLike) -> Vector:
        """Return ``p @ A``, shape (n,)."""
        p = self._vector(p)
        total = self._groups[0].rmatvec(p)
        for group in self._groups[1:]:
            total += group.rmatvec(p)
        return total

    def matvec(self, v: ArrayLike) -> Vector:
        """Return ``A @ v``, shape (n,)."""
        v = self._vector(v)
        total = self._groups[0].matvec(v)
        for group in self._groups[1:]:
            total += group.matvec(v)
        return total

    def diagonal(self) -> Vector:
        """Return A[i, i] for every i, shape (n,)."""
        return np.asarray(np.sum([group.diagonal() for group in self._groups], axis=0))

    def row(self, i: int) -> Vector:
        """Return row `i`, shape (n,); cost O(n) per head."""
        i = self._index(i)
        return np.asarray(dense_rows(self._layer, self._laws, range(i, i + 1))[0])

    def toarray(self) -> Matrix:
        """Return the dense matrix, shape (n, n); cost O(n^2) per distinct head."""
        return np.concatenate(list(dense_blocks(self._layer, self._laws)))

    def restrict(self, n: int) -> AttentionKernel:
        """Return the kernel of the same rule over the first `n` positions."""
        n = self._restricted(n)
        same = isinstance(self._given, AlibiBank)
        heads = self._given if same else [head.restrict(n) for head in self._heads]
        return AttentionKernel(n, heads, mask=self._mask, temperature=self._temperature)

    def describe(self) -> Mapping[str, Any]:
        """Return the layer entry of a spec file, JSON-serialisable; ALiBi heads in short form.

        Raises
        ------
        InputError
            If a position or the mask is of a type that spec files do not know.
        """
        known = (*POSITIONS.values(), *MASKS.values())
        for part in (self._mask, *(head.position for head in self._heads)):
            if type(part) not in known:
                raise InputError(f"spec files do not know {type(part).__name__}; build it in code")
        shared = {"mask": self._mask.describe(), "temperature": self._temperature}
        slopes = [_plain_slope(head) for head in self._heads]
        if None in slopes:
            return {"heads": [head.describe() for head in self._heads], **shared}
        diagonals = [head.diagonal for head in self._heads]
        weights = [head.weight for head in self._heads]
        bank = {
            "slopes": slopes,
            "diagonal": diagonals[0] if len(set(diagonals)) == 1 else diagonals,
            "weights": None if set(weights) == {1.0} else weights,
        }
        return {"alibi": bank, **shared}

    @cached_property
    def _heads(self) -> tuple[Head, ...]:
        return tuple(self._given)

    @cached_property
    def _weights(self) -> Vector:
        given = self._given
        weights = given.weights if isinstance(given, AlibiBank) else [h.weight for h in given]
        return as_weights(weights, len(given), "the head weights")

    @cached_property
    def _laws(self) -> list[Law]:
        return laws_of(self._heads, self._weights.tolist())

    def _check_heads(self, heads: tuple[Head, ...]) -> None:
        for index, head in enumerate(heads):
            if not isinstance(head, Head):
                raise InputError(f"head {index} is {head!r}; a Head is required")
            if head.key is not None and head.key.size != self._n:
                raise InputError(
                    f"head {index} has {head.key.size} key logits for {self._n} positions; one "
                    "per position is required"
                )

    def _groups_of_bank(self) -> list[Group] | None:
        """Return the fast code of heads held as arrays, None where single heads must be seen."""
        if not isinstance(self._given, AlibiBank):
            return None
        return bank_groups(self._layer, self._given, self._weights)

    def _check_size(self, law: Law) -> None:
        """Raise `InputError` if logits are so large that their differences have no digits left."""
        head = law.heads[0]
        sizes = {
            type(head.position).__name__: head.position.largest(self._n),
            "key": 0.0 if head.key is None else float(np.abs(head.key).max()),
            "sink": 0.0 if head.sink is None else abs(head.sink.logit),
            "diagonal": max(abs(member.diagonal) for member in law.heads),
        }
        name = max(sizes, key=lambda key: sizes[key])
        if not sizes[name] <= _LARGEST_LOGIT * self._temperature:
            raise InputError(
                f"the {name} logits reach {sizes[name]:g} over {self._n} positions at temperature "
                f"{self._temperature:g}; logits up to {_LARGEST_LOGIT:g} nats are supported"
            )


def _plain_slope(head: Head) -> float | None:
    """Return the slope of a head that the short form of a spec file can hold, else None."""
    position = head.position
    if not isinstance(position, ALiBi) or position.future != "abs":
        return None
    return position.slope if head.key is None and head.sink is None else None
