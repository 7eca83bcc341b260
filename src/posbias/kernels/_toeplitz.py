"""Products with any lag weights in O(n log^2 n) and with relative accuracy.

One FFT over the whole sequence has an error relative to the largest value anywhere, which
destroys small values. Here the pairs (key j, query j + l) are cut into pairs of blocks: a block of
B keys and the block of B queries D blocks further on. Where the weights of their lags, tilted by
an exponential, vary by at most `spread` nats, the blocks are multiplied by FFT: every query then
gives every key a comparable weight, so the absolute error of the transform is a relative error of
about ``1e-16 exp(spread)`` of each sum. Other blocks are halved, down to `TILE` positions, which
are multiplied as matrices. Each block of the input has a scale of its own, so that key logits and
normalisers of any size fit.

Smooth weights (Kerple) need about three FFTs per block size, 2e-14 relative error. Irregular ones
(long tables, cosines of large amplitude) would leave too many tiles; for them the spread is
raised, up to 20 nats, and hidden lags inside a block always lead to tiles, in the worst case
n / TILE of them: O(n^2) operations, still O(n) memory.

Source: posbias; the division into blocks is that of fast multipole methods.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

__all__ = ["ToeplitzPlan"]

Vector = NDArray[np.float64]
Matrix = NDArray[np.float64]
Indices = NDArray[np.intp]
Part: TypeAlias = tuple[int, Indices, Matrix, Matrix]

TILE = 128
SPREADS = (6.0, 12.0, 20.0)
MOST_TILES = 128
SAFE = 600.0
_AT_ONCE = 2**18


@dataclass(frozen=True)
class _Pair:
    """Blocks `keys` of `size` keys, each with the block of queries `distance` further on.

    The weight of the query b of its block and the key a of its block is
    ``exp(scale + tilt (a - b) + logits[size - 1 + b - a])``; `spread` is the range of the finite
    logits. Large blocks have, instead of the logits, the transform of their exponentials by
    a - b; small ones are multiplied as matrices.
    """

    size: int
    distance: int
    keys: Indices
    tilt: float
    scale: float
    spread: float
    logits: Vector
    spectrum: NDArray[np.complex128] | None = None


class ToeplitzPlan:
    """The operator ``y_j = sum over l >= 1 of exp(v_l) x_{j+l}``.

    Parameters
    ----------
    logits : ndarray, shape (n,)
        v_l; -inf for lags that take no part. Entry 0 is not used.
    """

    def __init__(self, logits: Vector) -> None:
        self._n = logits.size
        v = logits.copy()
        v[0] = -np.inf
        top = TILE
        while 2 * top < v.size:
            top *= 2
        self._padded = -(-v.size // top) * top
        for spread in SPREADS:
            self._pairs = _pairs(v, top, self._padded // top, spread)
            if sum(pair.spectrum is None for pair in self._pairs) <= MOST_TILES:
                break

    def apply(self, x: Vector, scale: Vector, out_scale: Vector) -> Vector:
        """Return ``y_j = sum over l of exp(v_l + scale_{j+l} + out_scale_j) x_{j+l}``, shape (n,).

        Scales may be -inf. The sums must be representable, single factors need not be.
        """
        out = np.zeros(self._padded)
        outer = self._pad(out_scale, -np.inf)
        is_positive = bool((x >= 0.0).all())
        for size, keys, values, logs in self._parts(x, scale):
            given = np.maximum(values, 0.0) if is_positive else values
            exponents = logs + outer.reshape(-1, size)[keys]
            exponents[given == 0.0] = -np.inf
            out.reshape(-1, size)[keys] += given * np.exp(exponents)
        return out[: self._n]

    def log_apply(self, scale: Vector) -> Vector:
        """Return ``log sum over l of exp(v_l + scale_{j+l})``, shape (n,)."""
        out = np.full(self._padded, -np.inf)
        for size, keys, values, logs in self._parts(np.ones(self._n), scale):
            terms = np.full(values.shape, -np.inf)
            np.log(values, out=terms, where=values > 0.0)
            terms += np.where(values > 0.0, logs, 0.0)
            rows = out.reshape(-1, size)
            rows[keys] = np.logaddexp(rows[keys], terms)
        return out[: self._n]

    def _parts(self, x: Vector, scale: Vector) -> Iterator[Part]:
        """Yield block size, blocks of keys, and their sums as ``values exp(logs)``."""
        with np.errstate(divide="ignore"):
            logs = self._pad(np.log(np.abs(x)) + scale, -np.inf)
        signs = self._pad(np.sign(x), 0.0)
        for pair in self._pairs:
            blocks = logs.reshape(-1, pair.size)
            occupied = blocks.max(axis=1) > -np.inf
            keys = pair.keys[occupied[pair.keys + pair.distance]]
            step = max(1, _AT_ONCE // pair.size)
            for start in range(0, keys.size, step):
                some = keys[start : start + step]
                given = blocks[some + pair.distance]
                sign = signs.reshape(-1, pair.size)[some + pair.distance]
                yield from _products(pair, some, given, sign)

    def _pad(self, a: Vector, filling: float) -> Vector:
        padded = np.full(self._padded, filling)
        padded[: self._n] = a
        return padded


def _pairs(v: Vector, size: int, count: int, spread: float) -> list[_Pair]:
    """Cut all pairs of positions into pairs of blocks, from the largest blocks down."""
    pairs: list[_Pair] = []
    pending = {d: np.arange(count) < count - d for d in range(count)}
    while pending:
        smaller: dict[int, NDArray[np.bool_]] = {}
        for distance, keys in pending.items():
            low, high = max(1, (distance - 1) * size + 1), min(v.size, (distance + 1) * size)
            hidden = np.isneginf(v[low:high])
            if hidden.all():
                continue
            tilt, varied = _tilted(v[low:high], hidden)
            is_far = distance > 0 and not hidden.any() and varied <= spread
            if is_far or size == TILE:
                # A tile needs no tilt, and a steep one would cost digits.
                used = tilt if size > TILE else 0.0
                pairs.append(_pair(v, (size, distance), np.flatnonzero(keys), used))
            else:
                _split(smaller, distance, keys)
        pending, size = smaller, size // 2
    return pairs


def _split(pending: dict[int, NDArray[np.bool_]], distance: int, keys: NDArray[np.bool_]) -> None:
    """Add the pairs of half blocks of the pairs (keys, keys + distance)."""
    for shift in (-1, 0, 1):
        halves = np.zeros(2 * keys.size, dtype=np.bool_)
        if shift <= 0:
            halves[1::2] = keys
        if shift >= 0:
            halves[::2] = keys
        closer = 2 * distance + shift
        if closer < 0:
            continue
        if closer in pending:
            pending[closer] |= halves
        else:
            pending[closer] = halves


def _tilted(logits: Vector, hidden: NDArray[np.bool_]) -> tuple[float, float]:
    """Return the tilt that levels the ends of the logits and the range that is left."""
    if hidden.any() or logits.size < 2:
        seen = logits[~hidden]
        return 0.0, float(np.ptp(seen))
    tilt = float(logits[0] - logits[-1]) / (logits.size - 1)
    return tilt, float(np.ptp(logits + tilt * np.arange(logits.size)))


def _pair(v: Vector, block: tuple[int, int], keys: Indices, tilt: float) -> _Pair:
    """Tabulate the weights of a pair of blocks."""
    size, distance = block
    offsets = np.arange(1 - size, size)
    lags = distance * size + offsets
    known = (lags >= 1) & (lags < v.size)
    logits = np.full(offsets.size, -np.inf)
    logits[known] = v[lags[known]] + tilt * offsets[known]
    scale = float(logits.max())
    spread = scale - float(logits[np.isfinite(logits)].min())
    logits -= scale
    if size == TILE:
        return _Pair(size, distance, keys, tilt, scale, spread, logits)
    # By a - b, the negative ones at the end of the period.
    table = np.exp(logits)[::-1]
    period = np.concatenate([table[size - 1 :], [0.0], table[: size - 1]])
    return _Pair(size, distance, keys, tilt, scale, spread, np.empty(0), np.fft.rfft(period))


def _products(pair: _Pair, keys: Indices, logs: Matrix, signs: Matrix) -> Iterator[Part]:
    """Yield the sums over the query blocks with entries ``signs exp(logs)``, shape (K, size)."""
    size = pair.size
    tilts = pair.tilt * np.arange(size)
    logs = logs - tilts
    top = logs.max(axis=1, keepdims=True)
    if pair.spectrum is None:
        lowest = np.where(np.isneginf(logs), top, logs).min(axis=1)
        is_wide = top[:, 0] - lowest + pair.spread > SAFE
        if is_wide.any():
            yield from _exact(pair, keys[is_wide], logs[is_wide], signs[is_wide])
            keys, logs, signs, top = (a[~is_wide] for a in (keys, logs, signs, top))
    given = signs * np.exp(logs - top)
    if pair.spectrum is None:
        values = given @ _tile(np.exp(pair.logits), size)
    else:
        values = np.fft.irfft(np.fft.rfft(given, 2 * size) * pair.spectrum, 2 * size)[:, :size]
    yield size, keys, values, top + (pair.scale + tilts)


def _exact(pair: _Pair, keys: Indices, logs: Matrix, signs: Matrix) -> Iterator[Part]:
    """Yield the sums of a tile entry by entry, for entries that no common scale can hold."""
    size = pair.size
    tilts = pair.tilt * np.arange(size)
    table = _tile(pair.logits, size)
    for start in range(0, keys.size, size):
        some = slice(start, start + size)
        terms = logs[some, :, None] + table
        top = terms.max(axis=1)
        finite = np.where(np.isneginf(top), 0.0, top)
        values = np.einsum("kb,kba->ka", signs[some], np.exp(terms - finite[:, None]))
        yield size, keys[some], values, finite + (pair.scale + tilts)


def _tile(table: Vector, size: int) -> Matrix:
    """Return the matrix ``[b, a] = table[size - 1 + b - a]``."""
    return np.ascontiguousarray(sliding_window_view(table, size)[:, ::-1])
