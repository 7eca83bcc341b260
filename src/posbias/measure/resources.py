"""Memory and time of a run, before it begins."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from posbias.errors import InputError
from posbias.kernels.summary import NEAREST_LAGS, block_edges
from posbias.measure.branch_plan import FURTHER_KERNELS
from posbias.measure.influence import GRADIENT_METHODS
from posbias.measure.options import MeasureOptions
from posbias.models.positions import Sizes
from posbias.models.preflight import CheckedModel
from posbias.models.state import forward_logits
from posbias.models.tap import BLOCK_ENTRIES, BLOCK_ROWS, LEAST_ROWS

__all__ = [
    "LONG_RUN",
    "Need",
    "available_bytes",
    "check_memory",
    "describe_need",
    "estimate_seconds",
    "needed_bytes",
]

LONG_RUN = 30.0
"""Seconds from which the estimate of a run is reported."""

_LESS = "keep summaries of the kernels only (kernels='summary', --kernels summary), "

_TIMED_FROM = 16  # Windows from which one forward pass more does not matter.

# Costs of one window in forward passes of the plain model, as docs/benchmarks.md shows them.
_CAPTURE, _BACKWARD, _RECOMPUTATION = 1.25, 2.0, 1.0


@dataclass(frozen=True)
class Need:
    """Memory that a run takes beside the model and its activations.

    Parameters
    ----------
    sums : int
        Bytes of everything that is kept until the end.
    capture : int
        Bytes of one block of attention rows of one layer.
    """

    sums: int
    capture: int

    @property
    def total(self) -> int:
        """Bytes altogether."""
        return self.sums + self.capture


def needed_bytes(sizes: Sizes, options: MeasureOptions) -> Need:
    """Return what a run needs at least: the kernels, rows per window, one block.

    Each kernel takes ``8 T n^2`` bytes in full, ``8 T B (B + 64)`` summarised in B blocks.

    Parameters
    ----------
    sizes : Sizes
        Layers and heads.
    options : MeasureOptions
        With the length and number of windows that are measured.
    """
    T, H = sizes.layers, sizes.heads
    D, n = options.windows, options.length
    rows = D * T * (n + 9 * H) + D * n * len(options.influence) + T * H * n
    block_rows = min(n, max(min(BLOCK_ROWS, BLOCK_ENTRIES // (H * n)), LEAST_ROWS))
    block = H * block_rows * n
    # Logits and probabilities of a batch in single precision, two copies of one window in double.
    capture = 8 * block * options.batch_size + 2 * 8 * block
    if options.record != "paper":
        rows += D * T * 9 + 3 * T * n
        # Gram matrices of the heads, of values and of centred ones where all kernels are kept.
        capture += 8 * H**2 * n * options.batch_size * (2 if options.record == "all" else 1)
    return Need(sums=_kernel_bytes(sizes, options) + 8 * rows, capture=capture)


def check_memory(sizes: Sizes, options: MeasureOptions, device: torch.device) -> Need:
    """Return what a run needs, and refuse one that cannot fit.

    Raises
    ------
    InputError
        If the device has less memory free than the run needs at least.
    """
    need, free = needed_bytes(sizes, options), available_bytes(device)
    if free is not None and need.total > free:
        raise InputError(
            f"windows of {options.length} tokens need {_size(need.total)} beside the model, of "
            f"which {_size(_kernel_bytes(sizes, options))} are the kernels of "
            f"{sizes.layers} layers; {device} has {_size(free)} free. Measure shorter windows, "
            f"{_LESS if options.kernels == 'full' else ''}or use a machine with more memory"
        )
    return need


def available_bytes(device: torch.device) -> int | None:
    """Return how much memory is free on a device, None if the system does not say."""
    if device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
        cached = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return int(free + cached)
    if device.type != "cpu":
        return None
    amounts = [value for value in (_system_bytes(), _group_bytes()) if value is not None]
    return min(amounts, default=None)


def estimate_seconds(checked: CheckedModel, ids: Tensor, options: MeasureOptions) -> float | None:
    """Return about how long all windows take, None for so few that it does not matter.

    Times one plain forward pass of one window.
    """
    if options.windows < _TIMED_FROM:
        return None
    started = time.perf_counter()
    with torch.no_grad():
        forward_logits(checked.model, ids[:1])
    if ids.device.type == "cuda":
        torch.cuda.synchronize(ids.device)
    return (time.perf_counter() - started) * _passes(options) * options.windows


def describe_need(need: Need, seconds: float | None, options: MeasureOptions) -> str:
    """Return memory and time in words, for people."""
    duration = "" if seconds is None else f"about {_duration(seconds)}, "
    return (
        f"{options.windows} windows of {options.length} tokens: {duration}"
        f"{_size(need.total)} beside the model and its activations"
    )


def _kernel_bytes(sizes: Sizes, options: MeasureOptions) -> int:
    if options.kernels == "full":
        further = {"paper": 0, "default": 1, "all": 1 + len(FURTHER_KERNELS)}[options.record]
        return 8 * sizes.layers * options.length**2 * (1 + further)
    blocks = block_edges(options.length).size - 1
    return 8 * sizes.layers * blocks * (blocks + NEAREST_LAGS)


def _passes(options: MeasureOptions) -> float:
    """Return the cost of one window in plain forward passes."""
    gradient = _BACKWARD + (_RECOMPUTATION if options.checkpoint else 0.0)
    cost = _CAPTURE
    if any(method in GRADIENT_METHODS for method in options.influence):
        cost += gradient
    if options.jacobian:
        cost += 1.0 + options.jacobian * _BACKWARD / 2
    if "integrated-gradients" in options.influence:
        cost += options.integration_steps * (1.0 + gradient)
    if "occlusion" in options.influence:
        cost += options.length
    return cost


def _system_bytes() -> int | None:
    """Return the memory that the system can give, file cache included where it says so."""
    try:
        for line in Path("/proc/meminfo").read_text(encoding="ascii").splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    try:
        # Without a figure for what is free: no run can take more than there is.
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return None


def _group_bytes(folder: Path = Path("/sys/fs/cgroup")) -> int | None:
    """Return what the control group of the process leaves, as in a container; None if unlimited."""
    try:
        limit = (folder / "memory.max").read_text(encoding="ascii").strip()
        used = int((folder / "memory.current").read_text(encoding="ascii"))
        cached = next(
            int(line.split()[1])
            for line in (folder / "memory.stat").read_text(encoding="ascii").splitlines()
            if line.startswith("inactive_file ")
        )
    except (OSError, ValueError, StopIteration):
        return None
    return None if limit == "max" else max(int(limit) - used + cached, 0)


def _size(number: float) -> str:
    return f"{number / 1e9:,.1f} GB" if number >= 1e9 else f"{number / 1e6:,.0f} MB"


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
