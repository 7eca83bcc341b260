"""Attention kernels from the arrays of a measurement."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from posbias.errors import InputError
from posbias.kernels import (
    AttentionKernel,
    Causal,
    DenseKernel,
    Head,
    Kernel,
    LagTable,
    SlidingWindow,
)
from posbias.kernels.summary import NEAREST_LAGS, SummaryKernel, block_edges, pair_counts
from posbias.sinks import Sinks, detect_sinks

__all__ = [
    "KERNEL_KINDS",
    "KernelKind",
    "attention_kernels",
    "content_free_kernels",
    "lag_kernels",
    "sinks_of",
    "summary_kernels",
]

Array = NDArray[np.float64]
KernelKind = Literal[
    "attention",
    "position",
    "position+content",
    "lag",
    "attention-energy",
    "value-weighted",
    "value-weighted-energy",
    "centred-value-weighted",
    "centred-value-weighted-energy",
]
"""What `Measurement.kernels` can return; explained there."""

_MOST_DENSE = 1024

KERNEL_KINDS: tuple[KernelKind, ...] = get_args(KernelKind)
"""Every kind of kernel."""


def attention_kernels(total: Array, n: int) -> list[Kernel]:
    """Return the measured kernel of each layer among the first `n` positions.

    Parameters
    ----------
    total : ndarray, shape (T, N, N)
        Sum over windows of row-stochastic matrices: of the head-mean attention, or of another
        kernel that was measured beside it.
    n : int
        At most N: measured attention says nothing about longer contexts.
    """
    _check_length(n, total.shape[1])
    # A causal row sees the first positions only, so restricting is exact for the rows kept.
    layers = total[:, :n, :n]
    return [DenseKernel(layer / layer.sum(axis=1, keepdims=True)) for layer in layers]


def summary_kernels(
    arrays: Mapping[str, NDArray[Any]], n: int, layer_windows: tuple[int | None, ...]
) -> list[Kernel]:
    """Return the summarised kernel of each layer among the first `n` positions.

    Parameters
    ----------
    arrays : mapping
        ``summary.near.sum``, ``summary.far.sum``, and any array over windows and positions.
    n : int
        At most the positions that were measured.
    layer_windows : tuple of int or None
        Sliding window of each layer.
    """
    windows, _, measured = arrays["mixing.norm.windows"].shape
    _check_length(n, measured)
    edges, layers = block_edges(measured), []
    for t, window in enumerate(layer_windows):
        counts = pair_counts(edges, lags=NEAREST_LAGS, window=window)
        far, near = (
            arrays[name][t] / np.maximum(windows * count, 1.0)
            for name, count in zip(("summary.far.sum", "summary.near.sum"), counts, strict=True)
        )
        layers.append(SummaryKernel(measured, near=near, far=far, window=window).restrict(n))
    return list[Kernel](layers)


def _check_length(n: int, measured: int) -> None:
    if n > measured:
        raise InputError(
            f"n is {n}, but attention was measured at {measured} positions; measured kernels "
            "cannot be continued, use the kinds position or position+content, or measure longer "
            "windows"
        )


def content_free_kernels(
    n: int, layer_windows: tuple[int | None, ...], slopes: Array | None, content: Array | None
) -> list[Kernel]:
    """Return the kernel that mask, ALiBi slopes and content terms imply, per layer.

    Parameters
    ----------
    n : int
        Number of positions.
    layer_windows : tuple of int or None
        Sliding window of each layer.
    slopes, content : ndarray, shape (T, H), or None
        ALiBi slopes (None: no position bias) and diagonal terms (None: content-free).
    """
    kernels: dict[tuple[int | None, bytes, bytes], Kernel] = {}
    layers = []
    for t, window in enumerate(layer_windows):
        m = np.zeros(1) if slopes is None else slopes[t]
        d = np.zeros(1) if content is None else content[t]
        key = (window, m.tobytes(), d.tobytes())
        if key not in kernels:  # most models repeat one content-free layer
            size = max(m.size, d.size)
            mask = Causal() if window is None else SlidingWindow(window)
            kernels[key] = AttentionKernel.alibi(
                n, np.broadcast_to(m, size), diagonal=np.broadcast_to(d, size), mask=mask
            )
        layers.append(kernels[key])
    return layers


def lag_kernels(
    n: int, layer_windows: tuple[int | None, ...], slopes: Array | None, lag_logits: Array
) -> list[Kernel]:
    """Return the kernel whose logits are the measured means by lag, per layer.

    Parameters
    ----------
    n : int
        Number of positions, at most N.
    layer_windows : tuple of int or None
        Sliding window of each layer.
    slopes : ndarray, shape (T, H), or None
        ALiBi slopes, which the measured logits lack (None: no position bias).
    lag_logits : ndarray, shape (T, H, N)
        Mean logit by lag; NaN for lags that no query sees.
    """
    measured = lag_logits.shape[-1]
    if n > measured:
        raise InputError(
            f"n is {n}, but logits by lag were measured at {measured} positions; they cannot be "
            "continued, use the kinds position or position+content, or measure longer windows"
        )
    lags = np.arange(measured)
    layers: list[Kernel] = []
    for t, window in enumerate(layer_windows):
        bias = np.where(np.isnan(lag_logits[t]), -np.inf, lag_logits[t])
        if slopes is not None:
            bias = bias - slopes[t][:, None] * lags
        mask = Causal() if window is None else SlidingWindow(window)
        layers.append(AttentionKernel(n, [Head(LagTable(row[:n])) for row in bias], mask=mask))
    return layers


def sinks_of(arrays: Mapping[str, NDArray[Any]], layer_windows: tuple[int | None, ...]) -> Sinks:
    """Return the attention sinks that the arrays of a measurement show, with what norms it has."""
    full = arrays.get("kernel.attention.sum")
    layers: Iterable[Kernel]
    if full is not None:
        layers = (
            DenseKernel(layer / layer.sum(axis=1, keepdims=True), copy=False) for layer in full
        )
    else:
        layers = summary_kernels(arrays, arrays["mixing.norm.windows"].shape[2], layer_windows)
    return detect_sinks(
        layers,
        layer_windows=layer_windows,
        value_norms=arrays.get("value.norm.sum"),
        stream_norms=arrays.get("stream.norm.sum"),
    )
