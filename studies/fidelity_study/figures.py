"""Figures of the page, as SVG that is the same in every run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fidelity_study.estimators import ABLATIONS, BASELINES, ENERGY, LADDER, PAPER
from fidelity_study.grid import HALVES, LENGTHS
from fidelity_study.results import AIM, DEFAULT, MEASURED, row_of

__all__ = ["draw"]

CONFIRMATION = HALVES[1]
COLOURS = {DEFAULT: "#0072b2", PAPER: "#d55e00", "uniform": "#999999"}
MARKS = {DEFAULT: "o", PAPER: "s", "uniform": "|"}


def draw(results: Mapping[str, Any], folder: Path) -> None:
    """Write models.svg, estimators.svg and lengths.svg, as far as there are results."""
    cells = [cell for cell in results["cells"] if cell["status"] == MEASURED]
    confirmed = [cell for cell in cells if cell["half"] == CONFIRMATION]
    if not confirmed:
        return
    folder.mkdir(parents=True, exist_ok=True)
    settings: Any = {"svg.hashsalt": "posbias", "svg.fonttype": "none", "font.size": 9.0}
    with mpl.rc_context(settings):
        _save(_models(confirmed), folder / "models.svg")
        totals = results["aggregates"][CONFIRMATION]["gradient"]
        _save(_estimators(totals), folder / "estimators.svg")
        _save(_lengths(cells), folder / "lengths.svg")


def _save(figure: Figure, file: Path) -> None:
    figure.savefig(file, metadata={"Date": None}, bbox_inches="tight")


def _models(cells: Sequence[Mapping[str, Any]]) -> Figure:
    figure = Figure(figsize=(7.0, 0.22 * len(cells) + 1.2), layout="constrained")
    axes = figure.subplots()
    for place, cell in enumerate(cells):
        for name in ("uniform", PAPER, DEFAULT):
            row = row_of(cell, name)
            axes.plot(
                [row["w1_low"], row["w1_high"]], [place] * 2, color=COLOURS[name], linewidth=1.2
            )
            axes.plot(
                row["w1"],
                place,
                MARKS[name],
                color=COLOURS[name],
                markersize=5,
                label=name if place == 0 else None,
            )
    labels = [f"{cell['model']}, {cell['n']} {cell['text']}" for cell in cells]
    axes.set_yticks(range(len(cells)), labels)
    axes.invert_yaxis()
    _scale(axes)
    figure.legend(loc="outside upper center", ncols=3, frameon=False)
    return figure


def _estimators(totals: Mapping[str, Mapping[str, Any]]) -> Figure:
    names = [n for n in (DEFAULT, PAPER, ENERGY, *BASELINES, *LADDER, *ABLATIONS) if n in totals]
    figure = Figure(figsize=(7.0, 0.2 * len(names) + 1.2), layout="constrained")
    axes = figure.subplots()
    for place, name in enumerate(names):
        total, colour = totals[name], COLOURS.get(name, "#444444")
        axes.plot([total["median"], total["worst"]], [place] * 2, color="#dddddd", zorder=0)
        if total["median_low"] is not None:
            ends = [total["median_low"], total["median_high"]]
            axes.plot(ends, [place] * 2, color=colour, linewidth=2)
        first = place == 0
        axes.plot(total["median"], place, "o", color=colour, label="median" if first else None)
        axes.plot(total["worst"], place, "x", color=colour, label="worst cell" if first else None)
    axes.set_yticks(range(len(names)), names)
    axes.invert_yaxis()
    _scale(axes)
    figure.legend(loc="outside upper center", ncols=2, frameon=False)
    return figure


def _lengths(cells: Sequence[Mapping[str, Any]]) -> Figure:
    figure = Figure(figsize=(7.0, 3.2), layout="constrained")
    panels = figure.subplots(1, 2, sharey=True)
    models = list(dict.fromkeys(cell["model"] for cell in cells))
    for axes, name in zip(panels, (PAPER, DEFAULT), strict=True):
        for index, model in enumerate(models):
            for text, style in (("literature", "-"), ("code", ":")):
                rows = [
                    (cell["n"], row_of(cell, name)["w1"])
                    for cell in cells
                    if (cell["model"], cell["text"]) == (model, text)
                ]
                if rows:
                    label = model if text == "literature" and name == PAPER else None
                    x, y = zip(*rows, strict=True)
                    axes.plot(
                        x, y, style, marker=".", color=f"C{index % 10}", linewidth=1, label=label
                    )
        axes.set_title(f"{name} (dotted: code)", fontsize=9)
        axes.set_xscale("log", base=2)
        axes.set_xticks(LENGTHS, [str(n) for n in LENGTHS])
        axes.set_xlabel("n")
        axes.set_yscale("log")
        axes.axhline(AIM, color="black", linewidth=0.6, linestyle="--")
    panels[0].set_ylabel("W1")
    figure.legend(loc="outside right upper", frameon=False, fontsize=7)
    return figure


def _scale(axes: Axes) -> None:
    axes.set_xscale("log")
    axes.set_xlabel("W1 to the gradient influence")
    axes.axvline(AIM, color="black", linewidth=0.6, linestyle="--", zorder=0)
    axes.grid(axis="x", color="#eeeeee")
    axes.set_axisbelow(True)
