"""The code blocks of a Markdown page, and the remarks about them that only the tests read.

A remark is an HTML comment above a block:

``<!-- not run: REASON -->``       the block is not executed; the tests hold the list of these
``<!-- file: NAME -->``            the block is the content of a file that later blocks use
``<!-- before: COMMAND -->``       a command that runs first, not shown to the reader
``<!-- run with: WORD=VALUE -->``  what stands in for a placeholder such as MODEL
``<!-- needs: reference -->``      the files published with the paper are in the folder
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]

KINDS = {"python", "pycon", "sh", "yaml", "json", "text", "bibtex"}
_FENCE = re.compile(r"^(?P<indent> *)(?P<ticks>```+)(?P<kind>\S*) *$")
_REMARK = re.compile(r"^ *<!-- (?P<key>not run|file|before|run with|needs): (?P<value>.+) -->$")


@dataclass(frozen=True)
class Block:
    """One fenced block: its page, the line on which its text begins, and the remarks above it."""

    page: Path
    line: int
    kind: str
    text: str
    remarks: tuple[tuple[str, str], ...]

    @property
    def where(self) -> str:
        return f"{name_of(self.page)}:{self.line}"

    def remark(self, key: str) -> list[str]:
        return [value for name, value in self.remarks if name == key]


def name_of(page: Path) -> str:
    """Return the path of a page below the repository."""
    return page.relative_to(ROOT).as_posix()


def blocks_of(page: Path) -> list[Block]:
    """Return the blocks of a page from top to bottom."""
    blocks: list[Block] = []
    remarks: list[tuple[str, str]] = []
    lines = iter(enumerate(page.read_text(encoding="utf-8").splitlines(), start=1))
    for number, line in lines:
        if fence := _FENCE.match(line):
            body = []
            for _, inner in lines:
                if inner.strip() == fence["ticks"]:
                    break
                body.append(inner.removeprefix(fence["indent"]))
            text = "\n".join(body) + "\n"
            blocks.append(Block(page, number + 1, fence["kind"], text, tuple(remarks)))
        if remark := _REMARK.match(line):
            remarks.append((remark["key"], remark["value"]))
        elif line.strip():
            remarks = []
    return blocks


def prose_of(page: Path) -> str:
    """Return the page with its blocks blanked out, line numbers kept."""
    kept, inside = [], ""
    for line in page.read_text(encoding="utf-8").splitlines():
        fence = _FENCE.match(line)
        if not inside and fence:
            inside = fence["ticks"]
            kept.append("")
        elif inside:
            inside = "" if line.strip() == inside else inside
            kept.append("")
        else:
            kept.append(line)
    return "\n".join(kept) + "\n"
