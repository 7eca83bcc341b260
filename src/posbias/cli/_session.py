"""What one call of the command line shares: its switches and its consoles."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["Session", "can_print", "console_of"]

_PIPED_WIDTH = 160


@dataclass
class Session:
    """State of one call.

    Parameters
    ----------
    debug : bool
        Show the traceback of an error before its one line.
    """

    debug: bool = False


def console_of(stream: str) -> Console:
    """Return a rich console on ``"stdout"`` or ``"stderr"``.

    Colour follows rich: none when the stream is not a terminal or NO_COLOR is set. A table that
    goes into a pipe is not squeezed into 80 columns unless COLUMNS says so.
    """
    from rich.console import Console

    class QuietConsole(Console):
        """A console that leaves a closed pipe to the entry point."""

        def on_broken_pipe(self) -> None:
            raise BrokenPipeError

    target = sys.stdout if stream == "stdout" else sys.stderr
    width = None if target.isatty() or "COLUMNS" in os.environ else _PIPED_WIDTH
    return QuietConsole(file=target, width=width, highlight=False, soft_wrap=False)


def can_print(characters: str) -> bool:
    """Return whether the encoding of standard output has these characters."""
    try:
        characters.encode(sys.stdout.encoding or "ascii")
    except UnicodeEncodeError:
        return False
    return True
