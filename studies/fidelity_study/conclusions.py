"""What the results say, in words, as far as the intervals allow."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fidelity_study.estimators import ENERGY, PAPER
from fidelity_study.grid import HALVES
from fidelity_study.results import AIM, DEFAULT, MEASURED, row_of
from fidelity_study.tables import key_in_words, ranged

__all__ = ["conclusions", "distrust", "reasons"]

Cell = Mapping[str, Any]
CONFIRMATION = HALVES[1]

LOW_RANK = 0.5
"""Rank correlation below which the order of positions is not to be trusted."""


def conclusions(results: Mapping[str, Any]) -> str:
    """Return the main points of the confirmation half."""
    cells = _confirmed(results)
    kinds = {model["name"]: model["kind"] for model in results["models"]}
    trained = [cell for cell in cells if kinds[cell["model"]] != "random"]
    lines = [
        _aim(trained, "trained models"),
        _aim([cell for cell in cells if cell not in trained], "randomly initialised models"),
        _duel(cells, PAPER, "verdict_paper", "the paper's estimator"),
        _duel(cells, "uniform", "verdict_uniform", "uniform"),
    ]
    total = results["aggregates"][CONFIRMATION]["gradient"]
    lines.append(
        f"Median W1 over all cells: default {ranged(total[DEFAULT], 'median')}, paper "
        f"{ranged(total[PAPER], 'median')}, uniform {ranged(total['uniform'], 'median')}."
    )
    return "\n".join(f"- {line}" for line in lines if line) + "\n"


def _aim(cells: Sequence[Cell], whose: str) -> str:
    if not cells:
        return ""
    rows = [row_of(cell, DEFAULT) for cell in cells]
    within = sum(row["w1"] <= AIM for row in rows)
    surely = sum(row["w1_high"] <= AIM for row in rows)
    beyond = [
        f"{key_in_words(cell['key'])} ({ranged(row, 'w1')})"
        for cell, row in zip(cells, rows, strict=True)
        if row["w1"] > AIM
    ]
    worst, cell = max(zip(rows, cells, strict=True), key=lambda pair: pair[0]["w1"])
    text = (
        f"On {whose} the default is at most {AIM} in {within} of {len(cells)} cells, with its "
        f"whole interval in {surely}; worst {ranged(worst, 'w1')} in {key_in_words(cell['key'])}."
    )
    return text + (f" Above {AIM}: {', '.join(beyond)}." if beyond else "")


def _duel(cells: Sequence[Cell], other: str, column: str, name: str) -> str:
    differing = [cell for cell in cells if cell["default"]["estimator"] != other]
    rows = [(cell, row_of(cell, DEFAULT)) for cell in differing]
    closer = sum(row[column] > 0 for _, row in rows)
    farther = [key_in_words(cell["key"]) for cell, row in rows if row[column] < 0]
    same = len(cells) - len(differing)
    text = (
        f"Against {name} the default is closer beyond the interval in {closer} of "
        f"{len(cells)} cells, farther in {len(farther)}"
    )
    text += f" ({', '.join(farther)})" if farther else ""
    text += f", not distinguished in {len(differing) - closer - len(farther)}"
    return text + (f"; in {same} the rule chooses it." if same else ".")


def reasons(results: Mapping[str, Any]) -> str:
    """Return what the ablations and the quantities inside the models say about the why."""
    totals = results["aggregates"][CONFIRMATION].get("gradient", {})
    if ENERGY not in totals:
        return "Not enough cells were run.\n"
    base = ranged(totals[ENERGY], "median")
    lines = [
        "The paper's rollout adds amplitudes: what two layers bring to a position counts as their "
        "sum. Vectors that have nothing to do with each other do not add like that; their squared "
        "lengths do. The energy rollout adds these, weighs tokens by what their values differ "
        "(a sink, whose values are near constant, then weighs little), and lets the update of the "
        "MLP dilute what came from other tokens. What each choice contributes, as the median W1 "
        f"over the confirmation half if it is taken back (all together: {base}):\n"
    ]
    for text, what in _STEPS.items():
        if text in totals:
            one = totals[text]
            lines.append(
                f"- {what}: {ranged(one, 'median')}, worst {ranged(one, 'worst')} "
                f"({one['cells']} cells; `{text}`)"
            )
    lines.append("")
    lines.append(_random(results))
    return "\n".join(lines)


_STEPS = {
    "energy-rollout,addition=amplitudes": "amplitudes instead of energies",
    "energy-rollout,kernel=attention": "attention instead of weighted values",
    "energy-rollout,kernel=value-weighted": "values without centring",
    "energy-rollout,mixing=energy": "mixing without centring",
    "energy-rollout,mixing=centred": "mixing by norms instead of energies",
    "energy-rollout,mlp=false": "without dilution by the MLP",
    "energy-rollout,sinks=keep": "sinks kept",
}


def _random(results: Mapping[str, Any]) -> str:
    random = {model["name"] for model in results["models"] if model["kind"] == "random"}
    lines = []
    for cell in _confirmed(results):
        if cell["model"] in random:
            coherence = cell["quantities"].get("coherence")
            shown = "" if coherence is None else f", coherence {coherence[0]:.2f}"
            lines.append(
                f"{key_in_words(cell['key'])}: energy rollout "
                f"{ranged(row_of(cell, ENERGY), 'w1')}, paper {ranged(row_of(cell, PAPER), 'w1')}"
                f"{shown}"
            )
    if not lines:
        return ""
    return (
        "At random initialisation layers are unrelated, which is the assumption of the energy "
        "rollout, unless attention itself adds up coherently: with near uniform attention over "
        "tokens that share a direction, what it brings from many keys is longer than the sum of "
        "its energies says.\n\n" + "\n".join(f"- {line}" for line in lines) + "\n"
    )


def distrust(results: Mapping[str, Any]) -> str:
    """Return where the default fails in the confirmation half, and what no cell can tell."""
    lines = []
    for method, text in (("gradient", ""), *((m, f" under {m}") for m in _others(results))):
        rows = [
            (cell, row) for cell in _confirmed(results) if (row := row_of(cell, DEFAULT, method))
        ]
        missed = [
            f"{key_in_words(cell['key'])} ({ranged(row, 'w1')})"
            for cell, row in rows
            if row["w1_low"] > AIM
        ]
        if missed:
            lines.append(
                f"W1{text} is above {AIM} beyond the interval in {len(missed)} of {len(rows)} "
                f"cells: {', '.join(missed)}."
            )
        beaten = [key_in_words(cell["key"]) for cell, row in rows if row["verdict_uniform"] < 0]
        if beaten:
            lines.append(f"Uniform is closer{text} beyond the interval: {', '.join(beaten)}.")
    ranks = [
        f"{key_in_words(cell['key'])} ({ranged(row, 'spearman', 2)})"
        for cell in _confirmed(results)
        if (row := row_of(cell, DEFAULT))["spearman"] is not None and row["spearman"] < LOW_RANK
    ]
    if ranks:
        lines.append(
            f"The order of positions: the rank correlation is below {LOW_RANK} in "
            f"{', '.join(ranks)}, so single positions should not be compared there."
        )
    lines.append(
        "Models of another kind or size than those above: nothing here has more than 0.3 billion "
        "parameters, and most are small models of one family each. Measure and compare first."
    )
    lines.append(
        "Intervals hold for more text of the same kind. They do not cover the choice of models, "
        "and kernels are held at their means, which verdicts allow for."
    )
    return "\n".join(f"- {line}" for line in lines) + "\n"


def _others(results: Mapping[str, Any]) -> list[str]:
    return [name for name in results["aggregates"][CONFIRMATION] if name != "gradient"]


def _confirmed(results: Mapping[str, Any]) -> list[Cell]:
    return [
        cell
        for cell in results["cells"]
        if cell["half"] == CONFIRMATION and cell["status"] == MEASURED
    ]
