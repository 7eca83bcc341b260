"""The commands, in the order in which they are used, and the options before a command."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Annotated

import typer

from posbias.cli._options import Command, Debug, JsonCommand
from posbias.cli.compare import compare
from posbias.cli.depth import depth
from posbias.cli.figure import figure
from posbias.cli.forces import forces
from posbias.cli.inspect import inspect as inspect_command
from posbias.cli.measure import measure
from posbias.cli.merge import merge
from posbias.cli.predict import predict
from posbias.cli.report import report
from posbias.cli.run import run

__all__ = ["app"]

app = typer.Typer(
    name="posbias",
    help="Predict, measure and explain position bias of causal Transformer language models.",
    epilog="Without arguments, `posbias run` measures the embedded model on the embedded text.",
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["--help", "-h"]},
)


def _add(command: Callable[..., None], cls: type[Command] = Command) -> None:
    """Add a command; its docstring is the help, each paragraph one line for any width."""
    paragraphs = inspect.cleandoc(command.__doc__ or "").split("\n\n")
    app.command(cls=cls, help="\n\n".join(" ".join(p.split()) for p in paragraphs))(command)


_add(run)
_add(inspect_command, JsonCommand)
_add(measure)
_add(merge)
for _command in (predict, compare, forces, depth):
    _add(_command, JsonCommand)
_add(figure)
_add(report)


@app.callback(invoke_without_command=True)
def _before_command(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Show the version and exit.")] = False,
    debug: Debug = False,
) -> None:
    if version:
        from posbias import __version__

        print(f"posbias {__version__}")
        raise typer.Exit
    if context.invoked_subcommand is None:
        print(context.get_help())
        raise typer.Exit
