"""Causal ALiBi heads with diagonal content, all heads of a layer at once, in O(n H).

With r = exp(-m), G_i = r + ... + r^i and the scaled weights ``own = min(1, e^d)`` of the diagonal
and ``past = min(1, e^-d)`` of the rest, a row of one head is ``A[i, i] = own / Z_i`` and
``A[i, j] = past r^(i-j) / Z_i`` with ``Z_i = own + past G_i``. A product ``p @ A`` is the backward
recurrence ``f_j = r (f_{j+1} + past p_{j+1} / Z_{j+1})``, summed over heads with their weights.

Two implementations with the same results: the compiled pass over positions, and one on matrix
products, where B positions of a block exchange mass through a table of powers and the blocks
through ``c_k = T_k + r^B c_{k+1}``. All terms are positive: values keep their relative accuracy
down to 1e-290.
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

EXTREME = 300.0
"""Slopes and diagonal terms above this, in nats, need the laws of `_chains`."""

_BLOCK = 16
_ROWS_AT_ONCE = 4096


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
        slopes, diagonals = slopes[order], diagonals[order]
        own, past = np.exp(np.minimum(diagonals, 0.0)), np.exp(np.minimum(-diagonals, 0.0))
        self._n = n
        self._heads = np.ascontiguousarray(np.stack([slopes, weights[order], own, past]))
        self._tables: tuple[Matrix, Vector] | None = None

    def rmatvec(self, p: Vector) -> Vector:
        """Return ``p @ A``, shape (n,)."""
        module = compiled(self._n * self._heads.shape[1])
        if module is not None:
            return np.asarray(module.alibi_push(np.ascontiguousarray(p), self._heads))
        powers = _powers(self._heads[0].tobytes())
        out, carry = np.empty(self._n), np.zeros(self._heads.shape[1])
        step = _ROWS_AT_ONCE
        for start in range((self._n - 1) // step * step, -1, -step):
            rows = slice(start, min(start + step, self._n))
            sent, own = self._rows(rows)
            flow, carry = _push(p[rows, None] * sent, powers, carry)
            out[rows] = own * p[rows] + flow
        return out

    def matvec(self, v: Vector) -> Vector:
        """Return ``A @ v``, shape (n,)."""
        module = compiled(self._n * self._heads.shape[1])
        if module is not None:
            return np.asarray(module.alibi_pull(np.ascontiguousarray(v), self._heads))
        powers = _powers(self._heads[0].tobytes())
        out, carry = np.empty(self._n), np.zeros(self._heads.shape[1])
        for start in range(0, self._n, _ROWS_AT_ONCE):
            rows = slice(start, min(start + _ROWS_AT_ONCE, self._n))
            sent, own = self._rows(rows)
            sums, carry = _pull(v[rows], powers, carry)
            out[rows] = own * v[rows] + np.einsum("ih,ih->i", sent, sums)
        return out

    def diagonal(self) -> Vector:
        """Return the diagonal of A, shape (n,)."""
        starts = range(0, self._n, _ROWS_AT_ONCE)
        return np.concatenate(
            [self._rows(slice(s, min(s + _ROWS_AT_ONCE, self._n)))[1] for s in starts]
        )

    def _rows(self, rows: slice) -> tuple[Matrix, Vector]:
        """Return ``weight past / Z_i``, shape (R, H), and the diagonal, shape (R,)."""
        if self._n > _ROWS_AT_ONCE or self._heads.size >= COMPILED_FROM:
            return self._shares(rows)
        if self._tables is None:
            self._tables = self._shares(rows)
        return self._tables

    def _shares(self, rows: slice) -> tuple[Matrix, Vector]:
        slopes, weights, own, past = self._heads
        mass = _past_mass(slopes.tobytes(), rows.start, rows.stop)
        inverse = weights / (own + past * mass)
        return past * inverse, inverse @ own


@dataclass(frozen=True)
class _Powers:
    """Powers of r within a block of B positions.

    ``within`` has shape (B, H, B): r^(b' - b) for b' > b. ``ahead`` and ``behind`` have shape
    (B, H): r^b and r^(B - b). ``step`` and ``loss`` are r^B and 1 - r^B, shape (H,).
    """

    within: NDArray[np.float64]
    ahead: Matrix
    behind: Matrix
    step: Vector
    loss: Vector


@functools.lru_cache(maxsize=8)
def _powers(slopes: bytes) -> _Powers:
    """Return the powers for slopes given as bytes, which the layers of a model often share."""
    m = np.frombuffer(slopes)
    b = np.arange(_BLOCK)
    lags = b[:, None, None] - b
    within = np.where(lags > 0, np.exp(-m[:, None] * np.maximum(lags, 0)), 0.0)
    return _Powers(
        within,
        np.exp(-m * b[:, None]),
        np.exp(-m * (_BLOCK - b[:, None])),
        np.exp(-m * _BLOCK),
        -np.expm1(-m * _BLOCK),
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


def _push(sent: Matrix, powers: _Powers, carry: Vector) -> tuple[Vector, Vector]:
    """Return what R rows, sending `sent` of shape (R, H), and later rows give to the R keys.

    `carry` is the sum of r^(i - R) sent_i over later rows i, zero unless R is a multiple of B;
    the same sum from the first of the R rows on is returned beside the flow, shape (R,).
    """
    blocks = _in_blocks(sent)
    totals = np.einsum("kbh,bh->kh", blocks, powers.ahead)
    carries = np.empty_like(totals)
    for k in range(len(blocks) - 1, -1, -1):
        carries[k] = carry
        carry = totals[k] + _kept(powers, carry)
    flow = blocks.reshape(len(blocks), -1) @ powers.within.reshape(-1, _BLOCK)
    flow += carries @ powers.behind.T
    return flow.reshape(-1)[: len(sent)], carry


def _pull(v: Vector, powers: _Powers, carry: Vector) -> tuple[Matrix, Vector]:
    """Return the sums of r^(i - j) v_j over keys j < i of R rows and of earlier ones in `carry`.

    `carry` is the sum of r^-j v_j over earlier keys j < 0, shape (H,); the same sum for the row
    after the last block is returned beside the sums, shape (R, H).
    """
    blocks = _in_blocks(v[:, None])[:, :, 0]
    totals = blocks @ powers.behind
    carries = np.empty_like(totals)
    for k in range(len(blocks)):
        carries[k] = carry
        carry = totals[k] + _kept(powers, carry)
    sums = (blocks @ powers.within.reshape(-1, _BLOCK).T).reshape(len(blocks), _BLOCK, -1)
    sums += carries[:, None] * powers.ahead
    return sums.reshape(-1, carry.size)[: len(v)], carry


def _kept(powers: _Powers, carry: Vector) -> Vector:
    """Return r^B times the carry, as a difference where r^B >= 1/2."""
    return np.where(powers.step < 0.5, powers.step * carry, carry - powers.loss * carry)


def _in_blocks(a: Matrix) -> NDArray[np.float64]:
    """Return rows (R, H) as (K, B, H), zeros after the end."""
    count = -(-len(a) // _BLOCK)
    if count * _BLOCK == len(a):
        return a.reshape(count, _BLOCK, a.shape[1])
    padded = np.zeros((count * _BLOCK, a.shape[1]))
    padded[: len(a)] = a
    return padded.reshape(count, _BLOCK, a.shape[1])
