"""Where results go: standard output, or files that are refused before the work if they exist."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from posbias.cli._session import console_of
from posbias.errors import InputError, OutputExistsError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from rich.table import Table

__all__ = [
    "STDOUT",
    "check_measurement_directory",
    "check_outputs",
    "check_result_files",
    "print_json",
    "show_table",
    "write_figure",
    "write_json",
]

STDOUT = "-"


def check_outputs(*targets: str | Path | None, overwrite: bool, figure: Path | None = None) -> None:
    """Refuse outputs before any work is done.

    Raises
    ------
    InputError
        If two outputs go to standard output, or the figure has an unknown format.
    OutputExistsError
        If one exists and `overwrite` is false.
    """
    named = [target for target in (*targets, figure) if target is not None]
    if sum(str(target) == STDOUT for target in named) > 1:
        raise InputError("two outputs go to standard output; give one of them a file name")
    if figure is not None:
        from posbias.plot import check_figure_path

        check_figure_path(figure)
    for target in named:
        if str(target) != STDOUT and not overwrite and os.path.lexists(target):
            raise OutputExistsError(
                f"{target} exists already; choose another name, or replace it with --overwrite"
            )


def check_result_files(
    inputs: Sequence[Path],
    *targets: str | Path | None,
    overwrite: bool,
    figure: Path | None = None,
) -> None:
    """Refuse files of results before any work is done, and never let one replace an input.

    Raises
    ------
    InputError
        If a file is, or lies in, one of `inputs` under whatever name, two results go to one file,
        its folder does not exist, or two results go to standard output.
    OutputExistsError
        If one exists and `overwrite` is false.
    """
    named = [Path(t) for t in (*targets, figure) if t is not None and str(t) != STDOUT]
    for k, target in enumerate(named):
        for source in inputs:
            if _is_part_of(target, source):
                raise InputError(
                    f"{target} is read as input ({source}) and would be replaced by a result, also "
                    "with --overwrite; choose another name"
                )
        if any(_is_same(target, other) for other in named[:k]):
            raise InputError(f"two results go to {target}; give each a file of its own")
        if str(target) and not target.parent.is_dir():
            raise InputError(f"the folder {target.parent} does not exist; create it first")
    check_outputs(*targets, overwrite=overwrite, figure=figure)


def check_measurement_directory(path: Path, *, overwrite: bool) -> None:
    """Refuse a directory before minutes of measuring, if it could not be written afterwards.

    Raises
    ------
    OutputExistsError
        If it exists and is no measurement, or `overwrite` is false.
    """
    from posbias.atomic import check_parent, has_posbias_manifest
    from posbias.measurement.store import foreign_entries, refuse_foreign

    check_parent(path)
    may_go = path.is_dir() and (has_posbias_manifest(path) or not any(path.iterdir()))
    if not overwrite:
        check_outputs(path, overwrite=False)
    elif path.exists() and not may_go:
        raise OutputExistsError(
            f"{path} exists and is no measurement, so it is not replaced even with --overwrite; "
            "choose another name or remove it yourself"
        )
    elif path.exists():
        refuse_foreign(path, foreign_entries(path))


def write_json(value: Mapping[str, Any], target: str, *, overwrite: bool) -> None:
    """Write a JSON document to a file, or to standard output for ``-``."""
    from posbias.atomic import atomic_write_text

    atomic_write_text(target, _dump(value), overwrite=overwrite)


def print_json(value: Mapping[str, Any]) -> None:
    """Print a JSON document, numbers at full precision and nothing that JSON lacks."""
    sys.stdout.write(_dump(value))


def show_table(table: Table) -> None:
    """Print a table on standard output."""
    console_of("stdout").print(table)


def write_figure(figure: Axes | Figure, path: Path, *, overwrite: bool) -> None:
    """Write a figure and say so on standard error."""
    from posbias.plot import save_figure

    save_figure(figure, path, overwrite=overwrite)
    print(f"posbias: wrote {path}", file=sys.stderr)


def _dump(value: Mapping[str, Any]) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def _is_part_of(target: Path, source: Path) -> bool:
    """Whether an existing file is `source`, or lies in the folder `source`."""
    if _is_same(target, source):
        return True
    inside = os.path.isdir(source) and os.path.lexists(target)
    return inside and source.resolve() in target.resolve().parents


def _is_same(first: Path, second: Path) -> bool:
    """Whether two paths lead to one file, by links or other spellings as well."""
    try:
        return os.path.samefile(first, second)
    except OSError:
        return first.resolve() == second.resolve()
