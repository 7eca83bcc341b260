"""``posbias run``: measure, predict, compare and draw in one call."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Annotated

import typer

from posbias.atomic import check_parent
from posbias.cli._measuring import (
    Attention,
    BatchSize,
    Device,
    Dtype,
    DtypeName,
    Field,
    Influence,
    Jacobian,
    Length,
    MaxDocuments,
    ModelRequest,
    Pack,
    Record,
    RecordName,
    Resume,
    Revision,
    SaveEvery,
    Seed,
    Split,
    TrustRemoteCode,
    Windows,
    attention_name,
    influence_methods,
    progress_on_stderr,
)
from posbias.cli._options import Debug, Estimator, Overwrite, Quiet
from posbias.cli._outputs import check_outputs, print_json, show_table
from posbias.errors import InputError

__all__ = ["run"]

Model = Annotated[
    str,
    typer.Argument(
        metavar="MODEL",
        help="embedded:bloom, embedded:llama, a hub id, a model folder, a .gguf file, or "
        "package:NAME for a GGUF file in an installed package.",
    ),
]
Text = Annotated[
    str,
    typer.Argument(
        metavar="TEXT",
        help="embedded, a .txt or .jsonl file, a folder of them, or datasets:NAME[:CONFIG].",
    ),
]
Out = Annotated[Path, typer.Option("--out", "-o", metavar="DIR", help="Directory to write.")]
AsJson = Annotated[
    bool, typer.Option("--json", help="Print the comparison as JSON in place of the table.")
]


def run(  # noqa: PLR0913  one parameter per option
    model: Model = "embedded:bloom",
    text: Text = "embedded",
    *,
    out: Out = Path("posbias-run"),
    length: Length = 256,
    windows: Windows = 64,
    batch_size: BatchSize = 4,
    seed: Seed = 0,
    dtype: Dtype = DtypeName.float32,
    device: Device = None,
    influence: Influence = None,
    field: Field = None,
    split: Split = None,
    max_documents: MaxDocuments = None,
    pack: Pack = False,
    record: Record = RecordName.default,
    jacobian: Jacobian = 0,
    attention: Attention = None,
    revision: Revision = None,
    trust_remote_code: TrustRemoteCode = False,
    estimator: Estimator = "auto",
    json: AsJson = False,
    resume: Resume = False,
    save_every: SaveEvery = 32,
    quiet: Quiet = False,
    overwrite: Overwrite = False,
    debug: Debug = False,
) -> None:
    """Measure a model on a text, predict its influence profile, compare the two, and draw.

    Writes a directory with the measurement, the profiles and the comparison (CSV and JSON) and a
    figure (PNG and SVG); prints the comparison, the attention sinks found, and why one prediction
    is recommended.
    """
    del debug
    check_outputs(out, overwrite=overwrite)
    check_parent(out)
    request = ModelRequest(model, text, field, split, max_documents)
    options = request.options(
        length=length,
        windows=windows,
        batch_size=batch_size,
        seed=seed,
        dtype=dtype.value,
        device=device,
        influence=influence_methods(influence),
        pack=pack,
        record=record.value,
        jacobian=jacobian,
        attn_implementation=attention_name(attention),
        revision=revision,
        trust_remote_code=trust_remote_code,
    )
    from posbias.measure.checkpoint import PartialRun
    from posbias.measure.sharding import current_shard

    if current_shard().count > 1:
        raise InputError(
            "run works in one process; several share the work of measure, whose output report and "
            "compare take"
        )
    partial = PartialRun(out, resume=resume, every=save_every)
    with progress_on_stderr(quiet) as progress, partial:
        from posbias.run import run as run_all

        result = run_all(
            model,
            request.read(),
            out=out,
            options=options,
            estimator=estimator,
            overwrite=overwrite,
            progress=progress,
            partial=partial,
            command=sys.argv,
        )
    if json:
        print_json(result.as_dict())
        return
    from posbias.cli._plot import show_profiles
    from posbias.cli._tables import comparison_table, shown_name

    summary = result.as_dict()
    title = "{model} on {text}, {windows} windows of {length} tokens".format(**summary)
    show_table(comparison_table(result.comparison, title=title))
    for line in result.advice():
        print(line)
    shown = result.comparison.recommended or result.comparison.best.variant
    show_profiles(
        {"measured": result.profiles["measured"], shown_name(shown): result.profiles[shown]}
    )
    print(f"Written to {out}: {', '.join(summary['files'])}")
    print(f"Next: {shlex.join(['posbias', 'report', str(out)])}")
