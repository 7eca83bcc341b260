"""sdist and wheel: what is in them, and that the wheel works away from the repository."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest

from posbias.version import __version__

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "src" / "posbias"
CACHES = ("__pycache__", ".pyc", ".egg-info", ".ruff_cache", ".mypy_cache", ".hypothesis")


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build both from the sources, without a network."""
    folder = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "hatchling", "build", "-d", str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return folder


def sources() -> set[str]:
    """Return the files of the package, from its folder, without caches."""
    files = (p.relative_to(PACKAGE.parent).as_posix() for p in PACKAGE.rglob("*") if p.is_file())
    return {name for name in files if not any(cache in name for cache in CACHES)}


def test_wheel_holds_the_package_and_nothing_else(built: Path) -> None:
    (wheel,) = built.glob("*.whl")
    assert wheel.name == f"posbias-{__version__}-py3-none-any.whl"
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    info = f"posbias-{__version__}.dist-info"
    metadata = {"METADATA", "WHEEL", "RECORD", "entry_points.txt", "licenses/LICENSE"}
    assert names == sources() | {f"{info}/{name}" for name in metadata}


@pytest.mark.parametrize(
    "name",
    [
        "py.typed",
        "data/models/bloom/model.safetensors",
        "data/models/llama/tokenizer.json",
        "data/text/sample.txt",
        "data/text/PROVENANCE.md",
        "spec/schema.json",
        "spec/examples/alibi.yaml",
        "report/templates/base.html",
        "report/templates/main.js",
        "report/templates/base.css",
    ],
)
def test_wheel_holds_the_data(name: str, built: Path) -> None:
    (wheel,) = built.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        assert archive.read(f"posbias/{name}") == (PACKAGE / name).read_bytes()


def test_sdist_holds_what_the_tests_and_the_site_need(built: Path) -> None:
    (sdist,) = built.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {f"src/{name}" for name in sources()} <= names
    needed = {"pyproject.toml", "constraints.txt", "Makefile", "mkdocs.yml", "README.md"}
    needed |= {"LICENSE", "CHANGELOG.md", "CITATION.cff", "docs/README.md", "tests/conftest.py"}
    needed |= {"training/train.py", "benchmarks/run.py", "docs/notebooks/tour.ipynb"}
    assert needed <= names
    assert [n for n in names if any(cache in n for cache in CACHES) or n.startswith("site")] == []


def test_wheel_runs_away_from_the_repository(built: Path, tmp_path: Path) -> None:
    """In an environment of its own, which borrows only the dependencies from this one."""
    (wheel,) = built.glob("*.whl")
    home = tmp_path / "environment"
    venv.create(home, with_pip=False)
    places = {"base": str(home), "platbase": str(home)}
    library = Path(sysconfig.get_path("purelib", "venv", vars=places))
    scripts = Path(sysconfig.get_path("scripts", "venv", vars=places))
    # A line in a .pth file adds the folder to the path, but not what its own .pth files name, so
    # that a posbias installed there in development mode is not found.
    borrowed = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}
    (library / "borrowed.pth").write_text("\n".join(borrowed), encoding="utf-8")
    install = ["install", "--quiet", "--no-deps", "--no-index", "--disable-pip-version-check"]
    run([sys.executable, "-m", "pip", "--python", str(scripts / "python"), *install, str(wheel)])
    where = "import posbias; print(posbias.__file__, posbias.__version__)"
    assert run([str(scripts / "python"), "-c", where], cwd=tmp_path).split() == [
        str(library / "posbias" / "__init__.py"),
        __version__,
    ]
    command = [str(scripts / "posbias"), "run", "--windows", "2", "--length", "32", "--quiet"]
    printed = run([*command, "--out", "demo"], cwd=tmp_path)
    assert "residual+measured" in printed
    assert (tmp_path / "demo" / "measurement" / "manifest.json").is_file()


def run(command: list[str], cwd: Path | None = None) -> str:
    """Run a program that must succeed, without the settings of this one, and return its output."""
    kept = {k: v for k, v in os.environ.items() if k not in {"PYTHONPATH", "VIRTUAL_ENV"}}
    done = subprocess.run(
        command, cwd=cwd, env=kept, capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
