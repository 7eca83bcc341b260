"""Statistics of a block of attention rows of one window: softmax, mean over heads, and sums."""

from __future__ import annotations

import functools
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from posbias.measure.content_sums import COMPILED_FROM, CONTENT_SUMS, add_content_sums
from posbias.models.tap import AttentionRows

__all__ = ["ROW_SUMS", "RowSums", "add_row_sums"]

ROW_SUMS = (*CONTENT_SUMS, "p_diagonal", "p_first")
"""Names of the sums per head: those of the logits, and the probabilities of own and first key."""

_ROWS_PER_TASK = 64  # Whatever the number of threads, so that results do not depend on it.


@dataclass(frozen=True)
class RowSums:
    """What a block of rows of one window adds to a measurement.

    Parameters
    ----------
    mean : Tensor, shape (r, k)
        Mean over heads of the probabilities.
    sums : Tensor of float64, shape (7, H)
        Summed over the rows, in the order of `ROW_SUMS`.
    """

    mean: Tensor
    sums: Tensor


def add_row_sums(
    rows: AttentionRows, index: int, bias: Tensor | None, lags: Tensor, *, window: int | None
) -> RowSums:
    """Return the sums of one window of a block, and add its logits to the sums by lag.

    Parameters
    ----------
    rows : AttentionRows
        The block.
    index : int
        Which of its windows.
    bias : Tensor of float64, shape (H, 1 or r, k), optional
        Position bias that the logits contain.
    lags : Tensor of float64, shape (H, n)
        On the device of the logits; added to.
    window : int, optional
        Keys that a query sees, its own included; by default all up to it.

    Notes
    -----
    Where the model itself shows no probabilities, as in fused attention, compiled code makes them
    while a row of logits is in the cache: single precision on the CPU, for problems that are worth
    loading it. Otherwise torch does the same; both agree to the rounding of float32.
    """
    logits, n = rows.logits[index], lags.shape[1]
    is_plain = rows.applied is None and logits.device.type == "cpu"
    if is_plain and logits.dtype is torch.float32 and logits.shape[0] * n * n >= COMPILED_FROM:
        compiled = _compiled()
        if compiled is not None:
            return _by_threads(compiled, rows, index, bias, (lags, window or n))
    content = add_content_sums(logits, bias, lags, start=rows.start, window=window)
    p = rows.probabilities[index]
    mean = torch.zeros_like(p[0])
    for head in p:
        mean.add_(head)
    mean.div_(len(p))
    own = p.diagonal(offset=rows.start, dim1=-2, dim2=-1).sum(-1, dtype=torch.float64)
    first = p[:, 1 if rows.start == 0 else 0 :, 0].sum(-1, dtype=torch.float64)
    return RowSums(mean, torch.cat([content, torch.stack([own, first])]))


@functools.cache
def _compiled() -> Callable[..., Any] | None:
    try:
        from posbias.measure._compiled_rows import add_rows
    except ImportError:
        return None
    function: Callable[..., Any] = add_rows
    return function


def _by_threads(
    compiled: Callable[..., Any],
    rows: AttentionRows,
    index: int,
    bias: Tensor | None,
    lags_and_window: tuple[Tensor, int],
) -> RowSums:
    """Share the rows of a block among the threads of torch."""
    lags, window = lags_and_window
    logits = rows.logits[index].contiguous().numpy()
    heads, count, keys = logits.shape
    shift: Any = np.empty((heads, 0, keys)) if bias is None else bias.contiguous().numpy()
    mean = np.zeros((count, keys))

    def work(low: int) -> tuple[Any, Any]:
        by_lag = np.zeros(lags.shape)
        place = rows.start, window, low, min(low + _ROWS_PER_TASK, count)
        return compiled(logits, shift, place, mean, by_lag), by_lag

    tasks, threads = range(0, count, _ROWS_PER_TASK), torch.get_num_threads()
    done = map(work, tasks) if threads == 1 else _executor(threads).map(work, tasks)
    total = np.zeros((len(ROW_SUMS), heads))
    for sums, by_lag in done:
        total += sums.sum(axis=0)
        lags += torch.from_numpy(by_lag).flip(-1)
    return RowSums(torch.from_numpy(mean), torch.from_numpy(total))


@functools.lru_cache(maxsize=1)
def _executor(threads: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(threads, thread_name_prefix="posbias-rows")
