"""Figures as files: PNG, SVG or PDF, written whole or not at all, the same bytes every time."""

from __future__ import annotations

import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from posbias.atomic import atomic_write_bytes
from posbias.errors import InputError
from posbias.plot.style import figure_of, plot_style

__all__ = ["FIGURE_FORMATS", "check_figure_path", "save_figure"]

# Dates and library versions would make equal figures differ.
_METADATA: Mapping[str, Mapping[str, Any]] = {
    "png": {"Software": None},
    "svg": {"Creator": None, "Date": None},
    "pdf": {"CreationDate": None, "Creator": None, "Producer": None},
}

FIGURE_FORMATS = tuple(_METADATA)
"""Formats that `save_figure` writes."""


def save_figure(figure: Axes | Figure, path: str | Path, *, overwrite: bool = False) -> Path:
    """Write a figure in the format that the file name ends with.

    Parameters
    ----------
    figure : Figure or Axes
        The figure, or axes in it; its size in inches is kept.
    path : path
        A name ending in ``.png``, ``.svg`` or ``.pdf``.
    overwrite : bool
        Whether an existing file may be replaced.

    Returns
    -------
    Path
        The file. Two calls with equal figures write equal bytes.

    Raises
    ------
    InputError
        If the ending is another one.
    OutputExistsError
        If the file exists and `overwrite` is false.
    """
    target = check_figure_path(path)
    kind = target.suffix[1:].lower()
    buffer = io.BytesIO()
    with plot_style():
        figure_of(figure).savefig(buffer, format=kind, metadata=dict(_METADATA[kind]))
    atomic_write_bytes(target, buffer.getvalue(), overwrite=overwrite)
    return target


def check_figure_path(path: str | Path) -> Path:
    """Return `path` if its ending is a format of figures, else raise `InputError`."""
    target = Path(path)
    if target.suffix[1:].lower() not in _METADATA:
        endings = ", ".join(f".{kind}" for kind in FIGURE_FORMATS)
        raise InputError(
            f"cannot write a figure to {str(path)!r}: the name must end in one of {endings}"
        )
    return target
