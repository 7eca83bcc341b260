"""The pages of docs/commands are what the commands say about themselves."""

from __future__ import annotations

import importlib.util
from pathlib import Path

DOCS = Path(__file__).resolve().parents[2] / "docs"


def test_pages_are_up_to_date() -> None:
    spec = importlib.util.spec_from_file_location("generate_cli", DOCS / "_generate_cli.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    stored = {p.name: p.read_text(encoding="utf-8") for p in (DOCS / "commands").glob("*.md")}
    assert stored == module.generate(), "run python docs/_generate_cli.py"
