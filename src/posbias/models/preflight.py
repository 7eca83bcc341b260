"""Checks of one loaded model before anything is measured: cheap, recorded, fatal when they fail."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from posbias.errors import InputError, InstrumentationError, UnsupportedModelError
from posbias.models.architectures import text_config
from posbias.models.checks import Preflight, agreement, overflow_advice
from posbias.models.gradients import check_gradient
from posbias.models.instrument import instrumented
from posbias.models.locality import check_attention_counts, check_tokens_apart
from posbias.models.observers import BiasObserver, CaptureObserver, PositionObserver
from posbias.models.positions import (
    PositionScheme,
    Sizes,
    infer_scheme,
    read_scheme,
    read_sizes,
)
from posbias.models.sites import ModelSites, dtype_of, known_row, sites_from_row
from posbias.models.state import (
    attention_implementation,
    forward_logits,
    model_errors,
    with_implementation,
)
from posbias.models.stream import Certificate, certify, identity_tolerance, search_sites

__all__ = ["SHORT", "CheckedModel", "check_model", "locate"]

SHORT = 24
"""Positions of the short window on which most checks run."""


@dataclass(frozen=True, eq=False)
class CheckedModel:
    """A model whose instrumentation has been proved on a window of the text.

    Attributes
    ----------
    model : Module
        The causal language model.
    sites : ModelSites
        Where x, a and the attention are.
    sizes : Sizes
        Layers, heads, key-value heads.
    scheme : PositionScheme
        Position bias and visibility, confirmed with zeroed queries.
    residual : tuple of str
        ``"sequential"`` or ``"parallel"`` per layer.
    checks : mapping
        Results for the manifest.
    """

    model: nn.Module
    sites: ModelSites
    sizes: Sizes
    scheme: PositionScheme
    residual: tuple[str, ...]
    checks: Mapping[str, Mapping[str, Any]]


def check_model(
    model: nn.Module,
    ids: Tensor,
    *,
    sites: ModelSites | None = None,
    checks: Preflight | None = None,
    gradients: bool = False,
) -> CheckedModel:
    """Locate, instrument and check a model that is in measuring state.

    Parameters
    ----------
    model : Module
        Within `posbias.models.state.measuring`.
    ids : Tensor of int64, shape (D, n)
        Windows that will be measured; the first two are used.
    sites : ModelSites, optional
        Where x, a and the attention are; by default the table, else a search.
    checks : Preflight, optional
        Receives the result of every check, also when one fails.
    gradients : bool
        Check the gradient in the input embeddings too.

    Raises
    ------
    InputError
        If n exceeds the positions that the model has.
    UnsupportedModelError, InstrumentationError
        If the model cannot be measured faithfully.

    Notes
    -----
    About six passes over 24 positions, one over n, two over seven times 24 positions and two over
    T times 6 positions, none of more tokens than two windows, without gradients. The gradient takes
    44 times 24 positions more.
    """
    config = text_config(model.config)
    _check_length(config, ids.shape[1])
    _check_implementation(model)
    pair = torch.cat([ids[:1], ids[1:2] if ids.shape[0] > 1 else ids[:1].flip(-1)])
    short = pair[:, :SHORT].contiguous()
    checks = Preflight() if checks is None else checks
    checks.dtype = dtype_of(model)
    with torch.no_grad(), model_errors(model):
        _check_causality(model, short, checks)
        found = locate(model, short) if sites is None else sites
        proofs = certify(found, lambda: forward_logits(model, short))
        _check_stream(proofs, found, checks)
        sizes = _check_heads(found, read_sizes(config))
        _check_capture(model, found, short, checks, heads=sizes.heads)
        _check_other_implementation(model, found, short, checks)
        scheme = read_scheme(found, config, sizes)
        if scheme is None:
            scheme = infer_scheme(
                _bias_logits(model, found, short),
                found,
                config=config,
                sizes=sizes,
                has_position_table=_has_position_table(model, found),
            )
        _check_positions(model, found, scheme, pair, checks)
        tokens = 2 * ids.shape[1]
        check_tokens_apart(model, found, short, tokens=tokens, checks=checks)
        check_attention_counts(
            model, found, short, windows=scheme.windows, tokens=tokens, checks=checks
        )
        if gradients:
            check_gradient(model, found, short, tokens=tokens, checks=checks)
    return CheckedModel(model, found, sizes, scheme, _kinds(proofs), checks.results)


def locate(model: nn.Module, ids: Tensor) -> ModelSites:
    """Return the sites from the table, or from the numeric search for unknown architectures."""
    row = known_row(model)
    if row is not None:
        return sites_from_row(model, row)
    return search_sites(model, lambda: forward_logits(model, ids))


def _kinds(proofs: list[Certificate]) -> tuple[str, ...]:
    return tuple(proof.residual for proof in proofs)


def _check_length(config: Any, length: int) -> None:
    if getattr(config, "is_encoder_decoder", False):
        raise UnsupportedModelError(
            f"{config.model_type} is an encoder-decoder model; a decoder-only causal language "
            "model is required"
        )
    if getattr(config, "alibi", False):
        return
    for name in ("max_position_embeddings", "n_positions", "max_seq_len"):
        limit = getattr(config, name, None)
        if isinstance(limit, int) and length > limit:
            raise InputError(
                f"windows have {length} positions, the model has {limit} ({name}); ask for a "
                "length of at most that"
            )


def _check_implementation(model: nn.Module) -> None:
    row, name = known_row(model), attention_implementation(model)
    if row is None or name in row.implementations:
        return
    reason = (
        "its eager code in transformers adds the position bias twice"
        if row.name == "Falcon with ALiBi"
        else "with another one the logits are not those of the model or cannot be seen"
    )
    raise UnsupportedModelError(
        f"this {row.name} model runs with attention implementation {name!r}, but "
        f"{' or '.join(row.implementations)} is required: {reason}. Load it with "
        f"attn_implementation={row.implementations[0]!r} (--attention {row.implementations[0]})"
    )


def _check_causality(model: nn.Module, ids: Tensor, checks: Preflight) -> None:
    """Change the last token: no earlier logits may move."""
    before = forward_logits(model, ids, last_only=False)
    changed = ids.clone()
    changed[:, -1] = ids[:, 0] if bool((ids[:, 0] != ids[:, -1]).all()) else (ids[:, -1] + 1) % 2
    after = forward_logits(model, changed, last_only=False)
    _check_finite(before, checks)
    if ids.shape[1] < 2 or before.shape[1] != ids.shape[1]:
        raise UnsupportedModelError("the model does not return logits for every position")
    moved = float((after - before)[:, :-1].double().abs().max())
    moved /= max(float(before.double().abs().max()), 1e-30)
    checks.require(
        "causality",
        moved,
        agreement(before.dtype),
        "Changing the last token changes the logits of earlier positions: an encoder, or a mask "
        "that lets the future through. A causal language model is required",
    )


def _check_finite(logits: Tensor, checks: Preflight) -> None:
    bad = float((~torch.isfinite(logits)).sum())
    checks.require(
        "finite",
        bad,
        0.0,
        "Logits are not finite; the activations overflow or the weights are damaged. "
        + overflow_advice(logits.dtype),
    )


def _has_position_table(model: nn.Module, sites: ModelSites) -> bool:
    """Whether the model adds positions to its embeddings: a second table, learned or fixed."""
    return any(
        module is not sites.embedding
        and (isinstance(module, nn.Embedding) or "Positional" in type(module).__name__)
        for module in model.modules()
    )


def _check_stream(proofs: list[Certificate], sites: ModelSites, checks: Preflight) -> None:
    """Check the sums that make up the stream: attention, block output, and block to block."""
    tolerance = identity_tolerance(sites.dtype)
    worst = max(proof.error for proof in proofs)
    checks.require("stream_identity", worst, tolerance, "")
    outputs = [float("inf") if proof.output is None else proof.output for proof in proofs]
    if sites.row is None and not max(outputs) <= tolerance:
        # A branch that is built in another way is no fault where the architecture is not known.
        checks.not_applicable("block_output")
    else:
        checks.require(
            "block_output",
            max(outputs),
            tolerance,
            f"Layer {_worst(outputs)} does not return x + a plus the output of its MLP. Usual "
            "causes: a hook on the layer, or changed model code",
        )
    handovers = [proof.handover for proof in proofs if proof.handover is not None]
    if handovers:
        checks.require(
            "stream_unbroken",
            max(handovers),
            tolerance,
            f"Layer {_worst(handovers) + 1} does not read what layer {_worst(handovers)} returns. "
            "Usual causes: a hook on the input of a layer, or changed model code",
        )
    else:
        checks.not_applicable("stream_unbroken")


def _worst(errors: list[float]) -> int:
    """Return the layer with the largest error, counted from 1."""
    return errors.index(max(errors)) + 1


def _check_heads(sites: ModelSites, sizes: Sizes) -> Sizes:
    if sizes.layers != len(sites.layers):
        raise UnsupportedModelError(
            f"the config names {sizes.layers} layers, the model has {len(sites.layers)}"
        )
    return sizes


def _check_head_counts(seen: dict[int, int], heads: int) -> None:
    """Compare the heads of the attention that runs with those of the config."""
    for layer, count in seen.items():
        if count != heads:
            raise UnsupportedModelError(
                f"the attention of layer {layer + 1} has {count} heads, the config names {heads}; "
                "the same number in every layer is required. Pruned heads or a changed config are "
                "the usual causes"
            )


def _check_capture(
    model: nn.Module, sites: ModelSites, ids: Tensor, checks: Preflight, *, heads: int
) -> None:
    plain = forward_logits(model, ids)
    seen = CaptureObserver(sites.row is not None and bool(sites.row.sinks))
    with instrumented(sites, seen, check_values=True) as tap:
        watched = forward_logits(model, ids)
    _check_head_counts(seen.heads, heads)
    checks.require("one_capture_per_layer", float(max(tap.captures) - 1), 0.0, "")
    checks.require(
        "outputs_unchanged",
        float((watched - plain).double().abs().max()),
        0.0,
        "Watching the model changed its logits; report the architecture",
    )
    advice = f"Activations are not finite. {overflow_advice(sites.dtype)}"
    checks.require("finite_activations", 0.0 if seen.finite else 1.0, 0.0, advice)
    checks.require("rows_sum_to_one", seen.row_error, 1e-5, "The softmax is not a distribution")
    checks.require("nothing_above_diagonal", seen.future, 0.0, "The model attends to the future")
    missing = [layer for layer, error in enumerate(tap.value_errors) if error is None]
    if missing:
        raise InstrumentationError(
            f"layer {missing[0] + 1} does not apply the probabilities of its softmax to its "
            "values, so they are not its attention. Changed attention code is the usual cause"
        )
    worst = max(error for error in tap.value_errors if error is not None)
    checks.require(
        "attention_output",
        worst,
        1e3 * agreement(sites.dtype),
        "Probabilities times values do not give the output of the attention: changed attention "
        f"code, or activations near the limits of the format. {overflow_advice(sites.dtype)}",
    )


def _check_other_implementation(
    model: nn.Module, sites: ModelSites, ids: Tensor, checks: Preflight
) -> None:
    """Compare the logits of eager and sdpa where the model offers both."""
    current = attention_implementation(model)
    other = {"eager": "sdpa", "sdpa": "eager"}.get(current)
    if other is None or (sites.row is not None and other not in sites.row.implementations):
        checks.not_applicable("eager_equals_sdpa")
        return
    here = forward_logits(model, ids)
    with with_implementation(model, other) as switched:
        if not switched:
            checks.not_applicable("eager_equals_sdpa")
            return
        there = forward_logits(model, ids)
    difference = float((here - there).double().abs().max())
    difference /= max(float(here.double().abs().max()), 1e-30)
    checks.require(
        "eager_equals_sdpa",
        difference,
        max(1e-4, agreement(sites.dtype)),
        f"Attention implementation {other} gives other logits than {current}; one of them does "
        "not compute what the model was trained with",
    )


def _bias_logits(model: nn.Module, sites: ModelSites, ids: Tensor) -> list[Tensor]:
    observer = BiasObserver()
    with instrumented(sites, observer, zero_queries=True):
        forward_logits(model, ids)
    return observer.logits


def _check_positions(
    model: nn.Module, sites: ModelSites, scheme: PositionScheme, ids: Tensor, checks: Preflight
) -> None:
    observer = PositionObserver(scheme)
    with instrumented(sites, observer, zero_queries=True):
        forward_logits(model, ids)
    if observer.mask_differs is not None:
        raise InstrumentationError(
            f"{observer.mask_differs}. Usual causes: changed model code, a window that the config "
            "does not state, or masks made with a number such as -10000"
        )
    # Logits of size b carry an absolute rounding error of eps * b, which the softmax passes on.
    eps = torch.finfo(torch.promote_types(sites.dtype, torch.float32)).eps
    sink_eps = torch.finfo(sites.dtype).eps if scheme.sinks is not None else 0.0
    tolerance = 1e-6 + eps * observer.bias + sink_eps
    checks.require(
        "zeroed_queries_leave_no_content",
        observer.content,
        tolerance,
        "Logits depend on the text even without queries, through something that is no query-key "
        "product; this attention is not supported",
    )
    checks.require(
        "position_scheme",
        observer.error,
        tolerance,
        f"With zeroed queries the attention is not the content-free kernel of type {scheme.type}; "
        "the slopes or the bias of this model differ from its architecture",
    )
