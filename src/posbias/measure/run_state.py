"""What a run has measured so far: grows batch by batch, and can be written down and taken up."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from posbias.measure.accumulators import Accumulator
from posbias.measure.stream_sums import BranchSums

__all__ = ["RunState", "free_memory"]

Arrays = dict[str, NDArray[Any]]

Measure = Callable[[slice], dict[str, Tensor]]
"""Measures a span of windows into the accumulator; returns the rows that it does not hold."""

_ROWS = "rows."
_SUMS = "sums."


class RunState:
    """Sums over the first `done` windows, and one row per window of every other array.

    Parameters
    ----------
    accumulator : Accumulator
        Empty.
    windows : int
        D.
    batch_size : int
        Windows per batch.
    branches : BranchSums, optional
        Empty too.
    """

    def __init__(
        self,
        accumulator: Accumulator,
        *,
        windows: int,
        batch_size: int,
        branches: BranchSums | None = None,
    ) -> None:
        self.done = 0
        self.windows = windows
        self.batch_size = batch_size
        self._accumulator = accumulator
        self._parts: list[Accumulator | BranchSums] = [accumulator]
        if branches is not None:
            self._parts.append(branches)
        self._rows: Arrays = {}

    def advance(self, measure: Measure) -> None:
        """Measure the next batch.

        An exception leaves the sums of the batch half added: `restore` or `restart` before the
        state is used again.
        """
        span = slice(self.done, min(self.done + self.batch_size, self.windows))
        for part in self._parts:
            part.begin(span)
        rows = measure(span)
        for part in self._parts:
            part.check_finite()
        self._accumulator.check_rows(rows)
        for name, values in rows.items():
            if name not in self._rows:
                self._rows[name] = np.zeros((self.windows, *values.shape[1:]))
            self._rows[name][span] = values.cpu().numpy()
        self.done = span.stop

    def arrays(self) -> Arrays:
        """Return the state by name, to be given to `restore`."""
        sums = {_SUMS + name: tensor.cpu().numpy() for name, tensor in self._sums()}
        return {**sums, **{_ROWS + name: rows for name, rows in self._rows.items()}}

    def restore(self, arrays: Arrays, *, done: int) -> None:
        """Take up a state of `arrays` after `done` windows."""
        for name, tensor in self._sums():
            tensor.copy_(torch.from_numpy(arrays[_SUMS + name]))
        self._rows = {
            name.removeprefix(_ROWS): rows
            for name, rows in arrays.items()
            if name.startswith(_ROWS)
        }
        self.done = done

    def restart(self) -> None:
        """Forget everything."""
        for _, tensor in self._sums():
            tensor.zero_()
        self._rows = {}
        self.done = 0

    def finish(self) -> Arrays:
        """Return the arrays of the measurement."""
        self._accumulator.check_influence(self._rows)
        arrays: Arrays = {}
        for part in self._parts:
            arrays |= part.finish()
        return {**arrays, **self._rows}

    def _sums(self) -> list[tuple[str, Tensor]]:
        return [item for part in self._parts for item in part.state().items()]


def free_memory() -> None:
    """Give memory back that a failed batch still holds."""
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
