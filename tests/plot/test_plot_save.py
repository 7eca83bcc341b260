"""Figure files: the same bytes for the same figure, whole or not at all."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure

from posbias.errors import InputError, OutputExistsError
from posbias.plot import FIGURE_FORMATS, plot_profiles, save_figure
from posbias.profile import Profile

PROGRAM = """
import sys
import numpy as np
from posbias.plot import measurement_figure, save_figure
from posbias.profile import Profile
x = np.linspace(-1, 1, 30)
measured, residual = Profile.from_scores(x**2 + 0.1), Profile.from_scores(x**4 + 0.2)
profiles = {"measured": measured, "residual": residual}
windows = np.random.default_rng(0).random((5, 30))
for kind in ("png", "svg", "pdf"):
    save_figure(measurement_figure(profiles, [0.4, 0.2], windows=windows), f"{sys.argv[1]}.{kind}")
"""


def small_figure() -> Figure:
    figure = plot_profiles({"residual": Profile(np.full(8, 0.125))}).figure
    assert isinstance(figure, Figure)
    return figure


def test_two_processes_write_the_same_bytes(tmp_path: Path) -> None:
    for name in ("first", "second"):
        subprocess.run([sys.executable, "-c", PROGRAM, str(tmp_path / name)], check=True)
    for kind in FIGURE_FORMATS:
        first = (tmp_path / f"first.{kind}").read_bytes()
        assert first == (tmp_path / f"second.{kind}").read_bytes()
        assert len(first) > 1000


@pytest.mark.parametrize(
    ("kind", "magic"), [("png", b"\x89PNG"), ("svg", b"<?xml"), ("pdf", b"%PDF")]
)
def test_the_ending_decides_the_format(tmp_path: Path, kind: str, magic: bytes) -> None:
    path = save_figure(small_figure(), tmp_path / f"figure.{kind.upper()}")
    assert path.read_bytes().startswith(magic)


def test_no_date_and_no_version_in_the_file(tmp_path: Path) -> None:
    for kind in FIGURE_FORMATS:
        content = save_figure(small_figure(), tmp_path / f"f.{kind}").read_bytes()
        assert b"matplotlib" not in content.lower().replace(b"matplotlib.axis", b"")
        assert b"Date" not in content


def test_an_existing_file_is_kept_unless_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "figure.png"
    path.write_bytes(b"mine")
    with pytest.raises(OutputExistsError):
        save_figure(small_figure(), path)
    assert path.read_bytes() == b"mine"
    save_figure(small_figure(), path, overwrite=True)
    assert path.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("name", ["figure", "figure.jpg", "figure.png.txt"])
def test_other_endings_are_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(InputError, match=r"must end in one of \.png, \.svg, \.pdf"):
        save_figure(small_figure(), tmp_path / name)
    assert not any(tmp_path.iterdir())
