"""The architecture: imports point down, and what can run without torch does."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[1] / "src" / "posbias"

# Each part may import the parts in its set, itself and the standard or third-party libraries.
BASE = {
    *("version", "errors", "optional", "palette", "notebook"),
    *("profile", "metrics", "atomic", "profile_files"),
}
ALLOWED: dict[str, set[str]] = {
    "version": set(),
    "errors": set(),
    "optional": {"errors"},
    "palette": set(),
    "notebook": {"palette"},
    "profile": {"errors", "optional", "notebook"},
    "atomic": {"errors"},
    "metrics": {"errors", "profile"},
    "profile_files": {"errors", "profile", "atomic"},
    "kernels": {"errors"},
    "binning": {"kernels"},
    "rollout": {"errors", "profile", "kernels"},
    "theory": {"errors", "profile", "metrics", "kernels", "rollout"},
    "spec": {"errors", "profile", "atomic", "kernels", "rollout"},
    "estimator": {"errors", "rollout"},
    "sinks": {"errors", "kernels", "estimator"},
    "measurement": {
        *("errors", "optional", "notebook", "profile", "atomic", "kernels", "rollout"),
        *("estimator", "sinks"),
    },
    "models": {"errors", "kernels", "spec"},
    "measure": {*BASE, "kernels", "spec", "sinks", "measurement", "models"},
    "recommend": {"errors", "estimator", "sinks", "measurement"},
    "plan": {*BASE, *("kernels", "rollout", "spec", "measurement", "estimator", "recommend")},
    "predict": {*BASE, *("kernels", "rollout", "spec", "measurement", "estimator", "plan")},
    "uncertainty": {*BASE, "kernels", "rollout", "measurement", "estimator", "plan"},
    "comparison": {*BASE, "uncertainty"},
    "compare": {
        *(*BASE, "kernels", "rollout", "spec", "measurement"),
        *("plan", "predict", "uncertainty", "comparison"),
    },
    "load": {
        *(*BASE, "kernels", "rollout", "spec", "measurement"),
        *("predict", "uncertainty", "comparison"),
    },
    "plot": {*BASE, "binning", "kernels", "rollout", "theory", "measurement", "uncertainty"},
    "report": {
        *(*BASE, "binning", "kernels", "rollout", "theory", "measurement"),
        *(
            "estimator",
            "sinks",
            "recommend",
            "plan",
            "predict",
            "uncertainty",
            "comparison",
            "compare",
            "plot",
        ),
    },
    "run": {
        *(*BASE, "measurement", "measure", "estimator", "sinks", "recommend"),
        *("predict", "uncertainty", "comparison", "compare", "plot"),
    },
}
WITHOUT_TORCH = sorted(set(ALLOWED) - {"models", "measure", "run"})
TORCH_HOMES = {"models", "measure"}


def part_of(path: Path) -> str:
    """Return the first component below the package: a module or a subpackage name."""
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imported_modules(path: Path) -> list[str]:
    """Return every module name imported anywhere in a file."""
    names: list[str] = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.append(node.module)
            names += [f"{node.module}.{alias.name}" for alias in node.names]
    return names


SOURCES = sorted(PACKAGE.rglob("*.py"))
FRONT_DOOR = {"__init__", "__main__", "cli"}


@pytest.mark.parametrize(
    "path",
    [path for path in SOURCES if part_of(path) not in FRONT_DOOR],
    ids=lambda p: str(p.relative_to(PACKAGE)),
)
def test_imports_point_down(path: Path) -> None:
    part = part_of(path)
    used = {name.split(".")[1] for name in imported_modules(path) if name.startswith("posbias.")}
    assert used - {part} <= ALLOWED[part]


@pytest.mark.parametrize("path", SOURCES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_torch_stays_in_models_and_measure(path: Path) -> None:
    roots = {name.split(".")[0] for name in imported_modules(path)}
    if part_of(path) not in TORCH_HOMES:
        assert not roots & {"torch", "transformers", "accelerate"}


def run_program(program: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", program]
    return subprocess.run(command, check=False, capture_output=True, text=True)


def test_everything_but_measurement_runs_without_torch() -> None:
    program = f"""
import importlib, pkgutil, sys

class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {{"torch", "transformers", "accelerate", "tokenizers"}}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Refuse())
import posbias
for part in {WITHOUT_TORCH!r}:
    module = importlib.import_module(f"posbias.{{part}}")
    for info in pkgutil.walk_packages(getattr(module, "__path__", []), module.__name__ + "."):
        importlib.import_module(info.name)
print("ok")
"""
    done = run_program(program)
    assert done.stdout.strip() == "ok", done.stderr


def test_help_imports_no_heavy_library() -> None:
    program = """
import sys
from posbias.cli import main
try:
    main(["--help"])
except SystemExit as stop:
    assert not stop.code
heavy = {"torch", "transformers", "matplotlib", "pandas", "datasets"} & set(sys.modules)
print(heavy, file=sys.stderr)
sys.exit(bool(heavy))
"""
    done = run_program(program)
    assert done.returncode == 0, done.stderr
