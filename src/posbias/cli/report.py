"""``posbias report``: one HTML file about a measurement, or comparing several."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from posbias.cli._options import Debug, Overwrite, SourceEstimator
from posbias.cli._outputs import STDOUT, check_outputs
from posbias.errors import OutputExistsError

__all__ = ["report"]

Sources = Annotated[
    list[Path],
    typer.Argument(
        metavar="DIR",
        help="A measurement directory or the output directory of a run; several are compared.",
        show_default=False,
    ),
]
Out = Annotated[
    Path | None,
    typer.Option(
        "--out",
        "-o",
        metavar="FILE",
        help="HTML file to write; - is standard output.",
        show_default="DIR/report.html; report.html for several",
    ),
]


def report(
    sources: Sources,
    *,
    out: Out = None,
    estimator: SourceEstimator = None,
    overwrite: Overwrite = False,
    debug: Debug = False,
) -> None:
    """Write one self-contained HTML file about a measurement, or comparing several.

    The page says what was measured on which model and text, how the influence is spread over the
    context, how close each prediction comes, and what the theory says about it. It needs no
    network. Several measurements are compared on positions relative to their lengths.
    """
    del debug
    from posbias.report import default_path, write_report

    try:
        written = write_report(sources, out, estimator=estimator, overwrite=overwrite)
    except OutputExistsError:
        # The library speaks of its own parameter; here the option is meant.
        check_outputs(out or default_path(sources), overwrite=overwrite)
        raise
    if str(written) != STDOUT:
        print(f"Written to {written}")
