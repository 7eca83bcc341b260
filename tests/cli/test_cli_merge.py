"""posbias merge: the whole from its parts, and refusals in one line."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from synthetic_measurement import make, make_parts

from posbias.cli import main
from posbias.measurement import Measurement

STARTS = [[0, 0], [0, 8], [1, 3], [4, 0], [4, 9]]


def store(folder: Path, groups: list[list[int]]) -> list[str]:
    """Save one measurement per group of windows."""
    return [
        str(make([STARTS[k] for k in group]).save(folder / f"part-{number}"))
        for number, group in enumerate(groups)
    ]


def error_line(capsys: pytest.CaptureFixture[str]) -> str:
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1
    return lines[0]


@pytest.mark.parametrize("groups", [[[0, 1], [2, 3, 4]], [[4], [0, 2], [1, 3]], [[0, 1, 2, 3, 4]]])
def test_parts_give_the_whole(
    groups: list[list[int]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "whole"
    assert main(["merge", *store(tmp_path, groups), "--out", str(out)]) == 0
    merged, whole = Measurement.open(out), make(STARTS)
    assert merged.manifest == whole.manifest
    for name, array in whole.arrays.items():
        assert np.array_equal(merged.arrays[name], array), name
    assert "windows    5 of 8 tokens" in capsys.readouterr().out


def test_the_measurement_in_the_directory_of_a_run_is_taken(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    make(STARTS[:2]).save(tmp_path / "run" / "measurement")
    make(STARTS[2:]).save(tmp_path / "rest")
    out = tmp_path / "whole"
    assert main(["merge", str(tmp_path / "run"), str(tmp_path / "rest"), "-o", str(out)]) == 0
    assert Measurement.open(out).windows == 5


def test_an_existing_output_is_refused_and_kept(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    parts, out = store(tmp_path, [[0], [1]]), tmp_path / "part-1"
    assert main(["merge", *parts, "--out", str(out)]) == 2
    assert "part-1 exists already" in error_line(capsys)
    assert Measurement.open(out).windows == 1
    assert main(["merge", *parts, "--out", str(out), "--overwrite"]) == 0
    assert Measurement.open(out).windows == 2


def test_other_settings_are_refused_with_both_values(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    manifest, arrays = make_parts([[9, 0]])
    manifest["model"]["revision"] = "abc"
    other = Measurement(manifest, arrays).save(tmp_path / "other")
    words = ["merge", *store(tmp_path, [[0]]), str(other), "--out", str(tmp_path / "out")]
    assert main(words) == 2
    line = error_line(capsys)
    assert all(part in line for part in ("model.revision", "None", "'abc'", "other"))
    assert not (tmp_path / "out").exists()


def test_windows_that_overlap_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    part = store(tmp_path, [[0, 1]])
    assert main(["merge", *part, *part, "--out", str(tmp_path / "out")]) == 2
    assert "windows overlap" in error_line(capsys)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("absent", "there is no such directory"),
        ("spec.yaml", "this is a file"),
        ("empty", "manifest"),
    ],
)
def test_what_is_no_measurement_is_refused(
    name: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "spec.yaml").write_text("n: 8\n")
    (tmp_path / "empty").mkdir()
    words = ["merge", *store(tmp_path, [[0]]), str(tmp_path / name), "-o", str(tmp_path / "out")]
    assert main(words) == 2
    assert message in error_line(capsys)
