"""The example notebook runs from top to bottom, and is stored without outputs."""

from __future__ import annotations

import os
from pathlib import Path

import nbformat
import pytest
from code_blocks import ROOT
from nbclient import NotebookClient

NOTEBOOKS = sorted((ROOT / "docs" / "notebooks").glob("*.ipynb"))


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)
def test_notebook_is_stored_without_outputs(path: Path) -> None:
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert [c.outputs for c in cells] == [[] for _ in cells]
    assert {c.execution_count for c in cells} == {None}


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)
def test_notebook_runs(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    places = [str(ROOT / "src"), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, places)))
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    monkeypatch.setenv("JUPYTER_RUNTIME_DIR", str(tmp_path / "runtime"))
    notebook = nbformat.read(path, as_version=4)
    place = {"metadata": {"path": str(tmp_path)}}
    NotebookClient(notebook, timeout=300, startup_timeout=300, resources=place).execute()
    outputs = [out for cell in notebook.cells for out in cell.get("outputs", [])]
    # tqdm, which transformers uses, asks for a widget library in every notebook without one.
    warned = [out.text for out in outputs if out.get("name") == "stderr"]
    assert [text for text in warned if "TqdmWarning: IProgress" not in text] == []
    shown = [out.data for out in outputs if "data" in out]
    assert sum("text/html" in data for data in shown) >= 5
    assert sum("image/png" in data for data in shown) == 1
    for data in shown:
        assert len(data.get("text/html", "")) < 60_000
