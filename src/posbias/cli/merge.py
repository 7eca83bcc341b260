"""``posbias merge``: one measurement from several over disjoint windows."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from posbias.cli._options import Debug, Overwrite
from posbias.cli._outputs import check_measurement_directory

if TYPE_CHECKING:
    from posbias.measurement import Measurement

__all__ = ["merge"]

Parts = Annotated[
    list[Path],
    typer.Argument(
        metavar="MEASUREMENT",
        help="Measurement directories, or output directories of runs, of the same model, text and "
        "settings over disjoint windows; in any order.",
        show_default=False,
    ),
]
Out = Annotated[
    Path,
    typer.Option("--out", "-o", metavar="DIR", help="Directory to write.", show_default=False),
]


def merge(parts: Parts, *, out: Out, overwrite: Overwrite = False, debug: Debug = False) -> None:
    """Merge measurements of one model on one text to the measurement of all their windows.

    The result equals a single run over the windows of all: exactly in what is kept per window, up
    to rounding in sums. Measurements that differ in a setting, or that share text, are refused.
    """
    del debug
    check_measurement_directory(out, overwrite=overwrite)
    from posbias.measurement import merge as merge_measurements

    merged = merge_measurements([_measurement(part) for part in parts])
    merged.save(out, overwrite=overwrite)
    print(merged.summary())


def _measurement(path: Path) -> Measurement:
    """Open a measurement, or the one in the output directory of a run."""
    from posbias.measurement import Measurement
    from posbias.measurement.store import is_measurement

    inner = path / "measurement"
    return Measurement.open(inner if is_measurement(inner) else path)
