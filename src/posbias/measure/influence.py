"""Measured influence by gradients of the next-token probability in the input embeddings.

The definitions of all methods are in docs/methods/influence.md; those that need passes of their
own are in `posbias.measure.influence_passes`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from posbias.errors import InstrumentationError, UnsupportedModelError
from posbias.models.sites import ModelSites

__all__ = [
    "GRADIENT_METHODS",
    "EmbeddingLeaf",
    "checkpointed",
    "gradient_of",
    "gradient_rows",
    "next_distribution",
    "plain_forward",
]

GRADIENT_METHODS = ("gradient", "gradient-input")
"""Methods that take one backward pass from the measured forward pass."""

_LEAST_PROJECTION = 1e-3


class EmbeddingLeaf:
    """Makes the output of the input embedding a leaf of the graph for one forward pass.

    The leaf is what the embedding module returns, one vector per token: before position
    embeddings, embedding norms and multipliers that the model applies behind it (Gemma 1 and 2),
    after a multiplier inside the module (Gemma 3). Constant factors cancel in the normalised
    influence.

    Parameters
    ----------
    value : Tensor, shape (B, n, C), optional
        Vectors that take the place of what the embedding returns.
    """

    def __init__(self, value: Tensor | None = None) -> None:
        self._value = value
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
        source = output if self._value is None else self._value
        self.tensor = source.detach().requires_grad_(True)
        # A copy, since some models scale their embeddings in place, which a leaf forbids.
        return self.tensor.clone()


def next_distribution(logits: Tensor) -> Tensor:
    """Return the distribution of the next token, float64, shape (B, V).

    Parameters
    ----------
    logits : Tensor, shape (B, m, V)
        Logits whose last row is that of the last position.
    """
    return torch.softmax(logits[:, -1].double(), dim=-1)


def gradient_of(probability: Tensor, leaf: EmbeddingLeaf) -> Tensor:
    """Return the gradient of each window's probability in its embeddings, float64, (B, n, C).

    Windows of a batch do not interact, so the gradient of the sum of their probabilities holds
    the gradient of each.
    """
    if leaf.tensor is None:
        raise InstrumentationError("the input embedding was not used in the forward pass")
    (gradient,) = torch.autograd.grad(probability.sum(), leaf.tensor)
    return gradient.double()


def gradient_rows(
    probability: Tensor, leaf: EmbeddingLeaf, methods: Sequence[str]
) -> dict[str, Tensor]:
    """Return influence by method from one backward pass, each float64 of shape (B, n).

    Parameters
    ----------
    probability : Tensor, shape (B,)
        Probability of the most likely next token, with its graph.
    leaf : EmbeddingLeaf
        Used in the forward pass.
    methods : sequence of str
        Methods to compute; those not in `GRADIENT_METHODS` are left out.

    Raises
    ------
    UnsupportedModelError
        If gradient x input is asked for and the gradients are orthogonal to the embeddings.
    """
    wanted = [name for name in methods if name in GRADIENT_METHODS]
    if not wanted:
        return {}
    gradient = gradient_of(probability, leaf)
    rows = {"gradient": torch.linalg.vector_norm(gradient, dim=-1)}
    if "gradient-input" in wanted and leaf.tensor is not None:
        rows["gradient-input"] = _gradient_input(gradient, leaf.tensor.detach().double())
    return {name: rows[name] for name in wanted}


def _gradient_input(gradient: Tensor, embedding: Tensor) -> Tensor:
    """Return |gradient . embedding| per position, shape (B, n).

    A norm right behind the embedding makes the model blind to the length of its input, so that
    this product is rounding. Vectors that have nothing to do with each other leave 0.8 / sqrt(C)
    of the product of their lengths, above `_LEAST_PROJECTION` for any width C in use.
    """
    product: Tensor = (gradient * embedding).sum(-1).abs()
    longest = torch.linalg.vector_norm(gradient, dim=-1) * torch.linalg.vector_norm(
        embedding, dim=-1
    )
    if bool((product.sum(-1) < _LEAST_PROJECTION * longest.sum(-1)).any()):
        raise UnsupportedModelError(
            "influence gradient-input has no meaning for this model: it normalises its embeddings "
            "before anything else (as BLOOM does), so that their length does not matter. Use "
            "gradient, integrated-gradients or occlusion"
        )
    return product


def plain_forward(block: nn.Module) -> Callable[..., Any]:
    """Return the forward of a block without the recomputation of `checkpointed`."""
    forward: Any = block.forward
    is_wrapped = isinstance(forward, partial) and forward.func is checkpoint
    plain: Callable[..., Any] = forward.args[0] if is_wrapped else forward
    return plain


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
