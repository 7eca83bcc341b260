"""``posbias inspect``: what was found in a model, layer by layer, and every check."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from posbias.cli._measuring import (
    Attention,
    Device,
    Dtype,
    DtypeName,
    Field,
    Length,
    MaxDocuments,
    ModelRequest,
    Pack,
    Revision,
    Seed,
    Split,
    TrustRemoteCode,
    attention_name,
)
from posbias.cli._options import Debug, Figure, Json, Overwrite
from posbias.cli._outputs import check_outputs, show_table, write_figure, write_json
from posbias.errors import InputError

if TYPE_CHECKING:
    from posbias.measure.inspection import ContentReport, Inspection
    from posbias.models.inspection import LayerFacts

__all__ = ["inspect"]

Model = Annotated[
    str,
    typer.Argument(
        metavar="MODEL",
        help="embedded:bloom, embedded:llama, a hub id, a model folder, a .gguf file, or "
        "package:NAME for a GGUF file in an installed package.",
        show_default=False,
    ),
]
Text = Annotated[
    str | None,
    typer.Argument(
        metavar="TEXT",
        help="Also look on this text for attention sinks, and test how well a constant plus a "
        "diagonal term describes content: embedded, a .txt or .jsonl file, a folder of them, or "
        "datasets:NAME[:CONFIG].",
        show_default=False,
    ),
]
Windows = Annotated[
    int, typer.Option("--windows", "-w", metavar="D", help="Number of windows of TEXT.")
]


def inspect(  # noqa: PLR0913  one parameter per option
    model: Model,
    text: Text = None,
    *,
    length: Length = 256,
    windows: Windows = 8,
    seed: Seed = 0,
    dtype: Dtype = DtypeName.float32,
    device: Device = None,
    field: Field = None,
    split: Split = None,
    max_documents: MaxDocuments = None,
    pack: Pack = False,
    attention: Attention = None,
    revision: Revision = None,
    trust_remote_code: TrustRemoteCode = False,
    json: Json = None,
    figure: Figure = None,
    overwrite: Overwrite = False,
    debug: Debug = False,
) -> None:
    """Show what posbias found in a model, layer by layer, and whether it passes every check.

    Prints for each layer where the attention update is taken, where norms stand, heads, position
    scheme, window, learned sinks and multipliers; with a TEXT also which keys act as attention
    sinks. Exits with 3 if the model cannot be measured.
    """
    del debug
    if figure is not None and text is None:
        raise InputError("--figure draws how well content is described, which needs a TEXT")
    check_outputs(json, overwrite=overwrite, figure=figure)
    request = ModelRequest(model, text or "embedded", field, split, max_documents)
    options = request.options(
        length=length,
        windows=windows,
        seed=seed,
        dtype=dtype.value,
        device=device,
        pack=pack,
        attn_implementation=attention_name(attention),
        revision=revision,
        trust_remote_code=trust_remote_code,
    )
    from posbias.measure.inspection import inspect_model

    inspection = inspect_model(model, None if text is None else request.read(), options=options)
    if json is not None:
        write_json(inspection.as_dict(), json, overwrite=overwrite)
    else:
        _show(inspection)
    if figure is not None and inspection.content is not None:
        from posbias.plot import content_figure

        report = inspection.content
        title = f"{inspection.model['id']} on {report.source}, {report.windows} windows"
        drawn = content_figure(report.d, report.fit, title=title)
        write_figure(drawn, figure, overwrite=overwrite)
    if inspection.error is not None:
        raise inspection.error


def _show(inspection: Inspection) -> None:
    from posbias.cli._tables import plain_table

    facts = inspection.model
    limit = facts["maximum_length"]
    print(
        f"{facts['id']}: {facts['class']}, {facts['parameters']:,} parameters, {facts['dtype']}, "
        f"attention {facts['attention_implementation']}, "
        f"{'any length' if limit is None else f'up to {limit} positions'}"
    )
    print(_tokenizer_line(inspection))
    if facts["constants"]:
        print(_constants_line(facts["constants"]))
    if inspection.layers:
        headers = ["layer", "update", "norms", "residual", "heads", "kv", "position", "slopes"]
        headers += ["window", "sink", "factor"]
        rows = [_layer_cells(layer) for layer in inspection.layers]
        found = "known architecture" if facts["located_by"] == "table" else "found by search"
        show_table(plain_table(headers, rows, title=f"Layers ({found})"))
    rows = []
    for name, check in inspection.checks.items():
        rows.append([name.replace("_", " "), *_check_cells(check)])
    if rows:
        show_table(plain_table(["check", "value", "at most", "result"], rows, title="Checks"))
    if inspection.unreached_windows:
        edges = ", ".join(map(str, inspection.unreached_windows))
        print(
            f"Sliding windows of {edges} keys do not end within the {inspection.length} positions "
            f"looked at; use --length {inspection.unreached_windows[-1] + 1} to check their edge."
        )
    if inspection.sinks is not None:
        start = bool(inspection.tokenizer["adds_bos"])
        print("\n".join(f"Attention {line}." for line in inspection.sinks.lines(start_token=start)))
    elif inspection.error is None:
        print("Attention sinks are looked for on a TEXT; none was given.")
    if inspection.content is not None:
        show_table(
            plain_table(*_content_table(inspection.content), title=_content_title(inspection))
        )


def _check_cells(check: Mapping[str, Any]) -> list[str]:
    if check["tolerance"] is None:
        return ["-", "-", "not applicable"]
    value = "not finite" if check["value"] is None else f"{check['value']:.2e}"
    return [value, f"{check['tolerance']:.0e}", "passed" if check["passed"] else "FAILED"]


def _constants_line(constants: Mapping[str, Any]) -> str:
    named = ", ".join(f"{name} {value}" for name, value in constants.items())
    return f"Constants of the config that the numbers include: {named}."


def _tokenizer_line(inspection: Inspection) -> str:
    facts = inspection.tokenizer
    chat = "; it has a chat template, which is not applied" if facts["has_chat_template"] else ""
    if not facts["prefix"]:
        return f"The tokenizer puts no special token first: position 0 holds text{chat}."
    names = " ".join(facts["prefix"])
    return f"The tokenizer begins every sequence with {names}, and so does every window{chat}."


def _layer_cells(layer: LayerFacts) -> list[str]:
    cells = [str(layer.layer), layer.update, "+".join(layer.norms) or "none", layer.residual]
    if layer.stream != "block input":
        cells[1] += f" onto {layer.stream}"
    cells += [str(layer.heads), str(layer.kv_heads), layer.position, _range(layer.slopes)]
    cells += ["-" if layer.window is None else str(layer.window), _range(layer.sinks)]
    return [*cells, f"{layer.multiplier:g}"]


def _range(values: tuple[float, float] | None) -> str:
    return "-" if values is None else f"{values[0]:.4g} to {values[1]:.4g}"


def _content_title(inspection: Inspection) -> str:
    report = inspection.content
    if report is None:
        return ""
    return (
        f"Content logits as a constant plus d on the diagonal: {report.source}, {report.windows} "
        f"windows of {report.length} tokens"
    )


def _content_table(report: ContentReport) -> tuple[list[str], list[list[str]]]:
    headers = ["layer", "head", "d", "spread on diagonal", "spread below", "separation"]
    headers.append("variance explained")
    layers, heads = report.d.shape
    fit = report.fit
    columns = (report.d, fit.diagonal_std, fit.lower_std, fit.separation, fit.explained)
    rows = [
        [str(t + 1), str(h + 1), *(f"{column[t, h]:.3f}" for column in columns)]
        for t in range(layers)
        for h in range(heads)
    ]
    return headers, rows
