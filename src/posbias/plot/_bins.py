"""Long profiles in bins: single positions or few at both ends, more of them in between."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from posbias.binning import bin_edges

__all__ = ["END_SHARE", "LONGEST_WITHOUT_BINS", "Bins", "bins_of"]

Array = NDArray[np.float64]

END_SHARE = 0.02
"""Share of the positions at each end that finer bins show, and panels of their own."""

LONGEST_WITHOUT_BINS = 512
"""Profiles of up to so many positions are drawn position by position."""

_MOST_IN_END = 64
_MOST_BETWEEN = 320


@dataclass(frozen=True, eq=False)
class Bins:
    """Bins over positions 0..n-1 and how long its ends are.

    Parameters
    ----------
    edges : ndarray, shape (B + 1,)
        Bin b holds the positions ``edges[b]..edges[b + 1] - 1``.
    end : int
        Positions of each end; 0 if every position has a bin of its own.
    """

    edges: NDArray[np.int64]
    end: int

    @property
    def n(self) -> int:
        """Number of positions."""
        return int(self.edges[-1])

    @property
    def widths(self) -> NDArray[np.int64]:
        """Positions per bin, shape (B,)."""
        return np.diff(self.edges)

    @property
    def centres(self) -> Array:
        """Mean position of each bin, shape (B,)."""
        return (self.edges[:-1] + self.edges[1:] - 1) / 2.0

    def sums(self, values: Array) -> Array:
        """Return the sum over each bin of values, shape (..., n)."""
        total: Array = np.add.reduceat(values, self.edges[:-1], axis=-1)
        return total

    def means(self, values: Array) -> Array:
        """Return the mean over each bin: times the widths, exactly the mass of the positions."""
        return self.sums(values) / self.widths

    def axis_label(self) -> str:
        """Return the label of an axis of positions, which says what was averaged."""
        if not self.end:
            return "position"
        return f"position ({self.note()})"

    def note(self) -> str:
        """Return what was averaged; empty if every position has a bin of its own."""
        if not self.end:
            return ""
        ends = self.widths[self.edges[:-1] < self.end]
        between = self.widths[(self.edges[:-1] >= self.end) & (self.edges[1:] <= self.n - self.end)]
        text = f"means over {_sizes(between)}"
        return f"{text}; ends {_sizes(ends)}" if ends.max() > 1 else f"{text}, ends singly"


def bins_of(n: int) -> Bins:
    """Return the bins in which a profile of n positions is drawn: at most 448."""
    if n <= LONGEST_WITHOUT_BINS:
        return Bins(np.arange(n + 1, dtype=np.int64), 0)
    end = int(np.ceil(END_SHARE * n))
    first = bin_edges(end, _MOST_IN_END)
    between = bin_edges(n - 2 * end, _MOST_BETWEEN) + end
    last = n - first[::-1]
    return Bins(np.concatenate([first, between[1:-1], last]), end)


def _sizes(widths: NDArray[np.int64]) -> str:
    low, high = int(widths.min()), int(widths.max())
    return f"{low}" if low == high else f"{low}-{high}"
