"""docs/cli.md is what the commands say about themselves."""

from __future__ import annotations

import importlib.util
from pathlib import Path

DOCS = Path(__file__).resolve().parents[2] / "docs"


def test_page_is_up_to_date() -> None:
    spec = importlib.util.spec_from_file_location("generate_cli", DOCS / "_generate_cli.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert (DOCS / "cli.md").read_text(encoding="utf-8") == module.generate(), (
        "run python docs/_generate_cli.py"
    )
