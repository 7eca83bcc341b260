"""One measurement over several processes, started with ``accelerate launch -m posbias measure``.

Every process measures whole batches, the same ones that a single process would; at the end sums
are added and rows put together, so that each process holds the whole.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import numpy as np
from numpy.typing import NDArray

from posbias.errors import InputError
from posbias.measurement.schema import array_spec

__all__ = ["Shard", "current_shard", "is_main_process", "wait_for_all"]

Arrays = dict[str, NDArray[Any]]

# Processes that are ready wait for the slowest; a run may take days.
_PATIENCE = timedelta(days=30)


@dataclass(frozen=True)
class Shard:
    """The share of one process.

    Parameters
    ----------
    rank : int
        Number of the process, from 0.
    count : int
        Number of processes.
    """

    rank: int = 0
    count: int = 1

    def device(self) -> str | None:
        """Join the processes and return the device of this one, None without others."""
        if self.count == 1:
            return None
        return str(_process_group().device)

    def windows(self, total: int, *, batch_size: int) -> slice:
        """Return which windows this process measures: whole batches, in order.

        Raises
        ------
        InputError
            If there are fewer batches than processes.
        """
        batches = -(-total // batch_size)
        if batches < self.count:
            raise InputError(
                f"{total} windows in batches of {batch_size} are {batches} batches for "
                f"{self.count} processes or parts; at least one for each is required. Ask for more "
                "windows, smaller batches, or fewer processes or parts"
            )
        first, last = (batches * k // self.count for k in (self.rank, self.rank + 1))
        return slice(first * batch_size, min(last * batch_size, total))

    def combine(self, arrays: Mapping[str, NDArray[Any]]) -> Arrays:
        """Return the arrays of all windows from those of each process, the same in all of them."""
        if self.count == 1:
            return dict(arrays)
        return {name: self._combine(name, array) for name, array in arrays.items()}

    def _combine(self, name: str, array: NDArray[Any]) -> NDArray[Any]:
        import torch
        from torch import distributed

        spec = array_spec(name)
        rule = "windows" if spec is None else spec.merge
        state = _process_group()
        if rule == "same":
            return array
        if rule == "sum":
            total = torch.from_numpy(np.ascontiguousarray(array)).to(state.device)
            distributed.all_reduce(total)
            return np.asarray(total.cpu().numpy())
        parts: list[Any] = [None] * self.count
        distributed.all_gather_object(parts, array)
        return np.concatenate(parts)


def current_shard() -> Shard:
    """Return the share of this process, as its launcher says in RANK and WORLD_SIZE."""
    count = int(os.environ.get("WORLD_SIZE", "1"))
    return Shard(int(os.environ["RANK"]), count) if count > 1 and "RANK" in os.environ else Shard()


def is_main_process() -> bool:
    """Whether this process writes the output and speaks to the user."""
    return current_shard().rank == 0


def wait_for_all() -> None:
    """Wait until every process has come here; nothing happens without others."""
    if current_shard().count > 1:
        _process_group().wait_for_everyone()


def _process_group() -> Any:
    """Return the state of Accelerate, which joins the processes when first asked for."""
    from accelerate import PartialState
    from accelerate.utils import str_to_bool

    on_cpu = bool(str_to_bool(os.environ.get("ACCELERATE_USE_CPU", "false")))
    return PartialState(cpu=on_cpu, timeout=_PATIENCE)
