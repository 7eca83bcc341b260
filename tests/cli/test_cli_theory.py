"""posbias forces and posbias depth: tables, JSON and figures of the theory reports."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest

from posbias.cli import main

SPEC = {
    "posbias_spec": 1,
    "name": "small",
    "length": 16,
    "depth": 4,
    "layers": [{"alibi": {"slopes": [0.3], "diagonal": 0.5}}],
    "mixing": {"type": "constant", "value": 0.4},
}


@pytest.fixture
def spec_file(tmp_path: Path) -> str:
    path = tmp_path / "small.json"
    path.write_text(json.dumps(SPEC))
    return str(path)


def rollout_by_hand(mixing: list[float], n: int = 16) -> list[np.ndarray]:
    """Return the last row after 0, 1, ... layers, from dense matrices."""
    attention = np.zeros((n, n))
    for i in range(n):
        weights = [np.exp(-0.3 * (i - j) + 0.5 * (i == j)) for j in range(i + 1)]
        attention[i, : i + 1] = np.array(weights) / sum(weights)
    total, rows = np.eye(n), [np.eye(n)[-1]]
    for lam in mixing:
        total = ((1 - lam) * np.eye(n) + lam * attention) @ total
        rows.append(total[-1])
    return rows


def test_forces_table_names_the_theorems(
    spec_file: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["forces", spec_file]) == 0
    out = capsys.readouterr().out
    for name, direction in {
        "depth": "earlier",
        "residual": "later",
        "position": "later",
        "content": "later",
    }.items():
        row = next(line for line in out.splitlines() if line.strip().startswith(name))
        assert row.split()[len(name.split())] == direction
        assert re.search(r" T[1-4]\b", row)


def test_forces_json_and_figure(
    spec_file: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    figure = str(tmp_path / "forces.png")
    assert main(["forces", spec_file, "--json", "--figure", figure]) == 0
    document = json.loads(capsys.readouterr().out)
    rows = rollout_by_hand([0.4] * 4)
    assert np.allclose(document["baseline"], rows[-1], rtol=1e-12)
    residual = next(f for f in document["forces"] if f["force"] == "residual")
    assert np.allclose(residual["removed profile"], rollout_by_hand([1.0] * 4)[-1], rtol=1e-12)
    assert Path(figure).read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("schedule", "outcome"),
    [
        ("power:0.3:1.2", "no collapse"),
        ("power:0.3:1.0", "collapse"),
        ("constant:0.1", "collapse"),
        ("exponential:0.5:0.5", "no collapse"),
        ("custom:0.5,0.5", "no collapse"),
    ],
)
def test_verdict_at_infinite_depth(
    spec_file: str, schedule: str, outcome: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["depth", spec_file, "--schedule", schedule]) == 0
    first = capsys.readouterr().out.splitlines()[0]
    assert first == f"Infinite depth, {schedule}: {outcome}"


def test_depth_json_follows_the_schedule_and_the_layers(
    spec_file: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    figure = str(tmp_path / "depth.pdf")
    words = ["--schedule", "power:0.3:1.2", "--layers", "9", "--json", "--figure", figure]
    assert main(["depth", spec_file, *words]) == 0
    document = json.loads(capsys.readouterr().out)
    rows = rollout_by_hand([0.3 / t**1.2 for t in range(1, 10)])
    assert document["infinite"]["outcome"] == "no collapse"
    found = [row["residual mass on token 0"] for row in document["curves"]]
    assert np.allclose(found, [row[0] for row in rows], rtol=1e-12)
    assert document["finite"]["bounds"]["exact"] == pytest.approx(1 - rows[-1][0], rel=1e-9)
    assert Path(figure).read_bytes().startswith(b"%PDF")


def test_depth_without_a_schedule_describes_the_source(
    spec_file: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["depth", spec_file, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["infinite"] is None
    assert document["finite"]["depth"] == 4
    assert document["finite"]["depth_for_share"] > 4
    assert len(document["curves"]) == 5


@pytest.mark.parametrize(
    ("words", "part"),
    [
        (["depth", "--layers", "9"], "--schedule"),
        (["depth", "--layers", "0"], "--layers"),
        (["depth", "--share", "1"], "share"),
        (["depth", "--schedule", "power:2:1"], "2"),
        (["depth", "--query", "16"], "16"),
        (["forces", "--strength", "0"], "strength"),
        (["forces", "--query", "99"], "99"),
        (["forces", "--figure", "forces.doc"], ".png"),
    ],
)
def test_bad_options(
    words: list[str], part: str, spec_file: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([words[0], spec_file, *words[1:]]) == 2
    captured = capsys.readouterr()
    assert captured.err.startswith("posbias: error: ")
    assert captured.err.count("\n") == 1
    assert part in captured.err
