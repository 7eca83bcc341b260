"""``posbias measure``: what a model does with a text, as a measurement directory."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from posbias.cli._measuring import (
    Attention,
    BatchSize,
    Device,
    Dtype,
    DtypeName,
    Field,
    Influence,
    Jacobian,
    KernelDetail,
    Kernels,
    Length,
    MaxDocuments,
    ModelRequest,
    Pack,
    Part,
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
    part_of_windows,
    progress_on_stderr,
)
from posbias.cli._options import Debug, Overwrite, Quiet
from posbias.cli._outputs import check_measurement_directory

__all__ = ["measure"]

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
    str,
    typer.Argument(
        metavar="TEXT",
        help="embedded, a .txt or .jsonl file, a folder of them, or datasets:NAME[:CONFIG].",
        show_default=False,
    ),
]
Out = Annotated[
    Path,
    typer.Option("--out", "-o", metavar="DIR", help="Directory to write.", show_default=False),
]


def measure(  # noqa: PLR0913  one parameter per option
    model: Model,
    text: Text,
    *,
    out: Out,
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
    kernels: Kernels = KernelDetail.full,
    record: Record = RecordName.default,
    jacobian: Jacobian = 0,
    attention: Attention = None,
    revision: Revision = None,
    trust_remote_code: TrustRemoteCode = False,
    part: Part = None,
    resume: Resume = False,
    save_every: SaveEvery = 32,
    quiet: Quiet = False,
    overwrite: Overwrite = False,
    debug: Debug = False,
) -> None:
    """Measure mixing, attention, content and influence of a model on a text.

    Writes a directory with manifest.json and arrays.safetensors, from which predict and compare
    start.

    While it runs, DIR.partial holds a checkpoint; when the run is interrupted (Ctrl-C, SIGTERM, a
    crash), the same command with --resume continues there and gives the same numbers.

    Started as accelerate launch -m posbias measure ..., the windows are shared among processes.
    """
    del debug
    check_measurement_directory(out, overwrite=overwrite)
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
        kernels=kernels.value,
        record=record.value,
        jacobian=jacobian,
        attn_implementation=attention_name(attention),
        part=part_of_windows(part),
        revision=revision,
        trust_remote_code=trust_remote_code,
    )
    from posbias.measure.checkpoint import PartialRun
    from posbias.measure.sharding import is_main_process, wait_for_all

    partial = PartialRun(out, resume=resume, every=save_every)
    with progress_on_stderr(quiet or not is_main_process()) as progress, partial:
        from posbias.measure import measure as measure_model

        measurement = measure_model(
            model,
            request.read(),
            options=options,
            progress=progress,
            partial=partial,
            command=sys.argv,
        )
        if is_main_process():
            measurement.save(out, overwrite=overwrite)
        # The checkpoints go when the output is there.
        wait_for_all()
    if is_main_process():
        print(measurement.summary())
