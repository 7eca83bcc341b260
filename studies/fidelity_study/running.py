"""Run cells one after another or several at a time, and gather what is in the cache."""

from __future__ import annotations

import json
import multiprocessing
import os
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fidelity_study.evaluation import evaluate
from fidelity_study.grid import Cell
from fidelity_study.measuring import measured
from fidelity_study.results import entry
from posbias.atomic import atomic_write_text

__all__ = ["Run", "gathered", "run_cell", "run_cells"]


@dataclass(frozen=True)
class Run:
    """How cells are run.

    Parameters
    ----------
    cache : Path
        Folder of measurements and evaluations.
    budget : float or None
        Minutes after which no further cell is begun.
    resume : bool
        Whether measurements and evaluations in the cache are kept.
    evaluate : bool
        Whether evaluations are made anew although measurements are kept.
    jobs : int
        Cells at a time.
    """

    cache: Path
    budget: float | None = None
    resume: bool = False
    evaluate: bool = False
    jobs: int = 1


def run_cells(cells: Sequence[Cell], run: Run) -> Iterator[Cell]:
    """Run cells in their order and yield each when it is done; a failed one is reported."""
    if run.jobs > 1:
        # Read by the libraries when a worker imports them.
        os.environ.setdefault("OMP_NUM_THREADS", "1")
    start, waiting = time.monotonic(), list(cells)
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(run.jobs, mp_context=context) as pool:
        running: dict[Future[float], Cell] = {}
        while waiting or running:
            is_over = run.budget is not None and time.monotonic() - start > 60.0 * run.budget
            if is_over and waiting:
                _say(f"the budget is spent; {len(waiting)} cells are left for the next run")
                waiting.clear()
            while waiting and len(running) < run.jobs:
                cell = waiting.pop(0)
                running[pool.submit(run_cell, cell, run)] = cell
            done, _ = wait(running, return_when=FIRST_COMPLETED)
            for future in done:
                cell = running.pop(future)
                error = future.exception()
                if error is not None:
                    _say(f"{cell.key}: {type(error).__name__}: {error}")
                    continue
                _say(f"{cell.key}: {future.result():.0f} s")
                yield cell


def run_cell(cell: Cell, run: Run) -> float:
    """Measure and evaluate one cell into the cache; return the seconds that it took."""
    start = time.monotonic()
    folder = run.cache / cell.key
    file = folder / "evaluation.json"
    before = (folder / "notes.json").stat().st_mtime if (folder / "notes.json").exists() else None
    measurement, notes = measured(cell, run.cache, resume=run.resume)
    is_same = before == (folder / "notes.json").stat().st_mtime
    if is_same and file.exists() and not run.evaluate:
        return time.monotonic() - start
    evaluation = evaluate(measurement)
    resampled: dict[str, Any] = dict(evaluation.resampled)
    np.savez_compressed(folder / "resampled.npz", **resampled)
    found = entry(cell, notes, evaluation)
    atomic_write_text(file, json.dumps(found, allow_nan=False), overwrite=True)
    return time.monotonic() - start


def gathered(cell: Cell, cache: Path) -> tuple[dict[str, Any], dict[str, Any]] | None:
    """Return the entry of a cell and its resamples from the cache; None if it was not run."""
    file = cache / cell.key / "evaluation.json"
    if not file.exists():
        return None
    with np.load(cache / cell.key / "resampled.npz") as stored:
        resampled = {name: stored[name] for name in stored.files}
    return json.loads(file.read_text(encoding="utf-8")), resampled


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
