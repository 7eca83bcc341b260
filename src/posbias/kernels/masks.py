"""Masks: which keys j a query i can see.

Every mask shows the diagonal. Away from it a mask is a short list of bands, ranges of lags over a
leading range of keys, from which the fast products are built.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from posbias.kernels._checks import as_integer

__all__ = ["Band", "Causal", "Full", "Mask", "PrefixLM", "SlidingWindow", "WindowSink"]


@dataclass(frozen=True)
class Band:
    """The pairs (i, j) with ``first <= |i - j| <= last`` on one side of the diagonal.

    Parameters
    ----------
    future : bool
        Whether j > i (else j < i).
    first, last : int
        Range of ``|i - j|``, 1 <= first <= last.
    keys : int
        Only keys j < keys belong to the band.
    """

    future: bool
    first: int
    last: int
    keys: int


class Mask(ABC):
    """Which keys a query sees; a frozen dataclass whose fields are those of the spec file."""

    type_name: ClassVar[str]

    @abstractmethod
    def bands(self, n: int) -> tuple[Band, ...]:
        """Return disjoint bands covering the visible off-diagonal pairs of n positions."""

    @abstractmethod
    def visible(self, i: int, n: int) -> NDArray[np.bool_]:
        """Return which of the n keys query i sees, shape (n,); the diagonal always."""

    def is_causal(self, n: int) -> bool:
        """Whether no query among n sees a later key."""
        return not any(band.future for band in self.bands(n))

    def describe(self) -> dict[str, Any]:
        """Return the JSON-serialisable ``mask`` entry of a spec file."""
        values = {f.name: getattr(self, f.name) for f in fields(self)}  # type: ignore[arg-type]
        return {"type": self.type_name, **values}


@dataclass(frozen=True)
class Causal(Mask):
    """All earlier keys and the query's own: j <= i."""

    type_name: ClassVar[str] = "causal"

    def bands(self, n: int) -> tuple[Band, ...]:
        """Return the whole past."""
        return _bands((False, 1, n - 1, n))

    def visible(self, i: int, n: int) -> NDArray[np.bool_]:
        """Return j <= i, shape (n,)."""
        return np.arange(n) <= i


@dataclass(frozen=True)
class SlidingWindow(Mask):
    """The last `window` keys, the query's own included: i - window < j <= i.

    ``SlidingWindow(1)`` shows the diagonal alone: the identity kernel.
    """

    window: int
    type_name: ClassVar[str] = "sliding_window"

    def __post_init__(self) -> None:
        object.__setattr__(self, "window", as_integer(self.window, "the window", low=1))

    def bands(self, n: int) -> tuple[Band, ...]:
        """Return the window without the diagonal."""
        return _bands((False, 1, min(self.window, n) - 1, n))

    def visible(self, i: int, n: int) -> NDArray[np.bool_]:
        """Return i - window < j <= i, shape (n,)."""
        keys = np.arange(n)
        return (keys <= i) & (keys > i - self.window)


@dataclass(frozen=True)
class WindowSink(Mask):
    """A sliding window and the first `sinks` keys: j <= i and (j > i - window or j < sinks)."""

    window: int
    sinks: int
    type_name: ClassVar[str] = "window_sink"

    def __post_init__(self) -> None:
        object.__setattr__(self, "window", as_integer(self.window, "the window", low=1))
        object.__setattr__(self, "sinks", as_integer(self.sinks, "the number of sinks", low=0))

    def bands(self, n: int) -> tuple[Band, ...]:
        """Return the window without the diagonal, and the first keys behind it."""
        window = min(self.window, n)
        return _bands((False, 1, window - 1, n), (False, window, n - 1, min(self.sinks, n)))

    def visible(self, i: int, n: int) -> NDArray[np.bool_]:
        """Return the window and the sinks among j <= i, shape (n,)."""
        keys = np.arange(n)
        return (keys <= i) & ((keys > i - self.window) | (keys < self.sinks))


@dataclass(frozen=True)
class PrefixLM(Mask):
    """Causal, with the first `prefix` positions seeing each other: j <= i or i, j < prefix."""

    prefix: int
    type_name: ClassVar[str] = "prefix_lm"

    def __post_init__(self) -> None:
        object.__setattr__(self, "prefix", as_integer(self.prefix, "the prefix", low=0))

    def bands(self, n: int) -> tuple[Band, ...]:
        """Return the whole past, and the future within the prefix."""
        prefix = min(self.prefix, n)
        return _bands((False, 1, n - 1, n), (True, 1, prefix - 1, prefix))

    def visible(self, i: int, n: int) -> NDArray[np.bool_]:
        """Return the past and, inside the prefix, the whole prefix, shape (n,)."""
        keys = np.arange(n)
        return (keys <= i) | ((keys < self.prefix) & (i < self.prefix))


@dataclass(frozen=True)
class Full(Mask):
    """Every key, as in an encoder."""

    type_name: ClassVar[str] = "full"

    def bands(self, n: int) -> tuple[Band, ...]:
        """Return the whole past and the whole future."""
        return _bands((False, 1, n - 1, n), (True, 1, n - 1, n))

    def visible(self, i: int, n: int) -> NDArray[np.bool_]:
        """Return True for every key, shape (n,)."""
        return np.ones(n, dtype=np.bool_)


def _bands(*bands: tuple[bool, int, int, int]) -> tuple[Band, ...]:
    """Return the bands that hold at least one lag and one key."""
    return tuple(Band(*band) for band in bands if band[1] <= band[2] and band[3] > 0)


MASKS: Mapping[str, type[Mask]] = {
    kind.type_name: kind for kind in (Causal, SlidingWindow, WindowSink, PrefixLM, Full)
}
"""The masks by their ``type`` in a spec file."""
