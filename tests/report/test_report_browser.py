"""The scripts of a report, run by Chromium where there is one."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
import synthetic_measurement
from report_pages import Document, measurement_of, saved

from posbias.report import write_report

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
CHROMIUM = next((path for path in map(shutil.which, NAMES) if path), None)

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on PATH")

FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--virtual-time-budget=3000",
)


def loaded(page: Path, profile: Path) -> Document:
    """Return the document after its scripts ran."""
    command = [str(CHROMIUM), *FLAGS, f"--user-data-dir={profile}", "--dump-dom", page.as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    return Document(done.stdout)


def test_every_figure_of_a_single_report_is_drawn(tmp_path: Path) -> None:
    source = saved(measurement_of(200, alibi=False), tmp_path / "m")
    document = loaded(write_report(source), tmp_path / "profile")
    root = document.all("html")[0]
    assert root.get("data-ready") == "true"
    assert "data-error" not in root
    pictures = [a for a in document.all("svg") if a.get("role") == "img"]
    # Three panels of profiles, mixing, one row of a kernel, depth and its curves.
    assert len(pictures) == 7
    assert all(a["aria-label"] for a in pictures)
    assert [a["aria-label"][:8] for a in document.all("canvas")] == ["Measured", "Model, l"]
    sliders = {a["data-slider"] for a in document.all("input") if a["type"] == "range"}
    assert {"kernel layer", "query", "depth"} <= sliders
    assert all(a["aria-valuetext"] for a in document.all("input") if a["type"] == "range")
    toggles = [a["data-series"] for a in document.all("input") if "data-series" in a]
    assert {"measured", "residual+lag", "uniform"} <= set(toggles)


def test_every_figure_of_a_comparison_is_drawn(tmp_path: Path) -> None:
    sources = [
        saved(synthetic_measurement.make(), tmp_path / "a"),
        saved(measurement_of(300), tmp_path / "b"),
    ]
    page = write_report(sources, tmp_path / "report.html")
    document = loaded(page, tmp_path / "profile")
    root = document.all("html")[0]
    assert root.get("data-ready") == "true"
    assert "data-error" not in root
    assert len([a for a in document.all("svg") if a.get("role") == "img"]) == 2
