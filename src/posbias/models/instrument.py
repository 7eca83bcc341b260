"""Hooks around one forward pass: where the stream, the update and the attention are seen."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from posbias.errors import InstrumentationError
from posbias.models.sites import LayerSites, ModelSites, first_tensor
from posbias.models.tap import BLOCK_ROWS, AttentionRows, AttentionTap, ValueRows

__all__ = ["BranchObserver", "Observer", "instrumented"]


class Observer(Protocol):
    """What receives the quantities of one forward pass, layer by layer, under ``no_grad``."""

    def on_stream(self, layer: int, stream: Tensor) -> None:
        """Receive x of a layer, shape (B, n, C); not to be kept, the model may overwrite it."""

    def on_update(self, layer: int, update: Tensor) -> None:
        """Receive a of a layer as it is added to x, shape (B, n, C); not to be kept."""

    def on_attention(self, rows: AttentionRows) -> None:
        """Receive a block of attention rows."""


class BranchObserver(Protocol):
    """What receives more of the branches of a layer, in this order, under ``no_grad``.

    x, then the values, then a and what the block returns; nothing of it is to be kept.
    """

    def on_stream(self, layer: int, stream: Tensor) -> None:
        """Receive x of a layer, shape (B, n, C)."""

    def on_values(self, rows: ValueRows) -> None:
        """Receive a block of attention rows with the values that they weight."""

    def on_update(self, layer: int, update: Tensor) -> None:
        """Receive a of a layer as it is added to x, shape (B, n, C)."""

    def on_output(self, layer: int, output: Tensor) -> None:
        """Receive what the block returns, shape (B, n, C)."""


@contextmanager
def instrumented(
    sites: ModelSites,
    observer: Observer,
    *,
    zero_queries: bool = False,
    check_values: bool = False,
    block_rows: int = BLOCK_ROWS,
    branches: BranchObserver | None = None,
) -> Iterator[AttentionTap]:
    """Watch one forward pass that runs inside the context.

    Run the backward pass outside: recomputation by gradient checkpointing is then not seen a
    second time. All hooks are removed at the end, also after an exception.

    Raises
    ------
    InstrumentationError
        On leaving, if a layer was not seen exactly once.
    """
    tap = AttentionTap(
        len(sites.layers),
        observer.on_attention,
        dtype=sites.dtype,
        zero_queries=zero_queries,
        check_values=check_values,
        block_rows=block_rows,
        receive_values=None if branches is None else branches.on_values,
    )
    watch = _Watch(sites, observer, tap, branches)
    handles: list[RemovableHandle] = []
    try:
        for layer in range(len(sites.layers)):
            watch.attach(layer, handles)
        with tap:
            yield tap
    finally:
        for handle in handles:
            handle.remove()
    watch.verify()


class _Watch:
    """The hooks of one forward pass and how often each layer was seen."""

    def __init__(
        self,
        sites: ModelSites,
        observer: Observer,
        tap: AttentionTap,
        branches: BranchObserver | None,
    ) -> None:
        self._sites = sites
        self._observer = observer
        self._branches = branches
        self._tap = tap
        self._streams = [0] * len(sites.layers)
        self._updates = [0] * len(sites.layers)

    def attach(self, layer: int, handles: list[RemovableHandle]) -> None:
        """Register the hooks of one layer, appending each handle at once."""
        site = self._sites.layers[layer]

        def on_input(module: nn.Module, args: Any, kwargs: Any) -> None:
            self._see_stream(layer, site, first_tensor((args, kwargs)))

        def on_stream(module: nn.Module, args: Any, output: Any) -> None:
            self._see_stream(layer, site, first_tensor(output))

        def on_enter(module: nn.Module, args: Any, kwargs: Any) -> None:
            batch, length = _batch_shape(first_tensor((args, kwargs)), layer)
            self._tap.enter(layer, batch, length)

        def on_leave(module: nn.Module, args: Any, output: Any) -> None:
            self._tap.leave()

        def on_update(module: nn.Module, args: Any, output: Any) -> None:
            self._see_update(layer, site, first_tensor(output))

        def on_output(module: nn.Module, args: Any, output: Any) -> None:
            self._see_output(layer, first_tensor(output))

        if self._branches is not None:
            handles.append(site.block.register_forward_hook(on_output))
        if site.stream is None:
            handles.append(site.block.register_forward_pre_hook(on_input, with_kwargs=True))
        else:
            handles.append(site.stream.register_forward_hook(on_stream))
        handles.append(site.attention.register_forward_pre_hook(on_enter, with_kwargs=True))
        handles.append(site.attention.register_forward_hook(on_leave))
        handles.append(site.update.register_forward_hook(on_update))

    @torch.no_grad()
    def _see_stream(self, layer: int, site: LayerSites, stream: Tensor | None) -> None:
        self._streams[layer] += 1
        tensor = _required(stream, layer, "residual stream")
        self._observer.on_stream(layer, tensor)
        if self._branches is not None:
            self._branches.on_stream(layer, tensor)

    @torch.no_grad()
    def _see_update(self, layer: int, site: LayerSites, update: Tensor | None) -> None:
        self._updates[layer] += 1
        tensor = _required(update, layer, "attention update")
        tensor = tensor if site.multiplier == 1.0 else tensor * site.multiplier
        self._observer.on_update(layer, tensor)
        if self._branches is not None:
            self._branches.on_update(layer, tensor)

    @torch.no_grad()
    def _see_output(self, layer: int, output: Tensor | None) -> None:
        if self._branches is not None:
            self._branches.on_output(layer, _required(output, layer, "output of the block"))

    def verify(self) -> None:
        """Check that each layer was seen exactly once in every respect."""
        seen = {
            "attention": self._tap.captures,
            "residual stream": self._streams,
            "attention update": self._updates,
        }
        for what, counts in seen.items():
            for layer, count in enumerate(counts):
                if count != 1:
                    raise InstrumentationError(
                        f"the {what} of layer {layer + 1} was seen {count} times in one forward "
                        "pass; exactly once is required. Usual causes: an attention "
                        "implementation other than eager or sdpa (load the model with "
                        "attn_implementation='sdpa'), a compiled model, or a layer without "
                        "softmax attention"
                    )


def _required(tensor: Tensor | None, layer: int, what: str) -> Tensor:
    if tensor is None:
        raise InstrumentationError(f"the module for the {what} of layer {layer + 1} has no tensor")
    return tensor.detach()


def _batch_shape(tensor: Tensor | None, layer: int) -> tuple[int, int]:
    shape = _required(tensor, layer, "attention").shape
    if len(shape) != 3:
        raise InstrumentationError(
            f"the attention of layer {layer + 1} reads a tensor of shape {tuple(shape)}; "
            "(batch, positions, width) is required"
        )
    return int(shape[0]), int(shape[1])
