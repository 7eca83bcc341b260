"""What predictions start from: measurement directories and specs named on the command line."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from posbias.cli._schedule import SCHEDULE_HELP, parse_schedule

if TYPE_CHECKING:
    from posbias.rollout import Rollout

__all__ = ["Length", "Mixing", "Query", "Source", "load_rollout"]

Source = Annotated[
    Path,
    typer.Argument(
        metavar="SOURCE",
        help="A measurement directory, the output directory of a run, a spec (YAML or JSON), a "
        "config published with the paper, or the config.json of a Hugging Face model.",
        show_default=False,
    ),
]
Length = Annotated[
    int | None,
    typer.Option(
        "--length", "-n", metavar="N", help="Context length.", show_default="that of SOURCE"
    ),
]
Query = Annotated[
    int,
    typer.Option(
        "--query", metavar="I", help="Position whose profile is computed; -1 is the last."
    ),
]
Mixing = Annotated[
    str | None,
    typer.Option(
        "--mixing",
        metavar="SCHEDULE",
        help=f"Mixing coefficients in place of those of SOURCE: {SCHEDULE_HELP}.",
        show_default=False,
    ),
]


def load_rollout(
    path: Path, *, mixing: str | None = None, n: int | None = None, estimator: str | None = None
) -> Rollout:
    """Return the rollout of structured kernels with content that a source describes.

    Parameters
    ----------
    path : Path
        A measurement or a spec.
    mixing : str, optional
        A schedule in place of that of the source.
    n : int, optional
        Context length.
    estimator : str, optional
        Of a measurement: its mixing coefficients hold. By default that of the run, else the
        paper's.
    """
    from posbias.estimator import ladder
    from posbias.measurement import Measurement
    from posbias.predict import DEFAULT_ESTIMATOR, load_source, recorded_estimator
    from posbias.rollout import MixingSchedule, Rollout

    source = load_source(path)
    if not isinstance(source, Measurement):
        spec = source if mixing is None else source.with_mixing(parse_schedule(mixing))
        return spec.rollout(n)
    kernels = source.kernels("position+content", n=n)
    if mixing is None:
        used = estimator or recorded_estimator(path) or DEFAULT_ESTIMATOR
        return Rollout(kernels, source.schedule(ladder(used).mixing_name))
    description = parse_schedule(mixing)
    return Rollout(kernels, MixingSchedule.from_description(description, source.layers))
