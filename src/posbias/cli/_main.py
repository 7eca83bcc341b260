"""The entry point: run a command, and turn what goes wrong into one line and an exit code."""

from __future__ import annotations

import sys
import traceback
import warnings
from collections.abc import Sequence

import typer

from posbias.cli._app import app
from posbias.cli._options import ParserError
from posbias.cli._session import Session
from posbias.cli._stdout import OutputError, discard_rest, reliable_stdout
from posbias.errors import PosbiasError

__all__ = ["main"]

EXIT_USAGE = 2
EXIT_INTERRUPTED = 130  # 128 + SIGINT
EXIT_BROKEN_PIPE = 141  # 128 + SIGPIPE


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line.

    Parameters
    ----------
    argv : sequence of str, optional
        Arguments after the program name; those of the process by default.

    Returns
    -------
    int
        0; 2 for wrong usage, bad input or an output that cannot be written; 3 for a model that
        cannot be measured or failed a check; 130 when interrupted; 141 when the reader of standard
        output went away. Exceptions that posbias does not raise on purpose are not caught.
    """
    session = Session()
    with warnings.catch_warnings():
        warnings.showwarning = _show_warning
        try:
            with reliable_stdout():
                code = _invoke(list(sys.argv[1:] if argv is None else argv), session)
                sys.stdout.flush()
        except OutputError as error:
            discard_rest()
            code = _report(error, str(error), error.exit_code, session)
        except PosbiasError as error:
            code = _report(error, str(error), error.exit_code, session)
        except ParserError as error:
            code = _report(error, _usage_message(error), EXIT_USAGE, session)
        except KeyboardInterrupt:
            print("posbias: interrupted", file=sys.stderr)
            code = EXIT_INTERRUPTED
        except BrokenPipeError:
            discard_rest()
            code = EXIT_BROKEN_PIPE
    return code


def _invoke(arguments: list[str], session: Session) -> int:
    command = typer.main.get_command(app)
    try:
        with command.make_context("posbias", arguments, obj=session) as context:
            command.invoke(context)
    except typer.Exit as stop:
        return int(stop.exit_code)
    return 0


def _report(error: Exception, message: str, code: int, session: Session) -> int:
    """Print an error in one line, after its traceback if that was asked for."""
    if session.debug:
        traceback.print_exception(error)
    print(f"posbias: error: {' '.join(message.split())}", file=sys.stderr)
    return code


def _usage_message(error: Exception) -> str:
    message = error.format_message() if hasattr(error, "format_message") else str(error)
    context = getattr(error, "ctx", None)
    name = context.command_path if context is not None else "posbias"
    # Typer's validation puts the class of the exception before some messages.
    message = message.replace("Value error, ", "").rstrip().rstrip(".")
    return f"{message[:1].lower()}{message[1:]}; see `{name} --help`"


def _show_warning(
    message: Warning | str, category: type[Warning], *_where: object, **_more: object
) -> None:
    del category
    print(f"posbias: warning: {' '.join(str(message).split())}", file=sys.stderr)
