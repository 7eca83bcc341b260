"""Shares of stream, attention update and MLP update, token by token."""

from __future__ import annotations

import functools
from collections.abc import Callable

import torch
from torch import Tensor

from posbias.measure.content_sums import COMPILED_FROM
from posbias.measurement.estimator_arrays import mixing_array

__all__ = ["alignments", "mixing_shares", "token_products"]


def token_products(x: Tensor, a: Tensor, output: Tensor) -> Tensor:
    """Return the products of x, a and m = output - x - a of each token of one window.

    Parameters
    ----------
    x, a, output : Tensor, shape (n, C)
        Stream, attention update, and what the block returns.

    Returns
    -------
    Tensor of float64, shape (8, n)
        ``x.x``, ``a.a``, ``m.m``, ``x.a``, then the same less the mean over the tokens.
    """
    given = (x, a, output)
    on_cpu = all(t.device.type == "cpu" and t.dtype is torch.float32 for t in given)
    compiled = _compiled() if on_cpu and x.numel() >= COMPILED_FROM else None
    if compiled is not None:
        sums = torch.zeros(8, len(x), dtype=torch.float64)
        compiled(*(t.contiguous().numpy() for t in given), sums.numpy())
        return sums
    x, a, output = (t.to(torch.float64) for t in given)
    rows = []
    for s, u, m in ((x, a, output - x - a), _centred(x, a, output - x - a)):
        rows += [(s * s).sum(-1), (u * u).sum(-1), (m * m).sum(-1), (s * u).sum(-1)]
    return torch.stack(rows)


def mixing_shares(products: Tensor, *, with_mlp: bool) -> dict[str, Tensor]:
    """Return the share of attention in each token by array name, float64, shape (n,).

    Zero where there is no update.

    Parameters
    ----------
    products : Tensor, shape (8, n)
        From `token_products`.
    with_mlp : bool
        Add those in which the update of the MLP dilutes the stream.
    """
    xx, aa, mm, _, cxx, caa, cmm, _ = products
    x, a, m, cx, ca, cm = (t.sqrt() for t in (xx, aa, mm, cxx, caa, cmm))
    shares = {
        "centred": _share(ca, cx),
        "energy": _share(aa, xx),
        "centred-energy": _share(caa, cxx),
    }
    if with_mlp:
        shares["norm+mlp"] = _share(a, x + m)
        shares["centred+mlp"] = _share(ca, cx + cm)
        shares["energy+mlp"] = _share(aa, xx + mm)
        shares["centred-energy+mlp"] = _share(caa, cxx + cmm)
    return {mixing_array(name): values for name, values in shares.items()}


def alignments(products: Tensor) -> dict[str, Tensor]:
    """Return the cosines of x and a by array name, float64, shape (n,); 0 where one is zero."""
    xx, aa, _, xa, cxx, caa, _, cxa = products
    return {
        "stream.alignment.windows": _cosine(xa, xx, aa),
        "stream.centred-alignment.windows": _cosine(cxa, cxx, caa),
    }


def _centred(*states: Tensor) -> tuple[Tensor, ...]:
    return tuple(s - s.mean(0) for s in states)


def _share(a: Tensor, rest: Tensor) -> Tensor:
    return torch.where(a > 0.0, a / (rest + a), a)


def _cosine(product: Tensor, first: Tensor, second: Tensor) -> Tensor:
    # Lengths first: their product is in range where that of the squares is not.
    lengths = first.sqrt() * second.sqrt()
    # Beyond one is rounding, by Cauchy and Schwarz.
    return torch.where(lengths > 0.0, product / lengths, 0.0).clamp(-1.0, 1.0)


@functools.cache
def _compiled() -> Callable[..., None] | None:
    try:
        from posbias.measure._compiled_branches import token_products as compiled
    except ImportError:
        return None
    function: Callable[..., None] = compiled
    return function
