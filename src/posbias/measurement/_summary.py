"""A measurement in a few lines of text, and as a block of HTML for notebooks."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from posbias.notebook import card, curves, table

if TYPE_CHECKING:
    from posbias.measurement.artifact import Measurement

__all__ = ["summarise", "summarise_html"]


def summarise(measurement: Measurement) -> str:
    """Return model, text, windows, mixing, content and influence, one line each."""
    manifest = measurement.manifest
    model, text, windows = manifest["model"], manifest["text"], manifest["windows"]
    start = "start token + text" if windows["first_token_is_bos"] else "text only"
    widths = sorted({w for w in model["layer_windows"] if w is not None})
    mask = f"sliding windows of {', '.join(map(str, widths))}" if widths else "full causal mask"
    kernels = "summarised by block and lag" if measurement.has_summarised_kernels else "in full"
    lines = [
        f"model      {model['id']} ({model['architecture']}, {model['parameters']:,} parameters, "
        f"{model['dtype']})",
        f"layers     {measurement.layers} with {measurement.heads} heads, "
        f"{model['position_scheme']['type']} positions, {mask}",
        f"text       {text['source']} ({text['tokens']:,} tokens in {text['documents']:,} "
        "documents)",
        f"windows    {measurement.windows} of {measurement.n} tokens ({start})",
        f"mixing     {_range(measurement.mixing())} per layer",
        f"content    {_range(measurement.content())} logits per layer and head",
        f"kernels    {kernels}",
        f"influence  {', '.join(measurement.influence_methods) or 'not measured'}",
        f"preflight  {_checks(manifest['preflight'])}",
        f"written    {manifest['created']} by posbias {manifest['posbias_version']}",
    ]
    return "\n".join(lines)


def summarise_html(measurement: Measurement) -> str:
    """Return model, text, measured influence and a row per layer as HTML."""
    manifest = measurement.manifest
    facts = [
        ("windows:", f"{measurement.windows} of {measurement.n} tokens"),
        ("layers:", f"{measurement.layers} with {measurement.heads} heads"),
        ("text:", manifest["text"]["source"]),
    ]
    mixing, spread, content = measurement.mixing(), measurement.mixing_std(), measurement.content()
    rows = [
        (t + 1, f"{mixing[t]:.4f}", f"{spread[t]:.4f}", f"{content[t].mean():.3f}")
        for t in range(measurement.layers)
    ]
    parts = [table(("layer", "mixing lambda", "its std", "content d, mean of heads"), rows)]
    methods = {name: measurement.influence(name).mass for name in measurement.influence_methods}
    if methods:
        parts.insert(0, curves(methods))
    return card(f"Measurement of {manifest['model']['id']}", facts, *parts)


def _range(values: NDArray[np.float64]) -> str:
    return f"{values.min():.3g} to {values.max():.3g}, median {np.median(values):.3g}"


def _checks(preflight: dict[str, dict[str, object]]) -> str:
    failed = [name for name, check in preflight.items() if not check["passed"]]
    verdict = f"failed: {', '.join(failed)}" if failed else "all passed"
    return f"{len(preflight)} checks, {verdict}"
