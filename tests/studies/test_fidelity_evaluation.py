"""The evaluation of a measurement, and what is made of many: the split, aggregates, refusals."""

from __future__ import annotations

import statistics
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fidelity_study import grid, measuring, results
from fidelity_study.estimators import ABLATIONS, ENERGY, PAPER, estimators
from fidelity_study.evaluation import COLUMNS, evaluate
from synthetic_measurement import make

import posbias
from posbias.errors import InputError
from posbias.uncertainty import resample_comparison


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    return evaluate(make(), resamples=200).document


def test_the_split_is_the_one_that_the_page_tells() -> None:
    confirmed = {
        (n, text)
        for n in grid.LENGTHS
        for text in grid.TEXTS
        if grid.half_of(n, text) == "confirmation"
    }
    told = grid.SPLIT_RULE.partition("confirmation half: ")[2].partition(".")[0]
    assert confirmed == {(int(n), text) for n, text in map(str.split, told.split(", "))}
    assert len(confirmed) == len(grid.LENGTHS)


def test_every_cell_of_the_grid_is_there_once_and_the_shorter_ones_come_first() -> None:
    cells = grid.cells_of(grid.MODELS)
    assert len({cell.key for cell in cells}) == len(cells)
    assert len(cells) == len(grid.MODELS) * len(grid.LENGTHS) * len(grid.TEXTS)
    assert [cell.n for cell in cells] == sorted(
        (cell.n for cell in cells), key=grid.CELL_ORDER.index
    )


def test_ablations_differ_from_a_named_estimator_on_one_axis() -> None:
    found = estimators()
    for text in ABLATIONS:
        base = found[text.partition(",")[0]]
        differing = {key for key, value in vars(found[text]).items() if value != vars(base)[key]}
        assert len(differing - {"mlp"}) == 1 or differing == {"mlp"}


def test_the_figures_are_those_of_compare(document: dict[str, Any]) -> None:
    measurement = make()
    predicted = posbias.predict(measurement, estimator=PAPER)
    compared = posbias.compare(measurement, predicted)
    for ours, theirs in ((PAPER, "residual+measured"), ("uniform", "uniform")):
        row = dict(zip(COLUMNS, document["methods"]["gradient"][ours], strict=True))
        assert row["w1"] == pytest.approx(compared[theirs].w1, abs=1e-15)
    resampled = resample_comparison(measurement, predicted, resamples=200)
    assert resampled is not None
    w1 = resampled.predictions["residual+measured"].figures["w1"]
    row = dict(zip(COLUMNS, document["methods"]["gradient"][PAPER], strict=True))
    assert [row["w1_low"], row["w1_high"]] == pytest.approx(
        np.quantile(w1, [0.025, 0.975]), rel=1e-5
    )


def test_paired_differences_are_zero_against_oneself(document: dict[str, Any]) -> None:
    table = document["methods"]["gradient"]
    for name, suffix in ((PAPER, "paper"), ("uniform", "uniform")):
        row = dict(zip(COLUMNS, table[name], strict=True))
        assert row[f"against_{suffix}_low"] == row[f"against_{suffix}_high"] == 0.0
        assert row[f"verdict_{suffix}"] == 0


def test_what_was_not_recorded_is_missing_with_its_reason(document: dict[str, Any]) -> None:
    assert "kernel.value.sum" in document["missing"]["paper,kernel=value-weighted"]
    assert ENERGY not in document["methods"]["gradient"]
    assert document["default"]["estimator"] == PAPER


def test_a_single_window_is_refused() -> None:
    with pytest.raises(InputError, match="at least two sampling units"):
        evaluate(make([[0, 0]]))


def cell_of(key: str, w1: float, verdict: int, default: str = ENERGY) -> dict[str, Any]:
    good = [w1, w1 - 0.01, w1 + 0.01, 0.5, 0.4, 0.6, -0.1, -0.05, -0.2, -0.1, verdict, 1]
    paper = [0.2, 0.19, 0.21, 0.5, 0.4, 0.6, 0.0, 0.0, -0.1, 0.1, 0, 0]
    return {
        "key": key,
        "half": "confirmation",
        "status": results.MEASURED,
        "default": {"estimator": default},
        "methods": {"gradient": {ENERGY: good, PAPER: paper}},
    }


def test_aggregates_are_medians_worst_cells_and_counts() -> None:
    cells = [cell_of("a", 0.01, 1), cell_of("b", 0.3, -1), cell_of("c", 0.04, 0, PAPER)]
    found = results.aggregates(cells, {})["confirmation"]["gradient"]
    energy, default = found[ENERGY], found[results.DEFAULT]
    assert (energy["median"], energy["worst"], energy["worst_cell"]) == (0.04, 0.3, "b")
    assert (energy["within_aim"], energy["closer_than_paper"]) == (2, 1)
    assert energy["farther_than_paper"] == 1
    # In the third cell the rule chose the paper's estimator.
    assert default["median"] == statistics.median([0.01, 0.3, 0.2])
    assert energy["median_low"] is None


def test_the_interval_of_a_median_resamples_every_cell_by_itself() -> None:
    rng = np.random.default_rng(1)
    cells = [cell_of(str(k), 0.1, 0) for k in range(5)]
    values = {str(k): {f"gradient/{ENERGY}": rng.normal(0.1, 0.01, 1000)} for k in range(5)}
    total = results.aggregates(cells, values)["confirmation"]["gradient"][ENERGY]
    medians = [
        np.median([rng.choice(values[str(k)][f"gradient/{ENERGY}"]) for k in range(5)])
        for _ in range(4000)
    ]
    expected = np.quantile(medians, [0.025, 0.975])
    assert [total["median_low"], total["median_high"]] == pytest.approx(expected, abs=1.5e-3)


def test_a_refused_method_is_recorded_and_the_others_are_measured_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("transformers")
    few = grid.Settings(windows=2, methods=("gradient", "gradient-input"), jacobian=0)
    monkeypatch.setattr(measuring, "settings_of", lambda cell: few)
    cell = replace(grid.cells_of(grid.MODELS[:1])[0], n=32, text="literature")
    found, notes = measuring.measured(cell, tmp_path, resume=True)
    assert found.influence_methods == ("gradient",)
    assert "gradient-input" in notes["refused"]
    assert found.manifest["model"]["id"] == "bloom"
    monkeypatch.setattr(measuring, "_measure", None)
    again, same = measuring.measured(cell, tmp_path, resume=True)
    assert (again.sha256, same) == (found.sha256, notes)


def test_weights_of_another_model_are_refused() -> None:
    pytest.importorskip("transformers")
    from fidelity_study import sources

    snapshot = next(model for model in grid.MODELS if model.name == "llama-step122")
    wrong = replace(snapshot, source="embedded:bloom")
    if sources.why_missing(snapshot) is not None:
        pytest.skip("the snapshots are not part of this distribution")
    with pytest.raises(ValueError, match="does not fit"):
        sources.load(wrong, Path("unused"))


def test_program_code_is_chosen_by_rule() -> None:
    pytest.importorskip("transformers")
    from fidelity_study.sources import code_files, code_text

    files = code_files()
    assert all(2**14 <= file.stat().st_size <= 2**17 for file in files)
    assert len(files) == len(code_text().documents) == 32
