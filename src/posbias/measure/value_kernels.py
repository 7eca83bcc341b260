"""Kernels weighted by values: how much of what attention adds to a query comes from each key.

With w = A[:, i, j] the attention of query i to key j over the heads and u_h[j] = W_O^h v_h[j], the
energy of key j in the update of query i is ``|sum_h w_h u_h[j]|^2 = w^T G_j w`` with the Gram
matrix ``G_j[h, g] = <u_h[j], u_g[j]> = v_h[j]^T (W_O^h)^T W_O^g v_g[j]``: vectors of the width of
the stream are never formed.
"""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch import Tensor

from posbias.measure.content_sums import COMPILED_FROM
from posbias.models.tap import AttentionRows

__all__ = ["HeadProducts", "add_energy_rows", "plain_grams"]


class HeadProducts:
    """The products ``(W_O^h)^T W_O^g`` of the heads of one layer, and Gram matrices from them.

    Parameters
    ----------
    weight : Tensor of float64, shape (C, H d)
        From the values to the stream.
    heads : int
        H.
    dtype : torch.dtype
        Type of the Gram matrices: float64, or float32 for models in float32 and below, whose
        values are no more exact. The products themselves are made in float64.

    Notes
    -----
    ``C (H d)^2 / 2`` multiplications and ``(H d)^2 / 2`` numbers.
    """

    def __init__(self, weight: Tensor, heads: int, dtype: torch.dtype) -> None:
        self.dtype = dtype
        self.width = weight.shape[1] // heads
        self.blocks = []
        for h in range(heads):
            later = weight[:, h * self.width :]
            self.blocks.append((later[:, : self.width].T @ later).to(dtype))

    @property
    def nbytes(self) -> int:
        """Memory that is held."""
        return sum(block.nbytes for block in self.blocks)

    def grams(self, values: Tensor) -> Tensor:
        """Return the Gram matrices of all keys of one window.

        Parameters
        ----------
        values : Tensor of the type of the products, shape (H, n, d)
            One head per query head.

        Returns
        -------
        Tensor, shape (H, H, n)
            Entry [h, g] for h <= g: ``<u_h[j], u_g[j]>``, twice that for h < g, so that the
            quadratic form of w is the sum over h <= g of the entries times ``w_h w_g``.

        Notes
        -----
        ``n (H d)^2 / 2`` multiplications.
        """
        heads, n, width = values.shape
        by_key = values.transpose(0, 1).contiguous()
        grams = values.new_zeros(heads, heads, n)
        for h, block in enumerate(self.blocks):
            products = (values[h] @ block).view(n, heads - h, width)
            pairs = products.mul_(by_key[:, h:]).sum(-1).T
            pairs[1:] *= 2.0
            grams[h, h:] = pairs
        return grams

    def energies(self, values: Tensor) -> Tensor:
        """Return only the squared lengths ``|u_h[j]|^2``, shape (H, n)."""
        own = torch.stack([block[:, : self.width] for block in self.blocks])
        return ((values @ own) * values).sum(-1).clamp(min=0.0)


def plain_grams(heads: int, length: int, *, like: Tensor) -> Tensor:
    """Return Gram matrices under which the energy is the sum of the squared attention."""
    eye = torch.eye(heads, dtype=like.dtype, device=like.device)
    return eye[..., None].expand(-1, -1, length).contiguous()


def add_energy_rows(
    rows: AttentionRows,
    index: int,
    grams: Tensor,
    target: Tensor,
    *,
    window: int,
    rounding: tuple[float, bool],
) -> None:
    """Add the energies of a block of query rows, each row divided by its sum.

    A row of no energy is one on the diagonal: to such a query attention adds nothing, or the same
    as to every other, so that it stays what it is. A quadratic form of a Gram matrix is not
    negative: what comes out below zero is the rounding of heads that cancel, and counts as zero.

    Parameters
    ----------
    rows : AttentionRows
        The block.
    index : int
        Which of its windows of text.
    grams : Tensor, shape (H, H, n)
        From `HeadProducts.grams`.
    target : Tensor of float64, shape (r, k)
        Added to.
    window : int
        Keys that a query sees, its own included.
    rounding : (float, bool)
        Sum of a row up to which it counts as without energy; whether to take square roots of the
        energies before rows are divided by their sums.

    Notes
    -----
    ``H^2 r k / 2`` multiplications. On the CPU in single precision, for problems that are worth
    loading it, compiled code works row by row in the cache; torch does the same otherwise.
    """
    least, root = rounding
    heads = grams.shape[0]
    on_cpu = grams.device.type == "cpu" and target.device.type == "cpu"
    is_worth_it = heads * rows.length**2 >= COMPILED_FROM and grams.dtype is torch.float32
    compiled = _compiled() if on_cpu and is_worth_it else None
    if compiled is None:
        p = rows.probabilities[index].to(torch.float64)
        shares = _row_shares(_energies(p, grams), rows.start, least, root=root)
        target += shares.to(target.device)
        return
    place = rows.start, window
    if rows.applied is None and rows.logits.dtype is torch.float32:
        function, weights = compiled.add_rows_of_logits, rows.logits[index]
    else:
        function, weights = compiled.add_rows_of_probabilities, rows.probabilities[index]
    function(weights.contiguous().numpy(), grams.numpy(), target.numpy(), place, (least, root))


def _energies(p: Tensor, grams: Tensor) -> Tensor:
    """Return the energies of a block of one window, shape (r, k)."""
    weights = p.permute(2, 1, 0)
    products = weights @ grams[..., : p.shape[-1]].permute(2, 0, 1).to(p.dtype)
    return (products * weights).sum(-1).T.clamp(min=0.0)


def _row_shares(energies: Tensor, start: int, least: float, *, root: bool) -> Tensor:
    """Divide each row by its sum; rows of the queries from `start`."""
    totals = energies.sum(-1, keepdim=True)
    (empty,) = torch.nonzero(totals[:, 0] <= least, as_tuple=True)
    parts = energies.sqrt() if root else energies
    shares = parts / parts.sum(-1, keepdim=True)
    shares[empty] = 0.0
    shares[empty, empty + start] = 1.0
    return shares


@functools.cache
def _compiled() -> Any:
    try:
        from posbias.measure import _compiled_energies
    except ImportError:
        return None
    return _compiled_energies
