"""A small plot of a profile in characters, for terminals."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from posbias.cli._session import can_print, console_of

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.text import Text

    from posbias.profile import Profile

__all__ = ["LEAST_WIDTH", "profile_plot", "show_profiles"]

Heights = NDArray[np.float64]

LEAST_WIDTH = 32
"""Columns of the narrowest terminal in which a plot is shown."""

_MOST_COLUMNS = 96
_ROWS = 8
_GUTTER = 7
_END = 4
_LOWEST = 2.0**-6
# Octaves that one row of characters may span.
_STEPS = (0.25, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 20.0)


@dataclass(frozen=True)
class _Marks:
    """Characters of one plot."""

    levels: str
    dot: str
    side: str
    corner: str
    floor: str
    tick: str
    cut: str


_BLOCKS = _Marks(" ▁▂▃▄▅▆▇█", "•", "│", "└", "─", "┴", "┊")
_ASCII = _Marks(" .:#", "o", "|", "+", "-", "+", ":")


def show_profiles(profiles: Mapping[str, Profile]) -> None:
    """Print a plot of one or two profiles if standard output is a terminal wide enough for it.

    Files and programs that read the output get none. Where the encoding lacks block characters, or
    the terminal calls itself dumb, the plot is made of ASCII.
    """
    console = console_of("stdout")
    if not console.is_terminal or console.width < LEAST_WIDTH:
        return
    blocks = "".join([_BLOCKS.levels, *vars(_BLOCKS).values()])
    is_plain = console.is_dumb_terminal or not can_print(blocks)
    console.print(profile_plot(profiles, console.width, ascii_only=is_plain))


def profile_plot(
    profiles: Mapping[str, Profile], width: int, *, ascii_only: bool = False
) -> RenderableType:
    """Return a plot of a profile as bars, with a second one as dots, for rich to print.

    Parameters
    ----------
    profiles : mapping of str to Profile
        One or two of equal length by the names of the legend, the bars first.
    width : int
        Columns to fill, at least `LEAST_WIDTH`; at most 96 are used for the curve.
    ascii_only : bool
        Use no character beyond ASCII.

    Returns
    -------
    RenderableType
        Eight rows, an axis and a legend. Heights are shares in multiples of the fair share 1 / n
        on a logarithmic scale. Profiles longer than the plot are shown as means over bins of equal
        width, but for the first and the last four positions, which have a column each.
    """
    from rich.console import Group
    from rich.text import Text

    marks = _ASCII if ascii_only else _BLOCKS
    n = next(iter(profiles.values())).n
    available = min(width - _GUTTER, _MOST_COLUMNS)
    edges, cuts = _columns(n, available)
    repeat = 1 if cuts else available // n
    curves = [
        np.repeat(np.add.reduceat(p.mass, edges) / np.diff(np.append(edges, n)) * n, repeat)
        for p in profiles.values()
    ]
    base, step, rows = _scale(curves)
    lines = []
    for row in range(rows - 1, -1, -1):
        line = Text(f"{_tick(base, step, row):>{_GUTTER - 1}}{marks.side}", no_wrap=True)
        cells = []
        for column in range(curves[0].size):
            if column in cuts:
                cells.append((marks.cut, "dim"))
            cells.append(_cell([c[column] for c in curves], base + row * step, step, marks))
        for style, run in groupby(cells, key=itemgetter(1)):
            line.append("".join(character for character, _ in run), style=style)
        lines.append(line)
    starts = np.repeat(edges, repeat)
    lines.extend(_axis(n, starts, cuts, marks))
    note = f"1x is 1/{n}; both ends enlarged" if cuts else f"1x is 1/{n}"
    lines.extend(_legend(list(profiles), note, width, marks))
    return Group(*lines)


def _columns(n: int, available: int) -> tuple[NDArray[np.int64], tuple[int, ...]]:
    """Return the first position of every column, and the columns before which a cut is drawn."""
    if n <= available:
        return np.arange(n), ()
    between = available - 2 * _END - 2
    inner = np.round(np.linspace(_END, n - _END, between + 1)).astype(np.int64)[:-1]
    edges = np.concatenate([np.arange(_END), inner, np.arange(n - _END, n)])
    return edges, (_END, _END + between)


def _scale(curves: Sequence[Heights]) -> tuple[float, float, int]:
    """Return the lowest height and the height of a row in octaves, and the number of rows.

    The fair share is on the border of a row. What lies below 1/64 of it has no bar.
    """
    octaves = np.log2(np.maximum(np.concatenate(curves), _LOWEST))
    low, high = float(octaves.min()), float(octaves.max())
    for step in _STEPS:
        base = math.floor(low / step - 1e-9) * step
        rows = max(2, math.ceil((high - base) / step - 1e-9))
        if rows <= _ROWS:
            break
    return base, step, rows


def _tick(base: float, step: float, row: int) -> str:
    """Return the label of a row, its lower border; rows that are no whole octave have none."""
    octave = base + row * step
    if not octave.is_integer() or (step >= 1.0 and (octave / step) % 2):
        return ""
    return f"{2**octave:g}x" if octave >= 0 else f"1/{2**-octave:g}x"


def _cell(heights: Sequence[float], border: float, step: float, marks: _Marks) -> tuple[str, str]:
    """Return the character and the style of one column of the row above `border`, in octaves."""
    filled = [(math.log2(max(height, 1e-300)) - border) / step for height in heights]
    if len(filled) > 1 and 0.0 <= filled[1] < 1.0:
        return marks.dot, "bold magenta"
    most = len(marks.levels) - 1
    return marks.levels[min(most, max(0, round(filled[0] * most)))], "cyan"


def _axis(n: int, starts: NDArray[np.int64], cuts: tuple[int, ...], marks: _Marks) -> list[Text]:
    """Return the floor and the positions below it: the first, those at the cuts, the last."""
    from rich.text import Text

    shift = [sum(column >= cut for cut in cuts) for column in range(starts.size)]
    total = starts.size + len(cuts)
    ticks = [0, *cuts] if cuts else [0, starts.size // 2]
    floor, labels = list(marks.floor * total), [" "] * total
    last = str(n - 1)
    labels[total - len(last) :] = last
    for column in ticks:
        place, word = column + shift[column], str(starts[column])
        floor[place] = marks.tick
        if place + len(word) < total - len(last):
            labels[place : place + len(word)] = word
    floor[-1] = marks.tick
    gutter = " " * (_GUTTER - 1)
    return [
        Text(f"{gutter}{marks.corner}{''.join(floor)}", no_wrap=True),
        Text(f"{gutter} {''.join(labels)}", no_wrap=True),
    ]


def _legend(names: list[str], note: str, width: int, marks: _Marks) -> list[Text]:
    """Return the names with their marks, and what the heights mean beside or below them."""
    from rich.text import Text

    looks = ((marks.levels[-1], "cyan"), (marks.dot, "bold magenta"))
    text = Text(" " * _GUTTER, no_wrap=True, overflow="crop")
    for name, (mark, style) in zip(names, looks, strict=False):
        text.append(mark, style=style)
        text.append(f" {name}  ")
    if len(text) + len(note) <= width:
        return [text.append(note, style="dim")]
    return [text, Text(" " * _GUTTER, no_wrap=True).append(note, style="dim")]
