"""Measured influence by methods that run the model again: integrated gradients and occlusion.

Both compare a window with *replacements*: at every position another token of the same window,
half a window away. Each token replaces about as often as it occurs, nothing but the window itself
is needed, and a window gives the same numbers in every batch, run and machine.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from posbias.measure.influence import EmbeddingLeaf, gradient_of, next_distribution
from posbias.models.preflight import CheckedModel
from posbias.models.state import forward_logits

__all__ = ["Integral", "integrated_gradients", "occlusion", "replacements"]


def replacements(ids: Tensor, *, prefix: int = 0) -> Tensor:
    """Return for every position a token of the same window that differs from its own.

    Parameters
    ----------
    ids : Tensor of int64, shape (B, n)
        Windows of token ids.
    prefix : int
        Special tokens that begin every window: they are replaced, but replace nothing.

    Returns
    -------
    Tensor of int64, shape (B, n)
        At position j the first token that differs from token j among those at positions
        j + h, j + h + 1, ..., counted cyclically over the m = n - prefix positions behind the
        prefix, with h = m // 2. If all of them are the same, the token beside it in the
        vocabulary.

    Notes
    -----
    Cost O(B n) unless a window holds long runs of one token.
    """
    length = ids.shape[1]
    text = ids[:, prefix:]
    m = text.shape[1]
    own = torch.arange(length, device=ids.device) - prefix
    result = ids.clone()
    pending = torch.ones_like(ids, dtype=torch.bool)
    for step in range(m):
        candidate = text[:, (own + m // 2 + step) % m]
        found = pending & (candidate != ids)
        result[found] = candidate[found]
        pending &= ~found
        if not bool(pending.any()):
            return result
    # Any other id will do; 0 and 1 exist in every vocabulary with two tokens.
    result[pending] = torch.where(ids[pending] > 0, ids[pending] - 1, ids[pending] + 1)
    return result


@dataclass(frozen=True, eq=False)
class Integral:
    """Integrated gradients of a batch.

    Attributes
    ----------
    attribution : Tensor, float64, shape (B, n)
        Signed share of each position in the change of the probability.
    gap : Tensor, float64, shape (B,)
        Sum of the shares less the change; zero but for the error of the quadrature.
    """

    attribution: Tensor
    gap: Tensor


def integrated_gradients(
    checked: CheckedModel, ids: Tensor, *, target: Tensor, baseline: Tensor, steps: int
) -> Integral:
    """Integrate the gradient of a token's probability from a baseline window to the window.

    With e and b the input embeddings of window and baseline and p the probability of the target,
    the share of position j is ``(e_j - b_j) . int_0^1 dp/de_j(b + s (e - b)) ds``; by the
    fundamental theorem of calculus the shares add up to ``p(e) - p(b)`` (Sundararajan et al. 2017,
    arXiv 1703.01365, completeness).

    Parameters
    ----------
    checked : CheckedModel
        In measuring state.
    ids, baseline : Tensor of int64, shape (B, n)
        Windows and their baselines.
    target : Tensor of int64, shape (B,)
        Token whose probability is explained.
    steps : int
        Points of the Gauss-Legendre quadrature.

    Notes
    -----
    `steps` forward and backward passes and two forward passes.
    """
    embedding, model = checked.sites.embedding, checked.model
    with torch.no_grad():
        end, start = embedding(ids).double(), embedding(baseline).double()
        change = _chance(forward_logits(model, ids), target)
        change = change - _chance(forward_logits(model, baseline), target)
    points, weights = np.polynomial.legendre.leggauss(steps)
    total = torch.zeros_like(end)
    for point, weight in zip((points + 1.0) / 2.0, weights / 2.0, strict=True):
        between = (start + float(point) * (end - start)).to(checked.sites.dtype)
        leaf = EmbeddingLeaf(between)
        with torch.enable_grad(), leaf.attached(embedding):
            chance = _chance(forward_logits(model, ids), target)
            total += float(weight) * gradient_of(chance, leaf)
    attribution = ((end - start) * total).sum(-1)
    return Integral(attribution, attribution.sum(-1) - change)


def occlusion(
    checked: CheckedModel, ids: Tensor, *, distribution: Tensor, other: Tensor, batch_size: int
) -> Tensor:
    """Replace one token at a time and return how much the next-token distribution changes.

    Parameters
    ----------
    checked : CheckedModel
        In measuring state.
    ids, other : Tensor of int64, shape (B, n)
        Windows and the tokens that replace theirs.
    distribution : Tensor, float64, shape (B, V)
        Distribution of the next token of the windows as they are.
    batch_size : int
        Changed windows per forward pass.

    Returns
    -------
    Tensor, float64, shape (B, n)
        Total variation distance, in [0, 1], between the distributions after and before.

    Notes
    -----
    ``B n`` windows in ``B n / batch_size`` forward passes.
    """
    batch, length = ids.shape
    change = torch.empty(batch * length, dtype=torch.float64, device=ids.device)
    with torch.no_grad():
        for start in range(0, batch * length, batch_size):
            cells = torch.arange(start, min(start + batch_size, batch * length), device=ids.device)
            window, position = cells // length, cells % length
            changed = ids[window]
            changed[torch.arange(len(cells), device=ids.device), position] = other[window, position]
            after = next_distribution(forward_logits(checked.model, changed))
            change[cells] = (after - distribution[window]).abs().sum(-1) / 2.0
    return change.reshape(batch, length)


def _chance(logits: Tensor, target: Tensor) -> Tensor:
    return next_distribution(logits).gather(1, target[:, None])[:, 0]
