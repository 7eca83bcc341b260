"""Mixing from local derivatives: how much of what flows back takes the path through attention."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from posbias.errors import InstrumentationError
from posbias.measure.influence import plain_forward
from posbias.models.preflight import CheckedModel
from posbias.models.sites import LayerSites, first_tensor
from posbias.models.state import forward_logits

__all__ = ["jacobian_mixing"]


def jacobian_mixing(checked: CheckedModel, ids: Tensor, draws: int) -> Tensor:
    """Return the share of the attention path in the energy of the derivative of x + a.

    For a random query i and a random direction g, J_j is the gradient of ``g . a_i`` in x_j. What
    flows back from ``g . (x + a)_i`` to the query itself is ``g + J_i``, to other tokens J_j:

        share = sum_{j != i} |J_j|^2 / (sum_{j != i} |J_j|^2 + |g + J_i|^2)

    averaged over draws. Energies, because gradients of different tokens go on through different
    layers and tokens, as if they were incoherent.

    Parameters
    ----------
    checked : CheckedModel
        In measuring state.
    ids : Tensor of int64, shape (B, n)
        Windows of text.
    draws : int
        K, draws of i (uniform over 1..n-1) and g (isotropic) per layer and window.

    Returns
    -------
    Tensor of float64, shape (B, T)

    Raises
    ------
    InstrumentationError
        If a layer does not come from its input to its attention update.

    Notes
    -----
    Assumes that what flows back from above is isotropic. It is not: gradients of a trained model
    lie in few directions, and those of its attention may be others; that biases the share either
    way. The MLP is not part of it, and neither is where the attention leads: sinks count like any
    other token.

    Cost: one forward pass of the model, and for each layer its attention branch once forward and K
    times backward. Memory is that of one branch with its graph. Draws depend on the tokens of the
    window, the layer and the number of the draw only, not on batch or partition.
    """
    shares = torch.zeros(len(ids), len(checked.sites.layers), dtype=torch.float64)
    handles = []

    def attach(layer: int, site: LayerSites) -> None:
        def measure(module: nn.Module, args: Any, kwargs: Any) -> None:
            shares[:, layer] = _layer_shares(site, args, kwargs, ids=ids, at=(layer, draws))

        handles.append(site.block.register_forward_pre_hook(measure, with_kwargs=True))

    try:
        for layer, site in enumerate(checked.sites.layers):
            attach(layer, site)
        with torch.no_grad():
            forward_logits(checked.model, ids)
    finally:
        for handle in handles:
            handle.remove()
    return shares


def _layer_shares(
    site: LayerSites, args: Any, kwargs: Any, *, ids: Tensor, at: tuple[int, int]
) -> Tensor:
    """Return the mean share of each window in one layer, shape (B,), on the CPU."""
    layer, draws = at
    with torch.enable_grad():
        leaf, update = _branch(site, args, kwargs, layer)
    batch, _, width = update.shape
    windows = torch.arange(batch)
    total = torch.zeros(batch, dtype=torch.float64)
    for k in range(draws):
        queries, directions = _draw(ids, (layer, k), width)
        given = torch.zeros_like(update)
        given[windows, queries] = directions.to(given)
        (gradient,) = torch.autograd.grad(update, leaf, given, retain_graph=k + 1 < draws)
        gradient = gradient.to(torch.float64)
        energies = gradient.square().sum(-1).cpu()
        energies[windows, queries] = 0.0
        own = (gradient + given.to(torch.float64))[windows, queries].square().sum(-1).cpu()
        others = energies.sum(-1)
        total += others / (others + own)
    return total / draws


def _branch(site: LayerSites, args: Any, kwargs: Any, layer: int) -> tuple[Tensor, Tensor]:
    """Run a block up to its attention update and return x as a leaf, and a with its graph."""
    leaf: Tensor | None = None
    if site.stream is None:
        args, kwargs, leaf = _with_leaf(args, kwargs)
    # Keys and values of the pass itself must not be seen, nor added to.
    kwargs = {k: None if hasattr(v, "get_seq_length") else v for k, v in kwargs.items()}
    stopping, replacing = _stopping_at(site.update), _replacing(site.stream)
    with stopping as reached, replacing as replaced, suppress(_Reached):
        plain_forward(site.block)(*args, **kwargs)
    leaf = replaced[0] if replaced else leaf
    if leaf is None or not reached or not reached[0].requires_grad:
        raise InstrumentationError(
            f"the attention update of layer {layer + 1} cannot be derived by its stream; measure "
            "without jacobian"
        )
    return leaf, reached[0] * site.multiplier


def _with_leaf(args: Any, kwargs: Any) -> tuple[list[Any], dict[str, Any], Tensor | None]:
    """Replace the first floating-point tensor of a call by a leaf."""
    stream = first_tensor((args, kwargs))
    if stream is None:
        return list(args), dict(kwargs), None
    leaf = stream.detach().clone().requires_grad_(True)
    # A copy, since some blocks write into what they were given, which a leaf forbids.
    put: Callable[[Any], Any] = lambda v: leaf.clone() if v is stream else v  # noqa: E731
    return [put(v) for v in args], {k: put(v) for k, v in kwargs.items()}, leaf


@contextmanager
def _stopping_at(update: nn.Module) -> Iterator[list[Tensor]]:
    """End the run of a block when its attention update is there, which the list then holds."""
    reached: list[Tensor] = []

    def stop(module: nn.Module, args: Any, output: Any) -> None:
        tensor = first_tensor(output)
        if tensor is not None:
            reached.append(tensor)
        raise _Reached

    handle = update.register_forward_hook(stop)
    try:
        yield reached
    finally:
        handle.remove()


@contextmanager
def _replacing(stream: nn.Module | None) -> Iterator[list[Tensor]]:
    """Replace what a module returns by a leaf, which the list then holds."""
    replaced: list[Tensor] = []

    def replace(module: nn.Module, args: Any, output: Tensor) -> Tensor:
        replaced.append(output.detach().clone().requires_grad_(True))
        return replaced[0].clone()

    handle = None if stream is None else stream.register_forward_hook(replace)
    try:
        yield replaced
    finally:
        if handle is not None:
            handle.remove()


def _draw(ids: Tensor, number: tuple[int, int], width: int) -> tuple[Tensor, Tensor]:
    """Return one query per window and one direction per window, shape (B, C)."""
    queries, directions = [], []
    for window in ids.cpu().numpy():
        digest = hashlib.sha256(np.ascontiguousarray(window, dtype=np.int64).tobytes()).digest()
        rng = np.random.default_rng([int.from_bytes(digest[:8], "little"), *number])
        queries.append(int(rng.integers(1, len(window))))
        directions.append(rng.standard_normal(width))
    return torch.tensor(queries), torch.from_numpy(np.stack(directions))


class _Reached(Exception):  # noqa: N818  no error: the rest of the block is not needed
    """The attention update is there."""
