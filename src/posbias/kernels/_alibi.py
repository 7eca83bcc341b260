"""Causal ALiBi heads with diagonal content, all heads of a layer at once, in O(n H).

With r = exp(-m), G_i = r + ... + r^i and the scaled weights ``own = min(1, e^d)`` of the diagonal
and ``past = min(1, e^-d)`` of the rest, a row of one head is ``A[i, i] = own / Z_i`` and
``A[i, j] = past r^(i-j) / Z_i`` with ``Z_i = own + past G_i``. A product ``p @ A`` is the backward
recurrence ``f_j = r (f_{j+1} + past p_{j+1} / Z_{j+1})``, summed over heads with their weights.

Two implementations with the same results: the compiled pass over positions, and one on matrix
products, where B positions of a block exchange mass through a table of powers and the blocks
through ``c_k = T_k + r^B c_{k+1}``, summed in doubling steps. All terms are positive: values keep
their relative accuracy down to 1e-290.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from posbias.kernels._scan import COMPILED_FROM, compiled

__all__ = ["EXTREME", "AlibiHeads"]

Vector = NDArray[np.float64]
Matrix = NDArray[np.float64]
Blocks = NDArray[np.float64]

EXTREME = 300.0
"""Slopes and diagonal terms above this, in nats, need the laws of `_chains`."""

_BLOCK = 16
_ROWS_AT_ONCE = 4096
_MOST_KEPT = COMPILED_FROM // 4


class AlibiHeads:
    """The weighted sum of H causal ALiBi heads.

    Parameters
    ----------
    n : int
        Number of positions.
    slopes, diagonals, weights : ndarray, shape (H,)
        Slopes in 0..EXTREME, diagonal terms in -EXTREME..EXTREME, weights >= 0.
    """

    def __init__(self, n: int, slopes: Vector, diagonals: Vector, weights: Vector) -> None:
        order = np.argsort(-slopes, kind="stable")
        self._n = n
        self._slopes, self._weights = slopes[order], weights[order]
        self._diagonals = diagonals[order]
        self._odds = np.exp(self._diagonals)
        self._kept: _Table | None = None
        self._was_used = False

    def rmatvec(self, p: Vector) -> Vector:
        """Return ``p @ A``, shape (n,)."""
        module = compiled(self._n * self._slopes.size)
        if module is not None:
            return np.asarray(module.alibi_push(np.ascontiguousarray(p), self._packed))
        powers = _powers(self._slopes.tobytes())
        parts, carry = [], np.zeros(self._slopes.size)
        for start in reversed(self._starts):
            given = _in_blocks(p[start : start + _ROWS_AT_ONCE])
            received, carry = _push(given, self._table(start), powers, carry)
            parts.append(received)
        return np.concatenate(parts[::-1])[: self._n]

    def matvec(self, v: Vector) -> Vector:
        """Return ``A @ v``, shape (n,)."""
        module = compiled(self._n * self._slopes.size)
        if module is not None:
            return np.asarray(module.alibi_pull(np.ascontiguousarray(v), self._packed))
        powers = _powers(self._slopes.tobytes())
        parts, carry = [], np.zeros(self._slopes.size)
        for start in self._starts:
            given = _in_blocks(v[start : start + _ROWS_AT_ONCE])
            means, carry = _pull(given, self._table(start), powers, carry)
            parts.append(means)
        return np.concatenate(parts)[: self._n]

    def diagonal(self) -> Vector:
        """Return the diagonal of A, shape (n,)."""
        parts = [self._shares(start)[1] for start in self._starts]
        return np.concatenate(parts)[: self._n]

    @property
    def _starts(self) -> range:
        return range(0, self._n, _ROWS_AT_ONCE)

    @functools.cached_property
    def _packed(self) -> Matrix:
        """Slopes, weights, own and past as the compiled code takes them, shape (4, H)."""
        own = np.exp(np.minimum(self._diagonals, 0.0))
        past = np.exp(np.minimum(-self._diagonals, 0.0))
        return np.stack([self._slopes, self._weights, own, past])

    def _table(self, start: int) -> _Table:
        """Return the weights of the rows from `start` on."""
        if self._n > _ROWS_AT_ONCE or self._slopes.size >= _MOST_KEPT:
            return self._made(start)
        if self._kept is not None:
            return self._kept
        table = self._made(start)
        if self._was_used:  # a single profile uses each layer once: keep nothing then
            self._kept = table
        self._was_used = True
        return table

    def _made(self, start: int) -> _Table:
        powers = _powers(self._slopes.tobytes())
        sent, own = self._shares(start)
        blocks = sent.reshape(-1, _BLOCK, self._slopes.size)
        local = np.matmul(blocks.transpose(1, 0, 2), powers.within).transpose(1, 0, 2)
        places = np.arange(_BLOCK)
        local[:, places, places] = own.reshape(-1, _BLOCK)
        sent *= powers.ahead.reshape(-1)
        return _Table(np.ascontiguousarray(local), blocks)

    def _shares(self, start: int) -> tuple[Matrix, Vector]:
        """Return ``weight past / Z_i``, shape (K, B H), and the diagonal, shape (K B,).

        Blocks are whole: rows beyond the last position are there too.
        """
        count = -(-min(self._n - start, _ROWS_AT_ONCE) // _BLOCK)
        mass = _past_mass(self._slopes.tobytes(), start, start + count * _BLOCK)
        # weight past / (own + past G) with own / past = e^d, which EXTREME keeps from overflowing.
        # A block at a time: short inner loops are slow.
        sent = mass.reshape(count, -1) + _in_each_row(self._odds)
        np.divide(_in_each_row(self._weights), sent, out=sent)
        return sent, sent.reshape(-1, self._odds.size) @ self._odds


@dataclass(frozen=True)
class _Table:
    """Weights of the rows of K blocks.

    ``local`` has shape (K, B, B): A[i, j] within a block. ``distant`` has shape (K, B, H):
    ``weight past r^b / Z_i``, what a row gives, head by head, to the keys before its block.
    """

    local: Blocks
    distant: Blocks


@dataclass(frozen=True)
class _Powers:
    """Powers of r within a block of B positions, and from block to block.

    ``within`` has shape (B, H, B): r^(b - b') for b' < b. ``ahead`` and ``behind`` have shape
    (B, H): r^b and r^(B - b). ``steps`` holds r^B, r^2B, r^4B, ..., each of shape (H,).
    """

    within: Blocks
    ahead: Matrix
    behind: Matrix
    steps: tuple[Vector, ...]


@functools.lru_cache(maxsize=8)
def _powers(slopes: bytes) -> _Powers:
    """Return the powers for slopes given as bytes, which the layers of a model often share."""
    m = np.frombuffer(slopes)
    b = np.arange(_BLOCK)
    lags = b[:, None, None] - b
    within = np.where(lags > 0, np.exp(-m[:, None] * np.maximum(lags, 0)), 0.0)
    blocks = _ROWS_AT_ONCE // _BLOCK
    return _Powers(
        within,
        np.exp(-m * b[:, None]),
        np.exp(-m * (_BLOCK - b[:, None])),
        tuple(np.exp(-m * (_BLOCK * 2**k)) for k in range(blocks.bit_length())),
    )


@functools.lru_cache(maxsize=2)
def _past_mass(slopes: bytes, start: int, stop: int) -> Matrix:
    """Return G_i for rows start..stop-1, shape (R, H)."""
    m = np.frombuffer(slopes)
    rows = np.arange(start, stop, dtype=np.float64)[:, None]
    flat = m == 0.0
    safe = np.where(flat, 1.0, m)
    grown = np.expm1(-safe * rows) / np.expm1(-safe)
    return np.where(flat, rows, np.exp(-m) * grown)


def _push(p: Matrix, table: _Table, powers: _Powers, carry: Vector) -> tuple[Vector, Vector]:
    """Return what the keys of K blocks receive of the rows `p`, (K, B), and of later rows.

    `carry` is what later rows give to a key right behind the last block, shape (H,), zero unless
    all blocks are full; the same for a key at the start of the first block is returned too.
    """
    given = p[:, None]
    totals = np.matmul(given, table.distant)[:, 0]
    carries = _accumulated(np.concatenate([carry[None], totals[::-1]]), powers)[::-1]
    received = np.matmul(given, table.local)[:, 0]
    received += carries[1:] @ powers.behind.T
    return received.reshape(-1), carries[0]


def _pull(v: Matrix, table: _Table, powers: _Powers, carry: Vector) -> tuple[Vector, Vector]:
    """Return the means of `v`, (K, B), over the rows of K blocks.

    `carry` is the sum of r^-j v_j over earlier keys j < 0, shape (H,); the same sum for the row
    after the last block is returned beside the means, shape (K B,).
    """
    carries = _accumulated(np.concatenate([carry[None], v @ powers.behind]), powers)
    means = np.matmul(table.local, v[:, :, None])
    means += np.matmul(table.distant, carries[:-1, :, None])
    return means.reshape(-1), carries[-1]


def _accumulated(totals: Matrix, powers: _Powers) -> Matrix:
    """Return c_k = totals_k + r^B c_{k-1} in place of the totals, in log2(K) steps."""
    for k, step in enumerate(powers.steps):
        if 2**k >= len(totals):
            break
        totals[2**k :] += step * totals[: -(2**k)]
    return totals


def _in_each_row(values: Vector) -> Vector:
    """Return values of H heads B times, shape (B H,)."""
    return np.broadcast_to(values, (_BLOCK, values.size)).reshape(-1)


def _in_blocks(x: Vector) -> Matrix:
    """Return a vector as (K, B), zeros after the end."""
    count = -(-x.size // _BLOCK)
    if count * _BLOCK == x.size:
        return x.reshape(count, _BLOCK)
    padded = np.zeros(count * _BLOCK)
    padded[: x.size] = x
    return padded.reshape(count, _BLOCK)
