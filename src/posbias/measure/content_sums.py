"""Sums of the logits without position bias over a block of query rows of one window."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

__all__ = ["COMPILED_FROM", "CONTENT_SUMS", "add_content_sums"]

CONTENT_SUMS = ("diagonal", "diagonal_square", "lower", "lower_square", "first")
"""Names of the sums per head: the own key, keys before it, the first key where it is before it."""

COMPILED_FROM = 2**17
"""Logits of a layer and window from which compiled code is used.

Loading it takes about half a second, so small problems stay in torch. The choice depends on the
size alone, so that a result never depends on what ran before it.
"""

_COMPILED_TYPES = (torch.float32, torch.float64)


def add_content_sums(
    logits: Tensor, bias: Tensor | None, lags: Tensor, *, start: int, window: int | None
) -> Tensor:
    """Return the sums of a block per head, and add its sums by lag.

    Parameters
    ----------
    logits : Tensor, shape (H, r, k)
        Logits of queries ``start..start + r - 1`` as fed to the softmax; keys 0..k-1.
    bias : Tensor of float64, shape (H, 1 or r, k), optional
        Position bias that they contain.
    lags : Tensor of float64, shape (H, n)
        On the device of the logits; added to.
    start : int
        First query.
    window : int, optional
        Keys that a query sees, its own included; by default all up to it.

    Returns
    -------
    Tensor of float64, shape (5, H)
        In the order of `CONTENT_SUMS`.
    """
    n = lags.shape[1]
    if logits.device.type == "cpu" and logits.dtype in _COMPILED_TYPES:
        compiled = _compiled() if logits.shape[0] * n * n >= COMPILED_FROM else None
        if compiled is not None:
            return _add_compiled(compiled, logits, bias, lags, start=start, window=window or n)
    return _add_in_torch(logits, bias, lags, start=start, window=window)


@functools.cache
def _compiled() -> Callable[..., None] | None:
    try:
        from posbias.measure._compiled_sums import content_sums
    except ImportError:
        return None
    function: Callable[..., None] = content_sums
    return function


def _add_compiled(
    compiled: Callable[..., None],
    logits: Tensor,
    bias: Tensor | None,
    lags: Tensor,
    *,
    start: int,
    window: int,
) -> Tensor:
    heads, _, keys = logits.shape
    shift: Any = np.empty((heads, 0, keys)) if bias is None else bias.contiguous().numpy()
    sums = torch.zeros(len(CONTENT_SUMS), heads, dtype=torch.float64)
    compiled(logits.contiguous().numpy(), shift, start, window, lags.numpy(), sums.numpy())
    return sums


def _add_in_torch(
    logits: Tensor, bias: Tensor | None, lags: Tensor, *, start: int, window: int | None
) -> Tensor:
    content = logits.to(torch.float64, copy=True)
    if bias is not None:
        content -= bias
    content.tril_(start)
    if window is not None:
        content.triu_(start - window + 1)
    lags += _sum_by_lag(content, start, lags.shape[1])
    own = content.diagonal(offset=start, dim1=-2, dim2=-1)
    diagonal, square = own.sum(-1), own.square().sum(-1)
    own.zero_()
    earlier = content.flatten(1)
    lower = earlier.sum(-1)
    return torch.stack(
        [diagonal, square, lower, torch.linalg.vecdot(earlier, earlier), content[..., 0].sum(-1)]
    )


def _sum_by_lag(values: Tensor, start: int, n: int) -> Tensor:
    """Sum (H, r, k) values of rows start.. by lag ``row - key``, shape (H, n); k <= n.

    Values above the diagonal must be zero. Shifting each row by its number puts equal lags in
    one column, so that the sum is one reduction.
    """
    heads, r, k = values.shape
    flipped = functional.pad(values, (0, n - k)).flip(-1)
    # Row rho, column c (lag = start + rho + c - (n - 1)) moves to column (rho + c) mod n.
    flat = functional.pad(flipped, (0, 1)).reshape(heads, r * (n + 1))
    lines = math.ceil(r * (n + 1) / n)
    skewed = functional.pad(flat, (0, lines * n - r * (n + 1))).reshape(heads, lines, n).sum(1)
    lags = (torch.arange(n, device=values.device) + start - (n - 1)) % n
    result = torch.zeros_like(skewed)
    result[:, lags] = skewed
    return result
