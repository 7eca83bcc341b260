"""The page docs/benchmarks.md, written from the results."""

from __future__ import annotations

from typing import Any

from scale import section

HEAD = """# Benchmarks

<!-- Written by benchmarks/run.py; do not edit. -->

`make bench` takes these numbers again and writes this page and `benchmarks/results.json`. Ratios
compare runs that alternate in one process on one machine; absolute times are for orientation.
"""


def page(results: dict[str, Any]) -> str:
    """Return the whole page as Markdown."""
    parts = [HEAD, _machine(results)]
    if "prediction" in results:
        parts.append(_prediction(results["prediction"]))
    if "measured" in results:
        parts.append(_measured(results["measured"]))
    if "measuring" in results:
        parts += [_measuring(results["measuring"]), section(results["measuring"])]
    return "\n".join(parts)


def _machine(results: dict[str, Any]) -> str:
    machine = results["machine"]
    versions = ", ".join(f"{k} {v}" for k, v in machine["libraries"].items() if v)
    loads = ", ".join(f"{part} {load}" for part, load in results["load"].items())
    kind = "A quick run: fewer repetitions, smaller sizes. " if results["quick"] else ""
    return (
        f"{kind}Machine: {machine['processor']}, {machine['cores']} cores, "
        f"{machine['memory_gb']} GB; Python {machine['python']}, {versions}. Medians of "
        f"{results['runs']} runs. Load average of the machine when each part began: {loads}.\n"
    )


def _prediction(part: dict[str, Any]) -> str:
    rows = []
    for key in ("dense_256", "dense_2048"):
        case = part[key]
        note = ""
        if "dense_layers_timed" in case:
            note = f", from {case['dense_layers_timed']} layers"
        seconds = case["seconds"]
        rows.append(
            f"| {case['n']} | {_time(seconds['profile'])} | {_time(seconds['built'])} | "
            f"{_time(seconds['dense'])}{note} | {case['ratio']:,.0f} | "
            f"{case['ratio_with_building']:,.0f} | {case['ratio_to_dense_rows']:,.0f} | "
            f"{case['largest_difference']:.1e} |"
        )
    linear = [
        f"| {case['n']:,} | {_time(case['seconds'])} | {_time(case['seconds_build'])} | "
        f"{_time(case['seconds_first'])} | "
        f"{case['ns_per_position_head_layer']:.2f} | {case['megabytes_above_import']:.0f} |"
        for case in part["linear"]
    ]
    process = part["process"]
    return "\n".join(
        [
            "## Prediction\n",
            f"Influence profile of `{part['spec']}`: {part['layers']} layers, {part['heads']} "
            "heads, ALiBi and content. Dense is the textbook algorithm in NumPy "
            "(`benchmarks/dense_reference.py`): every head's softmax matrix, full products of the "
            "transitions. Dense rows forms the same softmax matrices but multiplies one row.\n",
            "| n | profile | kernels and profile | dense | dense / profile | dense / kernels and "
            "profile | dense rows / profile | largest difference |",
            "|---|---|---|---|---|---|---|---|",
            *rows,
            "",
            "Over the context length, each in a fresh process (first call: kernels and profile, "
            "compiled code from the cache; memory: peak above the imports, spec included):\n",
            "| n | profile | kernels | first call | ns per position, head and layer | MB above "
            "import |",
            "|---|---|---|---|---|---|",
            *linear,
            "",
            f"`posbias predict` on that file at its n = 256, all variants, the whole process: "
            f"{_time(process['seconds'])} (of which starting Python and importing NumPy: "
            f"{_time(process['seconds_import_numpy'])}).\n",
        ]
    )


def _measured(part: dict[str, Any]) -> str:
    seconds = part["seconds"]
    return (
        "## Prediction from measured kernels\n\n"
        f"{part['layers']} dense kernels of n = {part['n']}: the profile takes "
        f"{_time(seconds['profile'])}, {part['ratio']:.2f} times one pass over the arrays in "
        f"memory ({_time(seconds['read_memory'])}) and {part['ratio_to_file']:.2f} times reading "
        f"them from a cached file ({_time(seconds['read_file'])}).\n"
    )


def _measuring(cases: list[dict[str, Any]]) -> str:
    timed = [case for case in cases if "seconds" in case]
    times, memory = [], []
    for case in timed:
        s = case["seconds"]
        times.append(
            f"| {case['model']} | {case['n']} | {_time(s['forward'])} | "
            f"{case['ratio_capture']:.2f} | {case['ratio_output_attentions']:.2f} | "
            f"{_time(s['forward_backward'])} | {case['ratio_gradient']:.2f} |"
        )
        m, beyond = case["megabytes"], case["megabytes_beyond_plain_and_accumulators"]
        memory.append(
            f"| {case['model']} | {case['n']} | {m['forward']:.0f} | {m['measure']:.0f} | "
            f"{m['output_attentions']:.0f} | {m['forward_backward']:.0f} | "
            f"{m['measure_gradient']:.0f} | {case['megabytes_accumulators']:.0f} | "
            f"{beyond['capture']:.0f} | {beyond['gradient']:.0f} |"
        )
    whole = [
        f"{case['model']} at n = {case['n']}, one window with checks and gradient, kernels "
        f"{'in full' if case['kernels'] == 'full' else 'summarised'}: "
        f"{_time(case['whole']['seconds'])}, peak of the process "
        f"{case['whole']['megabytes_process'] / 1e3:.1f} GB "
        f"({case['whole']['megabytes']:.0f} MB above the loaded model; full kernels take "
        f"{case['whole']['megabytes_accumulators']:.0f} MB).\n"
        for case in cases
        if "whole" in case
    ]
    return "\n".join(
        [
            "## Measurement\n",
            "One window per batch, float32, sdpa, only the last position's logits. Capture is "
            "everything but the influence; output_attentions is the plain eager model that returns "
            "its attention matrices and does nothing with them.\n",
            "| model | n | forward | with capture | output_attentions | forward + backward | "
            "with capture and influence |",
            "|---|---|---|---|---|---|---|",
            *times,
            "",
            "Columns three and six are times, the others ratios to them. Peak memory in MB above "
            "the loaded model:\n",
            "| model | n | forward | capture | output_attentions | forward + backward | capture "
            "and influence | accumulators | capture beyond forward and accumulators | influence "
            "beyond forward + backward and accumulators |",
            "|---|---|---|---|---|---|---|---|---|---|",
            *memory,
            "",
            *whole,
        ]
    )


def _time(seconds: float) -> str:
    if seconds < 1e-3:
        return f"{1e6 * seconds:.0f} µs"
    if seconds < 1.0:
        return f"{1e3 * seconds:.1f} ms"
    return f"{seconds:.2f} s" if seconds < 100 else f"{seconds:,.0f} s"
