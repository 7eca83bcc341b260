"""The front door: help, version, exit codes, one-line errors, and what is imported when."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

from posbias.cli import main
from posbias.cli._options import Variant
from posbias.errors import InstrumentationError

COMMANDS = ("run", "measure", "predict", "compare", "forces", "depth")


def run_module(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "posbias", *words],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **environment},
    )


@pytest.fixture
def spec_file(published_dir: Path) -> str:
    return str(published_dir / "no_content_mpt-7b.yaml")


def test_help_lists_the_commands_in_order(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    out = capsys.readouterr().out
    rows = [line.split() for line in out.splitlines() if line.startswith("│ ")]
    listed = [row[1] for row in rows if row[1] in COMMANDS]
    assert tuple(listed) == COMMANDS


@pytest.mark.parametrize("words", [[], ["-h"], *([name, "--help"] for name in COMMANDS)])
def test_help_goes_to_stdout(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == 0
    captured = capsys.readouterr()
    assert "Usage" in captured.out
    assert captured.err == ""


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    import posbias

    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"posbias {posbias.__version__}\n"


def test_help_imports_nothing_heavy() -> None:
    program = (
        "import sys; from posbias.cli import main\n"
        "for words in (['--help'], ['run', '--help'], ['predict', '--help'], ['--version']):\n"
        "    assert main(words) == 0\n"
        "heavy = {'torch', 'transformers', 'matplotlib', 'numba', 'scipy', 'pandas'}\n"
        "print(sorted(heavy & set(sys.modules)), file=sys.stderr)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stderr.strip() == "[]"


@pytest.mark.parametrize(
    ("words", "part"),
    [
        (["frobnicate"], "no such command 'frobnicate'"),
        (["predict"], "missing argument 'SOURCE'"),
        (["predict", "x.yaml", "--variant", "nonsense"], "nonsense"),
        (["predict", "x.yaml", "--csv"], "--csv"),
        (["compare", "x.csv"], "PREDICTED"),
        (["run", "a", "b", "c"], "c"),
        (["--frob"], "--frob"),
    ],
)
def test_wrong_usage_is_one_line_and_exits_2(
    words: list[str], part: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("posbias: error: ")
    assert captured.err.count("\n") == 1
    assert part in captured.err
    assert "--help" in captured.err


def test_module_and_exit_code_of_the_process() -> None:
    done = run_module("predict", "no-such-file.yaml")
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith("posbias: error: ")
    assert done.stderr.count("\n") == 1
    assert "no-such-file.yaml" in done.stderr


@pytest.mark.parametrize("place", ["before", "after"])
def test_debug_shows_the_traceback(place: str, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["predict", "no-such-file.yaml"]
    words = ["--debug", *words] if place == "before" else [*words, "--debug"]
    assert main(words) == 2
    lines = capsys.readouterr().err.splitlines()
    assert lines[0].startswith("Traceback")
    assert lines[-1].startswith("posbias: error: ")


def test_errors_of_a_measurement_exit_3(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise InstrumentationError("activations overflow\nin float16")

    monkeypatch.setattr(importlib.import_module("posbias.measure.runner"), "measure", refuse)
    assert main(["measure", "embedded:bloom", "embedded", "--out", "unused-directory"]) == 3
    assert capsys.readouterr().err == "posbias: error: activations overflow in float16\n"


def test_interrupt_exits_130(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], spec_file: str
) -> None:
    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(sys.modules["posbias.predict"], "predict", interrupt)
    assert main(["predict", spec_file]) == 130
    assert capsys.readouterr().err == "posbias: interrupted\n"


def test_interrupt_while_the_commands_are_loaded_exits_130() -> None:
    program = """
import sys
class Interrupt:
    def find_spec(self, name, path, target=None):
        if name == "posbias.cli._main":
            raise KeyboardInterrupt
sys.meta_path.insert(0, Interrupt())
from posbias.cli import main
sys.exit(main(["--version"]))
"""
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "posbias: interrupted\n")


def test_other_exceptions_stay_exceptions(monkeypatch: pytest.MonkeyPatch, spec_file: str) -> None:
    def fail(*_: object, **__: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(sys.modules["posbias.predict"], "predict", fail)
    with pytest.raises(ZeroDivisionError):
        main(["predict", spec_file])


def test_a_reader_that_goes_away_is_no_error(spec_file: str) -> None:
    command = f"{sys.executable} -m posbias predict '{spec_file}' --csv - | head -n 1"
    done = subprocess.run(
        ["bash", "-c", f"set -o pipefail; {command}"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.startswith("position,")
    assert done.stderr == ""
    assert done.returncode in {0, 141}


def test_variants_are_those_of_the_library() -> None:
    from posbias.predict import VARIANTS

    assert tuple(v.value for v in Variant) == tuple(VARIANTS)


def test_number_formats_are_those_of_the_library() -> None:
    from posbias.cli._measuring import DtypeName
    from posbias.models.loading import DTYPES

    assert {d.value for d in DtypeName} == set(DTYPES)
