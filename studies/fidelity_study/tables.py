"""Tables of the page, as Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from fidelity_study.estimators import ABLATIONS, BASELINES, ENERGY, LADDER, PAPER
from fidelity_study.results import DEFAULT, MEASURED, row_of
from posbias.uncertainty import Interval, with_range

__all__ = [
    "cell_table",
    "estimator_table",
    "key_in_words",
    "length_table",
    "method_table",
    "model_table",
    "ranged",
]

Cell = Mapping[str, Any]
_WORDS = {1: "closer", 0: "not distinguished", -1: "farther"}


def markdown(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return a table."""
    lines = [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]
    return "\n".join([*lines, *(f"| {' | '.join(map(str, row))} |" for row in rows), ""])


def ranged(values: Mapping[str, Any], name: str, digits: int = 3) -> str:
    """Return a figure with its interval from columns ``name``, ``name_low``, ``name_high``."""
    if values.get(name) is None:
        return "-"
    low, high = values[f"{name}_low"], values[f"{name}_high"]
    return with_range(Interval(values[name], low, high), digits + 1 if low is not None else digits)


def key_in_words(key: str) -> str:
    """Return the key of a cell for people, ``bloom 256 code``; a model may have dots in it."""
    model, n, text = key.rsplit(".", 2)
    return f"{model} {n} {text}"


def cell_table(cells: Sequence[Cell], half: str) -> str:
    """Return the cells of one half: default, paper's estimator, uniform, and what beats what."""
    rows = []
    for cell in cells:
        if cell["half"] != half:
            continue
        place = [cell["model"], cell["n"], cell["text"]]
        if cell["status"] != MEASURED:
            reason = f": {cell['reason']}" if "reason" in cell else ""
            rows.append([*place, f"{cell['status']}{reason}", "", "", "", "", ""])
            continue
        default = row_of(cell, DEFAULT)
        chosen = cell["default"]["estimator"]
        rows.append(
            [
                *place,
                ranged(default, "w1") + (" (paper)" if chosen == PAPER else ""),
                ranged(row_of(cell, PAPER), "w1"),
                ranged(row_of(cell, "uniform"), "w1"),
                "the same" if chosen == PAPER else _WORDS[default["verdict_paper"]],
                _WORDS[default["verdict_uniform"]],
                ranged(default, "spearman", 2),
            ]
        )
    head = ["model", "n", "text", "default", "paper", "uniform"]
    return markdown(
        [*head, "default against paper", "default against uniform", "Spearman of default"], rows
    )


def estimator_table(totals: Mapping[str, Mapping[str, Any]]) -> str:
    """Return a row per estimator: median, worst cell, and counts of cells."""
    rows = []
    for name in (DEFAULT, PAPER, ENERGY, *BASELINES, *LADDER, *ABLATIONS):
        if name not in totals:
            continue
        total = totals[name]
        rows.append(
            [
                f"`{name}`",
                total["cells"],
                ranged(total, "median"),
                f"{ranged(total, 'worst')}, {key_in_words(total['worst_cell'])}",
                total["within_aim"],
                total["closer_than_paper"],
                total["farther_than_paper"],
                total["farther_than_uniform"],
            ]
        )
    head = ["estimator", "cells", "median W1", "worst W1", "at most 0.05", "closer than paper"]
    return markdown([*head, "farther than paper", "farther than uniform"], rows)


def method_table(aggregates: Mapping[str, Any], half: str) -> str:
    """Return default, paper's estimator and uniform under every influence method."""
    rows = []
    for method, totals in aggregates[half].items():
        for name in (DEFAULT, PAPER, "uniform"):
            total = totals[name]
            rows.append(
                [
                    method,
                    name,
                    total["cells"],
                    ranged(total, "median"),
                    f"{ranged(total, 'worst')}, {key_in_words(total['worst_cell'])}",
                    total["within_aim"],
                    total["farther_than_paper"] if name == DEFAULT else "",
                ]
            )
    head = ["influence", "estimator", "cells", "median W1", "worst W1", "at most 0.05"]
    return markdown([*head, "farther than paper"], rows)


def length_table(lengths: Sequence[Mapping[str, Any]]) -> str:
    """Return median and worst cell over the models at each length, on each text."""
    rows = []
    for entry in lengths:
        totals = entry["totals"]
        worst = totals[DEFAULT]
        rows.append(
            [
                *(entry["n"], entry["text"], entry["half"], worst["cells"]),
                *(ranged(totals[name], "median") for name in (DEFAULT, PAPER, "uniform")),
                f"{ranged(worst, 'worst')}, {worst['worst_cell'].rsplit('.', 2)[0]}",
            ]
        )
    head = ["n", "text", "half", "models", "default: median W1", "paper", "uniform"]
    return markdown([*head, "default: worst W1"], rows)


def model_table(cells: Sequence[Cell], n: int, text: str) -> str:
    """Return what is inside the models, as measured in the cells of one length and text."""
    rows = []
    for cell in cells:
        if (cell["n"], cell["text"], cell["status"]) != (n, text, MEASURED):
            continue
        inside = cell["quantities"]
        rows.append(
            [
                cell["model"],
                f"{inside['parameters'] / 1e6:.1f} M",
                inside["layers"],
                inside["position"],
                f"{inside['sinks']['strength']:.3f}",
                *(
                    _triple(inside.get(name))
                    for name in ("alignment", "centred-alignment", "coherence")
                ),
                *(_triple(inside.get(f"mixing {name}")) for name in ("norm", "centred-energy+mlp")),
            ]
        )
    head = ["model", "parameters", "layers", "position", "sink strength", "alignment"]
    more = ["centred alignment", "coherence", "mixing `norm`", "mixing `centred-energy+mlp`"]
    return markdown([*head, *more], rows)


def _triple(values: Sequence[float | None] | None) -> str:
    if values is None or values[0] is None:
        return "-"
    return with_range(Interval(values[0], values[1], values[2]), 4)
