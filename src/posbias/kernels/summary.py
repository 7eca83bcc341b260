"""A kernel known by its means over blocks of queries and keys, and by its nearest lags.

Attention over n positions is summarised by O(n) numbers and a few thousand: positions are cut
into about 130 blocks, single positions at the start and up to n/80 positions later. For every
query block there is the mean attention to each of the nearest lags, and for every pair of blocks
the mean attention of a query to a key further away. A row of the kernel takes these means at the
keys that it sees and is divided by their sum.

Source: posbias.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import numpy as np
from numpy.typing import ArrayLike, NDArray

from posbias.errors import InputError
from posbias.kernels._checks import as_integer
from posbias.kernels.base import Kernel, Matrix, Vector

__all__ = ["NEAREST_LAGS", "SummaryKernel", "block_edges", "pair_counts"]

Indices = NDArray[np.int64]

NEAREST_LAGS = 64
"""Lags that are kept one by one, the own key included."""

_SINGLE, _GROWTH, _BLOCKS = 16, 8, 80


def block_edges(n: int) -> Indices:
    """Return the bounds of the blocks of n positions, shape (B + 1,), from 0 to n.

    The first 16 positions are blocks of their own; later a block has an eighth of the positions
    before it, and at most n/80: B is n for n <= 80, 133 for n = 32768.
    """
    n = as_integer(n, "the number of positions", low=1)
    edges, most = [0], -(-n // _BLOCKS)
    while edges[-1] < n:
        start = edges[-1]
        size = 1 if start < _SINGLE else min(start // _GROWTH, most)
        edges.append(min(start + max(size, 1), n))
    return np.array(edges, dtype=np.int64)


def pair_counts(edges: ArrayLike, *, lags: int, window: int | None) -> tuple[Matrix, Matrix]:
    """Return how many visible pairs each mean of a summary stands for.

    Parameters
    ----------
    edges : array_like of int, shape (B + 1,)
        Bounds of the blocks.
    lags : int
        L, lags that are kept one by one.
    window : int, optional
        Keys that a query sees, its own included; by default all up to it.

    Returns
    -------
    far : ndarray, shape (B, B)
        Pairs of a query and a key L or more positions before it, by query and key block.
    near : ndarray, shape (B, L)
        Queries of a block that see a key at each lag.
    """
    bounds = np.asarray(edges, dtype=np.int64)
    plan = _Plan(bounds, lags, window)
    far = np.outer(plan.sizes, plan.sizes) * plan.is_full
    for pair in plan.partial():
        far[pair.query, pair.key] = (pair.key_high - pair.key_low).sum()
    steps = np.arange(lags)
    near = np.clip(bounds[1:, None] - np.maximum(bounds[:-1, None], steps), 0, None)
    near[:, steps >= plan.window] = 0
    return far.astype(np.float64), near.astype(np.float64)


class SummaryKernel(Kernel):
    """``A[i, j]`` proportional to a mean by lag, or by query and key block, over visible keys.

    Parameters
    ----------
    n : int
        Number of positions.
    near : array_like, shape (B, L)
        Weight of the lags 0..L-1, the own key first, of the queries of each block.
    far : array_like, shape (B, B)
        Weight of a key at lag L or more by query and key block.
    edges : array_like of int, shape (B + 1,), optional
        Bounds of the blocks, by default `block_edges` of n.
    window : int, optional
        Keys that a query sees, its own included; by default all up to it.

    Raises
    ------
    InputError
        If shapes do not fit, a weight is negative or not finite, or a row has no weight.

    Notes
    -----
    A product costs O(n L + B^2), memory is O(n + B^2). Rows sum to one exactly; each is divided by
    the sum of its weights, which differs from one by the change of attention within a block.

    Examples
    --------
    >>> kernel = SummaryKernel(3, near=[[1.0], [0.5], [0.5]], far=np.tril(np.ones((3, 3)), -1) / 4)
    >>> kernel.row(2)
    array([0.25, 0.25, 0.5 ])
    """

    def __init__(
        self,
        n: int,
        *,
        near: ArrayLike,
        far: ArrayLike,
        edges: ArrayLike | None = None,
        window: int | None = None,
    ) -> None:
        super().__init__(n)
        bounds = block_edges(self._n) if edges is None else np.asarray(edges)
        _check_edges(bounds, self._n)
        self._edges = bounds.astype(np.int64)
        blocks = self._edges.size - 1
        self._near = _weights(near, "the weights by lag", blocks)
        self._far = _weights(far, "the weights by block", blocks)
        if self._far.shape[1] != blocks:
            raise InputError(
                f"the weights by block have shape {self._far.shape}; {(blocks, blocks)} is required"
            )
        if window is not None:
            window = as_integer(window, "the window", low=1)
        self._window = window
        self._plan = _Plan(self._edges, self._near.shape[1], window)
        total = self._pull(np.ones(self._n))
        if not (total > 0.0).all():
            raise InputError(f"row {int(np.argmin(total > 0.0))} of the summary has no weight")
        self._inverse = 1.0 / total

    @property
    def edges(self) -> Indices:
        """Bounds of the blocks, shape (B + 1,)."""
        return self._edges.copy()

    def rmatvec(self, p: ArrayLike) -> Vector:
        """Return ``p @ A``, shape (n,)."""
        sent = self._vector(p) * self._inverse
        lags, plan = self._near.shape[1], self._plan
        padded = np.zeros(self._n + lags - 1)  # Keys before position 0 receive nothing.
        for block, rows in enumerate(plan.rows):
            given = np.convolve(sent[rows], self._near[block, ::-1])
            padded[rows.start : rows.stop + lags - 1] += given
        out = padded[lags - 1 :].copy()
        totals = np.add.reduceat(sent, self._edges[:-1])
        out += np.repeat(totals @ (self._far * plan.is_full), plan.sizes)
        for pair in plan.partial():
            weight = self._far[pair.query, pair.key]
            if weight > 0.0:
                rows, keys = plan.rows[pair.query], plan.rows[pair.key]
                out[keys] += weight * _range_sums(sent[rows], pair.key_low, pair.key_high)
        return out

    def matvec(self, v: ArrayLike) -> Vector:
        """Return ``A @ v``, shape (n,)."""
        return np.asarray(self._pull(self._vector(v)) * self._inverse)

    def row(self, i: int) -> Vector:
        """Return row `i`, shape (n,); cost O(n)."""
        i = self._index(i)
        block = int(np.searchsorted(self._edges, i, side="right")) - 1
        lags = i - np.arange(self._n)
        weights = np.repeat(self._far[block], self._plan.sizes)
        is_near = (lags >= 0) & (lags < self._near.shape[1])
        weights[is_near] = self._near[block, lags[is_near]]
        weights[(lags < 0) | (lags >= self._plan.window)] = 0.0
        return np.asarray(weights * self._inverse[i])

    def restrict(self, n: int) -> SummaryKernel:
        """Return the kernel among the first `n` positions, the leading block of this one."""
        n = self._restricted(n)
        edges = np.append(self._edges[self._edges < n], n)
        blocks = edges.size - 1
        near, far = self._near[:blocks], self._far[:blocks, :blocks]
        return SummaryKernel(n, near=near, far=far, edges=edges, window=self._window)

    def _pull(self, v: Vector) -> Vector:
        """Return the weighted sums over the visible keys of every row, shape (n,)."""
        lags, plan = self._near.shape[1], self._plan
        padded = np.concatenate([np.zeros(lags - 1), v])
        out = np.empty(self._n)
        for block, rows in enumerate(plan.rows):
            seen = padded[rows.start : rows.stop + lags - 1]
            out[rows] = np.convolve(seen, self._near[block], mode="valid")
        totals = np.add.reduceat(v, self._edges[:-1])
        out += np.repeat((self._far * plan.is_full) @ totals, plan.sizes)
        for pair in plan.partial():
            weight = self._far[pair.query, pair.key]
            if weight > 0.0:
                rows, keys = plan.rows[pair.query], plan.rows[pair.key]
                out[rows] += weight * _range_sums(v[keys], pair.row_low, pair.row_high)
        return out


class _Pair:
    """A query and a key block of which some pairs are far and visible, and some are not.

    Key number k of its block is seen by the rows ``key_low[k]..key_high[k] - 1`` of the query
    block; row number r sees the keys ``row_low[r]..row_high[r] - 1``.
    """

    def __init__(self, query: int, key: int, rows: slice, keys: slice, reach: tuple[int, int]):
        self.query, self.key = query, key
        least, window = reach
        places = np.arange(keys.start, keys.stop) - rows.start
        size = rows.stop - rows.start
        self.key_low = np.clip(places + least, 0, size)
        self.key_high = np.maximum(np.clip(places + window, 0, size), self.key_low)
        places = np.arange(rows.start, rows.stop) - keys.start
        size = keys.stop - keys.start
        self.row_high = np.clip(places - least + 1, 0, size)
        self.row_low = np.minimum(np.clip(places - window + 1, 0, size), self.row_high)


class _Plan:
    """Which pairs of blocks hold far visible pairs of positions: all, some, or none of theirs."""

    def __init__(self, edges: Indices, lags: int, window: int | None) -> None:
        self.window = int(edges[-1]) if window is None else min(window, int(edges[-1]))
        self.sizes = np.diff(edges)
        self.rows = [slice(int(a), int(b)) for a, b in pairwise(edges)]
        self._reach = lags, self.window
        least = edges[:-1, None] - (edges[1:] - 1)
        most = edges[1:, None] - 1 - edges[:-1]
        self.is_full = (least >= lags) & (most < self.window)
        some = (most >= lags) & (least < self.window) & (lags < self.window)
        self._partial = np.argwhere(some & ~self.is_full)

    def partial(self) -> Iterator[_Pair]:
        """Yield the pairs of blocks of which not all positions take part."""
        for query, key in self._partial.tolist():
            yield _Pair(query, key, self.rows[query], self.rows[key], self._reach)


def _range_sums(x: Vector, low: Indices, high: Indices) -> Vector:
    """Return ``sum(x[low:high])`` for every pair of bounds, adding only, for relative accuracy."""
    if (high == x.size).all():
        return np.append(np.cumsum(x[::-1])[::-1], 0.0)[low]
    if (low == 0).all():
        return np.append(0.0, np.cumsum(x))[high]
    bounds = np.stack([low, high], axis=1).reshape(-1)
    sums = np.add.reduceat(np.append(x, 0.0), bounds)[::2]
    return np.asarray(np.where(low < high, sums, 0.0))


def _weights(values: ArrayLike, what: str, blocks: int) -> Matrix:
    table = np.array(values, dtype=np.float64)
    if table.ndim != 2 or table.shape[0] != blocks or not table.shape[1]:
        raise InputError(f"{what} have shape {table.shape}; ({blocks}, ...) is required")
    if not np.isfinite(table).all() or table.min() < 0.0:
        raise InputError(f"{what} hold negative or infinite numbers; shares are required")
    table.setflags(write=False)
    return table


def _check_edges(edges: NDArray[np.generic], n: int) -> None:
    is_whole = edges.ndim == 1 and edges.dtype.kind in "iu" and edges.size >= 2
    if not is_whole or edges[0] != 0 or edges[-1] != n or (np.diff(edges) < 1).any():
        raise InputError(
            f"the bounds of the blocks are {edges!r}; ascending whole numbers from 0 to {n} are "
            "required"
        )
