"""Options that several commands share, in one wording."""

from __future__ import annotations

import inspect
import re
import typing
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from posbias.cli._session import Session
from posbias.errors import InputError

__all__ = [
    "NUMBER",
    "Command",
    "Csv",
    "Debug",
    "Estimator",
    "Figure",
    "Json",
    "JsonCommand",
    "Overwrite",
    "ParserError",
    "Quiet",
    "SourceEstimator",
    "Variant",
]


# Recent versions of Typer carry their parser inside, older ones take it from the package click.
ParserError: type[Exception] = typer.BadParameter.__mro__[2]


class Variant(StrEnum):
    """Variants of a prediction, in the order in which they are shown."""

    attention_only = "attention-only"
    residual = "residual"
    residual_content = "residual+content"
    residual_lag = "residual+lag"
    residual_measured = "residual+measured"
    energy_rollout = "energy-rollout"
    paper_mlp = "paper+mlp"
    paper = "paper"
    fixed_half = "fixed-half"
    uniform = "uniform"


class Command(TyperCommand):
    """A command that refuses empty words and numbers that are not plain decimal numbers.

    An empty word would mean the current directory where a path is expected.
    """

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Look at the words as they were typed, before they are turned into paths."""
        given, _, _ = self.make_parser(ctx).parse_args(list(args))
        parameters: list[Any] = list(self.params)
        for parameter in parameters:
            value = given.get(parameter.name)
            if value == "" or (isinstance(value, list | tuple) and "" in value):
                raise typer.BadParameter(
                    "it is empty; leave it out or give it a value", ctx=ctx, param=parameter
                )
        self._check_numbers(given)
        return super().parse_args(ctx, args)

    def _check_numbers(self, given: Mapping[str, Any]) -> None:
        kinds = typing.get_type_hints(inspect.unwrap(self.callback)) if self.callback else {}
        parameters: list[Any] = list(self.params)
        for parameter in parameters:
            word, kind = given.get(parameter.name), kinds.get(parameter.name)
            accepted = {kind, *typing.get_args(kind)}
            if isinstance(word, str) and accepted & {int, float}:
                _check_number(word, max(parameter.opts, key=len), is_whole=int in accepted)


NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)
"""Plain decimal numbers; float() alone would also read 0_3, nan and digits of other scripts."""

_WHOLE_NUMBER = re.compile(r"[+-]?\d+", re.ASCII)


def _check_number(word: str, option: str, *, is_whole: bool) -> None:
    if is_whole and not _WHOLE_NUMBER.fullmatch(word):
        raise InputError(f"{option} is {word!r}; a whole number is required")
    if not NUMBER.fullmatch(word):
        raise InputError(f"{option} is {word!r}; a number is required, such as 0.3 or 1e-3")


class JsonCommand(Command):
    """A command whose ``--json`` takes an optional file.

    The word after ``--json`` is its file if it is ``-`` or ends in ``.json``; otherwise the result
    goes to standard output and the word is read as usual.
    """

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Give a bare ``--json`` the value ``-`` before the arguments are parsed."""
        filled: list[str] = []
        unread = ""
        for k, word in enumerate(args):
            filled.append(word)
            following = args[k + 1] if k + 1 < len(args) else ""
            if word == "--json" and following != "-" and not following.endswith(".json"):
                filled.append("-")
                unread = "" if following.startswith("-") else following
        try:
            return super().parse_args(ctx, filled)
        except ParserError as error:
            if unread and "unexpected extra argument" in str(error):
                raise InputError(
                    f"{unread} after --json is no name of a JSON file; one that ends in .json is "
                    "required, or none for standard output"
                ) from error
            raise


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

_ESTIMATOR_HELP = (
    "How kernels and mixing are estimated from a measurement: auto (the paper's, and the one that "
    "a rule recommends), paper, energy-rollout or frobenius, where need be with settings: mixing, "
    "mlp, kernel, sinks, addition. Example: paper,sinks=identity."
)

Estimator = Annotated[
    str,
    typer.Option("--estimator", metavar="NAME[,AXIS=VALUE,...]", help=_ESTIMATOR_HELP),
]

SourceEstimator = Annotated[
    str | None,
    typer.Option(
        "--estimator",
        metavar="NAME[,AXIS=VALUE,...]",
        help=_ESTIMATOR_HELP,
        show_default="that of the run, else auto",
    ),
]
