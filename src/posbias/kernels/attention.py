"""The attention kernel of one layer: a mixture of structured heads under one mask."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from posbias.errors import InputError
from posbias.kernels._checks import as_real, as_reals, as_weights
from posbias.kernels.base import Kernel, Matrix, Vector
from posbias.kernels.head import Head
from posbias.kernels.masks import Causal, Mask
from posbias.kernels.positions import ALiBi

__all__ = ["AttentionKernel"]

_ROWS_AT_ONCE = 64


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
        self._heads = tuple(heads)
        self._mask = Causal() if mask is None else mask
        self._temperature = as_real(temperature, "the temperature", above=0.0)
        if not self._heads:
            raise InputError("an attention kernel needs at least one head, got none")
        for index, head in enumerate(self._heads):
            if not isinstance(head, Head):
                raise InputError(f"head {index} is {head!r}; a Head is required")
            if head.key is not None and head.key.size != self._n:
                raise InputError(
                    f"head {index} has {head.key.size} key logits for {self._n} positions; one "
                    "per position is required"
                )
        if not isinstance(self._mask, Mask):
            raise InputError(f"the mask is {self._mask!r}; a Mask is required")
        self._weights = as_weights(
            [head.weight for head in self._heads], len(self._heads), "the head weights"
        )

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
        m = as_reals(slopes, "the slopes")
        if not np.ndim(diagonal):
            diagonal = np.full(m.size, as_real(diagonal, "the diagonal term"))
        d = as_reals(diagonal, "the diagonal terms", size=m.size)
        w = np.ones(m.size) if weights is None else as_reals(weights, "the weights", size=m.size)
        heads = [
            Head(ALiBi(slope), weight=weight, diagonal=own)
            for slope, weight, own in zip(m.tolist(), w.tolist(), d.tolist(), strict=True)
        ]
        return cls(n, heads, mask=mask, temperature=temperature)

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
        total = np.zeros(self._n)
        for start in range(0, self._n, _ROWS_AT_ONCE):
            rows = self._rows(start, min(start + _ROWS_AT_ONCE, self._n))
            total += p[start : start + _ROWS_AT_ONCE] @ rows
        return total

    def matvec(self, v: ArrayLike) -> Vector:
        """Return ``A @ v``, shape (n,)."""
        v = self._vector(v)
        starts = range(0, self._n, _ROWS_AT_ONCE)
        return np.concatenate([self._rows(s, min(s + _ROWS_AT_ONCE, self._n)) @ v for s in starts])

    def row(self, i: int) -> Vector:
        """Return row `i`, shape (n,)."""
        i = self._index(i)
        return np.asarray(self._rows(i, i + 1)[0])

    def toarray(self) -> Matrix:
        """Return the dense matrix, shape (n, n); cost O(n^2) per distinct head."""
        starts = range(0, self._n, _ROWS_AT_ONCE)
        return np.concatenate([self._rows(s, min(s + _ROWS_AT_ONCE, self._n)) for s in starts])

    def restrict(self, n: int) -> AttentionKernel:
        """Return the kernel of the same rule over the first `n` positions."""
        n = self._restricted(n)
        heads = [head.restrict(n) for head in self._heads]
        return AttentionKernel(n, heads, mask=self._mask, temperature=self._temperature)

    def describe(self) -> Mapping[str, Any]:
        """Return the layer entry of a spec file, JSON-serialisable."""
        return {
            "heads": [head.describe() for head in self._heads],
            "mask": self._mask.describe(),
            "temperature": self._temperature,
        }

    def _rows(self, start: int, stop: int) -> Matrix:
        """Return rows start..stop-1, shape (stop - start, n)."""
        n = self._n
        lags = np.arange(start, stop)[:, None] - np.arange(n)
        visible = np.stack([self._mask.visible(i, n) for i in range(start, stop)])
        total = np.zeros((stop - start, n))
        for head, weight in zip(self._heads, self._weights, strict=True):
            past, future = head.position.lag_logits(n), head.position.future_logits(n)
            logits = np.where(lags >= 0, past[np.abs(lags)], future[np.abs(lags)])
            logits[lags == 0] += head.diagonal
            key = head.key_logits(n)
            if key is not None:
                logits += key
            logits = np.where(visible, logits / self._temperature, -np.inf)
            logits -= logits.max(axis=1, keepdims=True)
            scores = np.exp(logits)
            total += weight * (scores / scores.sum(axis=1, keepdims=True))
        return total
