"""The results file: one entry per cell of the grid, and aggregates over cells."""

from __future__ import annotations

import json
import platform
import statistics
from collections.abc import Iterable, Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fidelity_study.estimators import ABLATIONS, BASELINES, ENERGY, LADDER, PAPER
from fidelity_study.evaluation import COLUMNS, RESAMPLES, Evaluation
from fidelity_study.grid import (
    HALVES,
    SPLIT_RULE,
    Cell,
    Model,
    half_of,
    settings_of,
    why_not_possible,
)
from posbias import __version__
from posbias.atomic import atomic_write_text
from posbias.uncertainty import KERNEL_ALLOWANCE, LEVEL, SEED
from posbias.uncertainty.intervals import TAILS

__all__ = [
    "AIM",
    "DEFAULT",
    "MEASURED",
    "NOT_POSSIBLE",
    "NOT_RUN",
    "aggregates",
    "by_length",
    "document",
    "read_results",
    "row_of",
    "write_results",
]

Array = NDArray[np.float64]
Resampled = Mapping[str, Mapping[str, Array]]

FORMAT = "posbias.fidelity"
MEASURED, NOT_RUN, NOT_POSSIBLE = "measured", "not run", "not possible"

DEFAULT = "default"
"""Name of what the rule of posbias chooses in each cell, beside the estimators."""

AIM = 0.05
"""W1 that the default should not exceed."""

LIBRARIES = ("posbias", "numpy", "torch", "transformers")


def document(
    models: Sequence[Model],
    cells: Iterable[Mapping[str, Any]],
    *,
    texts: Mapping[str, Any],
    resampled: Resampled,
) -> dict[str, Any]:
    """Return the whole results file as JSON-serialisable values.

    Parameters
    ----------
    models : sequence of Model
        All models of the grid, also those of which nothing was measured.
    cells : iterable of mapping
        Entries as `entry` and `blank` make them.
    texts : mapping
        See `fidelity_study.sources.describe_texts`.
    resampled : mapping of str to mapping
        W1 of every resample by key of the cell, then METHOD/ESTIMATOR. Cells without lead to
        aggregates without intervals.
    """
    listed = list(cells)
    return {
        "format": FORMAT,
        "version": 1,
        "libraries": {name: _version(name) for name in LIBRARIES}
        | {"python": platform.python_version()},
        "split": SPLIT_RULE,
        "intervals": {
            "level": LEVEL,
            "resamples": RESAMPLES,
            "seed": SEED,
            "kernel_allowance": KERNEL_ALLOWANCE,
        },
        "models": [
            {"name": model.name, "kind": model.kind, "source": model.source} for model in models
        ],
        "texts": dict(texts),
        "columns": list(COLUMNS),
        "cells": listed,
        "aggregates": aggregates(listed, resampled),
        "lengths": by_length(listed, resampled),
    }


def entry(cell: Cell, notes: Mapping[str, Any], evaluation: Evaluation) -> dict[str, Any]:
    """Return the entry of a measured cell."""
    return {
        **_head(cell),
        "status": MEASURED,
        "settings": notes["settings"],
        "seconds": notes["seconds"],
        "refused": notes["refused"],
        "omitted": settings_of(cell).omitted,
        **evaluation.document,
    }


def blank(cell: Cell, reason: str | None = None) -> dict[str, Any]:
    """Return the entry of a cell that was not measured."""
    impossible = why_not_possible(cell)
    if impossible is not None:
        return {**_head(cell), "status": NOT_POSSIBLE, "reason": impossible}
    return {**_head(cell), "status": NOT_RUN, **({"reason": reason} if reason else {})}


def _head(cell: Cell) -> dict[str, Any]:
    return {
        "key": cell.key,
        "model": cell.model.name,
        "n": cell.n,
        "text": cell.text,
        "half": cell.half,
    }


def row_of(cell: Mapping[str, Any], estimator: str, method: str = "gradient") -> dict[str, Any]:
    """Return the named columns of an estimator in a measured cell; empty if it is not there."""
    if estimator == DEFAULT:
        estimator = cell["default"]["estimator"]
    values = cell["methods"].get(method, {}).get(estimator)
    return {} if values is None else dict(zip(COLUMNS, values, strict=True))


def aggregates(cells: Sequence[Mapping[str, Any]], resampled: Resampled) -> dict[str, Any]:
    """Return by half, influence method and estimator what all measured cells say together.

    Median with its interval (every cell resampled by itself), the worst cell, and how many cells
    are at most `AIM`, and closer or farther than the paper's estimator or uniform beyond doubt.
    """
    found: dict[str, Any] = {}
    names = (DEFAULT, PAPER, ENERGY, *BASELINES, *LADDER, *ABLATIONS)
    for half in HALVES:
        measured = [c for c in cells if c["half"] == half and c["status"] == MEASURED]
        methods = sorted({method for cell in measured for method in cell["methods"]})
        found[half] = {
            method: {
                name: total
                for name in names
                if (total := _aggregate(measured, name, method, resampled)) is not None
            }
            for method in methods
        }
    return found


def by_length(cells: Sequence[Mapping[str, Any]], resampled: Resampled) -> list[dict[str, Any]]:
    """Return an entry per length and text with measured cells: what all models say together.

    ``n``, ``text``, ``half`` and ``totals``: default, paper's estimator and uniform under the
    gradient, as in `aggregates`.
    """
    groups: dict[tuple[int, str], list[Mapping[str, Any]]] = {}
    for cell in cells:
        if cell["status"] == MEASURED:
            groups.setdefault((cell["n"], cell["text"]), []).append(cell)
    return [
        {
            "n": n,
            "text": text,
            "half": half_of(n, text),
            "totals": {
                name: _aggregate(group, name, "gradient", resampled)
                for name in (DEFAULT, PAPER, "uniform")
            },
        }
        for (n, text), group in sorted(groups.items())
    ]


def _aggregate(
    cells: Sequence[Mapping[str, Any]], name: str, method: str, resampled: Resampled
) -> dict[str, Any] | None:
    there = [(cell, row) for cell in cells if (row := row_of(cell, name, method))]
    if not there:
        return None
    values = [row["w1"] for _, row in there]
    worst, row = max(there, key=lambda pair: pair[1]["w1"])
    low, high = _median_interval([cell for cell, _ in there], name, method, resampled)
    return {
        "cells": len(there),
        "median": statistics.median(values),
        "median_low": low,
        "median_high": high,
        "worst": row["w1"],
        "worst_low": row["w1_low"],
        "worst_high": row["w1_high"],
        "worst_cell": worst["key"],
        "within_aim": sum(value <= AIM for value in values),
        "farther_than_paper": sum(row["verdict_paper"] < 0 for _, row in there),
        "closer_than_paper": sum(row["verdict_paper"] > 0 for _, row in there),
        "farther_than_uniform": sum(row["verdict_uniform"] < 0 for _, row in there),
        "closer_than_uniform": sum(row["verdict_uniform"] > 0 for _, row in there),
    }


def _median_interval(
    cells: Sequence[Mapping[str, Any]], name: str, method: str, resampled: Resampled
) -> tuple[float | None, float | None]:
    columns = []
    for index, cell in enumerate(cells):
        estimator = cell["default"]["estimator"] if name == DEFAULT else name
        values = resampled.get(cell["key"], {}).get(f"{method}/{estimator}")
        if values is None:
            return None, None
        # The same seed draws alike in cells of as many windows; what is drawn is not the same.
        columns.append(np.random.default_rng(index).permutation(values))
    low, high = np.quantile(np.median(np.array(columns), axis=0), TAILS)
    return float(f"{low:.6g}"), float(f"{high:.6g}")


def read_results(path: Path) -> dict[str, Any]:
    """Return a results file.

    Raises
    ------
    ValueError
        If it is none.
    """
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    if found.get("format") != FORMAT:
        raise ValueError(f"{path} holds no results of this study")
    return found


def write_results(path: Path, results: Mapping[str, Any]) -> None:
    """Write a results file: one line per cell, so that changes can be read."""
    lines = [
        f' "{key}": {json.dumps(value, separators=(",", ":"), allow_nan=False)}'
        for key, value in results.items()
        if key != "cells"
    ]
    cells = ",\n".join(
        "  " + json.dumps(cell, separators=(",", ":"), allow_nan=False) for cell in results["cells"]
    )
    lines.append(f' "cells": [\n{cells}\n ]')
    atomic_write_text(path, "{\n" + ",\n".join(lines) + "\n}\n", overwrite=True)


def _version(name: str) -> str | None:
    if name == "posbias":
        return __version__
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None
