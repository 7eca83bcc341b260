"""Intervals where people meet them: tables of any width, figures, JSON of the commands."""

from __future__ import annotations

import json
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pytest
import synthetic_measurement
from matplotlib.collections import PolyCollection

from posbias.cli import main
from posbias.cli._tables import comparison_table, plain_table
from posbias.compare import compare
from posbias.comparison import Comparison
from posbias.errors import ProfileError
from posbias.measurement import Measurement
from posbias.plot import comparison_figure, plot_profiles
from posbias.predict import predict
from posbias.profile import Profile
from posbias.run import run_measurement

STARTS = [[document, 8 * k] for document in range(12) for k in range(2)]

Capture = pytest.CaptureFixture[str]


@pytest.fixture(scope="module")
def measurement() -> Measurement:
    return synthetic_measurement.make(STARTS)


@pytest.fixture(scope="module")
def comparison(measurement: Measurement) -> Comparison:
    return compare(measurement, predict(measurement))


@pytest.fixture(scope="module")
def folder(measurement: Measurement, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return measurement.save(tmp_path_factory.mktemp("intervals") / "m")


def compared(folder: Path, width: int, monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> str:
    monkeypatch.setenv("COLUMNS", str(width))
    assert main(["compare", str(folder), str(folder)]) == 0
    return capsys.readouterr().out


@pytest.mark.parametrize("width", [40, 50, 60, 80, 100, 130, 200])
def test_names_and_digits_survive_every_width(
    folder: Path,
    comparison: Comparison,
    width: int,
    monkeypatch: pytest.MonkeyPatch,
    capsys: Capture,
) -> None:
    lines = compared(folder, width, monkeypatch, capsys).splitlines()
    assert max(map(len, lines)) <= width
    for row in comparison.rows:
        name = {"fixed-half": "fixed 1/2"}.get(row.variant, row.variant)
        found = [line for line in lines if line.strip().startswith(f"{name} ")]
        assert len(found) == 1, name
        assert f"{row.w1:.4f}" in found[0]
        if width >= 80:
            assert comparison.shown(row.variant, "w1") in found[0]
    left_out = [line for line in lines if "Left out at this width" in line]
    assert bool(left_out) == (width < 100)


def test_unit_and_text_needed_are_stated(
    folder: Path, comparison: Comparison, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    said = compared(folder, 200, monkeypatch, capsys)
    needed = comparison.units_needed(comparison.best.variant)
    assert needed is not None
    assert comparison.sampling is not None
    effective = comparison.sampling["effective_units"]
    few = f", effectively {effective:.0f}" if round(effective) < 12 else ""
    assert f"Intervals: 95 %, bootstrap over 12 documents{few}." in said
    assert f"to +-0.01 needs about {needed:,} documents like these" in said


def test_predictions_not_told_apart_are_marked(measurement: Measurement) -> None:
    residual = predict(measurement)["residual"]
    found = compare(measurement, {"residual": residual, "twin": residual, "far": last_alone()})
    table = comparison_table(found)
    assert [str(cell) for cell in table.columns[0].cells][1:] == ["residual", "twin ~", "far"]
    assert "~ not distinguished from residual (paired bootstrap of W1)." in str(table.caption)


def last_alone() -> Profile:
    return Profile(np.eye(8)[7])


def test_without_windows_the_table_says_why(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    assert main(["predict", str(folder), "--csv", str(tmp_path / "p.csv")]) == 0
    monkeypatch.setenv("COLUMNS", "160")
    table = tmp_path / "p.csv"
    assert main(["compare", str(table), str(table), "--column", "residual"]) == 0
    said = capsys.readouterr().out
    assert "Intervals: none, they need at least two windows of a measurement." in said
    assert "[" not in said


def test_first_column_stays_in_the_narrowest_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "12")
    table = plain_table(["variant", "a", "b"], [["residual", "0.1234", "0.5678"]])
    assert [column.header for column in table.columns] == ["variant"]
    assert table.caption == "Left out at this width: a, b."


def test_json_of_compare_has_intervals(folder: Path, capsys: Capture) -> None:
    assert main(["compare", str(folder), str(folder), "--json", "-"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["intervals"]["unit"] == "documents"
    assert document["intervals"]["units"] == 12
    assert all(row["w1_low"] < row["w1_high"] for row in document["rows"])
    assert document["against_best"]


def test_result_of_a_run_has_intervals_of_distances_and_mixing(
    measurement: Measurement, tmp_path: Path
) -> None:
    result = run_measurement(measurement, out=tmp_path / "run", estimator="norm")
    document = result.as_dict()
    assert json.loads(json.dumps(document, allow_nan=False)) == document
    assert document["intervals"]["units"] == 12
    layers = document["mixing"]
    assert [layer["layer"] for layer in layers] == [1, 2, 3]
    assert all(layer["low"] < layer["value"] < layer["high"] for layer in layers)
    assert "w1_low" in (tmp_path / "run" / "comparison.csv").read_text()


def test_bands_are_drawn_in_the_colour_of_their_profile() -> None:
    p, q = Profile([0.5, 0.2, 0.3]), Profile([0.3, 0.3, 0.4])
    low, high = p.mass * 0.9, p.mass * 1.1
    axes = plot_profiles({"measured": p, "residual": q}, bands={"measured": (low, high)})
    bands = [c for c in axes.collections if isinstance(c, PolyCollection)]
    assert len(bands) == 1
    assert "95 % interval" in str(bands[0].get_label())
    path = bands[0].get_paths()[0].vertices
    assert isinstance(path, np.ndarray)
    assert path[:, 1].min() == pytest.approx(low.min())
    assert path[:, 1].max() == pytest.approx(high.max())
    plt.close("all")


def test_bands_of_another_length_are_refused() -> None:
    p = Profile([0.5, 0.2, 0.3])
    with pytest.raises(ProfileError, match=r"band of 'measured' has shapes \(2,\)"):
        plot_profiles({"measured": p}, bands={"measured": (np.zeros(2), np.ones(2))})
    plt.close("all")


def test_figure_of_a_comparison_has_a_band_per_resampled_profile(
    measurement: Measurement, comparison: Comparison
) -> None:
    predicted = predict(measurement)
    distances = {row.variant: row.w1 for row in comparison.rows}
    bands = comparison.bands()
    figure = comparison_figure(measurement.influence(), predicted, distances, bands=bands)
    drawn = [c for c in figure.axes[0].collections if isinstance(c, PolyCollection)]
    assert len(drawn) == len(bands)
    plt.close("all")
