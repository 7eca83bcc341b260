"""posbias measure and posbias run, interrupted and continued."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from posbias.cli import _measuring, main
from posbias.measurement import Measurement

torch.set_num_threads(1)

SMALL = ["embedded:bloom", "embedded", "--length", "16", "--windows", "6", "--batch-size", "2"]


def interrupt_after(windows: int, number: int) -> Callable[[], Callable[[int, int], None]]:
    def show(done: int, total: int) -> None:
        if done == windows:
            os.kill(os.getpid(), number)

    return lambda: show


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Measurement:
    out = tmp_path_factory.mktemp("whole") / "out"
    assert main(["measure", *SMALL, "--out", str(out), "-q"]) == 0
    return Measurement.open(out)


@pytest.mark.parametrize(("command", "inner"), [("measure", ""), ("run", "measurement")])
def test_an_interrupted_command_continues(
    command: str,
    inner: str,
    whole: Measurement,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    out, partial = tmp_path / "out", tmp_path / "out.partial"
    words = [command, *SMALL, "--out", str(out)]
    with monkeypatch.context() as patch:
        patch.setattr(_measuring, "_line_printer", interrupt_after(4, signal.SIGTERM))
        assert main(words) == 128 + signal.SIGTERM
    lines = capsys.readouterr().err.splitlines()
    assert lines[-1].startswith("posbias: error: interrupted by SIGTERM after 4 of 6 windows")
    assert any("finishing this batch" in line for line in lines)
    assert partial.is_dir()
    assert not out.exists()

    assert main(words) == 2
    assert "--resume" in capsys.readouterr().err
    assert main([*words, "--seed", "1", "--resume"]) == 2
    assert "was begun with" in capsys.readouterr().err

    assert main([*words, "--resume"]) == 0
    assert "continuing after 4 of 6 windows" in capsys.readouterr().err
    assert not partial.exists()
    result = Measurement.open(out / inner)
    assert result.manifest["run"]["resumed_at"] == [4]
    for name, array in whole.arrays.items():
        assert np.array_equal(result.arrays[name], array), name


def test_a_failure_before_the_first_batch_leaves_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["measure", "embedded:bloom", "embedded", "--length", "100000"]
    assert main([*words, "--out", str(tmp_path / "out")]) == 2
    assert capsys.readouterr().err.startswith("posbias: error: ")
    assert list(tmp_path.iterdir()) == []
