"""The gradient that autograd returns against finite differences of the model itself."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from posbias.errors import InstrumentationError
from posbias.models.checks import Preflight
from posbias.models.instrument import instrumented
from posbias.models.observers import CaptureObserver
from posbias.models.sites import ModelSites
from posbias.models.state import forward_logits, is_out_of_memory

__all__ = ["check_gradient"]

_STEPS = tuple(0.3 * 3.0**-k for k in range(7))  # In multiples of the norm of the embeddings.
_TOLERANCE = 5e-2
_PLATEAU = 2e-2  # Three steps in a row have to give one derivative, up to this share of it.
_ABOVE_ROUNDING = 1e3  # Differences count that are this many roundings of the largest logit.
_CAUSE = (
    "Usual causes: torch.no_grad or torch.inference_mode around the model or a layer, a detach in "
    "a hook or in changed code, or a backward pass of its own. Measure without gradients "
    "(influence=('occlusion',)) or mend the model"
)


def check_gradient(
    model: nn.Module, sites: ModelSites, ids: Tensor, *, tokens: int, checks: Preflight
) -> None:
    """Check the gradient of the log-probability of the next token in the input embeddings.

    Directional derivatives by central differences are compared with those of autograd, along the
    gradient itself and towards the embeddings of another window: at all positions, and at all but
    the last one. A direction counts if three steps in a row agree on its derivative and the
    differences are well above rounding.

    Parameters
    ----------
    ids : Tensor of int64, shape (2, m)
        The first window is checked; the second gives directions.
    tokens : int
        Largest number of tokens per pass.
    checks : Preflight
        Receives ``gradient``: the largest relative difference, 0 to 1. Not applicable in half
        precision, or if no direction counts.

    Raises
    ------
    InstrumentationError
        If there is no gradient, or another one than that of the function that is computed.

    Notes
    -----
    Two passes and 42 windows of m positions.
    """
    if sites.dtype.itemsize < 4:
        checks.not_applicable("gradient")
        return
    with torch.no_grad():
        start, other = sites.embedding(ids).detach().double()
    target, gradient = _gradient(model, sites, ids[:1], start)
    errors = []
    for direction in _directions(start, other, gradient):
        claimed = float((gradient * direction).sum())
        found = _difference(model, sites, ids[:1], (start, direction, target), tokens=tokens)
        if found is not None:
            errors.append(abs(found - claimed) / max(abs(found), abs(claimed)))
    if not errors:
        checks.not_applicable("gradient")
        return
    # The largest, and not finite if one is not.
    worst = float(torch.tensor(errors, dtype=torch.float64).amax())
    advice = "The gradient that the model returns is not that of its outputs. " + _CAUSE
    checks.require("gradient", worst, _TOLERANCE, advice)


def _gradient(
    model: nn.Module, sites: ModelSites, ids: Tensor, start: Tensor
) -> tuple[int, Tensor]:
    """Return the most likely next token and the gradient of its log-probability, shape (m, C)."""
    leaf = start[None].to(sites.dtype).requires_grad_(True)
    try:
        with torch.enable_grad(), instrumented(sites, CaptureObserver(has_sink=True)):
            scores = _scores(model, sites, ids, leaf)[0]
            target = int(scores.argmax())
            (gradient,) = torch.autograd.grad(scores[target], leaf)
    except RuntimeError as error:
        if is_out_of_memory(error):
            raise
        raise InstrumentationError(
            f"{type(model).__name__} has no gradient in its input embeddings. {_CAUSE}"
        ) from error
    return target, gradient[0].double()


def _directions(start: Tensor, other: Tensor, gradient: Tensor) -> list[Tensor]:
    """Return directions of the norm of the embeddings, shape (m, C); none of them zero."""
    change = other - start
    before = change.clone()
    before[-1] = 0.0
    found = [d for d in (gradient, change, before) if bool(d.any())]
    return [d / d.norm() * start.norm() for d in found]


def _difference(
    model: nn.Module,
    sites: ModelSites,
    ids: Tensor,
    line: tuple[Tensor, Tensor, int],
    *,
    tokens: int,
) -> float | None:
    """Return the derivative along a line, or None where differences do not tell."""
    start, direction, target = line
    steps = torch.tensor(_STEPS, dtype=torch.float64, device=start.device)
    ends = torch.cat([steps, -steps])[:, None, None] * direction + start
    values, largest = [], 1.0
    for part in torch.split(ends, max(1, tokens // ids.shape[1])):
        with torch.no_grad():
            scores = _scores(model, sites, ids.expand(len(part), -1), part.to(sites.dtype))
        largest = max(largest, float(scores.abs().max()))
        values.append(scores[:, target])
    up, down = torch.cat(values).chunk(2)
    change = (up - down).cpu()
    slopes = change / (2.0 * steps.cpu())
    least = _ABOVE_ROUNDING * float(torch.finfo(sites.dtype).eps) * largest
    # The smallest steps first: kinks and curvature are the least there.
    for k in reversed(range(len(_STEPS) - 2)):
        three = slopes[k : k + 3]
        spread = float((three.max() - three.min()) / three.abs().max())
        if float(change[k : k + 3].abs().min()) >= least and spread <= _PLATEAU:
            return float(three[-1])
    return None


def _scores(model: nn.Module, sites: ModelSites, ids: Tensor, vectors: Tensor) -> Tensor:
    """Return log-probabilities of the next token, float64, shape (B, V), with given embeddings."""
    with _embedded(sites.embedding, vectors):
        logits = forward_logits(model, ids)
    return torch.log_softmax(logits[:, -1].double(), dim=-1)


@contextmanager
def _embedded(embedding: nn.Module, vectors: Tensor) -> Iterator[None]:
    def replace(module: nn.Module, args: Any, output: Tensor) -> Tensor:
        # A copy, since some models scale their embeddings in place.
        return vectors.clone()

    handle = embedding.register_forward_hook(replace)
    try:
        yield
    finally:
        handle.remove()
