"""Whether what attention brings to a query from its keys adds up, or is unrelated."""

from __future__ import annotations

import torch
from torch import Tensor

from posbias.measure.value_kernels import HeadProducts
from posbias.models.tap import AttentionRows

__all__ = ["chosen_queries", "coherences"]

_QUERIES = 16


def chosen_queries(length: int) -> Tensor:
    """Return the queries that are looked at: all but the first, or 16 evenly spaced ones."""
    count = min(_QUERIES, length - 1)
    # Steps of at least one, so that no query comes twice.
    return 1 + torch.arange(count) * (length - 2) // max(count - 1, 1)


def coherences(
    rows: AttentionRows,
    index: int,
    *,
    centred: Tensor,
    products: HeadProducts,
    grams: Tensor,
    least: float,
) -> Tensor:
    """Return the coherence of the chosen queries of a block, for one window of text.

    With c_j = sum_h A_h[i,j] W_O^h (v_h[j] - mean_k v_h[k]) what key j brings to query i it is
    ``|sum_j c_j|^2 / sum_j |c_j|^2``: 1 where the parts of different keys are unrelated, up to
    their number where they are the same, 0 where they cancel.

    Parameters
    ----------
    rows : AttentionRows
        The block.
    index : int
        Which of its windows of text.
    centred : Tensor, shape (H, n, d)
        Values of each head less their mean over the tokens, one head per query head.
    products : HeadProducts
        Of the layer.
    grams : Tensor, shape (H, H, n)
        From `HeadProducts.grams` of the centred values.
    least : float
        Energy up to which a query counts as without any; its coherence is 1.

    Returns
    -------
    Tensor of float64, shape (q,)
        One entry per chosen query in the block.

    Notes
    -----
    ``q H n (H + d)`` multiplications for q queries.
    """
    chosen = chosen_queries(rows.length)
    here = chosen[(chosen >= rows.start) & (chosen < rows.stop)] - rows.start
    if not len(here):
        return torch.zeros(0, dtype=torch.float64)
    p = rows.probabilities_of(index, here.to(rows.logits.device)).to(centred.dtype)
    total = products.grams(p @ centred[:, : p.shape[-1]]).sum((0, 1)).to(torch.float64)
    parts = _energy(p, grams).to(torch.float64)
    is_there = parts > least
    return torch.where(is_there, total.clamp(min=0.0) / parts.where(is_there, 1.0), 1.0)


def _energy(p: Tensor, grams: Tensor) -> Tensor:
    """Return the sum over keys of ``w^T G_j w`` for few rows p, shape (H, q, k); shape (q,)."""
    keys = p.shape[-1]
    total = p.new_zeros(p.shape[1])
    for h in range(p.shape[0]):
        weighted = (grams[h, h:, None, :keys] * p[h:]).sum(0)
        total += (weighted * p[h]).sum(-1)
    return total
