"""The command line: ``posbias run``, ``measure``, ``predict``, ``compare`` and their relatives.

Results go to standard output, progress and errors to standard error. Importing this package loads
neither torch nor matplotlib nor numba; each command loads what it needs.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

__all__ = ["main"]


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line, see `posbias.cli._main.main`.

    Loading the commands takes a moment too; an interrupt then is no error either.
    """
    try:
        from posbias.cli._main import main as run
    except KeyboardInterrupt:
        print("posbias: interrupted", file=sys.stderr)
        return 130
    return run(argv)
