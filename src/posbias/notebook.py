"""What notebooks show of a result: small HTML with inline SVG, no scripts, no matplotlib.

Colours of text and axes are those of the page, so that the same output is readable on a light and
on a dark background. Every text is escaped.
"""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from posbias.palette import MEASURED, TINTS

__all__ = ["card", "curves", "table"]

Vector = NDArray[np.float64]

# Colours of other names; like those of variants they keep their contrast on white and on black.
_SPARE = tuple(tint.either for name, tint in TINTS.items() if name != MEASURED)
_COLORS = tuple(dict.fromkeys(_SPARE))
_DASHES = ("", "6 2", "2 2", "8 2 2 2", "4 4", "1 3", "10 3")
_WIDTH, _HEIGHT = 520, 190
_LEFT, _RIGHT, _TOP, _BOTTOM = 44, 8, 8, 34
_BINS = 240
_CELL = "padding:0.15em 0.7em;text-align:{align};border-bottom:1px solid rgba(128,128,128,0.35)"


def card(title: str, facts: Sequence[tuple[str, object]], *parts: str) -> str:
    """Return a titled block.

    Parameters
    ----------
    title : str
        Plain text.
    facts : sequence of (str, object)
        Names and values in one line below the title, as plain text.
    *parts : str
        HTML made by `table` and `curves`.
    """
    line = " · ".join(f"{html.escape(name)} {html.escape(str(value))}" for name, value in facts)
    return (
        '<div style="font-family:sans-serif;font-size:13px;line-height:1.4;max-width:100%;'
        f'overflow-x:auto"><div style="font-weight:600">{html.escape(title)}</div>'
        f'<div style="opacity:0.8">{line}</div>{"".join(parts)}</div>'
    )


def table(header: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Return a table of plain texts; the first column is left-aligned, the others right-aligned."""
    head = "".join(_cell("th", name, index) for index, name in enumerate(header))
    body = "".join(
        f"<tr>{''.join(_cell('td', value, index) for index, value in enumerate(row))}</tr>"
        for row in rows
    )
    return (
        '<table style="border-collapse:collapse;margin:0.5em 0;background:transparent;'
        'color:inherit;font-size:inherit;white-space:nowrap">'
        f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
    )


def curves(masses: Mapping[str, Vector]) -> str:
    """Return profiles of equal length n as a figure with a legend.

    The height is the influence as a multiple of the fair share 1 / n, on a square-root scale.
    More than 240 positions are drawn as means over bins whose widths differ by one position at
    most, so that the mass is kept. O(n) per profile.

    Parameters
    ----------
    masses : mapping of str to ndarray, shape (n,)
        Mass by name; n >= 2.
    """
    n = len(next(iter(masses.values())))
    heights = {name: _binned(mass * n) for name, mass in masses.items()}
    top = max(1.0, *(float(values.max()) for values in heights.values()))
    lines = "".join(
        f'<polyline points="{_points(values, top)}" fill="none" stroke-width="1.5" '
        f"{_stroke(name, index)}/>"
        for index, (name, values) in enumerate(heights.items())
    )
    title = f"Influence of {n} positions: {', '.join(masses)}"
    return (
        f'<svg role="img" aria-label="{html.escape(title)}" viewBox="0 0 {_WIDTH} {_HEIGHT}" '
        f'style="display:block;width:{_WIDTH}px;max-width:100%;height:auto;margin-top:0.5em">'
        f"{_axes(top, n)}{lines}</svg>{_legend(list(masses))}"
    )


def _cell(tag: str, value: object, index: int) -> str:
    style = _CELL.format(align="left" if index == 0 else "right")
    return f'<{tag} style="{style}">{html.escape(str(value))}</{tag}>'


def _binned(values: Vector) -> Vector:
    if values.size <= _BINS:
        return values
    return np.array([part.mean() for part in np.array_split(values, _BINS)])


def _points(values: Vector, top: float) -> str:
    across = np.linspace(_LEFT, _WIDTH - _RIGHT, values.size)
    return " ".join(
        f"{x:.1f},{_height(float(y), top):.1f}" for x, y in zip(across, values, strict=True)
    )


def _height(value: float, top: float) -> float:
    return _HEIGHT - _BOTTOM - (_HEIGHT - _TOP - _BOTTOM) * float(np.sqrt(value / top))


def _axes(top: float, n: int) -> str:
    """Return a line at the fair share and at the largest value, and the ends of the positions."""
    ticks = [0.0, 1.0] if top < 2.0 else [0.0, 1.0, top]
    marks = "".join(
        f'<line x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}" '
        'stroke="currentColor" stroke-opacity="0.25"/>'
        f'<text x="{_LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{value:.3g}</text>'
        for value in ticks
        for y in [_height(value, top)]
    )
    base = _HEIGHT - _BOTTOM + 14
    ends = (
        f'<text x="{_LEFT}" y="{base}">0</text>'
        f'<text x="{_WIDTH - _RIGHT}" y="{base}" text-anchor="end">{n - 1}</text>'
        f'<text x="{(_LEFT + _WIDTH) / 2:g}" y="{base + 14}" text-anchor="middle">'
        "position; height: influence, 1 = fair share (square-root scale)</text>"
    )
    return f'<g fill="currentColor" font-size="11">{marks}{ends}</g>'


def _legend(names: Sequence[str]) -> str:
    entries = "".join(
        '<span style="margin-right:1.2em;white-space:nowrap">'
        '<svg width="26" height="8" aria-hidden="true"><line x1="0" x2="26" y1="4" y2="4" '
        f'stroke-width="2" {_stroke(name, index)}/></svg> {html.escape(name)}</span>'
        for index, name in enumerate(names)
    )
    return f"<div>{entries}</div>"


def _stroke(name: str, index: int) -> str:
    """Return colour and dashes as attributes."""
    return f'stroke="{_color(name, index)}" stroke-dasharray="{_dashes(name, index)}"'


def _color(name: str, index: int) -> str:
    """Return the colour of a variant, or one by its place; only measured has that of the text."""
    return TINTS[name].either if name in TINTS else _COLORS[index % len(_COLORS)]


def _dashes(name: str, index: int) -> str:
    """Return dashes by place; with every round through the colours they move on by one more."""
    if name == MEASURED:
        return _DASHES[0]
    turn = len(_DASHES) - len(_COLORS) + 1
    return _DASHES[(index + turn * (index // len(_COLORS))) % len(_DASHES)]
