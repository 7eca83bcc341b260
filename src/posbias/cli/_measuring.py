"""Options and progress of the commands that measure a model."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from posbias.cli._session import console_of
from posbias.errors import InputError

if TYPE_CHECKING:
    from rich.console import Console

    from posbias.measure.options import MeasureOptions
    from posbias.measure.text import TextCollection

ProgressCallback = Callable[[int, int], None]

__all__ = [
    "Attention",
    "AttentionName",
    "BatchSize",
    "Device",
    "Dtype",
    "DtypeName",
    "Field",
    "Influence",
    "Jacobian",
    "KernelDetail",
    "Kernels",
    "Length",
    "MaxDocuments",
    "ModelRequest",
    "Pack",
    "Part",
    "Record",
    "RecordName",
    "Resume",
    "Revision",
    "SaveEvery",
    "Seed",
    "Split",
    "TrustRemoteCode",
    "Windows",
    "attention_name",
    "influence_methods",
    "part_of_windows",
    "progress_on_stderr",
]


class DtypeName(StrEnum):
    """Number formats in which a model can be run."""

    float32 = "float32"
    bfloat16 = "bfloat16"
    float16 = "float16"
    float64 = "float64"


class AttentionName(StrEnum):
    """Attention implementations of transformers that can be measured."""

    eager = "eager"
    sdpa = "sdpa"


class KernelDetail(StrEnum):
    """How measured attention is kept."""

    full = "full"
    summary = "summary"


class RecordName(StrEnum):
    """What is recorded beside the paper's own quantities."""

    default = "default"
    paper = "paper"
    all = "all"


class InfluenceName(StrEnum):
    """Methods of the measured influence."""

    gradient = "gradient"
    gradient_input = "gradient-input"
    integrated_gradients = "integrated-gradients"
    occlusion = "occlusion"
    none = "none"


Length = Annotated[
    int, typer.Option("--length", "-n", metavar="N", help="Tokens per window of text.")
]
Windows = Annotated[
    int, typer.Option("--windows", "-w", metavar="D", help="Number of windows of text.")
]
BatchSize = Annotated[
    int,
    typer.Option(
        "--batch-size", metavar="B", help="Windows per forward pass; results do not depend on it."
    ),
]
Seed = Annotated[int, typer.Option("--seed", metavar="S", help="Seed of the choice of windows.")]
Dtype = Annotated[
    DtypeName,
    typer.Option(
        "--dtype",
        metavar="DTYPE",
        help=f"Number format of the model: {', '.join(d.value for d in DtypeName)}.",
    ),
]
Attention = Annotated[
    AttentionName | None,
    typer.Option(
        "--attention",
        metavar="NAME",
        help="Attention code of transformers to run: eager or sdpa.",
        show_default="what transformers takes",
    ),
]
Device = Annotated[
    str | None,
    typer.Option(
        "--device", metavar="DEVICE", help="Torch device.", show_default="cuda if there is one"
    ),
]
Field = Annotated[
    str | None,
    typer.Option(
        "--field",
        metavar="NAME",
        help="Field of a .jsonl line or a data set row that is text.",
        show_default="text",
    ),
]
Split = Annotated[
    str | None,
    typer.Option("--split", metavar="NAME", help="Split of a data set.", show_default="train"),
]
MaxDocuments = Annotated[
    int | None,
    typer.Option(
        "--max-documents",
        metavar="N",
        help="Read the first N documents.",
        show_default="all; 1000 of a data set",
    ),
]
Influence = Annotated[
    list[InfluenceName] | None,
    typer.Option(
        "--influence",
        metavar="METHOD",
        help="Method of the measured influence, repeat for several, the main one first: "
        f"{', '.join(m.value for m in InfluenceName)}.",
        show_default="gradient",
    ),
]
Revision = Annotated[
    str | None,
    typer.Option("--revision", metavar="REV", help="Branch, tag or commit of a hub model."),
]
TrustRemoteCode = Annotated[
    bool,
    typer.Option("--trust-remote-code", help="Let code that comes with the model run."),
]

Record = Annotated[
    RecordName,
    typer.Option(
        "--record",
        metavar="WHAT",
        help="What to record for further estimators: default, paper (nothing), or all (every "
        "kind of kernel).",
    ),
]
Jacobian = Annotated[
    int,
    typer.Option(
        "--jacobian",
        metavar="K",
        help="Random derivatives per layer and window for the mixing from local derivatives.",
    ),
]
Kernels = Annotated[
    KernelDetail,
    typer.Option(
        "--kernels",
        metavar="DETAIL",
        help="Keep measured attention in full (8 T n^2 bytes) or as a summary by blocks of "
        "positions and nearest lags, for long windows: full or summary.",
    ),
]
Pack = Annotated[
    bool,
    typer.Option(
        "--pack", help="Join documents before windows are cut, so that short ones are used."
    ),
]
Part = Annotated[
    str | None,
    typer.Option(
        "--part",
        metavar="K/M",
        help="Measure the K-th of M parts of the windows only; posbias merge puts them together.",
    ),
]
Resume = Annotated[
    bool,
    typer.Option(
        "--resume",
        help="Continue an interrupted run from the checkpoint in DIR.partial, if there is one.",
    ),
]
SaveEvery = Annotated[
    int,
    typer.Option(
        "--save-every", metavar="K", help="Windows between checkpoints, kept in DIR.partial."
    ),
]


@dataclass(frozen=True)
class ModelRequest:
    """A model and a text as they were named on the command line."""

    model: str
    text: str
    field: str | None
    split: str | None
    max_documents: int | None

    def options(self, **settings: Any) -> MeasureOptions:
        """Return the options of the measurement, checked."""
        from posbias.measure.options import MeasureOptions

        return MeasureOptions(**settings)

    def read(self) -> TextCollection:
        """Read the text."""
        from posbias.measure.text import read_text

        return read_text(
            self.text, field=self.field, split=self.split, max_documents=self.max_documents
        )


def part_of_windows(text: str | None) -> tuple[int, int] | None:
    """Return K and M of ``K/M``.

    Raises
    ------
    InputError
        If the text is something else.
    """
    if text is None:
        return None
    number, slash, parts = text.partition("/")
    if not (slash and number.isdecimal() and parts.isdecimal()):
        raise InputError(f"part is {text!r}; K/M is required, for example 1/4 for the first of 4")
    return int(number), int(parts)


def attention_name(chosen: AttentionName | None) -> str | None:
    """Return the name of an attention implementation as transformers takes it."""
    return None if chosen is None else chosen.value


def influence_methods(chosen: list[InfluenceName] | None) -> tuple[str, ...]:
    """Return the methods that were named, the default if none was."""
    return tuple(method.value for method in chosen or [InfluenceName.gradient])


@contextmanager
def progress_on_stderr(quiet: bool) -> Iterator[ProgressCallback | None]:
    """Yield a callback that shows a progress bar with the time left, None if `quiet`.

    When standard error is not a terminal, one line per tenth of the work is printed instead. What
    the measurement reports meanwhile is printed above the bar.
    """
    if quiet:
        yield None
        return
    console = console_of("stderr")
    with _reports(lambda text: console.print(f"posbias: {text}", markup=False)):
        if not console.is_terminal:
            yield _line_printer()
            return
        with _bar(console) as show:
            yield show


@contextmanager
def _bar(console: Console) -> Iterator[ProgressCallback]:
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, transient=True) as bar:
        # Loading the libraries and the model comes first and has no known length.
        task = bar.add_task("loading the model", total=None)
        begun = False

        def show(done: int, total: int) -> None:
            nonlocal begun
            if not begun:
                bar.reset(task, description="measuring windows", total=total)
                begun = True
            bar.update(task, completed=done)

        yield show


@contextmanager
def _reports(show: Callable[[str], None]) -> Iterator[None]:
    """Hand what the package logs for people to a function."""

    class Reporter(logging.Handler):
        """A handler that shows the bare message."""

        def emit(self, record: logging.LogRecord) -> None:
            show(record.getMessage())

    logger, handler = logging.getLogger("posbias"), Reporter(logging.INFO)
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)


def _line_printer() -> ProgressCallback:
    shown = -1

    def show(done: int, total: int) -> None:
        nonlocal shown
        tenth = 10 * done // max(total, 1)
        if tenth > shown:
            shown = tenth
            print(f"posbias: measured {done} of {total} windows", file=sys.stderr, flush=True)

    return show
