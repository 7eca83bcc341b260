"""Options that several commands share, in one wording."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from posbias.cli._session import Session

__all__ = [
    "Csv",
    "Debug",
    "Estimator",
    "EstimatorName",
    "Figure",
    "Json",
    "JsonCommand",
    "Overwrite",
    "Quiet",
    "SourceEstimator",
    "Variant",
]


class EstimatorName(StrEnum):
    """Estimators of the mixing coefficient that a measurement holds."""

    norm = "norm"
    frobenius = "frobenius"


class Variant(StrEnum):
    """Variants of a prediction, in the order in which they are shown."""

    attention_only = "attention-only"
    residual = "residual"
    residual_content = "residual+content"
    residual_lag = "residual+lag"
    residual_measured = "residual+measured"
    fixed_half = "fixed-half"
    uniform = "uniform"


class JsonCommand(TyperCommand):
    """A command whose ``--json`` takes an optional file.

    The word after ``--json`` is its file if it is ``-`` or ends in ``.json``; otherwise the result
    goes to standard output and the word is read as usual.
    """

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Give a bare ``--json`` the value ``-`` before the arguments are parsed."""
        filled = []
        for k, word in enumerate(args):
            filled.append(word)
            following = args[k + 1] if k + 1 < len(args) else ""
            if word == "--json" and following != "-" and not following.endswith(".json"):
                filled.append("-")
        return super().parse_args(ctx, filled)


def _set_debug(context: typer.Context, value: bool) -> bool:
    session = context.ensure_object(Session)
    session.debug = session.debug or value
    return value


Debug = Annotated[
    bool,
    typer.Option(
        "--debug", help="Show the traceback of an error.", callback=_set_debug, is_eager=True
    ),
]

Overwrite = Annotated[
    bool, typer.Option("--overwrite", help="Replace outputs that exist; otherwise refuse.")
]

Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Show no progress.")]

Csv = Annotated[
    str | None,
    typer.Option("--csv", metavar="FILE", help="Write a CSV file; - is standard output."),
]

Json = Annotated[
    str | None,
    typer.Option(
        "--json",
        metavar="[FILE.json]",
        help="Write JSON with full precision and provenance; to standard output without a file.",
    ),
]

Figure = Annotated[
    Path | None,
    typer.Option("--figure", metavar="FILE", help="Draw a figure: .png, .svg or .pdf."),
]

Estimator = Annotated[
    EstimatorName,
    typer.Option(
        "--estimator",
        metavar="NAME",
        help="Estimator of the mixing coefficients of a measurement: norm or frobenius.",
    ),
]

SourceEstimator = Annotated[
    EstimatorName | None,
    typer.Option(
        "--estimator",
        metavar="NAME",
        help="Estimator of the mixing coefficients of a measurement: norm or frobenius.",
        show_default="that of the run, else norm",
    ),
]
