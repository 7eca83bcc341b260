"""posbias figure: every kind from every source that it makes sense for, else one line of error."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from synthetic_measurement import LAYERS, LENGTH, make

from posbias.cli import main
from posbias.cli._figure_sources import FigureRequest
from posbias.cli._figures import FIGURES, draw_figure
from posbias.predict import predict
from posbias.profile import Profile
from posbias.profile_files import write_csv
from posbias.theory import InfiniteSchedule, infinite_depth

SPEC = {
    "posbias_spec": 1,
    "name": "small",
    "length": 24,
    "depth": 3,
    "layers": [{"alibi": {"slopes": [0.5, 0.1], "diagonal": 0.4}}],
    "mixing": {"type": "power", "lambda0": 0.5, "beta": 0.5},
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("figure")
    make().save(root / "measured")
    make([[0, 0], [1, 0]], alibi=False).save(root / "rotary")
    (root / "small.json").write_text(json.dumps(SPEC))
    mass = np.linspace(1.0, 2.0, LENGTH) / np.linspace(1.0, 2.0, LENGTH).sum()
    write_csv({"measured": make().influence(), "mine": Profile(mass)}, root / "profiles.csv")
    return root


def drawn(kind: str, *sources: Path, **options: Any) -> Any:
    """Return the figure, whether axes or the whole was returned."""
    result = draw_figure(kind, FigureRequest(sources=sources, width=6.9, **options))
    return result if hasattr(result, "axes") and isinstance(result.axes, list) else result.figure


SOURCES = {
    "profile": ["measured", "small.json", "profiles.csv"],
    "comparison": ["measured", "profiles.csv"],
    "mixing": ["measured", "small.json"],
    "content": ["measured"],
    "kernels": ["measured", "small.json"],
    "lags": ["measured", "small.json"],
    "evolution": ["measured", "small.json"],
    "depth": ["measured", "small.json"],
    "forces": ["measured", "small.json"],
    "infinite": ["small.json"],
    "monotone": ["measured", "small.json"],
    "models": ["measured", "small.json", "profiles.csv"],
    "lengths": ["measured", "small.json"],
}


@pytest.mark.parametrize(
    ("kind", "name"), [(kind, name) for kind, names in SOURCES.items() for name in names]
)
def test_every_kind_is_drawn(kind: str, name: str, folder: Path) -> None:
    assert set(SOURCES) == set(FIGURES)
    figure = drawn(kind, folder / name)
    assert any(ax.lines or ax.collections or ax.patches for ax in figure.axes)


@pytest.mark.parametrize("kind", ["kernels", "models"])
def test_a_figure_is_written_at_column_width(kind: str, folder: Path, tmp_path: Path) -> None:
    target = tmp_path / "figure.svg"
    source = str(folder / "measured")
    assert main(["figure", kind, source, "--out", str(target), "--width", "3.3"]) == 0
    head = target.read_text(encoding="utf-8")[:900]
    width = 3.3 * 72
    assert f'width="{width:g}pt"' in head


def test_profile_of_a_measurement_shows_the_windows_and_every_variant(folder: Path) -> None:
    measurement = make()
    ax = drawn("profile", folder / "measured").axes[0]
    assert len(ax.collections) == 1
    lines = [line.get_ydata() for line in ax.lines]
    expected = [measurement.influence(), *predict(measurement).values()]
    assert all(np.array_equal(y, p.mass) for y, p in zip(lines, expected, strict=True))
    at_other_length = drawn("profile", folder / "measured", lengths=(30,)).axes[0]
    assert "measured" not in [line.get_label() for line in at_other_length.lines]
    assert at_other_length.lines[0].get_xdata().size == 30


def test_kernel_and_query_and_title_reach_the_figure(folder: Path) -> None:
    ax = drawn("evolution", folder / "measured", kernel="position", query=3, title="mine").axes[0]
    assert ax.get_title(loc="left") == "mine"
    assert ax.lines[-1].get_ydata()[4:].sum() == 0.0
    assert len(ax.lines) == LAYERS


def test_infinite_depth_follows_the_schedule(folder: Path) -> None:
    schedule = InfiniteSchedule.power(0.5, 2.0)
    figure = drawn("infinite", folder / "rotary", schedule="power:0.5:2", layers=40)
    ax = figure.axes[0]
    assert ax.get_title(loc="left") == "infinite depth: no collapse"
    kernels = make([[0, 0], [1, 0]], alibi=False).kernels("position+content")
    verdict = infinite_depth(kernels, schedule)
    assert verdict.diagonal is not None
    assert ax.lines[0].get_ydata()[0] == pytest.approx(1.0 - verdict.diagonal[-1])
    assert ax.get_xlim() == (1, 40)


def test_models_are_named_apart_and_lengths_are_sorted(folder: Path) -> None:
    figure = drawn("models", folder / "measured", folder / "rotary", folder / "small.json")
    names = [text.get_text() for text in figure.legends[0].get_texts()]
    assert names == ["tiny (measured)", "tiny (rotary)", "small"]
    figure = drawn("lengths", folder / "small.json", lengths=(40, 12))
    assert [t.get_text() for t in figure.legends[0].get_texts()] == ["12 tokens", "40 tokens"]
    (short, _) = figure.axes[0].patches
    assert short.get_data()[0].size == 12


def test_nothing_is_overwritten_unasked(folder: Path, tmp_path: Path) -> None:
    target = tmp_path / "mixing.png"
    target.write_bytes(b"mine")
    words = ["figure", "mixing", str(folder / "measured"), "--out", str(target)]
    assert main(words) == 2
    assert target.read_bytes() == b"mine"
    assert main([*words, "--overwrite"]) == 0
    assert target.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("words", "part"),
    [
        (["heatmap", "measured"], "there is profile, comparison, mixing"),
        (["kernels", "profiles.csv"], "holds profiles only"),
        (["content", "small.json"], "needs a measurement"),
        (["profile", "measured", "rotary"], "one source"),
        (["profile", "measured", "--kernel", "lag"], "--kernel does not apply"),
        (["mixing", "measured", "--schedule", "constant:0.1"], "--schedule does not apply"),
        (["profile", "profiles.csv", "--length", "9"], "--length applies to"),
        (["profile", "small.json", "-n", "8", "-n", "9"], "one --length"),
        (["kernels", "small.json", "--kernel", "lag"], "--kernel chooses"),
        (["infinite", "measured"], "--schedule how"),
        (["infinite", "small.json", "--layers", "0"], "--layers is 0"),
        (["mixing", "measured", "--estimator", "frobenius"], "--estimator does not apply"),
        (["depth", "small.json", "--estimator", "frobenius"], "applies to measurements"),
        (["models", "measured", "--estimator", "frobenius"], "applies to predictions"),
        (["lengths", "measured", "small.json", "-n", "8"], "several sources and --length"),
        (["lengths", "small.json", "small.json"], "two sources"),
        (["profile", "missing.csv"], "does not exist"),
        (["profile", "measured", "--width", "1"], "--width is 1"),
        (["lags", "measured", "--length", "99"], "99"),
    ],
)
def test_what_makes_no_sense_is_one_line(
    words: list[str], part: str, folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    names = {"measured", "rotary", "small.json", "profiles.csv", "missing.csv"}
    given = [str(folder / word) if word in names else word for word in words]
    assert main(["figure", *given, "--out", str(tmp_path / "x.png")]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("posbias: error: ")
    assert captured.err.count("\n") == 1
    assert part in captured.err
    assert not list(tmp_path.iterdir())
