"""The command line: ``posbias run``, ``measure``, ``predict``, ``compare`` and their relatives.

Results go to standard output, progress and errors to standard error. Importing this package loads
neither torch nor matplotlib nor numba; each command loads what it needs.
"""

from __future__ import annotations

from posbias.cli._main import main

__all__ = ["main"]
