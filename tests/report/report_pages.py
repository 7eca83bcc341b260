"""Reading a report as a browser would, without one."""

from __future__ import annotations

import json
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import synthetic_measurement

from posbias.measurement import Measurement

VOID = {"meta", "link", "input", "br", "img"}
LOADING = {"src", "srcset", "href", "data", "poster", "action"}


class Document(HTMLParser):
    """Elements of a page with their attributes, and the text of each."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str]]] = []
        self.texts: list[tuple[str, str]] = []
        self.open: list[str] = []
        self.unbalanced: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, {name: value or "" for name, value in attrs}))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if not self.open or self.open.pop() != tag:
            self.unbalanced.append(tag)

    def handle_data(self, data: str) -> None:
        if data.strip():
            self.texts.append((self.open[-1] if self.open else "", " ".join(data.split())))

    def all(self, tag: str) -> list[dict[str, str]]:
        return [attributes for name, attributes in self.elements if name == tag]

    def ids(self) -> list[str]:
        return [attributes["id"] for _, attributes in self.elements if "id" in attributes]

    def visible(self) -> str:
        return " ".join(text for tag, text in self.texts if tag not in {"script", "style"})

    def data(self) -> dict[str, Any]:
        """Return what the script reads: the text of the first script element."""
        found: dict[str, Any] = json.loads(next(t for tag, t in self.texts if tag == "script"))
        return found


def outside_addresses(document: Document) -> list[str]:
    """Return addresses that a browser would load or follow outside the file."""
    return [
        value
        for _, attributes in document.elements
        for name, value in attributes.items()
        if name in LOADING and not value.startswith(("#", "data:,"))
    ]


def measurement_of(length: int, *, alibi: bool = True, windows: int = 4) -> Measurement:
    """Return a synthetic measurement of another length."""
    usual = synthetic_measurement.LENGTH
    synthetic_measurement.LENGTH = length
    try:
        starts = [[0, length * k] for k in range(windows)]
        manifest, arrays = synthetic_measurement.make_parts(starts, alibi=alibi)
    finally:
        synthetic_measurement.LENGTH = usual
    manifest["text"]["tokens"] = length * windows
    return Measurement(manifest, arrays)


def saved(measurement: Measurement, folder: Path) -> Path:
    """Store a measurement and return its directory."""
    return measurement.save(folder)
