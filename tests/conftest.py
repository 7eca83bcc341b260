"""Fixtures shared by all tests."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

ROOT = Path(__file__).resolve().parents[1]

# Parallel workers are told a terminal width; what is printed must not depend on it.
os.environ.pop("COLUMNS", None)

# Tests run beside other work: a slow moment of the machine is not a failure. Derandomised, so
# that a red run can be repeated.
settings.register_profile(
    "posbias", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("posbias")


def find_reference() -> Path:
    """Return the folder of reference data: POSBIAS_REFERENCE, or the one beside the clone."""
    return Path(os.environ.get("POSBIAS_REFERENCE", ROOT.parent / "shared" / "reference"))


@pytest.fixture(scope="session")
def reference_dir() -> Path:
    """Golden cases and published data. Their absence fails a CI run and skips elsewhere."""
    folder = find_reference()
    if not folder.is_dir():
        message = f"no reference data at {folder}; set POSBIAS_REFERENCE to the folder"
        if os.environ.get("CI"):
            pytest.fail(message)
        pytest.skip(message)
    return folder


@pytest.fixture(scope="session")
def published_dir(reference_dir: Path) -> Path:
    """Rollout configs and curves published with the paper."""
    return reference_dir / "published"
