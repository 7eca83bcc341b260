"""Benchmark of predictions from measured kernels: against reading the arrays once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from timing import medians

from posbias.kernels import DenseKernel
from posbias.rollout import MixingSchedule, Rollout


def run(folder: Path, *, runs: int, quick: bool) -> dict[str, Any]:
    """Return times of profiles from T dense kernels, and of one pass over their arrays.

    Both from arrays in memory, and from an uncompressed file of the same size in the page cache.
    """
    n, depth = (512, 8) if quick else (2048, 32)
    arrays = _kernels(n, depth)
    kernels = [DenseKernel(array, copy=False) for array in arrays]
    rollout = Rollout(kernels, MixingSchedule.constant(depth, 0.3))
    file = folder / "kernels.npy"
    np.save(file, arrays)
    taken = medians(
        {
            "profile": rollout.profile,
            "read_memory": lambda: [a.sum() for a in arrays],
            "read_file": lambda: np.load(file),
        },
        runs=runs,
    )
    file.unlink()
    return {
        "n": n,
        "layers": depth,
        "runs": runs,
        "seconds": taken,
        "ratio": taken["profile"] / taken["read_memory"],
        "ratio_to_file": taken["profile"] / taken["read_file"],
    }


def _kernels(n: int, depth: int) -> np.ndarray:
    """Return random causal kernels, shape (T, n, n)."""
    rng = np.random.default_rng(0)
    arrays = np.tril(rng.random((depth, n, n)))
    arrays /= arrays.sum(axis=2, keepdims=True)
    return arrays
