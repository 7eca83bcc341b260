"""Measure a cell once, and keep the measurement with what was refused."""

from __future__ import annotations

import functools
import json
import time
from pathlib import Path
from typing import Any

import posbias
from fidelity_study.grid import Cell, Settings, settings_of
from fidelity_study.sources import load, text_of
from posbias.atomic import atomic_write_text
from posbias.errors import UnsupportedModelError
from posbias.measurement import Measurement

__all__ = ["measured"]

_NEEDED = {"stream.coherence.windows", "kernel.centred-value.sum"}
"""Arrays without which a measurement in the cache is not that of this study."""


def measured(cell: Cell, cache: Path, *, resume: bool) -> tuple[Measurement, dict[str, Any]]:
    """Return the measurement of a cell and notes on it, from the cache or made now.

    Parameters
    ----------
    cell : Cell
        What to measure.
    cache : Path
        Folder of all measurements.
    resume : bool
        Whether one in the cache is good, if it was made with the same settings.

    Returns
    -------
    measurement : Measurement
        Opened from the cache.
    notes : dict
        ``settings``, ``refused`` (methods by reason), ``seconds``.
    """
    folder, settings = cache / cell.key, settings_of(cell)
    notes_file = folder / "notes.json"
    if resume and notes_file.exists():
        notes = json.loads(notes_file.read_text(encoding="utf-8"))
        kept = Measurement.open(folder / "measurement")
        if notes["settings"] == settings.as_dict() and set(kept.arrays) >= _NEEDED:
            return kept, notes
    start = time.perf_counter()
    found, refused = _measure(cell, settings, cache)
    found.save(folder / "measurement", overwrite=True)
    notes = {
        "settings": settings.as_dict(),
        "refused": refused,
        "seconds": round(time.perf_counter() - start, 1),
    }
    # Written last: without it the measurement does not count.
    atomic_write_text(notes_file, json.dumps(notes, indent=1), overwrite=True)
    return Measurement.open(folder / "measurement"), notes


def _measure(cell: Cell, settings: Settings, cache: Path) -> tuple[Measurement, dict[str, str]]:
    """Measure with every method that the model allows."""
    methods, refused = list(settings.methods), dict[str, str]()
    while True:
        try:
            return _measure_once(cell, settings, methods, cache), refused
        except UnsupportedModelError as error:
            named = [method for method in methods[1:] if f"influence {method} " in str(error)]
            if not named:
                raise
            refused[named[0]] = str(error)
            methods.remove(named[0])


def _measure_once(cell: Cell, settings: Settings, methods: list[str], cache: Path) -> Measurement:
    return posbias.measure(
        _loaded(cell.model, cache),
        text_of(cell.text),
        length=cell.n,
        windows=settings.windows,
        seed=settings.seed,
        batch_size=4 if cell.n <= 256 else 1,
        influence=methods,
        integration_steps=settings.integration_steps,
        record="all",
        jacobian=settings.jacobian,
    )


# The cells of one model often follow each other, and a large one takes long to load.
_loaded = functools.lru_cache(maxsize=1)(load)
