"""Kernels as small grids of block masses, encoded for a page."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from posbias.binning import bin_edges, block_masses
from posbias.kernels import Kernel

__all__ = ["DECADES", "GRIDS", "encode_blocks", "grid_for", "kernel_figures"]

Array = NDArray[np.float64]

GRIDS = (128, 96, 64, 48, 32, 24, 16)
"""Blocks per axis, the finest that fits the budget of the page being taken."""

DECADES = 12
"""Masses below 10**-12 are shown as zero."""

BUDGET = 1_600_000
"""Characters that all encoded kernels of a page may take."""

_STEPS = 65534
_CHARACTERS_PER_BLOCK = 8 / 3  # two bytes in base64


def kernel_figures(kinds: Mapping[str, Sequence[Kernel]]) -> dict[str, Any]:
    """Return the grids of several kinds of kernels of one model for the page.

    Parameters
    ----------
    kinds : mapping of str to sequence of Kernel
        T causal kernels of n positions each. Layers that share one object are stored once.

    Returns
    -------
    dict
        ``edges`` of the blocks, ``decades`` and ``steps`` of the code, distinct grids ``codes``,
        and per kind ``layers``, the index of the grid of each layer.
    """
    distinct: dict[int, Kernel] = {}
    for kernels in kinds.values():
        distinct.update((id(kernel), kernel) for kernel in kernels)
    n = next(iter(distinct.values())).n
    edges = bin_edges(n, grid_for(n, len(distinct)))
    index = {key: k for k, key in enumerate(distinct)}
    return {
        "edges": edges.tolist(),
        "decades": DECADES,
        "steps": _STEPS,
        "codes": [encode_blocks(block_masses(kernel, edges)) for kernel in distinct.values()],
        "layers": {name: [index[id(k)] for k in kernels] for name, kernels in kinds.items()},
    }


def grid_for(n: int, count: int) -> int:
    """Return the blocks per axis such that `count` grids stay within the budget of the page."""
    for grid in GRIDS:
        size = min(n, grid)
        if count * size * (size + 1) / 2 * _CHARACTERS_PER_BLOCK <= BUDGET:
            return size
    return min(n, GRIDS[-1])


def encode_blocks(masses: Array) -> str:
    """Encode the lower triangle, row by row, as 16-bit logarithms in base64.

    Code 0 is a mass below 10**-`DECADES`; code c is 10**((c - 1) / 65534 * 12 - 12), with a
    relative error below 0.03 %. Bytes are little-endian.
    """
    values = masses[np.tril_indices(len(masses))]
    codes = np.zeros(values.size)
    seen = values >= 10.0**-DECADES
    # Rounding may carry a sum just past one, which the code would not hold.
    decades = np.log10(np.minimum(values[seen], 1.0)) + DECADES
    codes[seen] = np.rint(decades / DECADES * _STEPS) + 1
    return base64.b64encode(codes.astype("<u2").tobytes()).decode("ascii")
