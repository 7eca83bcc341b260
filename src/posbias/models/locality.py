"""Proofs that tokens meet in the attention that is seen, and nowhere else.

Both proofs replace attention matrices by the identity, so that every token attends to itself only.
With the identity in all layers nothing may pass between tokens any more: what one token holds must
not show at another one. With the identity in one layer the update of that layer must change, else
the attention that is seen is not what the layer adds to its stream.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, islice
from math import comb
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from posbias.errors import InstrumentationError
from posbias.models.architectures import text_config
from posbias.models.checks import Preflight, overflow_advice
from posbias.models.instrument import instrumented
from posbias.models.sites import LayerSites, ModelSites
from posbias.models.state import forward_logits
from posbias.models.tap import AttentionRows, AttentionTap, is_attention_call

__all__ = ["check_attention_counts", "check_tokens_apart"]

_WINDOWS = 4  # Windows per pass of the first proof,
_COPIES = 24  # and of the second one,
_PREFIX = 6  # whose windows have this many positions.
_STREAM = "residual stream"
_APART = "tokens_meet_in_attention_only"
_EXPERTS = ("num_experts_per_tok", "num_experts", "num_local_experts", "n_routed_experts")


def check_tokens_apart(
    model: nn.Module, sites: ModelSites, ids: Tensor, *, tokens: int, checks: Preflight
) -> None:
    """Check that what a token holds reaches no other token when each attends to itself only.

    Tokens are changed in sets such that for any two positions some set holds the one and not the
    other. With the identity for attention, streams, updates, the logit of each query with its own
    key and the logits of the model may then change at the positions of the set only.

    Parameters
    ----------
    ids : Tensor of int64, shape (2, m)
        Windows; the second holds the tokens that replace those of the first.
    tokens : int
        Largest number of tokens per pass.
    checks : Preflight
        Receives ``tokens_meet_in_attention_only``: the largest change at another position,
        relative to what is there.

    Raises
    ------
    InstrumentationError
        If something else than the attention carries information from token to token.

    Notes
    -----
    Two passes over each of about ``log2(m) + 2`` windows of m positions.
    """
    length = ids.shape[1]
    sets = _separating_sets(length).to(ids.device)
    other = torch.where(ids[1] == ids[0], torch.where(ids[0] > 0, ids[0] - 1, ids[0] + 1), ids[1])
    tolerance = _rounding(model, sites.dtype)
    worst = 0.0
    for group in torch.split(sets, max(1, min(_WINDOWS, tokens // length))):
        before = _values(model, sites, ids[0].expand(len(group), -1), group=group)
        changed = torch.where(group, other, ids[0])
        after = _values(model, sites, changed, before=before, group=group)
        for one, two in zip(before, after, strict=True):
            found = _change(one.values, two.values)[~group.to(one.values.device)]
            error = float(found.max()) if bool(torch.isfinite(found).all()) else float("inf")
            if not error <= tolerance:
                place = _first_place(one.values, two.values, group)
                checks.require(
                    "tokens_meet_in_attention_only", error, tolerance, _blame(one, place)
                )
            worst = max(worst, error)
    checks.require("tokens_meet_in_attention_only", worst, tolerance, "")


def check_attention_counts(
    model: nn.Module,
    sites: ModelSites,
    ids: Tensor,
    *,
    windows: Sequence[int | None],
    tokens: int,
    checks: Preflight,
) -> None:
    """Check that the update of each layer changes when only its attention is replaced.

    Parameters
    ----------
    ids : Tensor of int64, shape (2, m)
        Windows; the first few tokens that differ are used, since equal ones have equal values.
    windows : sequence of (int or None), length T
        Sliding windows; a window of one key leaves nothing to replace, and is left out, as is a
        layer with a weight matrix of zeros.
    tokens : int
        Largest number of tokens per pass.
    checks : Preflight
        Receives ``attention_reaches_the_stream``: the number of layers where it does not.

    Raises
    ------
    InstrumentationError
        If the update of a layer does not depend on its attention.

    Notes
    -----
    Two passes over T windows of six positions.
    """
    short = _different_tokens(ids, min(_PREFIX, ids.shape[1]))
    least = 2.0 * float(torch.finfo(sites.dtype).eps)
    layers = [
        layer
        for layer, site in enumerate(sites.layers)
        if windows[layer] != 1 and not _is_zero_by_weights(site)
    ]
    size = max(1, min(_COPIES, tokens // short.shape[1]))
    idle: list[int] = []
    for begin in range(0, len(layers), size):
        part = layers[begin : begin + size]
        copies = short.expand(len(part), -1)
        before = _updates(model, sites, copies, own={})
        after = _updates(model, sites, copies, own={layer: k for k, layer in enumerate(part)})
        for copy, layer in enumerate(part):
            change = _change(before[layer][copy], after[layer][copy])[1:]
            if not float(change.max()) > least:
                idle.append(layer)
    checks.require(
        "attention_reaches_the_stream",
        float(len(idle)),
        0.0,
        f"The update of layer {idle[0] + 1 if idle else 0} stays the same when its attention is "
        "replaced, so that what is seen is not what the layer does. The usual cause is a hook or "
        "stub that replaces or removes the output of attention",
    )


def _is_zero_by_weights(site: LayerSites) -> bool:
    """Whether a layer's attention adds nothing because a weight matrix of it is zero.

    So begin layers that are inserted into a trained model.
    """
    # Weights that are on disk are not looked at: they cannot be, before the layer runs.
    matrices = (w for w in site.attention.parameters() if w.dim() > 1 and not w.is_meta)
    return any(not bool(weight.detach().any()) for weight in matrices)


class _OwnTokenOnly(TorchFunctionMode):
    """Replaces the attention matrix of chosen windows by the identity; outside, the tap sees all.

    Parameters
    ----------
    tap : AttentionTap
        Knows which layer runs.
    chosen : callable
        Returns for a layer which windows of the batch are replaced, bool of shape (B,) on a device.
    """

    def __init__(self, tap: AttentionTap, chosen: Callable[[int, torch.device], Tensor]) -> None:
        super().__init__()
        self._tap = tap
        self._chosen = chosen

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        """Pass the call on; replace what softmax or fused attention returns."""
        options = kwargs or {}
        output = func(*args, **options)
        layer = self._tap.layer
        if layer is None or not is_attention_call(func, args, options, self._tap.shape[1]):
            return output
        batch, length = self._tap.shape
        if func is torch.nn.functional.scaled_dot_product_attention:
            own = _per_head(_argument(args, options, 0), _argument(args, options, 2))
        else:
            own = torch.eye(length, output.shape[-1], dtype=output.dtype, device=output.device)
        whole = output.reshape(batch, -1, *output.shape[-2:])
        chosen = self._chosen(layer, output.device).reshape(batch, 1, 1, 1)
        return torch.where(chosen, own, whole).reshape(output.shape)


@dataclass(frozen=True, eq=False)
class _Seen:
    """One quantity per token, shape (B, n, m); layer is None behind the layers."""

    what: str
    layer: int | None
    values: Tensor


class _TokenObserver:
    """Keeps x, a and the logits of queries with their own keys, in the order of the pass.

    Parameters
    ----------
    streams : mapping of int to Tensor
        x by layer as it was in another pass, which is put back after it was seen.
    kept : Tensor of bool, shape (B, n)
        Where it is put back, so that roundings do not add up and experts are chosen alike.
    """

    def __init__(self, streams: Mapping[int, Tensor], kept: Tensor) -> None:
        self.seen: list[_Seen] = []
        self._streams = streams
        self._kept = kept

    def on_stream(self, layer: int, stream: Tensor) -> None:
        """See x of a layer."""
        self.seen.append(_Seen(_STREAM, layer, stream.clone()))
        if layer in self._streams:
            kept = self._kept.to(stream.device)
            stream[kept] = self._streams[layer][kept]

    def on_update(self, layer: int, update: Tensor) -> None:
        """See a of a layer."""
        self.seen.append(_Seen("attention update", layer, update.clone()))

    def on_attention(self, rows: AttentionRows) -> None:
        """See a block of attention rows."""
        own = rows.logits[..., rows.start : rows.stop].diagonal(dim1=-2, dim2=-1)
        # A constant beside the logits, which may all be small: they count in absolute terms.
        own = torch.nn.functional.pad(own.transpose(-1, -2), (0, 1), value=1.0)
        self.seen.append(_Seen("logit of a query with its own key", layer=rows.layer, values=own))


class _UpdateObserver:
    """Keeps a of every layer."""

    def __init__(self) -> None:
        self.updates: dict[int, Tensor] = {}

    def on_stream(self, layer: int, stream: Tensor) -> None:
        """See x of a layer."""

    def on_update(self, layer: int, update: Tensor) -> None:
        """See a of a layer."""
        self.updates[layer] = update.clone()

    def on_attention(self, rows: AttentionRows) -> None:
        """See a block of attention rows."""


def _values(
    model: nn.Module,
    sites: ModelSites,
    ids: Tensor,
    *,
    before: Sequence[_Seen] = (),
    group: Tensor,
) -> list[_Seen]:
    """Return everything of a pass in which every token attends to itself only.

    Outside of `group` every layer begins with what it began with `before`.
    """
    streams = {s.layer: s.values for s in before if s.what == _STREAM and s.layer is not None}

    def everywhere(layer: int, device: torch.device) -> Tensor:
        return torch.ones(len(ids), dtype=torch.bool, device=device)

    observer = _TokenObserver(streams, ~group)
    with instrumented(sites, observer) as tap, _OwnTokenOnly(tap, everywhere):
        logits = forward_logits(model, ids, last_only=False)
    return [*observer.seen, _Seen("logits of the model", None, logits)]


def _updates(
    model: nn.Module, sites: ModelSites, ids: Tensor, *, own: dict[int, int]
) -> dict[int, Tensor]:
    """Return a of every layer; `own` says for which layer a window attends to itself only."""

    def one(layer: int, device: torch.device) -> Tensor:
        return torch.arange(len(ids), device=device) == own.get(layer, -1)

    observer = _UpdateObserver()
    with instrumented(sites, observer) as tap, _OwnTokenOnly(tap, one):
        forward_logits(model, ids)
    return observer.updates


def _separating_sets(length: int) -> Tensor:
    """Return sets of positions, bool (k, length): of any two, some set holds one and not the other.

    Position p is in the sets that the p-th subset of {1..k} with k // 2 members names; no such
    subset is part of another (Sperner).
    """
    count = 2
    while comb(count, count // 2) < length:
        count += 1
    sets = torch.zeros(count, length, dtype=torch.bool)
    for position, members in enumerate(islice(combinations(range(count), count // 2), length)):
        sets[list(members), position] = True
    return sets


def _different_tokens(ids: Tensor, length: int) -> Tensor:
    """Return at least two and at most `length` different tokens of the windows, shape (1, k)."""
    found = list(dict.fromkeys(ids.flatten().tolist()))[:length]
    if len(found) == 1:
        found.append(found[0] - 1 if found[0] > 0 else 1)
    return torch.tensor([found], dtype=ids.dtype, device=ids.device)


def _change(before: Tensor, after: Tensor) -> Tensor:
    """Return the largest change of each token's entries, relative to its largest entry."""
    before, after = before.double(), after.double()
    scale = torch.maximum(before.abs().amax(-1), after.abs().amax(-1))
    return (after - before).abs().amax(-1) / scale.clamp(min=torch.finfo(torch.float64).tiny)


def _first_place(before: Tensor, after: Tensor, group: Tensor) -> int:
    """Return the position, outside of the set that was changed, where the change is largest."""
    change = _change(before, after).masked_fill(group.to(before.device), 0.0)
    return int(change.nan_to_num(nan=float("inf")).amax(0).argmax())


def _blame(seen: _Seen, position: int) -> str:
    if not bool(torch.isfinite(seen.values).all()):
        return (
            "With every token attending to itself only, activations are not finite. "
            + overflow_advice(seen.values.dtype)
        )
    where = "" if seen.layer is None else f" of layer {seen.layer + 1}"
    return (
        f"Replacing other tokens changes the {seen.what}{where} at position {position}, although "
        "every token attends to itself only. Usual causes: a hook or changed code that moves or "
        "mixes vectors of tokens, a convolution or recurrence beside the attention, or a norm over "
        "positions"
    )


def _rounding(model: nn.Module, dtype: torch.dtype) -> float:
    """Return what may change by rounding: nothing for most models, more with experts.

    Experts take their tokens together, so that one token's rounding depends on how many they get.
    """
    least = {torch.float64: 1e-10, torch.float32: 1e-5, torch.float16: 1e-3}.get(dtype, 8e-3)
    config = text_config(model.config)
    has_experts = any(getattr(config, name, None) for name in _EXPERTS)
    return 16.0 * least if has_experts and dtype.itemsize < 4 else least


def _argument(args: Sequence[Any], options: dict[str, Any], place: int) -> Tensor:
    name = ("query", "key", "value")[place]
    found = args[place] if len(args) > place else options.get(name)
    if not isinstance(found, Tensor):
        raise InstrumentationError(f"fused attention was called without a tensor {name}")
    return found


def _per_head(query: Tensor, value: Tensor) -> Tensor:
    """Return the values with one head per query head."""
    groups = query.shape[-3] // value.shape[-3]
    return value.repeat_interleave(groups, dim=-3) if groups > 1 else value
