"""posbias predict and posbias compare: numbers, formats, names, and bad input in one line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from posbias.cli import main
from posbias.cli._schedule import parse_schedule
from posbias.cli._tables import sparkline
from posbias.errors import InputError
from posbias.profile import Profile

DEPTH, N = 3, 12
SLOPES = [0.5, 0.1]
MIXING = [0.5, 0.3, 0.2]
OTHER = np.linspace(1, 2, N) / np.linspace(1, 2, N).sum()


def spec_document(**changes: Any) -> dict[str, Any]:
    return {
        "posbias_spec": 1,
        "name": "two heads",
        "length": N,
        "depth": DEPTH,
        "layers": [{"alibi": {"slopes": SLOPES, "diagonal": 0.4}}],
        "mixing": {"type": "custom", "values": MIXING},
        **changes,
    }


def by_hand(mixing: list[float], *, diagonal: float = 0.4, n: int = N) -> np.ndarray:
    """Return the last row of the rollout from dense matrices."""
    total = np.eye(n)
    for lam in mixing:
        attention = np.zeros((n, n))
        for slope in SLOPES:
            for i in range(n):
                weights = [np.exp(-slope * (i - j) + diagonal * (i == j)) for j in range(i + 1)]
                attention[i, : i + 1] += np.array(weights) / sum(weights) / len(SLOPES)
        total = ((1 - lam) * np.eye(n) + lam * attention) @ total
    return total[-1]


@pytest.fixture
def spec_file(tmp_path: Path) -> str:
    path = tmp_path / "spec.json"
    path.write_text(json.dumps(spec_document()))
    return str(path)


def columns(text: str) -> dict[str, np.ndarray]:
    header, *rows = (line.split(",") for line in text.splitlines())
    table = np.array(rows, dtype=float)
    return {name: table[:, k] for k, name in enumerate(header)}


def failed(words: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    capsys.readouterr()
    assert main(words) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("posbias: error: ")
    assert captured.err.count("\n") == 1
    return captured.err


def test_one_profile_as_csv(spec_file: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["predict", spec_file, "--csv", "-"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("position,mass\n0,")
    found = columns(out)
    assert np.array_equal(found["position"], np.arange(N))
    assert np.allclose(found["mass"], by_hand(MIXING), rtol=1e-12, atol=0)


def test_several_variants_as_columns(spec_file: str, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["-v", "residual+content", "-v", "attention-only", "-v", "uniform"]
    assert main(["predict", spec_file, *words, "--csv", "-"]) == 0
    found = columns(capsys.readouterr().out)
    assert list(found) == ["position", "attention-only", "residual+content", "uniform"]
    bare = by_hand([1.0] * DEPTH, diagonal=0.0)
    assert np.allclose(found["attention-only"], bare, rtol=1e-12, atol=0)
    assert np.allclose(found["residual+content"], by_hand(MIXING), rtol=1e-12, atol=0)
    assert np.allclose(found["uniform"], 1 / N)


def test_length_query_and_mixing(spec_file: str, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--length", "20", "--mixing", "power:0.4:1.5", "--csv", "-"]
    assert main(["predict", spec_file, *words]) == 0
    mixing = [0.4 / t**1.5 for t in (1, 2, 3)]
    found = columns(capsys.readouterr().out)["mass"]
    assert np.allclose(found, by_hand(mixing, n=20), rtol=1e-12, atol=0)
    assert main(["predict", spec_file, "--query", "4", "--csv", "-"]) == 0
    found = columns(capsys.readouterr().out)["mass"]
    assert np.allclose(found[:5], by_hand(MIXING, n=5), rtol=1e-12, atol=0)
    assert not found[5:].any()


@pytest.mark.parametrize("place", ["bare", "dash", "file", "last"])
def test_json_with_and_without_a_file(
    spec_file: str, place: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "out.json"
    words = {
        "bare": ["predict", "--json", "--length", "12", spec_file],
        "dash": ["predict", spec_file, "--json", "-"],
        "file": ["predict", "--json", str(target), spec_file],
        "last": ["predict", spec_file, "--json"],
    }[place]
    assert main(words) == 0
    out = capsys.readouterr().out
    document = json.loads(target.read_text() if place == "file" else out)
    assert (out == "") == (place == "file")
    (profile,) = document["profiles"]
    assert profile["name"] == "residual+content"
    assert np.allclose(profile["mass"], by_hand(MIXING), rtol=1e-12, atol=0)
    assert profile["origin"]["source"] == "spec.json"
    assert len(profile["origin"]["sha256"]) == 64


def test_csv_file_is_kept_unless_overwritten(
    spec_file: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "out.csv"
    target.write_text("mine")
    assert "--overwrite" in failed(["predict", spec_file, "--csv", str(target)], capsys)
    assert target.read_text() == "mine"
    assert main(["predict", spec_file, "--csv", str(target), "--overwrite"]) == 0
    assert target.read_text().startswith("position,mass\n")


def test_table_shows_shape_and_curve(spec_file: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["predict", spec_file]) == 0
    out = capsys.readouterr().out
    row = next(line for line in out.splitlines() if "residual+content" in line).split()
    mass = by_hand(MIXING)
    assert row[1:3] == [f"{mass[:2].sum():.4f}", f"{mass[-2:].sum():.4f}"]
    assert row[4] == f"{np.arange(N) @ mass:.1f}"


def test_curve_in_characters() -> None:
    n = 64
    steps = Profile.from_scores(np.repeat([0.01, 1.0, 100.0, 1.0], n // 4))
    line = sparkline(steps, "01234567")
    assert len(line) == 32
    assert line[0] == line[9] == "0"
    # 400 / 102.01 = 3.9 times the uniform share: two thirds of the way from 1/4 to 16.
    assert set(line[16:24]) == {"5"}
    assert sparkline(Profile(np.full(n, 1 / n)), "01234567") == "2" * 32


def test_figure(spec_file: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = tmp_path / "figure.svg"
    assert main(["predict", spec_file, "--figure", str(target)]) == 0
    assert target.read_text().startswith("<?xml")
    assert "figure.svg" in capsys.readouterr().err
    assert ".png" in failed(["predict", spec_file, "--figure", str(tmp_path / "f.gif")], capsys)


def test_published_comparison_in_one_command(
    published_dir: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    names = [
        "bloom-176b_fineweb-edu_256_profiles.csv",
        "no_content_bloom-noresidual.yaml",
        "no_content_bloom.yaml",
        "all_content_fineweb-edu_bloom.yaml",
    ]
    words = ["compare", *(str(published_dir / name) for name in names), "--column", "measured"]
    assert main([*words, "--figure", str(tmp_path / "bloom.png")]) == 0
    lines = [line.split()[:3] for line in capsys.readouterr().out.splitlines()]
    assert ["attention-only", "0.6511", "-0.575"] in lines
    assert ["residual", "0.0790", "0.907"] in lines
    assert ["residual+content", "0.0159", "0.831"] in lines
    assert (tmp_path / "bloom.png").read_bytes().startswith(b"\x89PNG")


@pytest.fixture
def measured_file(tmp_path: Path) -> str:
    path = tmp_path / "measured.csv"
    measured, other = by_hand([0.3]).tolist(), OTHER.tolist()
    rows = [f"{j},{measured[j]!r},{other[j]!r}\n" for j in range(N)]
    path.write_text("position,measured,other\n" + "".join(rows))
    return str(path)


def test_compare_json_is_computed_from_the_profiles(
    measured_file: str, spec_file: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["compare", measured_file, spec_file, measured_file, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert [row["variant"] for row in document["rows"]] == ["residual+content", "other"]
    gap = np.cumsum(by_hand(MIXING)) - np.cumsum(by_hand([0.3]))
    assert document["rows"][0]["w1"] == pytest.approx(np.abs(gap[:-1]).sum() / (N - 1), rel=1e-9)


def test_compare_csv(
    measured_file: str, spec_file: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["compare", measured_file, spec_file, "--csv", "-"]) == 0
    header, *rows = capsys.readouterr().out.splitlines()
    assert header.startswith("variant,w1,spearman,js,tv,primacy,recency,")
    assert [row.split(",")[0] for row in rows] == ["measured", "residual+content"]


def test_column_chooses_the_measured_profile(
    measured_file: str, spec_file: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["compare", measured_file, spec_file, "--column", "other", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["measured"]
    assert found["mean_position"] == pytest.approx(np.arange(N) @ OTHER)
    line = failed(["compare", measured_file, spec_file, "--column", "nothing"], capsys)
    assert "'nothing'" in line
    assert "measured, other" in line


def test_sources_of_one_variant_are_told_apart(
    measured_file: str, spec_file: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    second = tmp_path / "second.json"
    second.write_text(json.dumps(spec_document(mixing={"type": "constant", "value": 0.9})))
    assert main(["compare", measured_file, spec_file, str(second), "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert [row["variant"] for row in rows] == [
        "residual+content (spec.json)",
        "residual+content (second.json)",
    ]
    assert "second time" in failed(["compare", measured_file, spec_file, spec_file], capsys)


@pytest.mark.parametrize(
    ("cells", "part"),
    [
        ("0,-0.5\n1,1.5", "-0.5"),
        ("0,nan\n1,1", "nan"),
        ("0,half\n1,1", "half"),
        ("0,0.5\n1,", "empty"),
        ("0,0.5\n2,0.5", "position 1"),
        ("0,0.5\n1,0.2", "sum"),
    ],
)
def test_bad_profile_files(
    cells: str, part: str, spec_file: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "bad.csv"
    path.write_text(f"position,mass\n{cells}\n")
    line = failed(["compare", str(path), spec_file], capsys)
    assert "bad.csv" in line
    assert part in line


def test_profiles_of_different_length_are_never_trimmed(
    measured_file: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "short.csv"
    path.write_text("position,mass\n0,0.5\n1,0.5\n")
    line = failed(["compare", measured_file, str(path)], capsys)
    assert "2" in line
    assert str(N) in line


@pytest.mark.parametrize(
    ("changes", "part"),
    [
        ({"mixing": {"type": "constant", "value": 1.5}}, "1.5"),
        ({"mixing": {"type": "custom", "values": [0.5, -0.1, 0.5]}}, "-0.1"),
        ({"mixing": {"type": "custom", "values": [0.5, 0.1]}}, "3"),
        ({"mixing": {"type": "custom", "values": [0.5, None, 0.1]}}, "mixing"),
        ({"mixng": {}}, "mixng"),
        ({"layers": [{"alibi": {"slopes": [[0.5], [0.1]]}}]}, "slopes"),
        ({"layers": [{"alibi": {"slopes": SLOPES, "diagonal": [0.1, 0.2, 0.3]}}]}, "diagonal"),
        ({"layers": [{"alibi": {"slops": SLOPES}}]}, "slops"),
        ({"length": 1}, "length"),
        ({"posbias_spec": 99}, "99"),
    ],
)
def test_bad_specs(
    changes: dict[str, Any], part: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "bad.json"
    path.write_text(json.dumps(spec_document(**changes)))
    line = failed(["predict", str(path)], capsys)
    assert "bad.json" in line
    assert part in line


@pytest.mark.parametrize("text", ["", "just words", "a: [1, 2", "- 1\n- 2\n"])
def test_files_that_are_no_spec(
    text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "notes.yaml"
    path.write_text(text)
    assert "notes.yaml" in failed(["predict", str(path)], capsys)


@pytest.mark.parametrize(
    ("options", "part"),
    [
        (["--length", "1"], "1"),
        (["--query", "12"], "12"),
        (["--variant", "residual+measured"], "measured"),
        (["--estimator", "frobenius"], "frobenius"),
        (["--mixing", "linear:1"], "power:LAMBDA0:BETA"),
        (["--mixing", "constant:2"], "2"),
        (["--csv", "-", "--json", "-"], "standard output"),
    ],
)
def test_bad_options(
    options: list[str], part: str, spec_file: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert part in failed(["predict", spec_file, *options], capsys)


def test_a_directory_without_a_measurement(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert str(tmp_path) in failed(["predict", str(tmp_path)], capsys)


@pytest.mark.parametrize(
    ("text", "description"),
    [
        ("constant:0.5", {"type": "constant", "value": 0.5}),
        ("exponential:1:1e-2", {"type": "exponential", "lambda0": 1.0, "rho": 0.01}),
        ("custom:0.1", {"type": "custom", "values": [0.1]}),
    ],
)
def test_schedules(text: str, description: dict[str, Any]) -> None:
    assert parse_schedule(text) == description


@pytest.mark.parametrize("text", ["", "power", "power:1", "power:1:2:3", "power:a:1", "custom:1,"])
def test_schedules_that_are_not_understood(text: str) -> None:
    with pytest.raises(InputError, match="constant:VALUE"):
        parse_schedule(text)
