"""What the schema says about one array."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from posbias.kernels.summary import NEAREST_LAGS, block_edges

__all__ = ["ArraySpec", "Dimensions"]

Merge = Literal["windows", "sum", "same"]


@dataclass(frozen=True)
class Dimensions:
    """The sizes behind the shape letters of one measurement."""

    windows: int
    layers: int
    heads: int
    positions: int

    def shape(self, letters: tuple[str, ...]) -> tuple[int, ...]:
        """Return the shape for a tuple of the letters D, T, H, n, B and L.

        B and L are the blocks and nearest lags of a summarised kernel over n positions.
        """
        sizes = {"D": self.windows, "T": self.layers, "H": self.heads, "n": self.positions}
        sizes |= {"B": block_edges(self.positions).size - 1, "L": NEAREST_LAGS}
        return tuple(sizes[letter] for letter in letters)


@dataclass(frozen=True)
class ArraySpec:
    """One array of a measurement.

    Attributes
    ----------
    shape : tuple of str
        Axes as letters D, T, H, n.
    unit : str
        Physical meaning of one entry: ``"share"``, ``"logit"``, ``"probability"``, ...
    description : str
        What one entry is.
    low, high : float
        Inclusive range of every entry. Entries are always finite.
    merge : {"windows", "sum", "same"}
        How parts combine: concatenated along axis D, added, or required to be equal.
    required : bool
        Whether every measurement has the array.
    dtype : str
        NumPy name of the type, exactly as stored.
    """

    shape: tuple[str, ...]
    unit: str
    description: str
    low: float = -math.inf
    high: float = math.inf
    merge: Merge = "windows"
    required: bool = True
    dtype: str = "float64"
