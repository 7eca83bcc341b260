"""``posbias compare``: how far predictions are from a measured profile."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from posbias.cli._options import Csv, Debug, Figure, Json, Overwrite, SourceEstimator
from posbias.cli._outputs import STDOUT, check_result_files, show_table, write_figure

__all__ = ["compare"]

Measured = Annotated[
    Path,
    typer.Argument(
        metavar="MEASURED",
        help="A measurement directory, the output directory of a run, or a profile file "
        "(.csv or .json).",
        show_default=False,
    ),
]
Predicted = Annotated[
    list[Path],
    typer.Argument(
        metavar="PREDICTED",
        help="Measurement directories (all variants), specs (the profile that each describes) "
        "and profile files, any number of them.",
        show_default=False,
    ),
]
Column = Annotated[
    str | None,
    typer.Option(
        "--column",
        metavar="NAME",
        help="Profile of MEASURED to compare with.",
        show_default="measured, or the only one",
    ),
]


def compare(  # noqa: PLR0913  one parameter per option
    measured: Measured,
    predicted: Predicted,
    *,
    column: Column = None,
    estimator: SourceEstimator = None,
    csv: Csv = None,
    json: Json = None,
    figure: Figure = None,
    overwrite: Overwrite = False,
    debug: Debug = False,
) -> None:
    """Compare predicted profiles with a measured one.

    Prints one row per prediction: Wasserstein-1 distance on positions / (n - 1), Spearman's rank
    correlation, Jensen-Shannon divergence in nats, mass on the first and on the last tenth of the
    positions, and the position of the trough. A measurement gives 95 % intervals over its documents
    or windows; a file of profiles has none.
    """
    del debug
    check_result_files((measured, *predicted), csv, json, overwrite=overwrite, figure=figure)
    from posbias.compare import compare as compare_profiles
    from posbias.compare import load_measured, load_predicted, open_measured

    reference = open_measured(measured, column)
    predictions = load_predicted(predicted, estimator)
    comparison = compare_profiles(reference, predictions)
    if csv is not None:
        comparison.write_csv(csv, overwrite=overwrite)
    if json is not None:
        comparison.write_json(json, overwrite=overwrite)
    if STDOUT not in (csv, json):
        from posbias.cli._tables import comparison_table

        show_table(comparison_table(comparison, title=f"Distance to {measured.name}"))
    if figure is not None:
        from posbias.plot import comparison_figure

        distances = {row.variant: row.w1 for row in comparison.rows}
        drawn = comparison_figure(
            load_measured(reference), predictions, distances, bands=comparison.bands()
        )
        write_figure(drawn, figure, overwrite=overwrite)
