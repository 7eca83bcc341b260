"""``posbias report``."""

from __future__ import annotations

from pathlib import Path

import pytest
import synthetic_measurement
from report_pages import saved

from posbias.cli import main


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return saved(synthetic_measurement.make(), tmp_path / "m")


def test_writes_where_it_says(source: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(source)]) == 0
    written = source / "report.html"
    assert capsys.readouterr().out == f"Written to {written}\n"
    assert written.read_text(encoding="utf-8").startswith("<!DOCTYPE html>")
    assert main(["report", str(source)]) == 2
    err = capsys.readouterr().err
    assert "exists already" in err
    assert "--overwrite" in err
    assert "overwrite=True" not in err
    assert main(["report", str(source), "--overwrite"]) == 0


def test_writes_to_standard_output(source: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(source), "--out", "-"]) == 0
    captured = capsys.readouterr()
    assert captured.out.startswith("<!DOCTYPE html>")
    assert captured.out.endswith("</html>\n")
    assert "Written" not in captured.out


def test_compares_several(
    source: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    other = saved(synthetic_measurement.make([[1, 0], [1, 8]]), tmp_path / "other")
    monkeypatch.chdir(tmp_path)
    assert main(["report", str(source), str(other)]) == 0
    assert capsys.readouterr().out == "Written to report.html\n"
    assert "Position bias of 2 measurements" in (tmp_path / "report.html").read_text("utf-8")


def test_errors_are_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(tmp_path / "none")]) == 2
    err = capsys.readouterr().err
    assert err.startswith("posbias: error: ")
    assert err.count("\n") == 1
    assert main(["report"]) == 2
    assert "DIR" in capsys.readouterr().err


def test_sources_are_looked_at_before_the_output(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = tmp_path / "model"
    model.mkdir()
    (model / "config.json").write_text("{}")
    (model / "report.html").write_text("mine")
    assert main(["report", str(model)]) == 2
    err = capsys.readouterr().err
    assert "is a model; measure it first (posbias measure)" in err
    assert "exists already" not in err
