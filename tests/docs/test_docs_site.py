"""The documentation site is built without a warning, needs no network, and has no dead links."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from types import ModuleType
from urllib.parse import unquote, urlsplit

from code_blocks import ROOT
from test_docs_complete import documented_modules


class Page(HTMLParser):
    """Anchors, links and what the browser loads by itself."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.anchors |= {given[key] for key in ("id", "name") if key in given}
        if tag == "a" and "href" in given:
            self.links.append(given["href"])
        if "src" in given:
            self.loaded.append(given["src"])
        if tag == "link" and given.get("rel") in {"stylesheet", "icon", "preload", "preconnect"}:
            self.loaded.append(given["href"])


def build(folder: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1", "NO_COLOR": "1"}
    return subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )


def test_site(tmp_path: Path) -> None:
    done = build(tmp_path)
    assert done.returncode == 0, done.stderr
    assert "WARNING" not in done.stderr
    pages = {path: Page(path) for path in tmp_path.rglob("*.html")}
    assert len(pages) > 50
    assert dead_links(pages, tmp_path) == []
    assert loaded_from_elsewhere(pages) == []
    assert missing_names(pages) == []


def dead_links(pages: dict[Path, Page], root: Path) -> list[str]:
    dead = []
    for path, page in pages.items():
        if path.name == "404.html":  # its links are for the root of a server
            continue
        for link in [*page.links, *page.loaded]:
            parts = urlsplit(link)
            if parts.scheme:
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            target = target / "index.html" if target.is_dir() else target
            anchors = pages[target].anchors if target in pages else set()
            missing = not target.exists() or (parts.fragment and target in pages)
            if missing and unquote(parts.fragment) not in anchors:
                dead.append(f"{path.relative_to(root)}: {link}")
    return dead


def loaded_from_elsewhere(pages: dict[Path, Page]) -> list[str]:
    return sorted({src for page in pages.values() for src in page.loaded if urlsplit(src).netloc})


def missing_names(pages: dict[Path, Page]) -> list[str]:
    """Return the public names without an entry on the pages of the API."""
    anchors = {
        anchor
        for path, page in pages.items()
        if path.parent.name == "api"
        for anchor in page.anchors
    }
    return [
        f"{module}.{name}"
        for module in documented_modules()
        for name in module_named(module).__all__
        if not {f"{module}.{name}", home_of(module, name)} & anchors
    ]


def home_of(module: str, name: str) -> str:
    """Return where a name is defined, which differs for a function named like its module."""
    value = getattr(module_named(module), name)
    return f"{getattr(value, '__module__', module)}.{name}"


def module_named(name: str) -> ModuleType:
    """Import a module, even where its package has a function of the same name."""
    importlib.import_module(name)
    return sys.modules[name]
