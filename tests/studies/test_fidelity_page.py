"""The stored results of the study and the page that is written from them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from fidelity_study.evaluation import COLUMNS
from fidelity_study.grid import MODELS, cells_of
from fidelity_study.page import page
from fidelity_study.results import aggregates, by_length, read_results

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "fidelity.md"
RESULTS = ROOT / "studies" / "results" / "fidelity.json"


@pytest.fixture(scope="module")
def stored() -> dict[str, Any]:
    return read_results(RESULTS)


def test_the_page_is_the_one_that_the_results_give(stored: dict[str, Any]) -> None:
    assert PAGE.read_text(encoding="utf-8") == page(stored)


def test_the_figures_of_the_page_are_there() -> None:
    images = re.findall(r"\]\((images/[^)]+)\)", PAGE.read_text(encoding="utf-8"))
    assert len(images) == 3
    assert all((PAGE.parent / image).stat().st_size < 200_000 for image in images)


def test_the_results_hold_every_cell_of_the_grid_and_stay_small(stored: dict[str, Any]) -> None:
    keys = {cell["key"] for cell in stored["cells"]}
    assert {cell.key for cell in cells_of(MODELS)} <= keys
    assert RESULTS.stat().st_size < 1_000_000
    assert stored["columns"] == list(COLUMNS)


def test_every_figure_has_an_interval_around_or_near_it(stored: dict[str, Any]) -> None:
    for cell in stored["cells"]:
        for table in cell.get("methods", {}).values():
            for values in table.values():
                row = dict(zip(COLUMNS, values, strict=True))
                assert 0.0 <= row["w1_low"] <= row["w1_high"] <= 1.0
                assert 0.0 <= row["w1"] <= 1.0
                assert row["verdict_paper"] in {-1, 0, 1}


def test_aggregates_are_those_of_the_cells(stored: dict[str, Any]) -> None:
    # The interval of a median needs the resamples, which are not stored.
    kept = {"median_low": None, "median_high": None}
    again = aggregates(stored["cells"], {})
    for half, methods in stored["aggregates"].items():
        for method, totals in methods.items():
            for name, total in totals.items():
                assert {**total, **kept} == again[half][method][name]
    for entry, fresh in zip(stored["lengths"], by_length(stored["cells"], {}), strict=True):
        cleared = {name: {**total, **kept} for name, total in entry["totals"].items()}
        assert {**entry, "totals": cleared} == fresh
