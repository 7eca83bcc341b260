"""A record of everything the modules of a block read and return in one forward pass."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils.hooks import RemovableHandle

from posbias.models.sites import first_tensor
from posbias.models.tap import is_attention_call

__all__ = ["Event", "Trace", "record"]


@dataclass
class Event:
    """One call of one module inside a block; `output` is in the shape of the stream or None."""

    name: str
    began: int
    reads: list[Tensor]
    ended: int = -1
    output: Tensor | None = None


@dataclass
class Trace:
    """The calls of all modules of one block, in order of their beginning.

    Attributes
    ----------
    block : Module
        The layer.
    stream, returned : Tensor or None
        First input and first output of the block, shape (B, n, C).
    events : list of Event
        One per call.
    attention : str or None
        Path of the innermost module that reads the stream's shape and inside which softmax or
        fused attention ran.
    softmax_at : int
        Time of that call.
    """

    block: nn.Module
    stream: Tensor | None = None
    returned: Tensor | None = None
    events: list[Event] = field(default_factory=list)
    attention: str | None = None
    softmax_at: int = -1
    clock: int = 0
    stack: list[Event] = field(default_factory=list)
    running: bool = False

    def name_of(self, module: nn.Module | None) -> str:
        """Return the path of a module inside the block; empty for None."""
        if module is None:
            return ""
        names = (name for name, candidate in self.block.named_modules() if candidate is module)
        return next(names, "?")

    def output_of(self, name: str) -> Tensor | None:
        """Return what the first call of a module returned, or None."""
        outputs = (e.output for e in self.events if e.name == name and e.output is not None)
        return next(outputs, None)

    def attention_lineage(self) -> list[Event]:
        """Return the calls that can be the attention update.

        These are the attention module, the modules in it that end after the softmax, and modules
        that read exactly the output of one of them (a norm or dropout behind the attention).
        """
        if self.attention is None:
            return []
        inside = [
            e
            for e in self.events
            if (e.name == self.attention or e.name.startswith(self.attention + "."))
            and e.ended > self.softmax_at
            and e.output is not None
        ]
        lineage = [*inside, *self._enclosing()]
        for event in self.events:
            outputs = [e.output for e in lineage if e.output is not None and e.ended < event.began]
            is_new = event.output is not None and not any(event is e for e in lineage)
            if is_new and any(torch.equal(r, out) for r in event.reads for out in outputs):
                lineage.append(event)
        return lineage

    def alike(self, tensor: Tensor | None) -> Tensor | None:
        """Return a clone in the shape of the stream, or None if the sizes differ."""
        if tensor is None or self.stream is None or tensor.numel() != self.stream.numel():
            return None
        if tensor.shape[-1] != self.stream.shape[-1]:
            return None
        return tensor.detach().clone().reshape(self.stream.shape)

    def _enclosing(self) -> list[Event]:
        """Return the modules around the attention module, innermost first."""
        name = self.attention or ""
        parents = [name[:k] for k, letter in enumerate(name) if letter == "."]
        return [e for p in reversed(parents) for e in self.events if e.name == p]


def record(traces: list[Trace], forward: Callable[[], object]) -> list[Trace]:
    """Run one forward pass with every module of the blocks recorded; hooks never stay behind.

    Notes
    -----
    Keeps a clone of every activation of the width of the stream. Use a short window.
    """
    handles: list[RemovableHandle] = []
    try:
        for trace in traces:
            _attach_block(trace, handles)
        with torch.no_grad(), _AttentionWatch(traces):
            forward()
    finally:
        for handle in handles:
            handle.remove()
    return traces


class _AttentionWatch(TorchFunctionMode):
    """Notes in which module of which block softmax or fused attention runs."""

    def __init__(self, traces: list[Trace]) -> None:
        super().__init__()
        self._traces = traces

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        """Pass the call on; note the first attention call of each running block."""
        options = kwargs or {}
        for trace in self._traces:
            if not trace.running or trace.attention is not None or trace.stream is None:
                continue
            if is_attention_call(func, args, options, int(trace.stream.shape[1])):
                readers = [event for event in trace.stack if event.reads]
                trace.attention = readers[-1].name if readers else None
                trace.softmax_at = trace.clock
        return func(*args, **options)


def _attach_block(trace: Trace, handles: list[RemovableHandle]) -> None:
    def before(module: nn.Module, args: Any, kwargs: Any) -> None:
        stream = first_tensor((args, kwargs))
        trace.stream = None if stream is None else stream.detach().clone()
        trace.running = True

    def after(module: nn.Module, args: Any, output: Any) -> None:
        trace.returned = trace.alike(first_tensor(output))
        trace.running = False

    handles.append(trace.block.register_forward_pre_hook(before, with_kwargs=True))
    handles.append(trace.block.register_forward_hook(after))
    for name, module in trace.block.named_modules():
        if name:
            _attach_module(trace, name, module, handles)


def _attach_module(
    trace: Trace, name: str, module: nn.Module, handles: list[RemovableHandle]
) -> None:
    def before(module: nn.Module, args: Any, kwargs: Any) -> None:
        trace.clock += 1
        given = [t for t in (*args, *kwargs.values()) if isinstance(t, Tensor)]
        reads = [clone for t in given if (clone := trace.alike(t)) is not None]
        event = Event(name, trace.clock, reads)
        trace.events.append(event)
        trace.stack.append(event)

    def after(module: nn.Module, args: Any, output: Any) -> None:
        trace.clock += 1
        event = trace.stack.pop()
        event.ended, event.output = trace.clock, trace.alike(first_tensor(output))

    handles.append(module.register_forward_pre_hook(before, with_kwargs=True))
    handles.append(module.register_forward_hook(after))
