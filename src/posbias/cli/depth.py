"""``posbias depth``: what becomes of the profile with more and with infinitely many layers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from posbias.cli._options import Debug, Figure, Json, Overwrite
from posbias.cli._outputs import check_result_files, show_table, write_figure, write_json
from posbias.cli._schedule import SCHEDULE_HELP, parse_schedule
from posbias.cli._sources import Length, Query, Source, load_rollout

if TYPE_CHECKING:
    from posbias.rollout import Rollout
    from posbias.theory import DepthCurves, FiniteDepth

__all__ = ["depth"]

Schedule = Annotated[
    str | None,
    typer.Option(
        "--schedule",
        metavar="SCHEDULE",
        help="Mixing coefficients of infinitely many layers, for the verdict at infinite depth: "
        f"{SCHEDULE_HELP}, then zeros.",
        show_default="those of SOURCE, finite",
    ),
]
Layers = Annotated[
    int | None,
    typer.Option(
        "--layers",
        metavar="T",
        help="Number of layers of the table and the figure; the layers of SOURCE repeat.",
        show_default="that of SOURCE",
    ),
]
Share = Annotated[
    float,
    typer.Option("--share", metavar="P", help="Share of mass on token 0 whose depth is sought."),
]

_TABLE_ROWS = 12
_MOST_LAYERS = 10_000


def depth(  # noqa: PLR0913  one parameter per option
    source: Source,
    *,
    schedule: Schedule = None,
    layers: Layers = None,
    share: Share = 0.9,
    length: Length = None,
    query: Query = -1,
    json: Json = None,
    figure: Figure = None,
    overwrite: Overwrite = False,
    debug: Debug = False,
) -> None:
    """Follow the profile through depth, and decide what infinite depth does to it.

    Prints the verdict for a schedule (collapse onto token 0, no collapse, mixed, or undecided
    with the reason), how far the finite layers have gone with exact figures and bounds, and the
    profile against depth with attention alone beside the residual-aware one.
    """
    del debug
    check_result_files((source,), json, overwrite=overwrite, figure=figure)
    from posbias.theory import (
        EndlessLayers,
        InfiniteSchedule,
        depth_curves,
        finite_depth,
        infinite_depth,
    )

    rollout = load_rollout(source, n=length)
    _require_causal(rollout)
    verdict = endless = None
    if schedule is not None:
        mixing = InfiniteSchedule.from_description(parse_schedule(schedule))
        verdict = infinite_depth(rollout.kernels, mixing)
        endless = EndlessLayers(rollout.kernels, mixing)
    rollout = _continued(rollout, schedule, layers)
    finite = finite_depth(rollout, query=query, share=share, endless=endless)
    curves = depth_curves(rollout, query=query)
    if json is not None:
        document = {
            "source": str(source),
            "schedule": rollout.schedule.describe(),
            "infinite": None if verdict is None else verdict.as_dict(),
            "finite": finite.as_dict(),
            "curves": curves.to_rows(),
        }
        write_json(document, json, overwrite=overwrite)
    else:
        if verdict is not None:
            print(f"Infinite depth, {schedule}: {verdict.outcome}\n{verdict.summary()}\n")
        _show(finite, curves, schedule)
    if figure is not None:
        from posbias.plot import depth_figure

        write_figure(depth_figure(curves), figure, overwrite=overwrite)


def _require_causal(rollout: Rollout) -> None:
    """Refuse layers that look ahead, by name."""
    from posbias.errors import InputError
    from posbias.kernels import AttentionKernel

    for t, kernel in enumerate(rollout.kernels):
        if not kernel.is_causal:
            mask = kernel.mask.describe()["type"] if isinstance(kernel, AttentionKernel) else None
            where = "every layer" if len(rollout.kernels) == 1 else f"layer {t + 1}"
            raise InputError(
                f"{where} attends to later positions{f' (mask {mask})' if mask else ''}; depth "
                "speaks about causal layers only: use predict and forces, or a causal mask"
            )


def _continued(rollout: Rollout, schedule: str | None, layers: int | None) -> Rollout:
    """Return the rollout with another schedule and depth, its kernels repeated in turn."""
    import numpy as np

    from posbias.errors import InputError
    from posbias.rollout import MixingSchedule, Rollout
    from posbias.theory import InfiniteSchedule

    count = rollout.depth if layers is None else layers
    if not 1 <= count <= _MOST_LAYERS:
        raise InputError(
            f"--layers is {count}; 1 to {_MOST_LAYERS} are required (beyond, every thousand layers "
            "take seconds; the verdict of --schedule needs no such table)"
        )
    if schedule is not None:
        mixing = InfiniteSchedule.from_description(parse_schedule(schedule)).values(count)
    elif count <= rollout.depth:
        mixing = np.asarray(rollout.schedule.values)[:count]
    else:
        raise InputError(
            f"--layers {count} is more than the {rollout.depth} layers of the source; say how "
            "their mixing goes on with --schedule"
        )
    kernels = rollout.kernels
    cycle = [kernels[t % len(kernels)] for t in range(count)] if len(kernels) > 1 else kernels
    return Rollout(cycle, MixingSchedule(mixing))


def _show(finite: FiniteDepth, curves: DepthCurves, schedule: str | None) -> None:
    from posbias.cli._tables import plain_table

    bounds, limit = finite.bounds, finite.continuous
    if finite.depth_for_share is not None:
        reached = f"{finite.depth_for_share} layers"
    else:
        reached = "never" if finite.never else f"not within {finite.depth_limit} layers"
    continued = f"constant at {finite.tail_mixing:.4g}" if schedule is None else schedule
    facts = [
        ["mass on token 0", f"{1.0 - bounds.exact:.6g}"],
        ["mass that never moved, P[i,i] (T5)", f"{bounds.diagonal:.6g}"],
        ["mass not on token 0", f"{bounds.exact:.6g}"],
        ["  its bounds", f"{bounds.lower:.6g} to {bounds.upper:.6g}"],
        [f"depth for {finite.share:g} on token 0", reached],
        ["  mixing beyond SOURCE" if schedule is None else "  along the schedule", continued],
        ["distance of the continuous limit (T7)", f"{limit.distance:.6g}"],
        ["  its bound", f"{limit.bound_le_cam:.6g}"],
    ]
    title = f"Position {finite.query} after {finite.depth} layers"
    show_table(plain_table(["figure", "value"], facts, title=title))
    only, full = curves.attention_only, curves.residual
    headers = ["depth", "token 0", "query", "mean", "token 0*", "query*", "mean*"]
    rows = []
    for t in _chosen_depths(finite.depth):
        cells = [str(t)]
        for curve in (only, full):
            cells += [f"{curve.first[t]:.4f}", f"{curve.last[t]:.4f}"]
            cells.append(f"{curve.mean_position[t]:.1f}")
        rows.append(cells)
    show_table(plain_table(headers, rows, title="Attention only; * with the residual path"))


def _chosen_depths(depth: int) -> list[int]:
    """Return at most about a dozen depths from 0 to `depth`, both included."""
    step = max(1, -(-depth // _TABLE_ROWS))
    return sorted({*range(0, depth + 1, step), depth})
