"""Tables for people: rows of shape figures and distances, with a small plot where it helps."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from posbias.cli._session import can_print, console_of
from posbias.uncertainty import W1_TARGET

if TYPE_CHECKING:
    from rich.table import Table

    from posbias.compare import Comparison
    from posbias.profile import Profile

__all__ = ["comparison_table", "plain_table", "shape_table", "shown_name", "sparkline"]

_HEADERS = {
    "w1": "W1",
    "spearman": "Spearman",
    "js": "JS",
    "primacy": "primacy",
    "recency": "recency",
    "trough_position": "trough",
}
_DIGITS = dict.fromkeys(_HEADERS, 4) | {"spearman": 3, "trough_position": 0}
_DISTANCES = ("w1", "spearman", "js")
_LAYOUTS: tuple[Mapping[str, bool], ...] = (
    dict.fromkeys(_HEADERS, True),
    dict.fromkeys(_HEADERS, False) | {"w1": True, "spearman": True},
    dict.fromkeys(_HEADERS, False) | {"w1": True},
    {"w1": True, "spearman": False, "primacy": False, "recency": False},
    {"w1": True, "spearman": False},
    {"w1": True},
    {"w1": False},
)
"""Figures of a comparison, and whether their intervals are shown: the widest that fits is taken."""

_WIDEST_NAME = 20

_BLOCKS = "▁▂▃▄▅▆▇█"
_ASCII = "_.-~=+*#"
_MOST_BINS = 32
_FEWEST_BINS = 8
_LOWEST_SHARE = 0.25
_HIGHEST_SHARE = 16.0


def comparison_table(comparison: Comparison, *, title: str = "") -> Table:
    """Return the table of a comparison: the measured profile, then one row per prediction.

    The smallest W1 is set in bold; marks follow the name of the recommended prediction and those
    of predictions that a paired bootstrap does not tell apart from the closest. Where the terminal
    is narrow, intervals and then columns are left out, and named below; digits never are.
    """
    available = console_of("stdout").width
    for layout in _LAYOUTS:
        headers, rows = _comparison_cells(comparison, layout)
        if _least_width(headers, rows) <= available:
            break
    distances = [row.w1 for row in comparison.rows]
    best = 1 + distances.index(min(distances)) if len(distances) > 1 else None
    absent = [_HEADERS[name] for name in _HEADERS if name not in layout]
    notes = _interval_notes(comparison)
    notes += [f"Left out at this width: {', '.join(absent)}."] if absent else []
    return plain_table(headers, rows, title=title, bold_row=best, section_after=0, notes=notes)


def _comparison_cells(
    comparison: Comparison, layout: Mapping[str, bool]
) -> tuple[list[str], list[list[str]]]:
    """Return headers and rows; the layout says of each figure whether its interval is shown."""
    rows = []
    for row in (comparison.measured, *comparison.rows):
        is_measured = row is comparison.measured
        name = "measured" if is_measured else shown_name(row.variant)
        marks = comparison.marks(row.variant)
        cells = [f"{name} {marks}" if marks and not is_measured else name]
        for figure, has_interval in layout.items():
            digits = _DIGITS[figure]
            if is_measured and figure in _DISTANCES:
                cells.append("")
            elif figure == "trough_position" and not row.has_trough:
                cells.append("-")
            elif has_interval:
                cells.append(comparison.shown(row.variant, figure, digits))
            else:
                cells.append(_number(getattr(row, figure), digits))
        rows.append(cells)
    return ["variant", *(_HEADERS[figure] for figure in layout)], rows


def _interval_notes(comparison: Comparison) -> list[str]:
    """Return what the intervals rest on, what they do not tell apart, and how to narrow them."""
    from posbias.comparison import ALIKE, RECOMMENDED

    notes = [f"Intervals: {comparison.basis}."]
    if comparison.recommended is not None:
        notes.insert(0, f"{RECOMMENDED} recommended by a rule that does not look at distances.")
    if comparison.sampling is None:
        return notes
    best = comparison.best.variant
    if any(pair.verdict == "not distinguished" for pair in comparison.against_best):
        notes.append(f"{ALIKE} not distinguished from {shown_name(best)} (paired bootstrap of W1).")
    needed = comparison.units_needed(best, W1_TARGET)
    if needed is not None:
        notes.append(
            f"W1 of {shown_name(best)} to +-{W1_TARGET} needs about {needed:,} "
            f"{comparison.sampling['unit']} like these."
        )
    return notes


def shape_table(profiles: Mapping[str, Profile], *, title: str = "") -> Table:
    """Return the table of the shape figures of profiles, each with its curve in characters."""
    from posbias.metrics import shape_figures

    levels = _BLOCKS if can_print(_BLOCKS) else _ASCII
    names = max(len(shown_name(name)) for name in profiles)
    bins = min(_MOST_BINS, max(_FEWEST_BINS, console_of("stdout").width - names - 55))
    rows = []
    for name, profile in profiles.items():
        shape = shape_figures(profile)
        cells = [shown_name(name), *_shape_cells(shape.primacy, shape.recency)]
        cells += [
            str(shape.trough_position) if shape.has_trough else "-",
            f"{shape.mean_position:.1f}",
        ]
        cells += ["yes" if shape.is_u_shaped else "no", sparkline(profile, levels, bins)]
        rows.append(cells)
    headers = ["variant", "primacy", "recency", "trough", "mean", "U-shaped", "profile (log)"]
    return plain_table(headers, rows, title=title)


def plain_table(
    headers: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    title: str = "",
    bold_row: int | None = None,
    section_after: int | None = None,
    notes: Sequence[str] = (),
) -> Table:
    """Return a table with the first column left-aligned and numbers to the right.

    In a narrow terminal words fold and numbers are never cut: columns that do not fit are left
    out from the right and named below, the first one always stays.
    """
    from rich import box
    from rich.table import Table
    from rich.text import Text

    kept = len(headers)
    available = console_of("stdout").width
    while kept > 1 and _least_width(headers[:kept], [row[:kept] for row in rows]) > available:
        kept -= 1
    if kept < len(headers):
        notes = [*notes, f"Left out at this width: {', '.join(headers[kept:])}."]
    table = Table(
        box=box.SIMPLE_HEAD,
        title=title or None,
        title_justify="left",
        title_style="bold",
        caption="\n".join(notes) or None,
        caption_justify="left",
    )
    for k, header in enumerate(headers[:kept]):
        is_text = _is_text(k, rows)
        table.add_column(
            header,
            justify="left" if is_text else "right",
            no_wrap=not is_text,
            overflow="fold",
            min_width=_least_column(k, headers, rows),
        )
    for k, row in enumerate(rows):
        cells = [Text(cell) for cell in row[:kept]]
        table.add_row(
            *cells, style="bold" if k == bold_row else None, end_section=k == section_after
        )
    return table


def _least_width(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> int:
    """Return the columns of a terminal that a table takes when its words are folded."""
    columns = range(len(headers))
    return sum(_least_column(k, headers, rows) + 3 for k in columns) + 1


def _least_column(k: int, headers: Sequence[str], rows: Sequence[Sequence[str]]) -> int:
    longest = max(len(cell) for cell in (headers[k], *(row[k] for row in rows)))
    is_name = k == 0
    if is_name:
        return min(longest, _WIDEST_NAME)
    return min(longest, 8) if _is_text(k, rows) else longest


def _is_text(k: int, rows: Sequence[Sequence[str]]) -> bool:
    return k == 0 or any(row[k] and not _is_number(row[k]) for row in rows)


def shown_name(variant: str) -> str:
    """Return how tables call a variant."""
    return "fixed 1/2" if variant == "fixed-half" else variant


def sparkline(profile: Profile, levels: str = _BLOCKS, bins: int = _MOST_BINS) -> str:
    """Return a profile as a line of characters whose height is logarithmic.

    The scale is the same for every profile of every length: from a quarter of the uniform share
    to 16 times that share, beyond which curves stay at the lowest and the highest character.

    Parameters
    ----------
    profile : Profile
        The curve; bins of equal width show their mean mass.
    levels : str
        Characters from the lowest to the highest.
    bins : int
        Length of the line; shorter profiles have one character per position.
    """
    import numpy as np

    parts = np.array_split(profile.mass * profile.n, min(bins, profile.n))
    shares = np.maximum([part.mean() for part in parts], _LOWEST_SHARE)
    heights = np.log(shares / _LOWEST_SHARE) / np.log(_HIGHEST_SHARE / _LOWEST_SHARE)
    index = np.minimum(heights * len(levels), len(levels) - 1).astype(int)
    return "".join(levels[k] for k in index)


def _shape_cells(primacy: float, recency: float) -> list[str]:
    return [f"{primacy:.4f}", f"{recency:.4f}"]


def _number(value: float | None, digits: int) -> str:
    """Format a number; an undefined one (rank correlation with a constant) is a dash."""
    return "-" if value is None or math.isnan(value) else f"{value:.{digits}f}"


def _is_number(cell: str) -> bool:
    """Whether a cell holds a number, with its interval or without."""
    alone = cell.partition(" [")[0]
    return alone == "-" or alone.lstrip("+-").replace(".", "", 1).replace("e-", "", 1).isdigit()
