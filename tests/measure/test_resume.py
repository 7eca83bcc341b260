"""Interrupted runs: what is kept, what continues, what is refused."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tiny_models import tiny, token_ids

from posbias.errors import (
    ArtifactError,
    InputError,
    InstrumentationError,
    InterruptedRunError,
    ModelError,
    OutputExistsError,
    PosbiasError,
)
from posbias.measure import measure
from posbias.measure.checkpoint import STATE_FILE, PartialRun, partial_directory
from posbias.measurement import Measurement

WINDOWS, LENGTH = 9, 12
OPTIONS: dict[str, Any] = {"batch_size": 2, "influence": ("gradient", "occlusion")}


class StopError(Exception):
    """What a test raises in the middle of a run."""


@pytest.fixture(scope="module")
def model() -> Any:
    return tiny("llama")


@pytest.fixture(scope="module")
def ids() -> np.ndarray:
    return token_ids(WINDOWS, LENGTH).numpy()


@pytest.fixture(scope="module")
def whole(model: Any, ids: np.ndarray) -> Measurement:
    return measure(model, ids, **OPTIONS)


def stop_after(windows: int) -> Callable[[int, int], None]:
    def progress(done: int, total: int) -> None:
        if done >= windows:
            raise StopError

    return progress


def same_arrays(first: Measurement, second: Measurement) -> bool:
    assert set(first.arrays) == set(second.arrays)
    return all(np.array_equal(first.arrays[name], second.arrays[name]) for name in first.arrays)


def interrupt(model: Any, ids: np.ndarray, out: Path, *, after: int, every: int = 1) -> int | None:
    """Stop a run in the middle and return how many windows its checkpoint holds."""
    with pytest.raises(StopError), PartialRun(out, every=every) as partial:
        measure(model, ids, partial=partial, progress=stop_after(after), **OPTIONS)
    return partial.saved


@pytest.mark.parametrize(
    ("after", "every"), [(4, 1), (6, 1), (8, 1), (9, 1), (6, 3), (8, 3), (9, 5)]
)
def test_a_continued_run_gives_the_same_bits(
    after: int, every: int, model: Any, ids: np.ndarray, whole: Measurement, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    saved = interrupt(model, ids, out, after=after, every=every)
    assert (partial_directory(out) / STATE_FILE).exists()
    with PartialRun(out, resume=True) as partial:
        result = measure(model, ids, partial=partial, **OPTIONS)
        assert result.manifest["run"]["resumed_at"] == [saved]
        result.save(out)
    assert same_arrays(Measurement.open(out), whole)
    assert not partial_directory(out).exists()


def test_a_run_may_be_interrupted_again_and_again(
    model: Any, ids: np.ndarray, whole: Measurement, tmp_path: Path
) -> None:
    for after in (4, 6, 8):
        with pytest.raises(StopError), PartialRun(tmp_path / "a", resume=True, every=1) as partial:
            measure(model, ids, partial=partial, progress=stop_after(after), **OPTIONS)
    with PartialRun(tmp_path / "a", resume=True) as partial:
        result = measure(model, ids, partial=partial, **OPTIONS)
    assert result.manifest["run"]["resumed_at"] == [2, 4, 6]
    assert same_arrays(result, whole)


def test_a_failure_after_the_last_window_loses_nothing(
    model: Any, ids: np.ndarray, whole: Measurement, tmp_path: Path
) -> None:
    def fail() -> None:
        with PartialRun(tmp_path / "a", every=100) as partial:
            measure(model, ids, partial=partial, **OPTIONS)
            raise StopError

    with pytest.raises(StopError):
        fail()
    with PartialRun(tmp_path / "a", resume=True) as partial:
        result = measure(model, ids, partial=partial, **OPTIONS)
    assert result.manifest["run"]["resumed_at"] == [WINDOWS]
    assert same_arrays(result, whole)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_saves_the_batch_and_stops(
    number: signal.Signals, model: Any, ids: np.ndarray, whole: Measurement, tmp_path: Path
) -> None:
    def progress(done: int, total: int) -> None:
        if done == 4:
            os.kill(os.getpid(), number)

    before = [signal.getsignal(s) for s in (signal.SIGINT, signal.SIGTERM)]
    with (
        pytest.raises(InterruptedRunError, match=f"{number.name} after 4 of 9.*--resume") as caught,
        PartialRun(tmp_path / "a", every=100) as partial,
    ):
        measure(model, ids, partial=partial, progress=progress, **OPTIONS)
    assert caught.value.exit_code == 128 + number
    assert [signal.getsignal(s) for s in (signal.SIGINT, signal.SIGTERM)] == before
    with PartialRun(tmp_path / "a", resume=True) as partial:
        assert same_arrays(measure(model, ids, partial=partial, **OPTIONS), whole)


def test_a_second_signal_stops_at_once(model: Any, ids: np.ndarray, tmp_path: Path) -> None:
    def progress(done: int, total: int) -> None:
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(KeyboardInterrupt), PartialRun(tmp_path / "a", every=100) as partial:
        measure(model, ids, partial=partial, progress=progress, **OPTIONS)
    assert not partial_directory(tmp_path / "a").exists()


def test_without_resume_a_checkpoint_is_refused_and_kept(
    model: Any, ids: np.ndarray, tmp_path: Path
) -> None:
    interrupt(model, ids, tmp_path / "a", after=4)
    state = partial_directory(tmp_path / "a") / STATE_FILE
    before = state.read_bytes()
    with pytest.raises(OutputExistsError, match=r"interrupted run.*--resume"):
        PartialRun(tmp_path / "a").__enter__()
    assert state.read_bytes() == before


def test_resume_without_a_checkpoint_begins_anew(
    model: Any, ids: np.ndarray, whole: Measurement, tmp_path: Path
) -> None:
    with PartialRun(tmp_path / "a", resume=True) as partial:
        assert same_arrays(measure(model, ids, partial=partial, **OPTIONS), whole)


def changed_weight() -> Any:
    other = tiny("llama")
    with torch.no_grad():
        other.model.layers[1].mlp.up_proj.weight[3, 5] += 1e-3
    return other


@pytest.mark.parametrize(
    ("change", "fragments"),
    [
        ({"batch_size": 3}, ["options.batch_size", "2", "3"]),
        ({"influence": "gradient"}, ["options.influence", "occlusion"]),
        ({"checkpoint": True}, ["options.checkpoint", "False", "True"]),
        ({"ids": token_ids(WINDOWS, LENGTH, seed=5).numpy()}, ["text.sha256"]),
        ({"ids": token_ids(WINDOWS, LENGTH + 1).numpy()}, ["text.sha256"]),
        ({"model": changed_weight}, ["model.weights"]),
        ({"model": lambda: tiny("llama", rms_norm_eps=1e-3)}, ["config.rms_norm_eps", "0.001"]),
        ({"model": lambda: tiny("llama", dtype=torch.float64)}, ["dtype", "float32", "float64"]),
    ],
)
def test_another_run_is_refused_with_both_values(
    change: dict[str, Any], fragments: list[str], model: Any, ids: np.ndarray, tmp_path: Path
) -> None:
    interrupt(model, ids, tmp_path / "a", after=4)
    state = partial_directory(tmp_path / "a") / STATE_FILE
    before = state.read_bytes()
    other = change.get("model", lambda: model)()
    options = OPTIONS | {k: v for k, v in change.items() if k not in ("model", "ids")}
    with (
        pytest.raises(InputError, match="was begun with") as caught,
        PartialRun(tmp_path / "a", resume=True) as partial,
    ):
        measure(other, change.get("ids", ids), partial=partial, **options)
    assert all(fragment in str(caught.value) for fragment in fragments), str(caught.value)
    assert state.read_bytes() == before


def test_two_runs_exclude_each_other(tmp_path: Path) -> None:
    with (
        PartialRun(tmp_path / "a"),
        pytest.raises(OutputExistsError, match=f"in use: process {os.getpid()} on"),
        PartialRun(tmp_path / "a", resume=True),
    ):
        pass
    with PartialRun(tmp_path / "a"):
        assert (tmp_path / "a.partial" / "lock").exists()
    assert not (tmp_path / "a.partial").exists()


def test_the_lock_of_a_dead_process_locks_nothing(tmp_path: Path) -> None:
    program = f"""
import os
from posbias.measure.checkpoint import PartialRun
PartialRun({str(tmp_path / "a")!r}).__enter__()
os.kill(os.getpid(), 9)
"""
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == -9
    assert (tmp_path / "a.partial" / "lock").exists()
    with PartialRun(tmp_path / "a") as partial:
        assert partial.saved is None


def test_a_damaged_checkpoint_is_refused(model: Any, ids: np.ndarray, tmp_path: Path) -> None:
    interrupt(model, ids, tmp_path / "a", after=4)
    state = partial_directory(tmp_path / "a") / STATE_FILE
    state.write_bytes(state.read_bytes()[:-100])
    with (
        pytest.raises(ArtifactError, match="cannot be read"),
        PartialRun(tmp_path / "a", resume=True) as partial,
    ):
        measure(model, ids, partial=partial, **OPTIONS)
    assert state.exists()


def test_a_full_disk_keeps_the_last_checkpoint(
    model: Any, ids: np.ndarray, whole: Measurement, tmp_path: Path
) -> None:
    """The second checkpoint hits a limit on the size of files, as on a full disk."""
    resource = pytest.importorskip("resource")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)

    def progress(done: int, total: int) -> None:
        if done == 4:
            resource.setrlimit(resource.RLIMIT_FSIZE, (1000, before[1]))

    try:
        with (
            pytest.raises(PosbiasError, match=r"after 2 windows is kept.*--resume"),
            PartialRun(tmp_path / "a", every=2) as partial,
        ):
            measure(model, ids, partial=partial, progress=progress, **OPTIONS)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert sorted(p.name for p in (tmp_path / "a.partial").iterdir()) == ["lock", STATE_FILE]
    with PartialRun(tmp_path / "a", resume=True) as partial:
        result = measure(model, ids, partial=partial, **OPTIONS)
    assert result.manifest["run"]["resumed_at"] == [2]
    assert same_arrays(result, whole)


@pytest.mark.parametrize("every", [0, -1, True, 1.5])
def test_the_interval_must_be_a_whole_number(every: Any, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="whole number of at least 1"):
        PartialRun(tmp_path / "a", every=every)


KILLED = """
import os, random, signal, sys, time
sys.path.insert(0, {tests!r})
from tiny_models import tiny, token_ids
from posbias.measure import measure
from posbias.measure.checkpoint import PartialRun

model, ids = tiny("llama"), token_ids(60, {length}).numpy()

def child():
    with PartialRun({out!r}, resume=True, every=1) as partial:
        measure(model, ids, batch_size=1, partial=partial).save({out!r})
    os._exit(0)

def written():
    try:
        return os.stat({state!r}).st_mtime_ns
    except FileNotFoundError:
        return None

def wait_for_checkpoints(count):
    seen = written()
    while count and not os.path.exists({out!r}):
        time.sleep(0.001)
        if written() not in (None, seen):
            seen, count = written(), count - 1

# Each process is killed at a random moment after it has written one to four checkpoints more.
moments = random.Random(3)
for kill in range(11):
    process = os.fork()
    if process == 0:
        child()
    if kill < 10:
        wait_for_checkpoints(moments.randint(1, 4))
        time.sleep(moments.uniform(0.0, 0.03))
        os.kill(process, signal.SIGKILL)
    os.waitpid(process, 0)
    if os.path.exists({out!r}):
        break
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_run_killed_again_and_again_gives_the_same_bits(tmp_path: Path) -> None:
    """Kill -9 at up to ten random moments; every run continues the one before."""
    out = tmp_path / "out"
    program = KILLED.format(
        tests=str(Path(__file__).parents[1]),
        out=str(out),
        state=str(partial_directory(out) / STATE_FILE),
        length=LENGTH,
    )
    done = subprocess.run(
        [sys.executable, "-c", program], check=False, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    result = Measurement.open(out)
    assert result.manifest["run"]["resumed_at"]
    assert same_arrays(result, measure(tiny("llama"), token_ids(60, LENGTH).numpy(), batch_size=1))


class Exhausted:
    """Makes a model run out of memory for batches of more windows than it takes."""

    def __init__(self, model: Any, limit: int, error: Exception, layer: int = 1) -> None:
        self._limit, self._error = limit, error
        self._handle = model.model.layers[layer].register_forward_hook(self._fail)

    def _fail(self, module: Any, args: Any, output: Any) -> None:
        hidden = output[0] if isinstance(output, tuple) else output
        if hidden.shape[0] > self._limit and hidden.shape[1] == LENGTH:
            raise self._error

    def __enter__(self) -> Exhausted:
        return self

    def __exit__(self, *_: object) -> None:
        self._handle.remove()


ERRORS = [
    torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB"),
    RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried ..."),
    MemoryError(),
]


@pytest.mark.parametrize("error", ERRORS, ids=lambda e: type(e).__name__)
def test_the_batch_is_halved_when_memory_runs_out(error: Exception, ids: np.ndarray) -> None:
    model = tiny("llama")
    reference = measure(model, ids, batch_size=2)
    # The checks look at two windows, so that two must fit.
    with Exhausted(model, 2, error):
        result = measure(model, ids, batch_size=8)
    assert result.manifest["run"]["batch_size"] == 2
    assert same_arrays(result, reference)


def test_after_a_checkpoint_only_the_rest_is_measured_again(
    ids: np.ndarray, tmp_path: Path
) -> None:
    model, seen = tiny("llama"), []

    def progress(done: int, total: int) -> None:
        seen.append(done)
        if done == 4:
            exhausted.append(Exhausted(model, 2, MemoryError()))

    exhausted: list[Exhausted] = []
    with PartialRun(tmp_path / "a", every=4) as partial:
        measure(model, ids, batch_size=4, partial=partial, progress=progress)
    assert seen == [4, 6, 8, 9]


def test_no_batch_is_small_enough(ids: np.ndarray, monkeypatch: pytest.MonkeyPatch) -> None:
    from posbias.measure import runner

    def fail(*args: Any, **options: Any) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(runner, "_measure_batch", fail)
    with pytest.raises(ModelError, match=f"one window of {LENGTH} tokens.*larger device"):
        measure(tiny("llama"), ids, batch_size=4)


def test_other_errors_are_not_taken_for_it(ids: np.ndarray) -> None:
    model = tiny("llama")
    error = RuntimeError("mat1 and mat2 shapes cannot be multiplied")
    with Exhausted(model, 2, error), pytest.raises(InstrumentationError, match="mat1"):
        measure(model, ids, batch_size=4)
