"""Row orders that follow from the logits alone, without forming a matrix (T3, T4)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from posbias.kernels import AttentionKernel, Causal, Head, Kernel, SlidingWindow

__all__ = ["is_content_change", "is_logit_order", "same_kernel"]

Vector = NDArray[np.float64]


def is_logit_order(a: Kernel, b: Kernel) -> bool:
    """Whether every row of A is earlier than the same row of B because of the logits.

    For causal masks and heads of equal weights it suffices that, head by head, the logit of b
    minus that of a never falls with the key position, and that b sees the same keys or fewer of
    the earliest. Then b's row is a's row reweighted towards later keys (source: posbias, T3).

    Returns
    -------
    bool
        False means "not shown this way". Cost O(H n).
    """
    if not (isinstance(a, AttentionKernel) and isinstance(b, AttentionKernel)) or a.n != b.n:
        return False
    if len(a.heads) != len(b.heads) or not _sees_fewer(b, a):
        return False
    pairs = list(zip(a.heads, b.heads, strict=True))
    if not np.allclose(_shares(a.heads), _shares(b.heads), rtol=1e-15, atol=0.0):
        return False
    return all(_head_moves_later(a, b, x, y) for x, y in pairs)


def is_content_change(a: Kernel, b: Kernel) -> bool:
    """Whether two structured kernels differ in nothing but content: diagonal, key or sink."""
    if not (isinstance(a, AttentionKernel) and isinstance(b, AttentionKernel)):
        return False
    if a.n != b.n or len(a.heads) != len(b.heads) or a.mask != b.mask:
        return False
    lags_equal = all(
        np.array_equal(x.position.lag_logits(a.n), y.position.lag_logits(b.n))
        for x, y in zip(a.heads, b.heads, strict=True)
    )
    return lags_equal and a.temperature == b.temperature


def same_kernel(a: Kernel, b: Kernel) -> bool:
    """Whether two kernels are one object or structured kernels of one description."""
    if a is b:
        return True
    if not (isinstance(a, AttentionKernel) and isinstance(b, AttentionKernel)) or a.n != b.n:
        return False
    return (a.mask, a.temperature, tuple(a.heads)) == (b.mask, b.temperature, tuple(b.heads))


def _sees_fewer(b: AttentionKernel, a: AttentionKernel) -> bool:
    """Whether b sees the same keys as a, or a suffix of them."""
    if not (a.is_causal and b.is_causal):
        return False
    if a.mask == b.mask:
        return True
    reach = []
    for kernel in (a, b):
        if isinstance(kernel.mask, Causal):
            reach.append(kernel.n)
        elif isinstance(kernel.mask, SlidingWindow):
            reach.append(kernel.mask.window)
        else:
            return False
    return reach[1] <= reach[0]


def _shares(heads: tuple[Head, ...]) -> Vector:
    weights = np.array([head.weight for head in heads], dtype=np.float64)
    return np.asarray(weights / weights.sum())


def _head_moves_later(a: AttentionKernel, b: AttentionKernel, x: Head, y: Head) -> bool:
    """Check that the change of the logits falls with the lag and rises with the key."""
    lags_x, lags_y = (
        np.asarray(head.position.lag_logits(a.n), dtype=np.float64) / kernel.temperature
        for kernel, head in ((a, x), (b, y))
    )
    if not (np.isfinite(lags_x).all() and np.isfinite(lags_y).all()):
        return False
    change = lags_y - lags_x
    change[0] += y.diagonal / b.temperature - x.diagonal / a.temperature
    keys = _keys(y, b) - _keys(x, a)
    return bool((np.diff(change) <= 0.0).all() and (np.diff(keys) >= 0.0).all())


def _keys(head: Head, kernel: AttentionKernel) -> Vector:
    keys = head.key_logits(kernel.n)
    return np.zeros(kernel.n) if keys is None else keys / kernel.temperature
