"""``posbias predict``: influence profiles from a measurement or an architecture."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from posbias.cli._options import (
    Csv,
    Debug,
    Figure,
    Json,
    Overwrite,
    SourceEstimator,
    Variant,
)
from posbias.cli._outputs import check_result_files, show_table, write_figure
from posbias.cli._schedule import SCHEDULE_HELP, parse_schedule
from posbias.cli._sources import Length, Query, Source
from posbias.errors import InputError

if TYPE_CHECKING:
    from posbias.measurement import Measurement
    from posbias.profile import ProfileSet
    from posbias.spec import Spec

__all__ = ["predict"]

Variants = Annotated[
    list[Variant] | None,
    typer.Option(
        "--variant",
        "-v",
        metavar="VARIANT",
        help=f"Variant to predict, repeat for several: {', '.join(v.value for v in Variant)}.",
        show_default="all that SOURCE has",
    ),
]

Mixing = Annotated[
    str | None,
    typer.Option(
        "--mixing",
        metavar="SCHEDULE",
        help=f"Mixing coefficients in place of those of SOURCE (specs only): {SCHEDULE_HELP}.",
        show_default=False,
    ),
]


def predict(  # noqa: PLR0913  one parameter per option
    source: Source,
    *,
    variant: Variants = None,
    length: Length = None,
    query: Query = -1,
    mixing: Mixing = None,
    estimator: SourceEstimator = None,
    csv: Csv = None,
    json: Json = None,
    figure: Figure = None,
    overwrite: Overwrite = False,
    debug: Debug = False,
) -> None:
    """Predict influence profiles from a measurement or an architecture.

    Prints the shape of each profile, or writes the profiles: as CSV with one column per variant
    (position,mass if there is one), or as JSON with full precision and provenance.
    """
    del debug
    check_result_files((source,), csv, json, overwrite=overwrite, figure=figure)
    from posbias.predict import predict as predict_profiles
    from posbias.predict import recorded_estimator
    from posbias.profile_files import write_csv, write_json

    opened = _source(source, mixing)
    choice = estimator or recorded_estimator(source)
    profiles = predict_profiles(
        opened,
        variants=None if variant is None else [v.value for v in variant],
        n=length,
        query=query,
        estimator=choice,
    )
    if variant is None:
        _note_left_out(opened, profiles, choice)
    if csv is not None:
        write_csv(profiles, csv, overwrite=overwrite)
    if json is not None:
        write_json(profiles, json, overwrite=overwrite)
    if csv is None and json is None:
        from posbias.cli._plot import show_profiles
        from posbias.cli._tables import shape_table

        show_table(shape_table(profiles, title=f"{source.name}, {profiles.n} positions"))
        main = _most_complete(profiles)
        show_profiles({main: profiles[main]})
    if figure is not None:
        from posbias.plot import plot_profiles

        write_figure(plot_profiles(profiles), figure, overwrite=overwrite)


def _note_left_out(source: Measurement | Spec, profiles: ProfileSet, estimator: str | None) -> None:
    """Say on standard error which variants end at the length that was measured."""
    from posbias.measurement import Measurement
    from posbias.plan import DEFAULT_ESTIMATOR, plan_predictions

    if not isinstance(source, Measurement) or profiles.n <= source.n:
        return
    plan = plan_predictions(source, estimator=estimator or DEFAULT_ESTIMATOR)
    left_out = [name for name in plan.default if name not in profiles]
    print(
        f"posbias: note: {profiles.n} positions are more than the {source.n} that were measured: "
        f"{', '.join(left_out)} need measured attention and are left out; whether the model takes "
        "so many positions is not known here",
        file=sys.stderr,
    )


def _most_complete(profiles: ProfileSet) -> str:
    """Return the recommended variant, or the one that takes most of what is known into account."""
    recommended = [name for name, profile in profiles.items() if profile.origin.get("recommended")]
    if recommended:
        return recommended[0]
    ranked = [v.value for v in Variant if v.value.startswith("residual")]
    return max(profiles, key=lambda name: ranked.index(name) if name in ranked else -1)


def _source(path: Path, mixing: str | None) -> Measurement | Spec:
    from posbias.measurement import Measurement
    from posbias.predict import load_source

    source = load_source(path)
    if mixing is None:
        return source
    if isinstance(source, Measurement):
        raise InputError(
            f"--mixing was given for the measurement {path}, which has measured coefficients; "
            "it applies to specs"
        )
    return source.with_mixing(parse_schedule(mixing))
