"""Exponential lag weights (NoPE, ALiBi) under any mask, with any key logits, in O(n).

Off the diagonal, a row of such a kernel is a distribution over one or two ranges of keys, and the
distributions over growing ranges obey a recurrence with factors in [0, 1]. Over the keys 0..k of
a range, with weights ``exp(-m (k - j) + key_j)`` and total exp(L_k)::

    law_k = keep_k law_{k-1} + take_k e_k,    keep_k = exp(L_{k-1} - m - L_k) = 1 - take_k

Such a chain of laws has no overflow and no cancellation for any slope m, positive or negative,
and any key logits. A row is a convex combination of at most three chains:

- causal: the law of the keys before i;
- sliding window of L = window - 1 earlier keys: blocks of length L; the part of the window in the
  block of key i - 1 is a law that grows forwards from the start of that block, the rest is a law
  that grows backwards from the end of the block before (differences of long sums would lose all
  accuracy after a spike);
- first keys behind a window: the causal chain over these keys, of which all later rows use the
  last law;
- future keys: the chain that grows backwards from the last visible key.

Source: posbias.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from posbias.kernels._layer import sigmoids
from posbias.kernels._scan import affine_scan, log_ratio_scan
from posbias.kernels.masks import Band

__all__ = ["ChainBank", "Exponentials", "are_chains"]

Vector = NDArray[np.float64]
Matrix = NDArray[np.float64]


@dataclass(frozen=True)
class Exponentials:
    """C exponential lag weights over n keys.

    Parameters
    ----------
    past, future : ndarray, shape (C,)
        Slopes m towards earlier and later keys: weights ``exp(-m |i - j|)``.
    keys : ndarray, shape (n, C), optional
        Finite logits of the keys.
    """

    past: Vector
    future: Vector
    keys: Matrix | None = None


@dataclass(frozen=True)
class _Chain:
    """Laws over ranges of the first `columns` keys and the rows that use them.

    Row i of ``rows`` uses the law number ``min(i - offset, columns - 1)``.
    """

    keep: Matrix
    take: Matrix
    is_backward: bool
    rows: range
    offset: int

    @property
    def columns(self) -> int:
        return int(self.keep.shape[0])

    @property
    def direct(self) -> int:
        """Number of rows up to the first that uses the last law, which all later ones share."""
        return min(len(self.rows), self.columns - (self.rows.start - self.offset))


_Weighted: TypeAlias = tuple[_Chain, Matrix]
"""A chain and the logarithm of the weight it has in each of its rows, shape (R, C)."""


class ChainBank:
    """The off-diagonal laws of C heads with exponential lag weights.

    Parameters
    ----------
    n : int
        Number of positions.
    weights : Exponentials
        The lag weights and key logits.
    bands : sequence of Band
        What the mask shows; `are_chains` must hold.
    """

    def __init__(self, n: int, weights: Exponentials, bands: Sequence[Band]) -> None:
        self._n = n
        self._width = weights.past.size
        found: list[_Weighted] = []
        for band in bands:
            if band.future:
                found.append(_future_chain(weights, band))
            elif band.last >= n - 1:
                found.append(_past_chain(n, weights, band))
            else:
                found += _window_chains(n, weights, band)
        self._chains = [chain for chain, _ in found]
        self.log_mass = np.full((n, self._width), -np.inf)
        """Logarithm of the total off-diagonal weight of each row, shape (n, C)."""
        for chain, mass in found:
            rows = self.log_mass[chain.rows.start : chain.rows.stop]
            np.logaddexp(rows, mass, out=rows)
        self._shares = [self._share(chain, mass) for chain, mass in found]

    def rmatvec(self, h: Matrix) -> Vector:
        """Return the sum over heads of ``h_c @ law_c``, `h` of shape (n, C); shape (n,)."""
        out = np.zeros(self._n)
        for chain, share in zip(self._chains, self._shares, strict=True):
            given = h[chain.rows.start : chain.rows.stop]
            if share is not None:
                given = given * share
            nodes = np.zeros((chain.columns, self._width))
            first, direct = chain.rows.start - chain.offset, chain.direct
            nodes[first : first + direct] = given[:direct]
            if direct < len(chain.rows):
                nodes[-1] += given[direct:].sum(axis=0)
            nodes = nodes[::-1] if chain.is_backward else nodes
            flow = affine_scan(chain.keep, chain.take, nodes, reverse=True)
            received = np.einsum("kc,kc->k", chain.take, flow)
            out[: chain.columns] += received[::-1] if chain.is_backward else received
        return out

    def matvec(self, v: Vector) -> Matrix:
        """Return ``law_c @ v`` for every head, shape (n, C)."""
        out = np.zeros((self._n, self._width))
        for chain, share in zip(self._chains, self._shares, strict=True):
            given = v[: chain.columns]
            given = given[::-1] if chain.is_backward else given
            means = affine_scan(chain.keep, chain.take, chain.take * given[:, None], reverse=False)
            means = means[::-1] if chain.is_backward else means
            first, direct = chain.rows.start - chain.offset, chain.direct
            rows = out[chain.rows.start : chain.rows.stop]
            rows[:direct] += _times(means[first : first + direct], share, slice(0, direct))
            if direct < len(chain.rows):
                rows[direct:] += _times(means[-1], share, slice(direct, None))
        return out

    def _share(self, chain: _Chain, mass: Matrix) -> Matrix | None:
        """Return the share of a chain in the mass of its rows, None if it has all."""
        if len(self._chains) == 1:
            return None
        total = self.log_mass[chain.rows.start : chain.rows.stop]
        visible = mass > -np.inf
        share = np.full(mass.shape, -np.inf)
        np.subtract(mass, total, out=share, where=visible)
        np.exp(share, out=share)
        return share


def are_chains(bands: Sequence[Band], n: int) -> bool:
    """Whether every band is one that `ChainBank` knows: past, window, first keys, or future."""
    return all(
        (band.first == 1 and band.last >= band.keys - 1)
        if band.future
        else band.last >= n - 1 or (band.first == 1 and band.keys >= n)
        for band in bands
    )


def _past_chain(n: int, weights: Exponentials, band: Band) -> _Weighted:
    """Keys up to i - first, limited to the first `band.keys`."""
    columns = min(band.keys, n - band.first)
    laws = _Laws(weights, weights.past, columns, block=columns, is_backward=False)
    rows = range(band.first, n)
    node = np.minimum(np.arange(len(rows)), columns - 1)
    distance = np.arange(band.first, n) - node
    mass = laws.log_total[node] - distance[:, None] * weights.past
    return _Chain(laws.keep, laws.take, False, rows, band.first), mass


def _window_chains(n: int, weights: Exponentials, band: Band) -> list[_Weighted]:
    """Keys i - length .. i - 1 as the end of one block and the start of the next."""
    length = band.last
    start = _Laws(weights, weights.past, n - 1, block=length, is_backward=False)
    inner = _Chain(start.keep, start.take, False, range(1, n), 1)
    end = _Laws(weights, -weights.past, n - 1, block=length, is_backward=True)
    mass = end.log_total[: n - length] - length * weights.past
    mass[::length] = -np.inf  # the window is exactly the block before
    outer = _Chain(end.keep, end.take, True, range(length, n), length)
    return [(inner, start.log_total - weights.past), (outer, mass)]


def _future_chain(weights: Exponentials, band: Band) -> _Weighted:
    """Keys i + 1 .. band.keys - 1."""
    laws = _Laws(weights, weights.future, band.keys, block=band.keys, is_backward=True)
    mass = laws.log_total[1:] - weights.future
    return _Chain(laws.keep, laws.take, True, range(band.keys - 1), -1), mass


class _Laws:
    """Factors and totals of a chain over the first `columns` keys that restarts every `block`.

    ``keep`` and ``take`` are in the order in which the chain grows, ``log_total`` in the order
    of the keys. A backward chain has the same blocks, each grown from its last key.
    """

    def __init__(
        self, weights: Exponentials, slopes: Vector, columns: int, *, block: int, is_backward: bool
    ) -> None:
        steps = np.arange(columns) % block
        if is_backward:
            steps = np.minimum(block - 1 - steps, columns - 1 - np.arange(columns))[::-1]
        if weights.keys is None:
            past = _log_geometric(slopes, int(steps.max()) + 1)
            ratio = past[steps]
            own: Matrix | float = 0.0
        else:
            own = weights.keys[:columns][::-1] if is_backward else weights.keys[:columns]
            decay = np.where(steps[:, None] == 0, -np.inf, -slopes)
            ratio = log_ratio_scan(decay, own)
        self.keep, self.take = sigmoids(ratio)
        totals = own + np.logaddexp(0.0, ratio)
        self.log_total = totals[::-1] if is_backward else totals


def _log_geometric(slopes: Vector, count: int) -> Matrix:
    """Return log(sum over l = 1..t of exp(-m l)) for t = 0..count-1, shape (count, C)."""
    steps = np.arange(count, dtype=np.float64)[:, None]
    size = np.abs(slopes)
    safe = np.where(size == 0.0, 1.0, size)
    with np.errstate(divide="ignore"):
        terms = np.where(size == 0.0, steps, np.expm1(-safe * steps) / np.expm1(-safe))
        largest = np.where(slopes >= 0.0, -slopes, size * steps)
        return np.asarray(np.log(terms) + largest, dtype=np.float64)


def _times(values: Matrix, share: Matrix | None, rows: slice) -> Matrix:
    return values if share is None else values * share[rows]
