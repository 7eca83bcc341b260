"""From the contents of a page to one self-contained HTML document."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib import resources
from typing import Any

from posbias.palette import style_rules
from posbias.report import facts
from posbias.uncertainty import LEVEL, RESAMPLES, SEED
from posbias.version import __version__

__all__ = ["Page", "embed_json", "render"]

_SCRIPTS = ("dom.js", "controls.js", "chart.js", "profiles.js", "kernels.js", "depth.js", "main.js")
_STYLES = ("base.css", "figures.css", "print.css")


@dataclass(frozen=True, eq=False)
class Page:
    """The contents of a page.

    Parameters
    ----------
    template : str
        Name of the template.
    context : dict
        Its variables; texts are escaped.
    data : dict
        JSON-serialisable numbers for the figures.
    """

    template: str
    context: dict[str, Any]
    data: dict[str, Any]


def render(page: Page, *, command: str) -> str:
    """Return the document: styles, scripts and data are part of it, nothing is loaded.

    Parameters
    ----------
    page : Page
        Its contents.
    command : str
        The command that makes the report again.
    """
    from jinja2 import Environment, FunctionLoader, StrictUndefined

    environment = Environment(
        loader=FunctionLoader(_read),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    return environment.get_template(page.template).render(
        page.context,
        data=embed_json(page.data),
        style="\n".join([style_rules(), *(_read(name) for name in _STYLES)]),
        script=_script(),
        version=__version__,
        made=datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        report_command=command,
        resamples=RESAMPLES,
        seed=SEED,
        level=f"{100 * LEVEL:.0f} %",
        paper_reference=facts.PAPER_REFERENCE,
        bibtex=f"{facts.PAPER_BIBTEX}\n\n{facts.software_bibtex(__version__)}",
    )


def embed_json(data: dict[str, Any]) -> str:
    """Return JSON that may stand inside a script element whatever its strings contain."""
    text = json.dumps(data, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    for character in "<>&":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def _script() -> str:
    """Join the scripts in one scope of their own."""
    parts = "\n".join(_read(name) for name in _SCRIPTS)
    return f'(function () {{\n"use strict";\n{parts}}})();'


def _read(name: str) -> str:
    return (resources.files("posbias.report") / "templates" / name).read_text(encoding="utf-8")
