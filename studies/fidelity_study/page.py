"""The page docs/fidelity.md, written from the results."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from fidelity_study.conclusions import conclusions, distrust, reasons
from fidelity_study.grid import HALVES
from fidelity_study.results import MEASURED, NOT_POSSIBLE, NOT_RUN
from fidelity_study.tables import (
    cell_table,
    estimator_table,
    length_table,
    method_table,
    model_table,
)

__all__ = ["page"]

EXPLORATION, CONFIRMATION = HALVES

HEAD = """# Fidelity study

<!-- Written by studies/fidelity.py; do not edit. -->

How far are predictions from the measured influence, and when should they not be trusted? This
study compares every estimator with every affordable influence method on several models, at four
lengths, on two kinds of text. W1 is the Wasserstein-1 distance on positions divided by n - 1, in
[0, 1]; brackets are 95 % intervals (bootstrap over documents, or over windows of one document,
see [Uncertainty](uncertainty.md)); resampled text makes a rough curve rougher, so that an interval
may lie to one side of its value. *Default* is what [the rule of posbias](methods/default.md)
chooses from quantities inside the model, without looking at the influence. Unless a table says
otherwise, influence is the gradient.
"""

SPLIT = """## The split

{rule}

What was to be decided (the composition of `energy-rollout` and the rule of the default) was
decided on other windows at n = 256 and on the exploration half. Conclusions are drawn from the
confirmation half only. The two halves of one model share its weights, so the confirmation half
says that a result holds at other lengths and on other text, not that it holds for other models.
The exploration before this study had also looked at other windows of code at n = 256.
"""

ESTIMATORS = """## All estimators

On the confirmation half. `paper,axis=value` changes one choice of the paper's estimator,
`energy-rollout,axis=value` one choice of the energy rollout, see
[Estimators](methods/default.md). Closer and farther count cells in which the paired difference
of W1 is on one side of zero beyond its interval. The interval of a median takes each cell as
resampled by itself. Estimators with `jacobian` were measured up to n = 256.

![W1 of every estimator: median and worst cell](images/fidelity/estimators.svg)
"""

INSIDE = """## Inside the models

Means over layers in the cells with n = 256 and literature. Sink strength is the attention that
[sinks](methods/sinks.md) receive; alignment the cosine of stream and attention update in size
(centred: both less their means over tokens); coherence compares the energy of what attention brings
with the sum of the energies of its parts: about 1 where they are unrelated, and it is what the rule
of the default looks at. Sink strength comes from attention summed over windows and has no
interval.
"""

AGAIN = """## Run it again

<!-- not run: takes an hour -->
```sh
make study
python studies/fidelity.py --resume --budget 30 --jobs 2
python studies/fidelity.py --model HuggingFaceTB/SmolLM2-135M
```

Results are in `studies/results/fidelity.json`, with all digits and every estimator in every cell.
A run goes on where the last one ended, the most important cells first. Texts: the embedded sample
(SHA-256 `{literature}`), and {count} files of the {source}: the modules directly in its folder of
16 to 128 KiB, ordered by the SHA-256 of their names. Their SHA-256 are in the results. Weights of
the embedded models at steps 122 and 488 of their training are in `studies/models`. Taken with
{libraries}.
"""


def page(results: Mapping[str, Any]) -> str:
    """Return the whole page as Markdown."""
    cells = results["cells"]
    return "\n".join(_parts(results, cells))


def _parts(results: Mapping[str, Any], cells: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    aggregates = results["aggregates"]
    yield HEAD
    yield _progress(cells)
    if any(cell["status"] == MEASURED for cell in cells if cell["half"] == CONFIRMATION):
        yield "## In short\n"
        yield conclusions(results)
        yield "![W1 by model, paper's estimator and default](images/fidelity/models.svg)\n"
    yield SPLIT.format(rule=results["split"])
    yield "## Default, paper and uniform in every cell\n\nConfirmation half:\n"
    yield cell_table(cells, CONFIRMATION)
    yield "Exploration half:\n"
    yield cell_table(cells, EXPLORATION)
    if "gradient" in aggregates[CONFIRMATION]:
        yield ESTIMATORS
        yield estimator_table(aggregates[CONFIRMATION]["gradient"])
        yield "## By length\n\n![W1 over the length](images/fidelity/lengths.svg)\n"
        yield length_table(results["lengths"])
        yield "## Other influence methods\n\nOn the confirmation half.\n"
        yield method_table(aggregates, CONFIRMATION)
    yield INSIDE
    yield model_table(cells, 256, "literature")
    yield "## Why\n"
    yield reasons(results)
    yield "## Where predictions should not be trusted\n"
    yield distrust(results)
    yield _left_out(cells)
    yield _again(results)


def _progress(cells: Sequence[Mapping[str, Any]]) -> str:
    counts = Counter(cell["status"] for cell in cells)
    text = f"Of {len(cells)} cells of the grid {counts[MEASURED]} were measured"
    if counts[NOT_POSSIBLE]:
        text += f", {counts[NOT_POSSIBLE]} are not possible"
    if counts[NOT_RUN]:
        text += f", {counts[NOT_RUN]} were not run (and say nothing here)"
    return text + ".\n"


def _left_out(cells: Sequence[Mapping[str, Any]]) -> str:
    """Return what was refused, not possible, or too costly."""
    lines = ["## What was left out\n"]
    refused: dict[tuple[str, str], set[str]] = {}
    omitted: dict[tuple[str, str], int] = {}
    for cell in cells:
        for method, reason in cell.get("refused", {}).items():
            refused.setdefault((method, reason), set()).add(cell["model"])
        for method, reason in cell.get("omitted", {}).items():
            omitted[method, reason] = omitted.get((method, reason), 0) + 1
    lines += [
        f"- `{method}` was refused for {', '.join(sorted(models))}: {reason}"
        for (method, reason), models in refused.items()
    ]
    lines += [
        f"- `{method}` in {count} measured cells: {reason}."
        for (method, reason), count in omitted.items()
    ]
    for status in (NOT_POSSIBLE, NOT_RUN):
        by_reason: dict[str, list[str]] = {}
        for cell in cells:
            if cell["status"] == status:
                names = by_reason.setdefault(cell.get("reason", ""), [])
                names.append(f"{cell['model']} {cell['n']} {cell['text']}")
        lines += [
            f"- {status.capitalize()}{': ' + reason if reason else ''}: {', '.join(names)}."
            for reason, names in by_reason.items()
        ]
    return "\n".join([*lines, ""])


def _again(results: Mapping[str, Any]) -> str:
    texts = results["texts"]
    libraries = ", ".join(f"{k} {v}" for k, v in results["libraries"].items() if v)
    return AGAIN.format(
        literature=texts["literature"]["sha256"][:16],
        count=len(texts["code"]["files"]),
        source=texts["code"]["source"],
        libraries=libraries,
    )
