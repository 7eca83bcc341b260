"""Words that name no file: texts, empty strings, folders of another kind."""

from __future__ import annotations

from pathlib import Path

import pytest
from synthetic_measurement import make

import posbias
from posbias.cli import main
from posbias.errors import InputError
from posbias.run import run

RAW_TEXT = "a whole text in place of a path " * 40
MODEL = Path(posbias.__file__).parent / "data" / "models" / "bloom"


def failed(words: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    capsys.readouterr()
    assert main(words) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("posbias: error: ")
    assert captured.err.count("\n") == 1
    return captured.err


@pytest.fixture(autouse=True)
def empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(
    "words",
    [
        ["measure", "embedded:bloom", RAW_TEXT, "--out", "o"],
        ["measure", RAW_TEXT, "embedded", "--out", "o"],
        ["run", "embedded:bloom", RAW_TEXT],
        ["inspect", RAW_TEXT],
        ["predict", RAW_TEXT],
        ["predict", RAW_TEXT, "--csv", "p.csv"],
        ["compare", RAW_TEXT, RAW_TEXT],
        ["forces", RAW_TEXT],
        ["depth", RAW_TEXT],
        ["report", RAW_TEXT],
        ["merge", RAW_TEXT, RAW_TEXT, "--out", "o"],
    ],
    ids=lambda words: words[0],
)
def test_a_text_in_place_of_a_path_is_one_short_line(
    words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert len(failed(words, capsys)) < 500
    assert list(tmp_path.iterdir()) == []


def test_a_text_in_place_of_a_path_from_python() -> None:
    with pytest.raises(InputError, match=r"documents themselves go in a list"):
        posbias.measure("embedded:bloom", RAW_TEXT)
    for call in (posbias.predict, posbias.Measurement.open):
        with pytest.raises(InputError, match="a whole text"):
            call(RAW_TEXT)


@pytest.mark.parametrize(
    ("words", "name"),
    [
        (["measure", "", "embedded", "--out", "o"], "MODEL"),
        (["measure", "embedded:bloom", "", "--out", "o"], "TEXT"),
        (["measure", "embedded:bloom", "embedded", "--out", ""], "--out"),
        (["run", "--out", "", "--overwrite"], "--out"),
        (["inspect", ""], "MODEL"),
        (["predict", ""], "SOURCE"),
        (["predict", "x", "--json", "", "--csv", ""], "--csv"),
        (["compare", "", "x"], "MEASURED"),
        (["compare", "x", "x", ""], "PREDICTED"),
        (["forces", ""], "SOURCE"),
        (["depth", ""], "SOURCE"),
        (["report", "x", ""], "DIR"),
        (["merge", "x", "", "--out", "o"], "MEASUREMENT"),
    ],
)
def test_an_empty_word_is_refused_by_name(
    words: list[str], name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    error = failed(words, capsys)
    assert name in error
    assert "is empty" in error


def test_an_empty_name_from_python_is_not_the_current_folder() -> None:
    with pytest.raises(InputError, match="text is empty"):
        posbias.measure("embedded:bloom", "")
    with pytest.raises(InputError, match="output is empty"):
        run(out="", overwrite=True)
    with pytest.raises(InputError, match="output is empty"):
        make().save("", overwrite=True)
    with pytest.raises(InputError, match="model is empty"):
        posbias.measure("", "embedded")
    for call in (posbias.predict, posbias.Measurement.open):
        with pytest.raises(InputError, match="is empty"):
            call("")


@pytest.mark.parametrize("command", ["predict", "forces", "depth"])
def test_a_model_is_no_source(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    error = failed([command, str(MODEL)], capsys)
    assert "is a model; measure it first" in error
    assert f"{MODEL / 'config.json'}" in error
    assert "--mixing" in error


@pytest.mark.parametrize("command", ["predict", "forces", "depth"])
def test_a_source_that_does_not_exist(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    error = failed([command, "nowhere"], capsys)
    assert "nowhere does not exist; a measurement directory or a spec is required" in error
