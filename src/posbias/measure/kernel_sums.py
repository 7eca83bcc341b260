"""Sums of measured attention over windows: in full, or by blocks of positions and nearest lags."""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor

from posbias.errors import InstrumentationError
from posbias.kernels.summary import NEAREST_LAGS, block_edges

__all__ = ["FullKernels", "KernelSums", "SummaryKernels"]


_FUTURE = "attention to later positions was measured"


class KernelSums(Protocol):
    """What keeps the attention of all layers."""

    def add(self, layer: int, start: int, mean: Tensor) -> None:
        """Add the mean over heads, shape (r, k), of the queries from `start` on.

        The memory of `mean` may be written to.
        """

    def state(self) -> dict[str, Tensor]:
        """Return the sums themselves by name."""

    def arrays(self) -> dict[str, Tensor]:
        """Return the sums by their names in `posbias.measurement.schema`.

        Raises
        ------
        InstrumentationError
            If attention reached the future.
        """


class FullKernels:
    """One n x n matrix per layer.

    Parameters
    ----------
    layers, length : int
        T and n.
    device : torch.device
        Where the sums live: ``8 T n^2`` bytes.
    """

    def __init__(self, layers: int, length: int, *, device: torch.device) -> None:
        shape = layers, length, length
        self._sums = torch.zeros(shape, dtype=torch.float64, device=device)

    def add(self, layer: int, start: int, mean: Tensor) -> None:
        """Add the mean over heads, shape (r, k), of the queries from `start` on."""
        rows, keys = mean.shape
        self._sums[layer, start : start + rows, :keys].add_(mean.to(self._sums.device))

    def state(self) -> dict[str, Tensor]:
        """Return the sums themselves by name."""
        return {"kernel": self._sums}

    def arrays(self) -> dict[str, Tensor]:
        """Return ``kernel.attention.sum``."""
        # Layer by layer, as a triangle is a copy.
        if any(bool(torch.triu(layer, 1).any()) for layer in self._sums):
            raise InstrumentationError(_FUTURE)
        return {"kernel.attention.sum": self._sums}


class SummaryKernels:
    """Attention by blocks of positions and by nearest lags, see `posbias.kernels.SummaryKernel`.

    Parameters
    ----------
    layers, length : int
        T and n.
    device : torch.device
        Where the sums live: ``8 T B (B + 64)`` bytes for B blocks.
    """

    def __init__(self, layers: int, length: int, *, device: torch.device) -> None:
        self._edges = block_edges(length).tolist()
        blocks = len(self._edges) - 1
        sizes = torch.tensor(self._edges, device=device).diff()
        self._block = torch.repeat_interleave(torch.arange(blocks, device=device), sizes)
        shapes = (layers, blocks, NEAREST_LAGS), (layers, blocks, blocks)
        self._near, self._far = (
            torch.zeros(shape, dtype=torch.float64, device=device) for shape in shapes
        )

    def add(self, layer: int, start: int, mean: Tensor) -> None:
        """Add the mean over heads, shape (r, k), of the queries from `start` on; it is used up."""
        mean = mean.to(self._far.device, torch.float64)
        if bool(torch.triu(mean[:, start:], 1).any()):
            raise InstrumentationError(_FUTURE)
        rows, keys = mean.shape
        queries = torch.arange(start, start + rows, device=mean.device)
        nearest = queries[:, None] - torch.arange(NEAREST_LAGS, device=mean.device)
        is_there = nearest >= 0
        place = nearest.clamp(min=0)
        # A key before position 0 stands for key 0, which is near for such a query too.
        blocks, columns = self._block[queries], self._block[:keys]
        self._near[layer].index_add_(0, blocks, mean.gather(1, place) * is_there)
        mean.scatter_(1, place, 0.0)
        first = start
        while first < start + rows:
            block = int(self._block[first])
            last = min(self._edges[block + 1], start + rows)
            total = mean[first - start : last - start].sum(0)
            self._far[layer, block].index_add_(0, columns, total)
            first = last

    def state(self) -> dict[str, Tensor]:
        """Return the sums themselves by name."""
        return {"near": self._near, "far": self._far}

    def arrays(self) -> dict[str, Tensor]:
        """Return ``summary.near.sum`` and ``summary.far.sum``."""
        return {"summary.near.sum": self._near, "summary.far.sum": self._far}
