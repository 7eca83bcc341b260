"""Long profiles and large kernels in few bins, their mass preserved, and both ends enlarged."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from posbias.kernels import Kernel

__all__ = ["bin_edges", "block_masses", "end_size", "mean_shares", "round_digits"]

Array = NDArray[np.float64]
Edges = NDArray[np.int64]

_SHORTEST_WITH_ENDS = 64
_LARGEST_END = 64


def bin_edges(n: int, most: int) -> Edges:
    """Return the edges of at most `most` bins over positions 0..n-1, their widths within one.

    Bin b holds the positions ``edges[b]..edges[b + 1] - 1``; single positions if n <= `most`.
    """
    return np.round(np.linspace(0, n, min(n, most) + 1)).astype(np.int64)


def mean_shares(mass: Array, edges: Edges, n: int) -> Array:
    """Return the mean mass per position of each bin in multiples of the fair share 1 / n.

    Parameters
    ----------
    mass : ndarray, shape (..., m)
        Profiles, or m consecutive positions of them.
    edges : ndarray, shape (B + 1,)
        From 0 to m.
    n : int
        Positions of the whole profiles.

    Returns
    -------
    ndarray, shape (..., B)
        Times the widths and divided by n, a bin has exactly the mass of its positions.
    """
    sums = np.add.reduceat(mass, edges[:-1], axis=-1)
    shares: Array = sums / np.diff(edges) * n
    return shares


def block_masses(kernel: Kernel, edges: Edges) -> Array:
    """Return the share of the attention of a block of queries that goes to a block of keys.

    Parameters
    ----------
    kernel : Kernel
        A row-stochastic operator of n positions.
    edges : ndarray, shape (G + 1,)
        Edges of the blocks.

    Returns
    -------
    ndarray, shape (G, G)
        The mean over the queries of a block of their mass on a block of keys: rows sum to one.
        Divided by the width of the key block it is the mean weight of a pair. G row products.
    """
    widths = np.diff(edges)
    blocks = np.repeat(np.arange(widths.size), widths)
    averages = np.zeros((widths.size, kernel.n))
    averages[blocks, np.arange(kernel.n)] = 1.0 / widths[blocks]
    masses: Array = np.add.reduceat(kernel.rmatmat(averages), edges[:-1], axis=1)
    return masses


def end_size(n: int) -> int:
    """Return how many positions of each end are shown enlarged, 0 for short profiles."""
    return min(_LARGEST_END, n // 8) if n >= _SHORTEST_WITH_ENDS else 0


def round_digits(values: Array, digits: int = 5) -> list[float]:
    """Return a vector as numbers of `digits` significant digits, for display."""
    return [float(f"{value:.{digits}g}") for value in values.tolist()]
