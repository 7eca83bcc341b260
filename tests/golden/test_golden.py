"""Every golden case: the package gives the numbers of an independent extended-precision oracle.

The file is ``golden.json`` in the folder of reference data, or the one that the environment
variable POSBIAS_GOLDEN names.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from golden_format import answer

ROOT = Path(__file__).resolve().parents[2]
FOLDER = Path(os.environ.get("POSBIAS_REFERENCE", ROOT.parent / "shared" / "reference"))
GOLDEN = Path(os.environ.get("POSBIAS_GOLDEN", FOLDER / "golden.json"))
CASES = json.loads(GOLDEN.read_text())["cases"] if GOLDEN.is_file() else []

# The published curve has 9 decimals, the oracle measured distances to the unrounded one.
PUBLISHED_ROUNDING = 1e-8
# Below this, values are compared absolutely; kernels flush denormals.
SMALLEST = 1e-250


def differences(expected: Any, actual: Any, close: Any, path: str = "") -> Iterator[str]:
    """Yield every place where `actual` lacks or misses what is `expected`."""
    if isinstance(expected, Mapping):
        for key, value in expected.items():
            if not isinstance(actual, Mapping) or key not in actual:
                yield f"{path}.{key}: missing"
            else:
                yield from differences(value, actual[key], close, f"{path}.{key}")
    elif isinstance(expected, list):
        if not isinstance(actual, list) or len(actual) != len(expected):
            yield f"{path}: {len(expected)} entries expected"
        else:
            for i, (e, a) in enumerate(zip(expected, actual, strict=True)):
                yield from differences(e, a, close, f"{path}[{i}]")
    elif isinstance(expected, float) or (isinstance(actual, float) and expected is not None):
        if actual is None or not close(expected, actual, path):
            yield f"{path}: expected {expected!r}, got {actual!r}"
    elif expected != actual:
        yield f"{path}: expected {expected!r}, got {actual!r}"


def closeness(case: Mapping[str, Any]) -> Any:
    """Return the comparison of two numbers at the tolerance that the case states."""
    tolerance = case["tol"]

    def close(expected: float, actual: float, path: str) -> bool:
        error = abs(actual - expected)
        if path == ".w1_to_measured":
            return error <= PUBLISHED_ROUNDING
        if case["kind"] == "large_n" and ".cdf" not in path:
            return error <= (tolerance * abs(expected) if abs(expected) > SMALLEST else SMALLEST)
        return error <= tolerance * max(1.0, abs(expected))

    return close


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["id"])
def test_golden(case: Mapping[str, Any], reference_dir: Path) -> None:
    found = list(differences(case["output"], answer(case, reference_dir), closeness(case)))
    assert not found, "\n".join(found[:10])


def test_the_golden_file_has_cases(reference_dir: Path) -> None:
    assert len({case["id"] for case in CASES}) == len(CASES) > 0, f"no cases in {GOLDEN}"
