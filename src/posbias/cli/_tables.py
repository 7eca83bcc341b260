"""Tables for people: rows of shape figures and distances, with a small plot where it helps."""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from posbias.cli._session import console_of

if TYPE_CHECKING:
    from rich.table import Table

    from posbias.compare import Comparison
    from posbias.profile import Profile

__all__ = ["comparison_table", "plain_table", "shape_table", "shown_name", "sparkline"]

_BLOCKS = "▁▂▃▄▅▆▇█"
_ASCII = "_.-~=+*#"
_MOST_BINS = 32
_FEWEST_BINS = 8
_LOWEST_SHARE = 0.25
_HIGHEST_SHARE = 16.0


def comparison_table(comparison: Comparison, *, title: str = "") -> Table:
    """Return the table of a comparison: the measured profile, then one row per prediction.

    The smallest W1 is set in bold.
    """
    shape = comparison.measured
    rows = [["measured", "", "", "", *_shape_cells(shape.primacy, shape.recency)]]
    rows[0].append(str(shape.trough_position))
    for row in comparison.rows:
        cells = [shown_name(row.variant), f"{row.w1:.4f}", _number(row.spearman, 3)]
        cells += [f"{row.js:.4f}", *_shape_cells(row.primacy, row.recency)]
        rows.append([*cells, str(row.trough_position)])
    distances = [row.w1 for row in comparison.rows]
    best = 1 + distances.index(min(distances)) if len(distances) > 1 else None
    headers = ["variant", "W1", "Spearman", "JS", "primacy", "recency", "trough"]
    return plain_table(headers, rows, title=title, bold_row=best, section_after=0)


def shape_table(profiles: Mapping[str, Profile], *, title: str = "") -> Table:
    """Return the table of the shape figures of profiles, each with its curve in characters."""
    from posbias.metrics import shape_figures

    levels = _BLOCKS if _can_print(_BLOCKS) else _ASCII
    names = max(len(shown_name(name)) for name in profiles)
    bins = min(_MOST_BINS, max(_FEWEST_BINS, console_of("stdout").width - names - 55))
    rows = []
    for name, profile in profiles.items():
        shape = shape_figures(profile)
        cells = [shown_name(name), *_shape_cells(shape.primacy, shape.recency)]
        cells += [str(shape.trough_position), f"{shape.mean_position:.1f}"]
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
) -> Table:
    """Return a table with the first column left-aligned and numbers to the right."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(
        box=box.SIMPLE_HEAD, title=title or None, title_justify="left", title_style="bold"
    )
    for k, header in enumerate(headers):
        is_text = k == 0 or any(row[k] and not _is_number(row[k]) for row in rows)
        # In a narrow terminal words fold; numbers are never cut.
        longest = max(len(cell) for cell in (header, *(row[k] for row in rows)))
        table.add_column(
            header,
            justify="left" if is_text else "right",
            no_wrap=not is_text,
            overflow="fold",
            min_width=min(longest, 8) if is_text else longest,
        )
    for k, row in enumerate(rows):
        cells = [Text(cell) for cell in row]
        table.add_row(
            *cells, style="bold" if k == bold_row else None, end_section=k == section_after
        )
    return table


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


def _can_print(characters: str) -> bool:
    """Return whether the encoding of standard output has these characters."""
    try:
        characters.encode(sys.stdout.encoding or "ascii")
    except UnicodeEncodeError:
        return False
    return True


def _shape_cells(primacy: float, recency: float) -> list[str]:
    return [f"{primacy:.4f}", f"{recency:.4f}"]


def _number(value: float | None, digits: int) -> str:
    """Format a number; an undefined one (rank correlation with a constant) is a dash."""
    return "-" if value is None or math.isnan(value) else f"{value:.{digits}f}"


def _is_number(cell: str) -> bool:
    return cell == "-" or cell.lstrip("+-").replace(".", "", 1).replace("e-", "", 1).isdigit()
