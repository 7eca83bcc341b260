"""``posbias forces``: what each of the four forces does to the profile."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from posbias.cli._options import Debug, Figure, Json, Overwrite
from posbias.cli._outputs import check_result_files, show_table, write_figure, write_json
from posbias.cli._sources import Length, Mixing, Query, Source, load_rollout

if TYPE_CHECKING:
    from posbias.theory import ForcesReport, Shift

__all__ = ["forces"]

Strength = Annotated[
    float,
    typer.Option(
        "--strength",
        metavar="S",
        help="Relative strengthening, between 0 and 1; depth gains one layer instead.",
    ),
]


def forces(  # noqa: PLR0913  one parameter per option
    source: Source,
    *,
    strength: Strength = 0.1,
    length: Length = None,
    query: Query = -1,
    mixing: Mixing = None,
    json: Json = None,
    figure: Figure = None,
    overwrite: Overwrite = False,
    debug: Debug = False,
) -> None:
    """Strengthen and remove each force: mask depth, residual path, position encoding, content.

    Prints for each force the direction and size of its effect on the profile, and the theorem
    that guarantees the direction, or why none does. A measurement enters with its position bias,
    its content terms and its mixing coefficients.
    """
    del debug
    check_result_files((source,), json, overwrite=overwrite, figure=figure)
    from posbias.theory import forces as compute_forces

    rollout = load_rollout(source, mixing=mixing, n=length)
    report = compute_forces(rollout, query=query, strength=strength)
    if json is not None:
        write_json({"source": str(source), **report.as_dict()}, json, overwrite=overwrite)
    else:
        _show(report)
    if figure is not None:
        from posbias.plot import plot_forces

        write_figure(plot_forces(report), figure, overwrite=overwrite)


def _show(report: ForcesReport) -> None:
    from posbias.cli._tables import plain_table

    headers = ["force", "stronger", "W1", "mean", "removed", "W1", "mean", "theorem"]
    rows, reasons = [], []
    for effect in report.effects:
        guarantee = effect.guarantee
        if guarantee.startswith("not "):
            reasons.append(f"{effect.name}: {guarantee if effect.applies else effect.note}")
            guarantee = "-"
        rows.append([effect.name, *_cells(effect.strengthened), *_cells(effect.removed), guarantee])
    title = f"Forces on the profile of position {report.query}"
    show_table(plain_table(headers, rows, title=title))
    for reason in reasons:
        print(reason)


def _cells(shift: Shift | None) -> list[str]:
    """Return direction, signed W1 and change of the mean position."""
    if shift is None:
        return ["-", "-", "-"]
    return [shift.direction, f"{shift.signed_w1:+.4f}", f"{shift.mean_change:+.2f}"]
