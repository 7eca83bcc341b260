"""Measured influence: gradients of the next-token probability in the input embeddings."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from posbias.errors import InstrumentationError
from posbias.models.sites import ModelSites

__all__ = ["EmbeddingLeaf", "checkpointed", "gradient_norms", "next_probability"]


class EmbeddingLeaf:
    """Makes the output of the input embedding a leaf of the graph for one forward pass.

    The leaf is what the embedding module returns, one vector per token: before position
    embeddings, embedding norms and multipliers that the model applies behind it (Gemma 1 and 2),
    after a multiplier inside the module (Gemma 3). Constant factors cancel in the normalised
    influence.
    """

    def __init__(self) -> None:
        self.tensor: Tensor | None = None

    @contextmanager
    def attached(self, embedding: nn.Module) -> Iterator[None]:
        """Watch the embedding inside the context."""
        handle = embedding.register_forward_hook(self._replace)
        try:
            yield
        finally:
            handle.remove()

    def _replace(self, module: nn.Module, args: Any, output: Tensor) -> Tensor:
        if self.tensor is not None:
            raise InstrumentationError(
                "the input embedding is used more than once in a forward pass; the gradient in "
                "it is not defined then"
            )
        self.tensor = output.detach().requires_grad_(True)
        # A copy, since some models scale their embeddings in place, which a leaf forbids.
        return self.tensor.clone()


def next_probability(logits: Tensor) -> Tensor:
    """Return the probability of the most likely next token, float64, shape (B,).

    Parameters
    ----------
    logits : Tensor, shape (B, m, V)
        Logits whose last row is that of the last position.
    """
    return torch.softmax(logits[:, -1].double(), dim=-1).amax(-1)


def gradient_norms(probability: Tensor, leaf: EmbeddingLeaf) -> Tensor:
    """Return the L2 norm of the gradient per window and position, float64, shape (B, n).

    Windows of a batch do not interact, so the gradient of the sum of their probabilities holds
    the gradient of each.
    """
    if leaf.tensor is None:
        raise InstrumentationError("the input embedding was not used in the forward pass")
    (gradient,) = torch.autograd.grad(probability.sum(), leaf.tensor)
    norms: Tensor = torch.linalg.vector_norm(gradient.double(), dim=-1)
    return norms


@contextmanager
def checkpointed(sites: ModelSites) -> Iterator[None]:
    """Recompute every block in the backward pass instead of keeping its activations.

    Wraps the `forward` of the blocks, since the switch of transformers has no effect in
    evaluation mode; hooks of a block run once, outside of the recomputed part.
    """
    blocks = [site.block for site in sites.layers]
    own = [block.__dict__.get("forward") for block in blocks]
    try:
        for block in blocks:
            block.forward = partial(
                checkpoint, block.forward, use_reentrant=False, preserve_rng_state=False
            )
        yield
    finally:
        for block, forward in zip(blocks, own, strict=True):
            if forward is None:
                block.__dict__.pop("forward", None)
            else:
                block.forward = forward
