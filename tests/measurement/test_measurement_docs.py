"""The page on the artifact names what the schema has, with the same shapes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from posbias.measurement.schema import ARRAYS, MANIFEST, POSITION_SCHEMES, array_spec

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "artifact.md").read_text()
LINES = {
    match[1]: match[0] for match in re.finditer(r"^\| `([^`]+)`[^|]*\|.*$", PAGE, re.MULTILINE)
}


@pytest.mark.parametrize("name", [*ARRAYS, "influence.<method>.windows"])
def test_arrays(name: str) -> None:
    spec = array_spec(name.replace("<method>", "gradient"))
    assert spec is not None
    cells = [cell.strip() for cell in LINES[name].split("|")]
    assert tuple(cells[2].split(", ")) == spec.shape
    assert ("int64" in cells[3]) == (spec.dtype == "int64")
    named_elsewhere = name in {"position.slopes", "influence.<method>.windows"}
    assert ("*" in cells[1]) == (not spec.required and not named_elsewhere)


@pytest.mark.parametrize("key", MANIFEST)
def test_manifest_keys(key: str) -> None:
    assert f"`{key}`" in PAGE


@pytest.mark.parametrize("scheme", POSITION_SCHEMES)
def test_position_schemes(scheme: str) -> None:
    assert f'"{scheme}"' in PAGE
