"""How far a tensor is from a sum of others, up to the rounding of the sum."""

from __future__ import annotations

import math

import torch
from torch import Tensor

__all__ = ["deviation", "fit_constants", "relative_error"]

_NEAR = 5e-2  # A fitted constant this near to 1 may be 1, in half precision.


def fit_constants(target: Tensor, u: Tensor, others: tuple[Tensor, ...]) -> list[float]:
    """Return candidates for c in target = c u + others: the best fit, and 1 where it is near.

    Entries count by their rounding, so that a few massive ones do not decide.
    """
    difference = target.double() - sum(other.double() for other in others)
    scale = sum((other.double().abs() for other in others), target.double().abs())
    scale = scale.clamp(min=torch.finfo(torch.float32).tiny)
    w, y = u.double() / scale, difference / scale
    norm = float((w * w).sum())
    factor = float((y * w).sum()) / norm if norm > 0.0 else 0.0
    if factor == 0.0 or not math.isfinite(factor):
        return []
    if abs(factor - 1.0) < 1e-6:
        return [1.0]
    is_near = target.dtype.itemsize < 4 and abs(factor - 1.0) < _NEAR
    return [1.0, factor] if is_near else [factor]


def deviation(target: Tensor, u: Tensor, factor: float, others: tuple[Tensor, ...]) -> float:
    """Return the largest |target - (c u + others)| of a token in multiples of its |c u|.

    The sum is made in the format of the model, in the order of terms that fits best. What is left
    is a deviation in half precision, where two roundings can exceed the whole update; in float32
    and float64 two roundings of each entry are let through.
    """
    a = u * factor if factor != 1.0 else u
    size = a.double().norm(dim=-1)
    terms = (*others, a)
    largest = torch.stack([t.double().abs() for t in (target, *terms)]).amax(0)
    formats = [t.dtype for t in (target, *terms)]
    slack = 0.0
    if all(dtype.itemsize >= 4 for dtype in formats):
        slack = 2.0 * max(torch.finfo(dtype).eps for dtype in formats)
    best = math.inf
    for first, *rest in _orders(terms):
        total = first
        for term in rest:
            total = total + term
        error = (target.double() - total.double()).abs() - slack * largest
        excess = error.clamp(min=0.0).norm(dim=-1)
        ratio = torch.where(excess == 0.0, 0.0, excess / size)
        best = min(best, float(ratio.max()))
    return best if not math.isnan(best) else math.inf


def relative_error(error: Tensor, target: Tensor) -> float:
    """Return the largest error of a token, in multiples of the largest entry of its target."""
    largest, scale = error.abs().amax(-1), target.double().abs().amax(-1)
    return float(torch.where(largest == 0.0, 0.0, largest / scale).max())


def _orders(terms: tuple[Tensor, ...]) -> list[tuple[Tensor, ...]]:
    """Return the orders in which a sum of up to three terms can be rounded."""
    if len(terms) < 3:
        return [terms]
    x, m, a = terms
    return [(x, a, m), (a, m, x), (x, m, a)]
