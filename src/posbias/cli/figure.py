"""``posbias figure``: one figure of a measurement, a spec or profiles, as a file."""

from __future__ import annotations

import os
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from posbias.cli._figures import DEFAULT_LAYERS, FIGURES
from posbias.cli._options import Debug, Overwrite, SourceEstimator
from posbias.cli._outputs import check_result_files, write_figure
from posbias.cli._schedule import SCHEDULE_HELP
from posbias.errors import InputError, shown

__all__ = ["figure"]

_NARROWEST, _WIDEST = 2.0, 20.0


class KernelName(StrEnum):
    """Kernels that a measurement holds or implies."""

    attention = "attention"
    position = "position"
    position_content = "position+content"
    lag = "lag"


Kind = Annotated[
    str,
    typer.Argument(
        metavar="KIND",
        help="What to draw. " + " ".join(f"{name}: {k.help}." for name, k in FIGURES.items()),
        show_default=False,
    ),
]
Sources = Annotated[
    list[Path],
    typer.Argument(
        metavar="SOURCE",
        help="A measurement directory, the output directory of a run, a spec, a config published "
        "with the paper, the config.json of a model, or a profile file (.csv or .json). comparison "
        "takes the measured source and predictions, models and lengths take several sources.",
        show_default=False,
    ),
]
Out = Annotated[
    Path,
    typer.Option("--out", "-o", metavar="FILE", help="File to write: .png, .svg or .pdf."),
]
Width = Annotated[
    float,
    typer.Option("--width", metavar="INCHES", help="Width; a column of a paper has 3.3."),
]
Title = Annotated[
    str | None,
    typer.Option("--title", metavar="TEXT", help="Title.", show_default="what SOURCE is"),
]
Lengths = Annotated[
    list[int] | None,
    typer.Option(
        "--length",
        "-n",
        metavar="N",
        help="Context length; lengths takes several and predicts at each of them.",
        show_default="that of SOURCE",
    ),
]
Query = Annotated[
    int | None,
    typer.Option(
        "--query",
        metavar="I",
        help="Position whose profile is drawn; -1 is the last.",
        show_default="-1",
    ),
]
Kernel = Annotated[
    KernelName | None,
    typer.Option(
        "--kernel",
        metavar="NAME",
        help=f"Kernels of a measurement: {', '.join(k.value for k in KernelName)}.",
        show_default="attention",
    ),
]
Schedule = Annotated[
    str | None,
    typer.Option(
        "--schedule",
        metavar="SCHEDULE",
        help=f"Mixing coefficients of infinitely many layers: {SCHEDULE_HELP}, then zeros.",
        show_default="that of a spec with a rule",
    ),
]
Layers = Annotated[
    int | None,
    typer.Option(
        "--layers",
        metavar="T",
        help="Layers that the figure infinite follows.",
        show_default=str(DEFAULT_LAYERS),
    ),
]


def figure(  # noqa: PLR0913  one parameter per option
    kind: Kind,
    sources: Sources,
    *,
    out: Out,
    width: Width = 6.9,
    title: Title = None,
    length: Lengths = None,
    query: Query = None,
    kernel: Kernel = None,
    schedule: Schedule = None,
    layers: Layers = None,
    estimator: SourceEstimator = None,
    overwrite: Overwrite = False,
    debug: Debug = False,
) -> None:
    """Draw one figure as a file: profiles, kernels, depth, forces, several models or lengths.

    Works from files that other commands wrote and from specs; needs no model. An option that makes
    no sense for the kind is refused. Long profiles are drawn as means over bins that keep the mass,
    with both ends enlarged; the label of the axis says so.
    """
    del debug
    if kind not in FIGURES:
        raise InputError(f"the figure {kind!r} is unknown; there is {', '.join(FIGURES)}")
    if not _NARROWEST <= width <= _WIDEST:
        raise InputError(f"--width is {width:g}; {_NARROWEST:g} to {_WIDEST:g} inches are required")
    missing = next((source for source in sources if not os.path.lexists(source)), None)
    if missing is not None:
        raise InputError(
            f"{shown(missing)} does not exist; a measurement, spec or profile is required"
        )
    check_result_files(sources, overwrite=overwrite, figure=out)
    from posbias.cli._figure_sources import FigureRequest
    from posbias.cli._figures import draw_figure

    request = FigureRequest(
        sources=tuple(sources),
        width=width,
        lengths=tuple(length or ()),
        query=query,
        kernel=None if kernel is None else kernel.value,
        schedule=schedule,
        layers=layers,
        estimator=estimator,
        title=title,
    )
    write_figure(draw_figure(kind, request), out, overwrite=overwrite)
