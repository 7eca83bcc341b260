"""One look for every figure: sizes, fonts, colours, and a fixed line style per variant."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine

from posbias.errors import InputError
from posbias.palette import INK, TINTS

__all__ = [
    "COLUMN_WIDTH",
    "INK",
    "LINE_STYLES",
    "PAGE_WIDTH",
    "SEQUENTIAL",
    "LineStyle",
    "axes_or_new",
    "distinct_styles",
    "figure_of",
    "line_styles",
    "new_figure",
    "plot_style",
    "ramp",
]

COLUMN_WIDTH = 3.3
"""Width in inches of a figure that fills one column of a two-column page."""

PAGE_WIDTH = 6.9
"""Width in inches of a figure that fills a page."""

SEQUENTIAL = "viridis"
"""Colour map of unsigned values and of ordered series."""


@dataclass(frozen=True)
class LineStyle:
    """How the curve of one variant is drawn and named.

    Parameters
    ----------
    color : str
        A colour of the Okabe-Ito palette, which stays apart under colour blindness.
    dashes : str or tuple
        Matplotlib line style; it tells curves apart without colour too.
    width : float
        Line width in points.
    label : str
        Name in legends; empty means the name of the variant.
    layer : float
        Drawing order: larger is in front.
    """

    color: str
    dashes: str | tuple[float, tuple[float, ...]] = "-"
    width: float = 1.3
    label: str = ""
    layer: float = 3.0


LINE_STYLES: Mapping[str, LineStyle] = {
    "measured": LineStyle(TINTS["measured"].figure, "-", 1.4, "measured", 5.0),
    "attention-only": LineStyle(TINTS["attention-only"].figure, (0, (5, 1.6)), 1.3),
    # These three often lie on each other: a wide line below, a thin one and dashes above it.
    "residual": LineStyle(TINTS["residual"].figure, "-", 2.1),
    "residual+content": LineStyle(TINTS["residual+content"].figure, (0, (3.2, 2.2)), 1.5, "", 3.2),
    "residual+lag": LineStyle(TINTS["residual+lag"].figure, (0, (1.2, 1.0)), 1.5, "", 3.3),
    "residual+measured": LineStyle(TINTS["residual+measured"].figure, "-", 1.1, "", 3.1),
    "energy-rollout": LineStyle(TINTS["energy-rollout"].figure, "-", 1.5, "", 4.0),
    "paper+mlp": LineStyle(TINTS["paper+mlp"].figure, (0, (6, 1.2)), 1.5, "", 4.0),
    "paper": LineStyle(TINTS["paper"].figure, (0, (6, 1.2)), 1.1, "", 3.1),
    "fixed-half": LineStyle(TINTS["fixed-half"].figure, (0, (5, 1.4, 1, 1.4)), 1.1, "fixed 1/2"),
    "uniform": LineStyle(TINTS["uniform"].figure, (0, (1, 1.8)), 1.0, "", 2.0),
}
"""Style of each variant and of the measured influence, the same in every figure."""

_SPARE_COLOURS = ("#0072B2", "#56B4E9", "#D55E00", "#009E73", "#CC79A7", "#E69F00")
# The same colours, neighbours far apart.
_DISTINCT_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
_SPARE_DASHES: tuple[str | tuple[float, tuple[float, ...]], ...] = (
    "-",
    (0, (4, 1.5)),
    (0, (1, 1.2)),
    (0, (4, 1.2, 1, 1.2)),
)

_RC: Any = {
    "axes.axisbelow": True,
    "axes.edgecolor": "#555555",
    "axes.grid": True,
    "axes.labelcolor": INK,
    "axes.labelsize": 8.0,
    "axes.linewidth": 0.6,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlelocation": "left",
    "axes.titlepad": 5.0,
    "axes.titlesize": 8.5,
    "figure.dpi": 100,
    "font.family": "DejaVu Sans",
    "font.size": 8.0,
    "grid.color": "#E7E7E7",
    "grid.linewidth": 0.5,
    "legend.borderaxespad": 0.3,
    "legend.fontsize": 7.0,
    "legend.frameon": False,
    "legend.handlelength": 2.4,
    "legend.labelspacing": 0.3,
    "pdf.fonttype": 42,
    "savefig.dpi": 220,
    "svg.fonttype": "path",
    "svg.hashsalt": "posbias",
    "text.color": INK,
    "xtick.color": "#555555",
    "xtick.labelcolor": INK,
    "xtick.labelsize": 7.0,
    "xtick.major.width": 0.6,
    "ytick.color": "#555555",
    "ytick.labelcolor": INK,
    "ytick.labelsize": 7.0,
    "ytick.major.width": 0.6,
    "ytick.minor.width": 0.4,
}


@contextmanager
def plot_style() -> Iterator[None]:
    """Apply the figure style inside a ``with`` block, whatever the user's own settings are."""
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(_RC)
        yield


def new_figure(width: float = PAGE_WIDTH, height: float = 2.9) -> Figure:
    """Return an empty figure of a size in inches, without touching pyplot.

    Raises
    ------
    InputError
        If a size is not positive.
    """
    if not (width > 0.0 and height > 0.0):
        raise InputError(f"a figure of {width!r} x {height!r} inches; both must be positive")
    with plot_style():
        layout = ConstrainedLayoutEngine(w_pad=0.06, h_pad=0.05, wspace=0.03)
        return Figure(figsize=(width, height), layout=layout)


def axes_or_new(ax: Axes | None, *, width: float = COLUMN_WIDTH, height: float = 3.0) -> Axes:
    """Return `ax`, or the axes of a new figure in the style of posbias."""
    if ax is not None:
        return ax
    figure = new_figure(width, height)
    with plot_style():
        return figure.add_subplot()


def figure_of(drawn: Axes | Figure) -> Figure:
    """Return the figure that axes are in.

    Raises
    ------
    InputError
        If they are in none, or in a part of one.
    """
    figure = drawn.figure
    if not isinstance(figure, Figure):
        raise InputError("axes of a whole figure are required, these are in none or in a subfigure")
    return figure


def line_styles(names: list[str]) -> dict[str, LineStyle]:
    """Return a style for each name: the fixed one of a variant, else one of the spare ones.

    A name such as ``"residual (bloom.yaml)"`` takes the style of its variant if no other name
    uses it.
    """
    styles: dict[str, LineStyle] = {}
    spare = 0
    for name in names:
        style = LINE_STYLES.get(name)
        variant = LINE_STYLES.get(name.split(" (", 1)[0])
        if style is None and variant is not None and not _is_used(variant, styles):
            style = LineStyle(variant.color, variant.dashes, variant.width, name, variant.layer)
        if style is None:
            colour = _SPARE_COLOURS[spare % len(_SPARE_COLOURS)]
            dashes = _SPARE_DASHES[(spare // len(_SPARE_COLOURS) + 1) % len(_SPARE_DASHES)]
            style = LineStyle(colour, dashes)
            spare += 1
        styles[name] = style
    return styles


def distinct_styles(names: list[str]) -> dict[str, LineStyle]:
    """Return a style for each name that differs from the others in colour or dashes, often both."""
    colours, dashes = len(_DISTINCT_COLOURS), len(_SPARE_DASHES)
    return {
        name: LineStyle(_DISTINCT_COLOURS[k % colours], _SPARE_DASHES[(k + k // colours) % dashes])
        for k, name in enumerate(names)
    }


def ramp(names: list[str]) -> dict[str, LineStyle]:
    """Return styles along a scale from dark to light, for an ordered series such as layers.

    The light end stops where lines would vanish on white; lightness alone tells the order.
    """
    scale = matplotlib.colormaps[SEQUENTIAL]
    last = max(len(names) - 1, 1)
    return {
        name: LineStyle(to_hex(scale(0.84 * k / last)), "-", 1.2) for k, name in enumerate(names)
    }


def _is_used(style: LineStyle, styles: Mapping[str, LineStyle]) -> bool:
    look = (style.color, style.dashes)
    return any((used.color, used.dashes) == look for used in styles.values())
