"""Measure one model on one text: the one forward and backward pass per batch of windows."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from posbias.errors import InterruptedRunError, ModelError
from posbias.measure import Progress, Text
from posbias.measure.accumulators import Accumulator
from posbias.measure.branch_plan import BranchPlan, plan_branches
from posbias.measure.checkpoint import PartialRun, SavedState
from posbias.measure.identity import run_identity
from posbias.measure.influence import (
    GRADIENT_METHODS,
    EmbeddingLeaf,
    checkpointed,
    gradient_rows,
    next_distribution,
)
from posbias.measure.influence_passes import integrated_gradients, occlusion, replacements
from posbias.measure.inputs import read_model, read_options, read_windows
from posbias.measure.interruption import DeferredSignals
from posbias.measure.jacobian import jacobian_mixing
from posbias.measure.manifest import build_manifest
from posbias.measure.options import MeasureOptions
from posbias.measure.resources import LONG_RUN, check_memory, describe_need, estimate_seconds
from posbias.measure.run_state import RunState, free_memory
from posbias.measure.sharding import Shard, current_shard
from posbias.measure.stream_sums import BranchSums
from posbias.measure.windows import TokenWindows
from posbias.measurement import Measurement
from posbias.measurement.estimator_arrays import JACOBIAN, mixing_array
from posbias.measurement.schema import influence_array
from posbias.models.instrument import instrumented
from posbias.models.preflight import CheckedModel, check_model
from posbias.models.state import (
    forward_logits,
    input_device,
    is_out_of_memory,
    measuring,
    model_errors,
)

__all__ = ["measure"]

_SMALL_MODEL = 20_000_000

_log = logging.getLogger(__name__)


def measure(
    model: Any,
    text: Text,
    *,
    tokenizer: Any = None,
    options: MeasureOptions | None = None,
    progress: Progress | None = None,
    partial: PartialRun | None = None,
    command: list[str] | None = None,
    **settings: Any,
) -> Measurement:
    """Measure a model on a text; see `posbias.measure.measure`, which calls this."""
    chosen = read_options(options, settings)
    shard = current_shard()
    # Joins the processes, so that none saves before all have looked at the checkpoints.
    device = shard.device()
    chosen = replace(chosen, device=chosen.device or device)
    given = read_model(model, tokenizer, chosen)
    windows, origin = read_windows(given, text, chosen)
    if chosen.part is not None:
        windows = _part_of(windows, *chosen.part, batch_size=chosen.batch_size)
    chosen = replace(chosen, length=windows.length, windows=windows.count)
    network = given.model
    ids = torch.from_numpy(windows.ids.copy()).to(input_device(network))
    mine = ids[shard.windows(windows.count, batch_size=chosen.batch_size)]
    with _threads(network, chosen.threads), measuring(network):
        run = _Run(mine, chosen, prefix=windows.prefix, progress=progress, partial=partial)
        if partial is not None:
            run.identity = {
                **run_identity(network, windows, origin=origin, options=chosen),
                "processes": shard.count,
            }
        checked = check_model(network, ids, gradients=_needs_gradients(chosen))
        plan = plan_branches(checked, ids, chosen)
        arrays = shard.combine(run.measure(checked, plan))
    facts = {**run.describe(checked, plan), "processes": shard.count}
    manifest = build_manifest(
        checked, windows, origin=origin, options=chosen, run=facts, command=command
    )
    return Measurement(manifest, arrays)


def _needs_gradients(options: MeasureOptions) -> bool:
    methods = {*GRADIENT_METHODS, "integrated-gradients"}
    return bool(options.jacobian) or not methods.isdisjoint(options.influence)


def _part_of(windows: TokenWindows, number: int, parts: int, *, batch_size: int) -> TokenWindows:
    """Return one of several parts of the windows."""
    span = Shard(number - 1, parts).windows(windows.count, batch_size=batch_size)
    return replace(windows, ids=windows.ids[span], starts=windows.starts[span])


@contextmanager
def _threads(network: nn.Module, threads: int | None) -> Iterator[None]:
    """Set the threads of torch for the duration of the context."""
    before = torch.get_num_threads()
    if threads is None:
        size = sum(parameter.numel() for parameter in network.parameters())
        threads = 1 if size < _SMALL_MODEL else before
    torch.set_num_threads(threads)
    try:
        yield
    finally:
        torch.set_num_threads(before)


class _Run:
    """One run over all windows: batches, checkpoints, interruptions, back-off."""

    def __init__(
        self,
        ids: Tensor,
        options: MeasureOptions,
        *,
        prefix: int,
        progress: Progress | None,
        partial: PartialRun | None,
    ) -> None:
        self.identity: dict[str, Any] = {}
        self._ids = ids
        self._options = replace(options, windows=len(ids))
        self._prefix = prefix
        self._progress = progress
        self._partial = partial
        self._batch_size = options.batch_size
        self._resumed_at: list[int] = []
        self._seconds_before = 0.0
        self._started = time.perf_counter()

    def measure(self, checked: CheckedModel, plan: BranchPlan | None) -> dict[str, NDArray[Any]]:
        """Measure all windows, one batch after another, and return the arrays."""
        count, length = self._ids.shape
        self._estimate(checked)
        accumulator = Accumulator(
            checked,
            windows=count,
            length=length,
            device=self._ids.device,
            kernels=self._options.kernels,
        )
        branches = None if plan is None else self._branches(checked, plan)
        state = RunState(accumulator, windows=count, batch_size=self._batch_size, branches=branches)

        def batch(span: slice) -> dict[str, Tensor]:
            with model_errors(checked.model):
                return _measure_batch(
                    checked,
                    self._ids[span],
                    (accumulator, branches),
                    options=replace(self._options, batch_size=state.batch_size),
                    prefix=self._prefix,
                )

        self._take_up(state)
        with ExitStack() as stack:
            signals = None if self._partial is None else stack.enter_context(DeferredSignals())
            if self._options.checkpoint and self._options.influence:
                stack.enter_context(checkpointed(checked.sites))
            while state.done < count:
                try:
                    state.advance(batch)
                except (RuntimeError, MemoryError) as error:
                    if not is_out_of_memory(error):
                        raise
                    failure = str(error)
                else:
                    self._after_batch(state, signals)
                    continue
                # Outside of the handler, so that the failed batch is not kept by its traceback.
                self._back_off(state, failure)
        self._batch_size = state.batch_size
        if self._partial is not None and self._partial.saved != state.done:
            # What follows may fail too: the output may not fit on the disk.
            self._save(self._partial, state)
        return state.finish()

    def describe(self, checked: CheckedModel, plan: BranchPlan | None) -> dict[str, Any]:
        """Return how the run went, for the manifest."""
        return {
            "seconds": round(self._seconds(), 3),
            "device": str(self._ids.device),
            "batch_size": self._batch_size,
            "checkpoint": self._options.checkpoint,
            "resumed_at": self._resumed_at,
            "residual": list(checked.residual),
            "update": checked.sites.update_path,
            "located_by": "table" if checked.sites.row is not None else "search",
            "record": self._options.record,
            **({} if plan is None else plan.reasons),
        }

    def _branches(self, checked: CheckedModel, plan: BranchPlan) -> BranchSums:
        count, length = self._ids.shape
        return BranchSums(checked, plan, windows=count, length=length, device=self._ids.device)

    def _estimate(self, checked: CheckedModel) -> None:
        """Refuse a run that cannot fit, and report memory and time of a long one."""
        need = check_memory(checked.sizes, self._options, self._ids.device)
        seconds = estimate_seconds(checked, self._ids, self._options)
        if seconds is not None and seconds >= LONG_RUN:
            _log.info(describe_need(need, seconds, self._options))

    def _take_up(self, state: RunState) -> None:
        """Continue from the last checkpoint, if there is one."""
        saved = None if self._partial is None else self._partial.load(self.identity)
        if saved is None:
            return
        state.restore(saved.arrays, done=saved.done)
        state.batch_size = min(saved.batch_size, state.batch_size)
        self._resumed_at = [*saved.resumed_at, saved.done]
        self._seconds_before = saved.seconds
        _log.info("continuing after %d of %d windows", saved.done, state.windows)
        if self._progress is not None:
            self._progress(saved.done, state.windows)

    def _after_batch(self, state: RunState, signals: DeferredSignals | None) -> None:
        if self._progress is not None:
            self._progress(state.done, state.windows)
        if self._partial is None or signals is None:
            return
        received = signals.received
        if received is not None or self._partial.is_due(state.done):
            self._save(self._partial, state)
        if received is not None:
            raise InterruptedRunError(
                f"interrupted by {received.name} after {state.done} of {state.windows} windows, "
                f"which {self._partial.folder} keeps; the same command with --resume continues",
                signal_number=received.value,
            )

    def _save(self, partial: PartialRun, state: RunState) -> None:
        saved = SavedState(
            state.arrays(),
            done=state.done,
            batch_size=state.batch_size,
            seconds=self._seconds(),
            resumed_at=self._resumed_at,
        )
        partial.save(saved, self.identity)

    def _back_off(self, state: RunState, failure: str) -> None:
        """Halve the batch and go back to the last clean state."""
        if state.batch_size == 1:
            raise ModelError(
                f"memory ran out with one window of {self._options.length} tokens per batch "
                f"({failure[:200]}). Measure shorter windows, recompute the layers in the "
                "backward pass (checkpoint), measure without influence, or use a larger device"
            )
        free_memory()
        state.batch_size = max(state.batch_size // 2, 1)
        _log.info("out of memory: going on with %d windows per batch", state.batch_size)
        saved = self._partial.load(self.identity) if self._partial is not None else None
        if saved is None:
            state.restart()
        else:
            state.restore(saved.arrays, done=saved.done)

    def _seconds(self) -> float:
        return self._seconds_before + time.perf_counter() - self._started


def _measure_batch(
    checked: CheckedModel,
    ids: Tensor,
    sums: tuple[Accumulator, BranchSums | None],
    *,
    options: MeasureOptions,
    prefix: int,
) -> dict[str, Tensor]:
    """Run one batch and return its rows of the arrays that hold one row per window.

    Statistics and the methods of one gradient share the forward pass.
    """
    leaf = EmbeddingLeaf()
    with_gradient = any(name in GRADIENT_METHODS for name in options.influence)
    with torch.set_grad_enabled(with_gradient), ExitStack() as stack:
        if with_gradient:
            stack.enter_context(leaf.attached(checked.sites.embedding))
        with instrumented(checked.sites, sums[0], branches=sums[1]):
            logits = forward_logits(checked.model, ids)
        distribution = next_distribution(logits)
        chance = distribution.amax(-1)
        rows = gradient_rows(chance, leaf, options.influence)
    distribution, others = distribution.detach(), {}
    other = replacements(ids, prefix=prefix)
    if "integrated-gradients" in options.influence:
        integral = integrated_gradients(
            checked,
            ids,
            target=distribution.argmax(-1),
            baseline=other,
            steps=options.integration_steps,
        )
        rows["integrated-gradients"] = integral.attribution.abs()
        others["integration.gap.windows"] = integral.gap
    if "occlusion" in options.influence:
        rows["occlusion"] = occlusion(
            checked, ids, distribution=distribution, other=other, batch_size=options.batch_size
        )
    if options.jacobian:
        others[mixing_array(JACOBIAN)] = jacobian_mixing(checked, ids, options.jacobian)
    named = {influence_array(name): values for name, values in rows.items()}
    return {"next.probability.windows": chance.detach(), **others, **named}
