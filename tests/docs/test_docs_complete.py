"""Pages that list something list all of it."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import re
import sys
from pathlib import Path

from code_blocks import ROOT

import posbias
from posbias import errors

DOCS = ROOT / "docs"
ERRORS = [
    value
    for value in vars(errors).values()
    if inspect.isclass(value) and issubclass(value, errors.PosbiasError)
]


def sections(page: str) -> dict[str, str]:
    """Return the text of each section of the second level by its title."""
    parts = re.split(r"^## (.+)$", (DOCS / page).read_text(encoding="utf-8"), flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def test_every_error_has_an_entry() -> None:
    entries = sections("errors.md")
    assert set(entries) == {error.__name__ for error in ERRORS}
    for error in ERRORS:
        text = entries[error.__name__]
        assert "*Usual cause*" in text
        assert "*What to do*" in text
        if error is errors.InterruptedRunError:
            assert "Exit code 130 (Ctrl-C) or 143 (SIGTERM)." in text
        else:
            assert text.strip().startswith(f"Exit code {error.exit_code}. ")


def test_every_name_of_the_package_is_in_the_index_of_the_api() -> None:
    page = (DOCS / "api" / "index.md").read_text(encoding="utf-8")
    listed = set(re.findall(r"`posbias\.(\w+)`", page))
    assert set(posbias.__all__) <= listed


def documented_modules() -> list[str]:
    pages = sorted((DOCS / "api").glob("*.md"))
    return [m for p in pages for m in re.findall(r"^::: (\S+)$", p.read_text(), re.MULTILINE)]


def test_index_of_the_api_lists_the_modules_of_its_pages() -> None:
    index = (DOCS / "api" / "index.md").read_text(encoding="utf-8")
    for page in sorted((DOCS / "api").glob("*.md")):
        for module in re.findall(r"^::: (\S+)$", page.read_text(), re.MULTILINE):
            assert re.search(rf"\({page.name}\) \|.*`{re.escape(module)}`", index), module


def test_pictures_of_the_concepts_are_drawn_by_their_script(tmp_path: Path) -> None:
    spec = importlib.util.spec_from_file_location("docs_figures", DOCS / "_figures.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.main(tmp_path)
    drawn = {path.name for path in tmp_path.iterdir()}
    page = (DOCS / "concepts.md").read_text(encoding="utf-8")
    assert drawn == set(re.findall(r"\(images/(concept-[^)]+)\)", page))
    assert drawn == {path.name for path in (DOCS / "images").glob("concept-*")}


def test_every_package_of_the_library_has_a_page() -> None:
    """Packages and modules at the top, but for the command line and helpers of the library."""
    internal = {"cli", "data", "atomic", "optional", "notebook", "palette", "version"}
    internal |= {"binning", "plan"}
    found = {p.stem for p in (ROOT / "src" / "posbias").iterdir() if not p.name.startswith("_")}
    public = {name for name in found if name != "py"} - internal
    assert public <= {module.split(".")[1] for module in documented_modules()}


def test_public_names_exist_and_are_described() -> None:
    for module in documented_modules():
        importlib.import_module(module)
        loaded = sys.modules[module]  # the package may have a function of the same name
        assert loaded.__doc__, module
        for name in getattr(loaded, "__all__", []):
            value = getattr(loaded, name)
            if inspect.isclass(value) or inspect.isfunction(value):
                assert inspect.getdoc(value), f"{module}.{name}"


def test_citing_agrees_with_the_citation_file() -> None:
    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    page = (DOCS / "citing.md").read_text(encoding="utf-8")
    for key in ("title", "url", "family-names", "given-names"):
        for value in re.findall(rf'{key}: "?([^"\n]+)"?', citation):
            assert value in page, value
    assert re.findall(r"^version: (.+)$", citation, re.MULTILINE) == [posbias.__version__]
    assert f"version = {{{posbias.__version__}}}" in page
