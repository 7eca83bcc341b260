"""ALiBi slopes as BLOOM, Falcon and MPT apply them, and as textbooks give them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from posbias.errors import InputError

__all__ = ["alibi_slopes", "textbook_slopes"]


def alibi_slopes(heads: int) -> NDArray[np.float64]:
    """Return the slopes that models apply, shape (H,), in (0, 1).

    With C the largest power of two not above H: 2^(-8 (h+1) / C) for h < C, then every other
    slope of 2C heads, 2^(-8 (2k+1) / (2C)) for k = 0..H-C-1.

    Raises
    ------
    InputError
        If `heads` is not an integer of at least 1.
    """
    _require_heads(heads)
    closest = 1 << (heads.bit_length() - 1)
    first = np.exp2(-8.0 * np.arange(1, closest + 1) / closest)
    rest = np.exp2(-8.0 * (2 * np.arange(heads - closest) + 1) / (2 * closest))
    return np.concatenate([first, rest])


def textbook_slopes(heads: int) -> NDArray[np.float64]:
    """Return 2^(-8 (h+1) / H), shape (H,): what models apply only if H is a power of two.

    Raises
    ------
    InputError
        If `heads` is not an integer of at least 1.
    """
    _require_heads(heads)
    return np.exp2(-8.0 * np.arange(1, heads + 1) / heads)


def _require_heads(heads: int) -> None:
    if isinstance(heads, bool) or not isinstance(heads, int) or heads < 1:
        raise InputError(f"heads is {heads!r}; an integer of at least 1 is required")
