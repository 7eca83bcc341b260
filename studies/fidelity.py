"""Run the fidelity study: ``python studies/fidelity.py [--budget MINUTES] [--resume] ...``.

Measures every model of the grid at every length on both texts, compares the predictions of all
estimators with the measured influence, and writes results/fidelity.json beside this file, the page
docs/fidelity.md and its figures. The most important cells come first, results are written after
each cell, and measurements are kept in results/cache: a run that was cut short goes on with
--resume. Cells that were not run keep their earlier results.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fidelity_study.figures import draw
from fidelity_study.grid import LENGTHS, MODELS, TEXTS, Cell, Model, cells_of, hub_model
from fidelity_study.grid import why_not_possible as impossible
from fidelity_study.page import page
from fidelity_study.results import MEASURED, blank, document, read_results, write_results
from fidelity_study.running import Run, gathered, run_cells
from fidelity_study.sources import describe_texts, why_missing

from posbias.atomic import atomic_write_text

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results" / "fidelity.json"
CACHE = HERE / "results" / "cache"
PAGE = HERE.parent / "docs" / "fidelity.md"
IMAGES = HERE.parent / "docs" / "images" / "fidelity"


def main() -> None:
    """Run the cells that are asked for and write the results after each."""
    arguments = _arguments()
    models = [*MODELS, *map(hub_model, arguments.model)]
    names = arguments.models or [model.name for model in models]
    wanted = [
        cell
        for cell in cells_of(models)
        if cell.model.name in {*names, *arguments.model}
        and cell.n in arguments.lengths
        and cell.text in arguments.texts
        and impossible(cell) is None
        and why_missing(cell.model) is None
    ]
    run = Run(CACHE, arguments.budget, arguments.resume, arguments.evaluate, arguments.jobs)
    CACHE.mkdir(parents=True, exist_ok=True)
    if arguments.page:
        _write(models)
        return
    for cell in run_cells(wanted, run):
        print(f"done: {cell.key}", flush=True)
        _write(models)


def _write(models: Sequence[Model]) -> None:
    """Write results, page and figures from the cache and the earlier results."""
    earlier: dict[str, Any] = {}
    if RESULTS.exists():
        earlier = {cell["key"]: cell for cell in read_results(RESULTS)["cells"]}
    entries, resampled = [], {}
    for cell in sorted(cells_of(models), key=lambda cell: _place(cell, models)):
        found = gathered(cell, CACHE)
        if found is not None:
            entries.append(found[0])
            resampled[cell.key] = found[1]
        elif earlier.get(cell.key, {}).get("status") == MEASURED:
            entries.append(earlier[cell.key])
        else:
            entries.append(blank(cell, why_missing(cell.model)))
    results = document(models, entries, texts=describe_texts(), resampled=resampled)
    write_results(RESULTS, results)
    draw(results, IMAGES)
    atomic_write_text(PAGE, page(results), overwrite=True)


def _place(cell: Cell, models: Sequence[Model]) -> tuple[int, int, int]:
    return models.index(cell.model), LENGTHS.index(cell.n), TEXTS.index(cell.text)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description="Fidelity of predictions over models, lengths and texts."
    )
    names = [model.name for model in MODELS]
    parser.add_argument("--models", nargs="+", choices=names, help="only these (default: all)")
    parser.add_argument(
        "--model", action="append", default=[], metavar="ID", help="a hub model or folder, as well"
    )
    parser.add_argument("--lengths", nargs="+", type=int, choices=LENGTHS, default=LENGTHS)
    parser.add_argument("--texts", nargs="+", choices=TEXTS, default=TEXTS)
    parser.add_argument("--budget", type=float, metavar="MINUTES", help="begin no cell after this")
    parser.add_argument("--resume", action="store_true", help="keep what is in results/cache")
    parser.add_argument(
        "--evaluate", action="store_true", help="with --resume: evaluate kept measurements again"
    )
    parser.add_argument("--jobs", type=int, default=1, help="cells at a time (default 1)")
    parser.add_argument("--page", action="store_true", help="run nothing, write page and figures")
    arguments = parser.parse_args()
    if arguments.jobs < 1:
        parser.error("--jobs must be at least 1")
    if arguments.evaluate and not arguments.resume:
        parser.error("--evaluate goes with --resume")
    return arguments


if __name__ == "__main__":
    sys.exit(main())
