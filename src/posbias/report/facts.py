"""What was measured: model, text, versions, checks, and how to do it again."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import PurePath
from typing import Any

from posbias.measurement import Measurement
from posbias.report.wording import number
from posbias.uncertainty import sampling_units

__all__ = [
    "METHOD_MEANINGS",
    "PAPER_BIBTEX",
    "PAPER_REFERENCE",
    "PREFLIGHT_MEANINGS",
    "command_line",
    "fact_groups",
    "method_sentence",
    "preflight_rows",
    "software_bibtex",
    "subtitle",
]

Facts = list[tuple[str, str]]

PAPER_REFERENCE = (
    "Herasimchyk, Labryga, Prusina, Laue: A Structural Theory of Position Bias in Transformers. "
    "arXiv 2602.16837, 2026."
)

PAPER_BIBTEX = """@misc{herasimchyk2026structural,
  title         = {A Structural Theory of Position Bias in Transformers},
  author        = {Herasimchyk and Labryga and Prusina and Laue},
  year          = {2026},
  eprint        = {2602.16837},
  archivePrefix = {arXiv}
}"""

PREFLIGHT_MEANINGS: Mapping[str, str] = {
    "finite": "The logits of the model are finite numbers.",
    "causality": "Changing a later token leaves the outputs at earlier positions as they are.",
    "stream_identity": "Residual stream before attention plus recorded update is the stream after.",
    "one_capture_per_layer": "Every layer's attention was seen exactly once per pass.",
    "outputs_unchanged": "Watching the model does not change its outputs.",
    "eager_equals_sdpa": "Two implementations of attention give the same logits.",
    "finite_activations": "Streams and updates are finite numbers.",
    "rows_sum_to_one": "Recorded attention weights of a query sum to one.",
    "nothing_above_diagonal": "No weight is recorded on later positions.",
    "attention_output": "Recorded weights times values give the output of attention.",
    "zeroed_queries_leave_no_content": "With queries set to zero, only position bias remains.",
    "block_output": "Every layer returns stream plus attention update plus MLP output.",
    "stream_unbroken": "Every layer reads what the layer below returns.",
    "tokens_meet_in_attention_only": "With every token attending to itself only, what one token "
    "holds reaches no other token.",
    "attention_reaches_the_stream": "Replacing the attention of a layer changes its update.",
    "gradient": "Gradients in the input embeddings are those that small changes of them show.",
    "position_scheme": "The position bias read from the model is the one it applies.",
}
"""What each check makes sure of; a check of another name is shown without an explanation."""


METHOD_MEANINGS: Mapping[str, str] = {
    "gradient": "the size of the gradient of the probability of the most likely next token, at the "
    "last position, in the input embedding at that position",
    "gradient-input": "the size of the product of the input embedding at that position with the "
    "gradient of the probability of the most likely next token",
    "integrated-gradients": "the size of the share of that position in the change of the "
    "probability of the most likely next token from a window of replaced tokens to the window, by "
    "integrated gradients",
    "occlusion": "the change of the distribution of the next token (total variation) when the "
    "token there is replaced by another one of the window",
}
"""What the influence of a position is, by method."""


def method_sentence(method: str) -> str:
    """Return what a method of measured influence takes as the influence of a position."""
    meaning = METHOD_MEANINGS.get(method, f"what the method {method} says")
    return f"Influence by {method} is {meaning}."


def subtitle(measurement: Measurement) -> str:
    """Return windows, text and measure in one line."""
    text = measurement.manifest["text"]["source"]
    source = "the embedded text" if text == "embedded" else text
    return (
        f"{measurement.windows:,} windows of {measurement.n:,} tokens from {source}, "
        f"{measurement.layers} layers, {measurement.heads} heads"
    )


def fact_groups(measurement: Measurement) -> list[tuple[str, Facts]]:
    """Return the manifest as named groups of facts."""
    manifest = measurement.manifest
    return [
        ("Model", _model_facts(manifest["model"])),
        ("Text", _text_facts(manifest)),
        ("Measurement", _run_facts(measurement)),
    ]


def preflight_rows(measurement: Measurement) -> list[dict[str, Any]]:
    """Return name, meaning, outcome, value and tolerance of every check."""
    return [
        {
            "name": name.replace("_", " "),
            "meaning": PREFLIGHT_MEANINGS.get(name, ""),
            "passed": bool(check["passed"]),
            **_shown_check(check),
        }
        for name, check in measurement.manifest["preflight"].items()
    ]


def _shown_check(check: Mapping[str, Any]) -> dict[str, str]:
    """Return value and tolerance in words; a check that a model leaves no room for has neither."""
    if check["tolerance"] is None:
        return {"value": "not applicable", "tolerance": ""}
    value = "not finite" if check["value"] is None else number(check["value"])
    return {"value": value, "tolerance": number(check["tolerance"])}


def command_line(measurement: Measurement) -> str | None:
    """Return the command that measured, as it is typed into a shell; None if not recorded."""
    words = measurement.manifest["command"]
    if not words:
        return None
    program = PurePath(words[0]).name
    is_module = program in {"__main__.py", "posbias", "posbias.exe"}
    return shlex.join(["posbias" if is_module else words[0], *words[1:]])


def software_bibtex(version: str) -> str:
    """Return a BibTeX entry for posbias in the version that made the report."""
    return f"""@software{{posbias,
  title   = {{posbias: predict, measure and explain position bias of Transformers}},
  author  = {{{{The posbias authors}}}},
  version = {{{version}}},
  year    = {{2026}}
}}"""


def _model_facts(model: Mapping[str, Any]) -> Facts:
    widths = sorted({width for width in model["layer_windows"] if width is not None})
    limited = sum(width is not None for width in model["layer_windows"])
    mask = "full causal attention"
    if widths:
        sizes = ", ".join(f"{width:,}" for width in widths)
        mask = f"sliding window of {sizes} in {limited} of {model['layers']} layers"
    return [
        ("Name", model["id"]),
        ("Architecture", model["architecture"]),
        ("Revision of the weights", model["revision"] or "not recorded"),
        ("Parameters", f"{model['parameters']:,}"),
        ("Layers", f"{model['layers']:,}"),
        ("Heads per layer", f"{model['heads']:,} ({model['kv_heads']:,} key-value heads)"),
        ("Positions", model["position_scheme"]["type"]),
        ("Mask", mask),
        ("Number format", model["dtype"]),
        ("Attention", model["attention_implementation"]),
    ]


def _text_facts(manifest: Mapping[str, Any]) -> Facts:
    text, windows, tokenizer = manifest["text"], manifest["windows"], manifest["tokenizer"]
    seed = "several (merged)" if windows["seed"] is None else str(windows["seed"])
    first = "start token" if windows["first_token_is_bos"] else "token of the text"
    return [
        ("Source", text["source"]),
        ("SHA-256", text["sha256"]),
        ("Size", f"{text['tokens']:,} tokens in {_documents(text['documents'])}"),
        ("Tokenizer", tokenizer["id"]),
        ("Windows", f"{windows['count']:,} of {windows['length']:,} tokens"),
        ("Seed of the draw", seed),
        ("Position 0 holds", first),
    ]


def _documents(count: int) -> str:
    return "one document" if count == 1 else f"{count:,} documents"


def _run_facts(measurement: Measurement) -> Facts:
    manifest = measurement.manifest
    facts = [
        ("Measured influence", ", ".join(measurement.influence_methods) or "none"),
        ("Measured at", manifest["created"].replace("T", " ").replace("+00:00", " UTC")),
        ("posbias", manifest["posbias_version"]),
        *((name, version) for name, version in manifest["libraries"].items()),
    ]
    run = manifest.get("run", {})
    names = {"device": "Device", "seconds": "Seconds", "batch_size": "Windows per pass"}
    facts += [(label, str(run[key])) for key, label in names.items() if key in run]
    if measurement.influence_methods:
        facts.insert(1, _weight_fact(measurement))
    if measurement.sha256 is not None:
        facts.append(("SHA-256 of the arrays", measurement.sha256))
    return facts


def _weight_fact(measurement: Measurement) -> tuple[str, str]:
    """Say over how many units of equal weight the measured profile effectively averages."""
    units = sampling_units(measurement)
    effective = units.effective(measurement.influence_windows())
    return (
        f"Effective number of {units.kind}",
        f"{number(effective)} of {units.count:,} (windows of larger influence weigh more)",
    )
