"""The plot in characters: right numbers at every width, and only where a person looks."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from posbias.cli._plot import LEAST_WIDTH, profile_plot
from posbias.profile import Profile

SPEC = {
    "posbias_spec": 1,
    "name": "small",
    "length": 300,
    "depth": 4,
    "layers": [{"alibi": {"slopes": [0.3, 0.01]}}],
    "mixing": {"type": "constant", "value": 0.4},
}


def printed(profiles: dict[str, Profile], width: int, *, ascii_only: bool = False) -> list[str]:
    console = Console(width=width, color_system=None, force_terminal=True)
    with console.capture() as capture:
        console.print(profile_plot(profiles, width, ascii_only=ascii_only))
    return capture.get().splitlines()


def bars(lines: list[str], side: str = "│") -> list[str]:
    return [line.split(side, 1)[1] for line in lines if side in line]


def test_heights_are_octaves_of_the_fair_share() -> None:
    # 1/2, 1, 2 and 4 times the fair share of 1/8; each position is three columns wide.
    shares = np.array([0.5, 1, 2, 4, 0.125, 0.125, 0.125, 0.125]) / 8
    lines = printed({"p": Profile(shares)}, LEAST_WIDTH)
    eighths = [sum(" ▁▂▃▄▅▆▇█".index(row[3 * k]) for row in bars(lines)) for k in range(8)]
    assert eighths[1] - eighths[0] == eighths[2] - eighths[1] == eighths[3] - eighths[2] > 4
    assert eighths[4] == eighths[7] == eighths[0] - 2 * (eighths[1] - eighths[0])


@settings(max_examples=40)
@given(st.integers(2, 3000), st.sampled_from([32, 40, 60, 80, 120, 200]), st.booleans())
def test_every_plot_fits_its_width(n: int, width: int, ascii_only: bool) -> None:
    profile = Profile(np.random.default_rng(n).dirichlet(np.full(n, 0.3)))
    lines = printed(
        {"measured": profile, "residual+content": profile}, width, ascii_only=ascii_only
    )
    assert max(map(len, lines)) <= width
    assert len(lines) <= 12
    assert lines[-2].lstrip().startswith("0") or str(n - 1) in "".join(lines[-4:])
    assert "".join(lines).isascii() == ascii_only


def test_ends_of_a_long_profile_are_not_averaged() -> None:
    mass = np.full(2000, 0.5 / 1998)
    mass[0], mass[-1] = 0.25, 0.25
    rows = bars(printed({"p": Profile(mass)}, 60))
    assert (rows[1][0], rows[1][-1]) == ("█", "█")
    assert set(rows[1][1:-1]) <= {" ", "┊"}


def test_uniform_profile_is_flat_at_the_fair_share() -> None:
    rows = bars(printed({"p": Profile(np.full(40, 1 / 40))}, 80))
    assert all(len(set(row)) == 1 for row in rows)


def in_terminal(*words: str, **environment: str) -> str:
    """Run a command whose standard output is a terminal, and return what it shows."""
    leader, follower = pty.openpty()
    base = {k: v for k, v in os.environ.items() if k not in {"NO_COLOR", "COLUMNS", "TERM"}}
    process = subprocess.Popen(
        [sys.executable, "-m", "posbias", *words],
        stdout=follower,
        stderr=subprocess.DEVNULL,
        env={**base, "TERM": "xterm-256color", "PYTHONIOENCODING": "utf-8", **environment},
    )
    os.close(follower)
    shown = bytearray()
    while True:
        try:
            part = os.read(leader, 4096)
        except OSError:  # Linux reports the end of a terminal this way
            break
        if not part:
            break
        shown += part
    os.close(leader)
    assert process.wait() == 0
    return shown.decode()


@pytest.fixture(scope="module")
def spec_file(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("plot") / "small.json"
    path.write_text(json.dumps(SPEC))
    return str(path)


@pytest.mark.parametrize(
    ("environment", "has_blocks", "has_colour"),
    [
        ({}, True, True),
        ({"NO_COLOR": "1"}, True, False),
        ({"TERM": "dumb"}, False, False),
        ({"PYTHONIOENCODING": "ascii"}, False, True),
    ],
    ids=["colour", "NO_COLOR", "dumb", "ascii"],
)
def test_in_a_terminal(
    environment: dict[str, str], has_blocks: bool, has_colour: bool, spec_file: str
) -> None:
    shown = in_terminal("predict", spec_file, COLUMNS="60", **environment)
    assert "1x is 1/300" in shown
    assert ("█" in shown) == has_blocks
    assert ("##" in shown) != has_blocks
    assert ("\x1b[36m" in shown) == has_colour


def test_no_plot_in_a_narrow_terminal_nor_with_machine_output(spec_file: str) -> None:
    assert "1x is" not in in_terminal("predict", spec_file, COLUMNS="30")
    assert json.loads(in_terminal("predict", spec_file, "--json"))["profiles"]


def test_no_plot_in_a_pipe(spec_file: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "posbias", "predict", spec_file],
        capture_output=True,
        text=True,
        check=True,
    )
    assert "1x is" not in done.stdout
    assert Path(spec_file).stem in done.stdout
