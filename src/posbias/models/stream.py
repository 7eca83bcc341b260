"""Certify where x and a are, or search for them: numbers decide, not names.

The attention update u (times a constant c) is certified when ``x + c u`` is what a later module
of the same block reads (sequential residual), or when ``x + c u + m`` is what the block returns
with m the output of another module (parallel residual). In sequential blocks too the block has to
return the sum of what it made of ``x + c u`` and of one other branch m, and the next block to read
what this one returned.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor, nn

from posbias.errors import InstrumentationError, UnsupportedModelError
from posbias.models._sums import deviation, fit_constants, relative_error
from posbias.models.checks import type_name
from posbias.models.sites import (
    LayerSites,
    ModelSites,
    dtype_of,
    find_blocks,
    input_embedding,
)
from posbias.models.trace import Event, Trace, record

__all__ = ["Certificate", "certify", "identity_tolerance", "search_sites"]

Forward = Callable[[], object]

_SAME = 1e-2  # Two candidates are one if their updates differ by less, in multiples of the update.


@dataclass(frozen=True)
class Certificate:
    """Proof that the update of one layer is what the model adds to its stream.

    Attributes
    ----------
    residual : {"sequential", "parallel"}
        Whether x + a is read by a later module or only returned with the MLP's output added.
    error : float
        Largest deviation of a token from the sum, in multiples of its |c u|, L2 norms. The sum is
        repeated in the number format of the model, so that rounding of the stream is no deviation.
    multiplier : float
        The constant c.
    update, stream : str
        Paths inside the block; `stream` is empty for its input.
    output : float or None
        Deviation of what the block returns from x + a + m, with m the output of the MLP branch,
        or from its norm; None if no module is such a branch.
    handover : float or None
        Deviation of what the next block reads from what this one returns; None for the last one.
    resolution : float
        What `error` would be if half of c were claimed; near 0 where rounding swallows the update.
    """

    residual: Literal["sequential", "parallel"]
    error: float
    multiplier: float
    update: str
    stream: str
    output: float | None = None
    handover: float | None = None
    resolution: float = float("inf")

    def is_resolved(self, tolerance: float) -> bool:
        """Whether another constant would have been noticed."""
        return self.resolution > 2.0 * tolerance


def identity_tolerance(dtype: torch.dtype) -> float:
    """Return the deviation, in multiples of |a|, up to which x_out = x + a counts as exact."""
    return {torch.float64: 1e-12, torch.float32: 1e-5, torch.float16: 2e-2}.get(dtype, 5e-2)


def certify(sites: ModelSites, forward: Forward) -> list[Certificate]:
    """Check the stream identity of every layer in one forward pass.

    Parameters
    ----------
    sites : ModelSites
        The claim.
    forward : callable
        Runs the model once on a small batch.

    Raises
    ------
    InstrumentationError
        If the identity does not hold in a layer, or rounding is so coarse beside the update that
        it would hold for another constant too.

    Notes
    -----
    Keeps every activation of the pass: T * B * n * C numbers per module. Use a short window.
    """
    traces = record([Trace(site.block) for site in sites.layers], forward)
    tolerance = identity_tolerance(sites.dtype)
    must_be_sequential = sites.row is not None and sites.row.residual == "sequential"
    certificates = []
    for layer, (site, trace) in enumerate(zip(sites.layers, traces, strict=True)):
        if trace.attention is None:
            raise InstrumentationError(
                f"no softmax attention runs in layer {layer + 1}. Usual causes: an attention "
                "implementation other than eager or sdpa, a compiled model, or replaced code"
            )
        update, stream = trace.name_of(site.update), trace.name_of(site.stream)
        found = _test(
            trace,
            update,
            stream,
            site.multiplier,
            sequential=must_be_sequential,
            tolerance=tolerance,
        )
        if found is None or not found.error <= tolerance:
            shown = "nothing comparable" if found is None else f"relative error {found.error:.3g}"
            raise InstrumentationError(
                f"layer {layer + 1}: x + a is not what the model adds up ({shown}, tolerance "
                f"{tolerance:g}), with a the output of {sites.update_path!r} times "
                f"{site.multiplier:g}. Usual causes: changed model code or activations that "
                "overflow. Load in float32 or report the architecture"
            )
        if not found.is_resolved(tolerance):
            raise InstrumentationError(
                f"layer {layer + 1}: the rounding of the stream in {type_name(sites.dtype)} hides "
                "the attention update, so that x + a cannot be told from x. Measure in float32"
            )
        above = traces[layer + 1] if layer + 1 < len(traces) else None
        certificates.append(
            replace(
                found,
                output=_output_error(trace, found, tolerance),
                handover=None if above is None else _handover_error(trace, above),
            )
        )
    return certificates


def search_sites(model: nn.Module, forward: Forward) -> ModelSites:
    """Find x, a and the attention modules of an architecture without a row in the table.

    Raises
    ------
    UnsupportedModelError
        If a layer has no softmax attention, or no module output times a constant is what the
        layer adds to its stream.
    """
    blocks = find_blocks(model)
    traces = record([Trace(block) for block in blocks], forward)
    dtype = dtype_of(model)
    found = [_search(trace, identity_tolerance(dtype)) for trace in traces]
    layers: list[LayerSites] = []
    proofs: list[Certificate] = []
    for index, (trace, candidates) in enumerate(zip(traces, found, strict=True)):
        if not candidates or trace.attention is None:
            raise UnsupportedModelError(
                f"layer {index + 1} of {type(model).__name__}: no module output times a constant "
                "is what the layer adds to its residual stream after softmax attention. This "
                f"architecture cannot be measured{_advice(dtype)}"
            )
        proof = _agreed(candidates, found)
        if dtype.itemsize < 4 and _is_ambiguous(trace, proof, candidates):
            raise UnsupportedModelError(
                f"layer {index + 1} of {type(model).__name__}: two outputs of modules could be the "
                f"attention update within the rounding of {type_name(dtype)}{_advice(dtype)}"
            )
        block = trace.block
        layers.append(
            LayerSites(
                block,
                attention=block.get_submodule(trace.attention),
                update=block.get_submodule(proof.update),
                stream=block.get_submodule(proof.stream) if proof.stream else None,
                multiplier=proof.multiplier,
            )
        )
        proofs.append(proof)
    return ModelSites(
        tuple(layers),
        input_embedding(model),
        dtype,
        None,
        proofs[0].update,
        proofs[0].stream,
    )


def _advice(dtype: torch.dtype) -> str:
    return f" in {type_name(dtype)}; try float32" if dtype.itemsize < 4 else ""


def _agreed(candidates: list[Certificate], found: list[list[Certificate]]) -> Certificate:
    """Return the first candidate that all layers share, or the first one if they share none."""
    for proof in candidates:
        place = (proof.update, proof.stream)
        if all(any((p.update, p.stream) == place for p in layer) for layer in found):
            return proof
    return candidates[0]


def _is_ambiguous(trace: Trace, proof: Certificate, candidates: list[Certificate]) -> bool:
    """Whether another candidate would give another update of some token."""
    u = trace.output_of(proof.update)
    if u is None:
        return True
    a = proof.multiplier * u.double()
    for other in candidates:
        v = trace.output_of(other.update)
        if v is None or other.stream != proof.stream:
            return True
        difference = (other.multiplier * v.double() - a).norm(dim=-1)
        if bool((difference > _SAME * a.norm(dim=-1)).any()):
            return True
    return False


def _test(
    trace: Trace,
    update: str,
    stream: str,
    multiplier: float,
    *,
    sequential: bool,
    tolerance: float,
) -> Certificate | None:
    """Return the best proof of one claim, or None; parallel only where nothing reads x + a."""
    x = trace.stream if not stream else trace.output_of(stream)
    if x is None:
        return None
    lineage = trace.attention_lineage()
    claimed = [event for event in lineage if event.name == update]
    best: Certificate | None = None
    for rule in (_sequential,) if sequential else (_sequential, _parallel):
        proofs = [p for e in claimed for p in rule(trace, x, e, multiplier, stream)]
        best = min([*proofs, *([best] if best else [])], key=lambda p: p.error, default=None)
        if best is not None and best.error <= tolerance:
            return best
    return best


def _search(trace: Trace, tolerance: float) -> list[Certificate]:
    """Return the best proof of each place within the tolerance, parallel only without sequential.

    They are in the order of the pass: streams first, then the attention from inside to outside.
    """
    lineage = trace.attention_lineage()
    if trace.stream is None or not lineage:
        return []
    began = min(event.began for event in lineage)
    streams: list[tuple[str, Tensor]] = [("", trace.stream)]
    streams += [
        (e.name, e.output) for e in trace.events if e.output is not None and e.ended < began
    ]
    for rule in (_sequential, _parallel):
        proofs = [
            min(rule(trace, x, event, None, name), key=lambda p: p.error, default=None)
            for name, x in streams
            for event in lineage
        ]
        found = [p for p in proofs if p and p.error <= tolerance and p.is_resolved(tolerance)]
        if found:
            return found
    return []


def _sequential(
    trace: Trace, x: Tensor, event: Event, multiplier: float | None, stream: str
) -> Iterator[Certificate]:
    """Yield a proof for each later tensor, compared with x + c u."""
    u = event.output
    if u is None:
        return
    later = [t for e in trace.events if e.began > event.ended for t in e.reads]
    targets = [*later, *([trace.returned] if trace.returned is not None else [])]
    for target in targets:
        factors = [multiplier] if multiplier is not None else fit_constants(target, u, (x,))
        for factor in factors:
            error = deviation(target, u, factor, (x,))
            half = _resolution(target, u, factor, (x,))
            yield Certificate("sequential", error, factor, event.name, stream, resolution=half)


def _parallel(
    trace: Trace, x: Tensor, event: Event, multiplier: float | None, stream: str
) -> Iterator[Certificate]:
    """Yield a proof for each other branch m, comparing what the block returns with x + c u + m."""
    u, target = event.output, trace.returned
    if u is None or target is None:
        return
    lineage = trace.attention_lineage()
    for other in trace.events:
        m = other.output
        if m is None or any(other is e for e in lineage):
            continue
        factors = [multiplier] if multiplier is not None else fit_constants(target, u, (x, m))
        for factor in factors:
            error = deviation(target, u, factor, (x, m))
            half = _resolution(target, u, factor, (x, m))
            yield Certificate("parallel", error, factor, event.name, stream, resolution=half)


def _resolution(target: Tensor, u: Tensor, factor: float, others: tuple[Tensor, ...]) -> float:
    """Return the deviation, in multiples of |c u|, of a claim of half the constant."""
    if not bool(u.any()):
        return float("inf")
    return deviation(target, u, factor / 2.0, others) / 2.0


def _output_error(trace: Trace, found: Certificate, tolerance: float) -> float | None:
    """Return how far the block's output is from the sum of stream and MLP branch.

    The stream goes on as x + a or, in blocks with norms on the stream itself, as the output of a
    norm that read x + a; what the block returns is the sum or, there again, the norm of the sum.
    """
    x = trace.stream if not found.stream else trace.output_of(found.stream)
    u, returned = trace.output_of(found.update), trace.returned
    if x is None or u is None or returned is None:
        return None
    if found.residual == "parallel":
        return found.error
    total = x.double() + found.multiplier * u.double()
    update = next(e for e in trace.events if e.name == found.update and e.output is not None)
    later = [e for e in trace.events if e.ended > update.ended and e.output is not None]
    carried = [total, *_made_of(total, later, tolerance)]
    targets = [returned]
    for event in later:
        if event.output is not None and event.output.equal(returned):
            targets += event.reads
    errors = [relative_error(target.double() - total, target) for target in targets]
    for target in targets:
        for base in carried:
            difference = target.double() - base
            for event in later:
                if event.output is None:
                    continue
                m = event.output.double()
                for factor in {1.0, found.multiplier}:
                    errors.append(relative_error(difference - factor * m, target))
    return min(errors)


def _made_of(total: Tensor, later: list[Event], tolerance: float) -> list[Tensor]:
    """Return the outputs of the modules that read x + a."""
    return [
        event.output.double()
        for event in later
        if event.output is not None
        and any(relative_error(read.double() - total, read) <= tolerance for read in event.reads)
    ]


def _handover_error(below: Trace, above: Trace) -> float | None:
    """Return how far what a block reads is from what the block below returned."""
    if below.returned is None or above.stream is None:
        return None
    difference = above.stream.double() - below.returned.double().to(above.stream.device)
    return relative_error(difference, above.stream)
