"""Measure one model on one text: the one forward and backward pass per batch of windows."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from posbias.errors import InputError, ModelError
from posbias.measure import Progress, Text
from posbias.measure.accumulators import Accumulator
from posbias.measure.influence import (
    GRADIENT_METHODS,
    EmbeddingLeaf,
    checkpointed,
    gradient_rows,
    next_distribution,
)
from posbias.measure.influence_passes import integrated_gradients, occlusion, replacements
from posbias.measure.manifest import Origin, build_manifest
from posbias.measure.options import MeasureOptions
from posbias.measure.text import TextCollection, read_text
from posbias.measure.windows import (
    TokenWindows,
    automatic_prefix,
    check_vocabulary,
    make_windows,
    prepared_windows,
)
from posbias.measurement import Measurement
from posbias.measurement.schema import influence_array
from posbias.models._config_checks import check_causal
from posbias.models.instrument import instrumented
from posbias.models.loading import LoadedModel, load_model
from posbias.models.preflight import CheckedModel, check_model
from posbias.models.sites import input_embedding
from posbias.models.state import forward_logits, measuring

__all__ = ["measure"]

_SMALL_MODEL = 20_000_000


def measure(
    model: Any,
    text: Text,
    *,
    tokenizer: Any = None,
    options: MeasureOptions | None = None,
    progress: Progress | None = None,
    command: list[str] | None = None,
    **settings: Any,
) -> Measurement:
    """Measure a model on a text; see `posbias.measure.measure`, which calls this."""
    chosen = _options(options, settings)
    loaded = _load(model, tokenizer, chosen)
    windows, origin = _windows(loaded, text, chosen)
    chosen = replace(chosen, length=windows.length, windows=windows.count)
    started = time.perf_counter()
    network = loaded.model
    device = next(network.parameters()).device
    ids = torch.from_numpy(windows.ids.copy()).to(device)
    with _threads(network, chosen.threads), measuring(network):
        checked = check_model(network, ids)
        arrays = _run(checked, ids, chosen, prefix=windows.prefix, progress=progress)
    run = {
        "seconds": round(time.perf_counter() - started, 3),
        "device": str(device),
        "batch_size": chosen.batch_size,
        "checkpoint": chosen.checkpoint,
        "residual": list(checked.residual),
        "update": checked.sites.update_path,
        "located_by": "table" if checked.sites.row is not None else "search",
    }
    manifest = build_manifest(
        checked, windows, origin=origin, options=chosen, run=run, command=command
    )
    return Measurement(manifest, arrays)


@dataclass(frozen=True)
class _Given:
    """A model, and a tokenizer unless the text comes as token ids."""

    model: nn.Module
    tokenizer: Any
    id: str
    revision: str | None


def _options(options: MeasureOptions | None, settings: dict[str, Any]) -> MeasureOptions:
    if options is not None and settings:
        raise InputError(
            f"options and {', '.join(settings)} were given; pass all options in one of both ways"
        )
    known = set(MeasureOptions.__dataclass_fields__)
    unknown = sorted(set(settings) - known)
    if unknown:
        raise InputError(f"unknown option {unknown[0]!r}; options are {', '.join(sorted(known))}")
    return options if options is not None else MeasureOptions(**settings)


def _load(model: Any, tokenizer: Any, options: MeasureOptions) -> _Given:
    if isinstance(model, str | os.PathLike):
        loaded = load_model(
            model,
            dtype=options.dtype or "float32",
            device=options.device,
            revision=options.revision,
            gguf_file=options.gguf_file,
            attn_implementation=options.attn_implementation,
            trust_remote_code=options.trust_remote_code,
        )
        return _Given(loaded.model, tokenizer or loaded.tokenizer, loaded.id, loaded.revision)
    if isinstance(model, LoadedModel):
        return _Given(model.model, tokenizer or model.tokenizer, model.id, model.revision)
    if isinstance(model, tuple) and len(model) == 2:
        model, tokenizer = model[0], tokenizer or model[1]
    if not isinstance(model, nn.Module) or not hasattr(model, "config"):
        raise ModelError(
            f"model is {type(model).__name__}; a name, a path, a transformers model or a pair "
            "(model, tokenizer) is required"
        )
    wanted, found = options.dtype, str(model.dtype).removeprefix("torch.")
    if wanted is not None and wanted.removeprefix("torch.") != found:
        raise ModelError(
            f"dtype {wanted} was asked for, the given model is {found}; convert it yourself "
            f"(model.to(torch.{wanted})) or leave dtype out"
        )
    name = str(getattr(model.config, "_name_or_path", "") or type(model).__name__)
    check_causal(model.config, name)
    return _Given(model, tokenizer, name, getattr(model.config, "_commit_hash", None))


def _windows(given: _Given, text: Text, options: MeasureOptions) -> tuple[TokenWindows, Origin]:
    vocabulary = int(getattr(input_embedding(given.model), "num_embeddings", 2**62))
    if isinstance(text, np.ndarray) or (isinstance(text, list) and not _is_documents(text)):
        windows = prepared_windows(
            text,
            vocabulary_size=vocabulary,
            bos_token_id=getattr(given.tokenizer, "bos_token_id", None),
        )
        origin = Origin(given.id, given.revision, "none", False, "token ids", windows.sha256)
        return windows, origin
    if given.tokenizer is None:
        raise InputError(
            "a text needs a tokenizer; pass tokenizer=..., a pair (model, tokenizer), or windows "
            "of token ids"
        )
    if isinstance(text, str | os.PathLike):
        texts = read_text(text)
    else:
        texts = text if isinstance(text, TextCollection) else TextCollection(text)
    drawn = make_windows(
        given.tokenizer,
        texts,
        length=options.length,
        count=options.windows,
        seed=options.seed,
        pack=options.pack,
    )
    check_vocabulary(drawn, vocabulary)
    tokenizer_id = str(getattr(given.tokenizer, "name_or_path", "") or given.id)
    adds_bos = bool(automatic_prefix(given.tokenizer))
    origin = Origin(given.id, given.revision, tokenizer_id, adds_bos, texts.source, texts.sha256)
    return _ascending(drawn), origin


@contextmanager
def _threads(network: nn.Module, threads: int | None) -> Iterator[None]:
    """Set the threads of torch for the duration of the context."""
    before = torch.get_num_threads()
    if threads is None:
        size = sum(parameter.numel() for parameter in network.parameters())
        threads = 1 if size < _SMALL_MODEL else before
    torch.set_num_threads(threads)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _is_documents(text: Sequence[Any]) -> bool:
    return all(isinstance(document, str) for document in text)


def _ascending(windows: TokenWindows) -> TokenWindows:
    """Return the windows in the order of the text."""
    order = np.lexsort((windows.starts[:, 1], windows.starts[:, 0]))
    return replace(windows, ids=windows.ids[order], starts=windows.starts[order])


def _run(
    checked: CheckedModel,
    ids: Tensor,
    options: MeasureOptions,
    *,
    prefix: int,
    progress: Progress | None,
) -> dict[str, NDArray[Any]]:
    """Measure all windows, one batch after another."""
    count, length = ids.shape
    accumulator = Accumulator(checked, windows=count, length=length, device=ids.device)
    per_window: dict[str, list[NDArray[np.float64]]] = {}
    with ExitStack() as stack:
        if options.checkpoint and options.influence:
            stack.enter_context(checkpointed(checked.sites))
        for start in range(0, count, options.batch_size):
            span = slice(start, min(start + options.batch_size, count))
            accumulator.begin(span)
            rows = _measure_batch(checked, ids[span], accumulator, options=options, prefix=prefix)
            accumulator.check_finite()
            for name, values in rows.items():
                per_window.setdefault(name, []).append(values.cpu().numpy())
            if progress is not None:
                progress(span.stop, count)
    return {
        **accumulator.finish(),
        **{name: np.concatenate(parts) for name, parts in per_window.items()},
    }


def _measure_batch(
    checked: CheckedModel,
    ids: Tensor,
    accumulator: Accumulator,
    *,
    options: MeasureOptions,
    prefix: int,
) -> dict[str, Tensor]:
    """Run one batch and return its rows of the arrays that hold one row per window.

    Statistics and the methods of one gradient share the forward pass.
    """
    leaf = EmbeddingLeaf()
    with_gradient = any(name in GRADIENT_METHODS for name in options.influence)
    with torch.set_grad_enabled(with_gradient), ExitStack() as stack:
        if with_gradient:
            stack.enter_context(leaf.attached(checked.sites.embedding))
        with instrumented(checked.sites, accumulator):
            logits = forward_logits(checked.model, ids)
        distribution = next_distribution(logits)
        chance = distribution.amax(-1)
        rows = gradient_rows(chance, leaf, options.influence)
    distribution, gap = distribution.detach(), {}
    other = replacements(ids, prefix=prefix)
    if "integrated-gradients" in options.influence:
        integral = integrated_gradients(
            checked,
            ids,
            target=distribution.argmax(-1),
            baseline=other,
            steps=options.integration_steps,
        )
        rows["integrated-gradients"] = integral.attribution.abs()
        gap["integration.gap.windows"] = integral.gap
    if "occlusion" in options.influence:
        rows["occlusion"] = occlusion(
            checked, ids, distribution=distribution, other=other, batch_size=options.batch_size
        )
    named = {influence_array(name): values for name, values in rows.items()}
    return {"next.probability.windows": chance.detach(), **gap, **named}
