"""Faults that must not come back: lost files, wrong streams, odd numbers, unclear messages."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from posbias.cli import main

SPEC = {
    "posbias_spec": 1,
    "name": "g",
    "length": 8,
    "depth": 4,
    "layers": [{"alibi": {"slopes": [0.5, 0.25], "diagonal": 0.3}}],
    "mixing": {"type": "constant", "value": 0.3},
}


@pytest.fixture
def spec_file(tmp_path: Path) -> Path:
    return written(tmp_path)


def written(folder: Path, **changes: Any) -> Path:
    path = folder / "g.json"
    path.write_text(json.dumps({**SPEC, **changes}))
    return path


def failed(words: list[object], capsys: pytest.CaptureFixture[str]) -> str:
    capsys.readouterr()
    assert main([str(word) for word in words]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("posbias: error: ")
    assert captured.err.count("\n") == 1
    return captured.err


def printed(words: list[object], capsys: pytest.CaptureFixture[str]) -> str:
    capsys.readouterr()
    assert main([str(word) for word in words]) == 0
    captured = capsys.readouterr()
    assert captured.err == ""
    return captured.out


@pytest.mark.parametrize("spelling", ["same", "relative", "symlink", "hardlink"])
@pytest.mark.parametrize("option", ["--csv", "--json", "--figure"])
def test_an_output_that_is_the_input_is_refused(
    spelling: str, option: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = tmp_path / "g.json"
    written(tmp_path)
    if option == "--figure":
        source = source.rename(tmp_path / "g.png")
    before = source.read_bytes()
    other = tmp_path / f"other{source.suffix}"
    if spelling == "symlink":
        other.symlink_to(source)
    elif spelling == "hardlink":
        os.link(source, other)
    target = {
        "same": source,
        "relative": tmp_path / ".." / tmp_path.name / source.name,
    }.get(spelling, other)
    for words in (["predict", source], ["compare", source, source]):
        assert "is read as input" in failed([*words, option, target, "--overwrite"], capsys)
    assert source.read_bytes() == before


def test_two_results_in_one_file_are_refused(
    spec_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "out.json"
    line = failed(["predict", spec_file, "--csv", target, "--json", target], capsys)
    assert "two results" in line


def test_a_missing_output_folder_is_refused(
    spec_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "missing" / "out.csv"
    assert "create it first" in failed(["predict", spec_file, "--csv", target], capsys)
    assert not target.parent.exists()


def run_in_shell(command: str, **environment: str) -> subprocess.CompletedProcess[str]:
    program = f"{sys.executable} -c 'import sys; from posbias.cli import main; sys.exit(main())'"
    return subprocess.run(
        ["bash", "-c", command.replace("posbias", program)],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_reader_that_went_away_is_exit_code_141(spec_file: Path, unbuffered: str) -> None:
    command = f"posbias predict {spec_file} --csv - -n 40000 | head -1; exit ${{PIPESTATUS[0]}}"
    done = run_in_shell(command, PYTHONUNBUFFERED=unbuffered)
    assert (done.returncode, done.stdout, done.stderr) == (141, "position,mass\n", "")


@pytest.mark.parametrize("options", ["", "--csv -"])
@pytest.mark.parametrize(
    ("stream", "part"), [(">&-", "is closed"), (">/dev/full", "No space left on device")]
)
def test_a_closed_or_full_standard_output_is_one_line(
    spec_file: Path, options: str, stream: str, part: str
) -> None:
    done = run_in_shell(f"posbias predict {spec_file} {options} {stream}")
    assert done.returncode == 2
    assert done.stderr.startswith("posbias: error: ")
    assert done.stderr.count("\n") == 1
    assert part in done.stderr


@pytest.mark.parametrize(
    ("schedule", "reached"),
    [("power:0.4:1.2", "never"), ("constant:0.1", "129 layers"), ("power:0.4:1", "not within")],
)
def test_depth_for_a_share_follows_the_schedule(
    schedule: str, reached: str, spec_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = printed(["depth", spec_file, "--schedule", schedule], capsys)
    lines = out.splitlines()
    k = next(k for k, line in enumerate(lines) if "depth for 0.9" in line)
    assert reached in lines[k]
    assert lines[k + 1].split() == ["along", "the", "schedule", schedule]


@pytest.mark.parametrize("beta", ["1e-300", "1e-17", "1e-10"])
@pytest.mark.parametrize("lambda0", ["1", "0.9"])
def test_a_slow_schedule_collapses_without_an_overflow(
    lambda0: str, beta: str, spec_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    schedule = f"power:{lambda0}:{beta}"
    out = printed(["depth", spec_file, "--schedule", schedule], capsys)
    assert out.splitlines()[0] == f"Infinite depth, {schedule}: collapse"


@pytest.mark.parametrize("schedule", ["power:0.3:1e308", "power:0.9:400", "exponential:0.3:1e-300"])
def test_a_steep_schedule_prints_no_warning(
    schedule: str, spec_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = printed(["depth", spec_file, "--schedule", schedule], capsys)
    assert out.splitlines()[0] == f"Infinite depth, {schedule}: no collapse"


def test_too_many_layers_are_refused(spec_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["depth", spec_file, "--schedule", "constant:0.1", "--layers", "1000000"]
    assert "1 to 10000" in failed(words, capsys)


def test_depth_names_the_layer_that_looks_ahead(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    causal = SPEC["layers"][0]  # type: ignore[index]
    ahead = {**causal, "mask": {"type": "prefix_lm", "prefix": 3}}
    source = written(tmp_path, layers=[causal, causal, ahead, causal])
    line = failed(["depth", source], capsys)
    assert "layer 3" in line
    assert "prefix_lm" in line


@pytest.mark.parametrize("below", ["same", "causal"])
def test_forces_say_that_an_inserted_layer_looks_ahead(
    below: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    causal = SPEC["layers"][0]  # type: ignore[index]
    ahead = {**causal, "mask": {"type": "prefix_lm", "prefix": 3}}
    source = written(tmp_path, layers=[ahead if below == "same" else causal] * 3 + [ahead])
    document = json.loads(printed(["forces", source, "--json"], capsys))
    depth = document["forces"][0]
    assert depth["force"] == "depth"
    found = {h["name"]: h for h in depth["verdict"]["hypotheses"]}
    assert found["inserted layers are causal"]["holds"] is False
    assert "to later positions" in found["inserted layers are causal"]["detail"]
    out = printed(["forces", source], capsys)
    reason = next(line for line in out.splitlines() if line.startswith("depth: not guaranteed"))
    assert "of the rollout" in reason
    assert " a " not in reason.replace(" a layer", "")
    assert " b" not in reason.replace(" be ", " ").replace(" by ", " ")


def test_forces_have_one_name_each(spec_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    document = json.loads(printed(["forces", spec_file, "--json"], capsys))
    out = printed(["forces", spec_file], capsys)
    shown = [line.split()[0] for line in out.splitlines() if " T" in line and "+" in line]
    assert shown == [entry["force"] for entry in document["forces"]]
    assert "earlier than the rollout" in document["forces"][0]["verdict"]["claim"]


def test_a_strength_of_one_is_named_alone(
    spec_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    line = failed(["forces", spec_file, "--strength", "1"], capsys)
    assert "the strength is 1;" in line
    assert "query" not in line


@pytest.mark.parametrize("value", ["0_3", "nan", "inf", "\u0660.\u0663", " 0.3", "0x1", "1e999"])
def test_only_plain_decimal_numbers_are_numbers(
    value: str, spec_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for arguments in (
        ["predict", spec_file, "--mixing", f"constant:{value}"],
        ["forces", spec_file, "--strength", value],
        ["depth", spec_file, "--share", value],
    ):
        # A number too large for float64 may be shown as the infinity that it reads as.
        shown = (value.strip(), "inf") if value == "1e999" else (value.strip(),)
        line = failed(arguments, capsys)
        assert any(text in line for text in shown)


@pytest.mark.parametrize("value", ["1_0", "1e3", "abc", "8.0", "\u0668"])
@pytest.mark.parametrize(("option", "name"), [("-n", "--length"), ("--query", "--query")])
def test_whole_numbers_are_named_by_their_option(
    option: str, name: str, value: str, spec_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    line = failed(["predict", spec_file, option, value], capsys)
    assert line == f"posbias: error: {name} is {value!r}; a whole number is required\n"


def test_huge_masses_are_refused_without_a_warning(
    spec_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    huge = tmp_path / "huge.csv"
    huge.write_text("position,mass\n0,1e308\n1,1e308\n")
    assert "sums to inf" in failed(["compare", huge, spec_file], capsys)


@pytest.mark.parametrize(
    ("changes", "part"),
    [
        ({"layers": [{"alibi": {"slopes": 0.5}}]}, "slopes is 0.5; a list of numbers is required"),
        ({"layers": [{"alibi": {"slopes": [0.5, "0.5"]}}]}, "slopes[1] is '0.5'"),
        ({"mixing": {"type": "custom", "values": [0.1, [0.2]]}}, "one per layer"),
        ({"mixing": {"type": "custom", "values": [0.3, None]}}, "layer 2 is empty"),
        ({"mixing": {"type": "constant"}}, "lacks the key 'value'"),
        ({"mixing": {"type": "custom", "values": [0.3, 2, 0, 0]}}, "of layer 2 is 2"),
        ({"length": None}, "length is empty"),
        ({"depth": None}, "depth is empty"),
        ({"layers": None}, "layers is empty"),
        ({"posbias_spec": "1"}, "a number without quotes"),
    ],
)
def test_messages_about_specs_say_what_to_write(
    changes: dict[str, Any], part: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    line = failed(["predict", written(tmp_path, **changes)], capsys)
    assert part in line
    assert "None" not in line
    assert "inhomogeneous" not in line


@pytest.mark.parametrize(
    ("words", "part", "absent"),
    [
        (["predict", "SPEC", "-v", "attention"], "'attention' is not one of", "Value error"),
        (["predict", "SPEC", "--mixing", "constant:2"], "layer 1", "[0]"),
        (["predict", "SPEC", "--json", "a.csv"], ".json", "unexpected"),
        (["predict", "SPEC", "--csv", "SPEC.csv"], "--overwrite", "overwrite=True"),
        (["predict", ""], "empty", "manifest"),
        (["depth", "SPEC", "--schedule", "constant:1.2"], "layer 1 is 1.2", "first"),
        (["depth", "SPEC", "--schedule", "exponential:0.3:1"], "rho of an exp", "a exp"),
        (["compare", "latin.csv", "SPEC"], "is no UTF-8 text", "codec"),
        (["compare", "ab.csv", "SPEC"], "--column 'a'", "None"),
    ],
)
def test_messages_speak_about_what_was_typed(
    words: list[str],
    part: str,
    absent: str,
    spec_file: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(spec_file.parent)
    Path("SPEC").write_text(spec_file.read_text())
    Path("SPEC.csv").write_text("mine")
    Path("ab.csv").write_text("position,a,b\n0,0.5,0.5\n1,0.5,0.5\n")
    Path("latin.csv").write_bytes("position,maß\n0,0.5\n1,0.5\n".encode("latin-1"))
    line = failed(list(words), capsys)
    assert part in line
    assert absent not in line


def test_the_spec_of_the_readme_works_with_its_commands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text = (Path(__file__).resolve().parents[2] / "README.md").read_text(encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    Path("spec.yaml").write_text(text.split("```yaml\n")[1].split("```")[0])
    commands = [
        line.split()[1:]
        for line in text.splitlines()
        if " spec.yaml" in line[:26] and "<" not in line
    ]
    assert [words[0] for words in commands] == ["predict", "forces", "depth"]
    for words in commands:
        assert printed(list(words), capsys)
