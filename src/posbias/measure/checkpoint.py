"""The state of an unfinished run on disk, so that it can be interrupted and continued.

Beside an output ``DIR`` stands ``DIR.partial`` while a run writes it. It holds a lock, which the
system frees when its process ends in whatever way, and after the first `every` windows the file
``state.safetensors``: all sums so far, and what the run was begun with. Each save replaces the file
as one step.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from posbias.atomic import sync_folder
from posbias.errors import ArtifactError, InputError, OutputExistsError, PosbiasError
from posbias.measure._lock import DirectoryLock
from posbias.measure.sharding import Shard, current_shard

__all__ = ["STATE_FILE", "PartialRun", "SavedState", "partial_directory"]

STATE_FILE = "state.safetensors"
"""Name of the checkpoint in the folder of an unfinished run."""


Arrays = dict[str, NDArray[Any]]


@dataclass(frozen=True, eq=False)
class SavedState:
    """What a checkpoint holds.

    Parameters
    ----------
    arrays : dict of str to ndarray
        Sums and rows by name.
    done : int
        Windows measured so far; the next batch begins there.
    batch_size : int
        Windows per batch, which may be less than was asked for.
    seconds : float
        Time spent so far.
    resumed_at : list of int
        Windows that were done at each earlier continuation.
    """

    arrays: Arrays
    done: int
    batch_size: int
    seconds: float
    resumed_at: list[int] = field(default_factory=list)


class PartialRun:
    """The checkpoints of one run, as a context manager that holds the lock.

    When the block ends without an exception the folder is removed: write the output inside. After
    an exception the last checkpoint stays.

    Parameters
    ----------
    output : path
        What the run will write; the checkpoints are in `partial_directory` of it.
    resume : bool
        Continue from a checkpoint if there is one.
    every : int
        Windows between checkpoints.

    Raises
    ------
    InputError
        If `every` is not a positive whole number.
    OutputExistsError
        On entering, if there is a checkpoint and `resume` is false, or if another run holds the
        lock.
    PosbiasError
        If the folder cannot be made.

    Examples
    --------
    >>> with PartialRun("measured", resume=True) as partial:             # doctest: +SKIP
    ...     posbias.measure(model, text, partial=partial).save("measured")
    """

    def __init__(
        self, output: str | os.PathLike[str], *, resume: bool = False, every: int = 32
    ) -> None:
        if isinstance(every, bool) or not isinstance(every, int) or every < 1:
            raise InputError(
                f"windows between checkpoints are {every!r}; a whole number of at least 1 is "
                "required"
            )
        self.every = every
        self.folder = partial_directory(output)
        self._output = Path(output)
        self._resume = resume
        self._shard = current_shard()
        rank = self._shard.rank
        self._lock = DirectoryLock(self.folder, name=f"lock-{rank}" if rank else "lock")
        self._saved: int | None = None

    def __enter__(self) -> PartialRun:
        self._lock.acquire()
        try:
            states = {path.name for path in self.folder.glob("state*.safetensors")}
            if states and not self._resume:
                raise OutputExistsError(
                    f"{self.folder} holds the state of an interrupted run. Continue it with "
                    "resume=True (--resume), or remove the folder to begin anew"
                )
            # The first processes of a run may have come further than the others.
            if states - {
                _state_file(Shard(k, self._shard.count)) for k in range(self._shard.count)
            }:
                raise InputError(
                    f"{self.folder} was begun with another number of processes, now it is "
                    f"{self._shard.count}; resume with as many, or remove the folder to begin anew"
                )
        except BaseException:
            self._lock.release()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if kind is None or not self._state.exists():
            # What else lies there is not ours: the folder is then kept.
            with suppress(OSError):
                self._state.unlink(missing_ok=True)
            self._lock.remove()
        else:
            self._lock.release()

    @property
    def saved(self) -> int | None:
        """Windows in the last checkpoint that this run has written or read, None without one."""
        return self._saved

    def load(self, identity: Mapping[str, Any]) -> SavedState | None:
        """Return the state to continue from, None if the run begins anew.

        Parameters
        ----------
        identity : mapping
            Everything on which the numbers depend, JSON-serialisable.

        Raises
        ------
        InputError
            If the checkpoint was begun with something else; both values are named.
        ArtifactError
            If the checkpoint cannot be read.
        """
        if not self._state.exists():
            return None
        state, begun_with = _read(self._state)
        difference = _first_difference(begun_with, _plain(identity))
        if difference is not None:
            name, theirs, ours = difference
            raise InputError(
                f"{self.folder} was begun with {name} {_shown(theirs)}, now it is {_shown(ours)}; "
                "resume with what it was begun with, or remove the folder to begin anew"
            )
        self._saved = state.done
        return state

    def is_due(self, done: int) -> bool:
        """Whether `every` windows were measured since the last checkpoint."""
        return done - (self._saved or 0) >= self.every

    def save(self, state: SavedState, identity: Mapping[str, Any]) -> None:
        """Replace the checkpoint; the earlier one stays until the new one is on the disk.

        Raises
        ------
        PosbiasError
            If it cannot be written, for one because the disk is full. The earlier one is kept.
        """
        progress = {k: v for k, v in vars(state).items() if k != "arrays"}
        metadata = {"identity": json.dumps(_plain(identity)), "progress": json.dumps(progress)}
        with self._readable_errors(state):
            _replace_file(self._state, state.arrays, metadata)
        self._saved = state.done

    @property
    def _state(self) -> Path:
        return self.folder / _state_file(self._shard)

    @contextmanager
    def _readable_errors(self, state: SavedState) -> Iterator[None]:
        try:
            yield
        except (OSError, SafetensorError) as error:
            size = sum(array.nbytes for array in state.arrays.values()) / 1e6
            kept = (
                f"The checkpoint after {self._saved} windows is kept: the same command with "
                "--resume continues there"
                if self._saved
                else "There is no earlier checkpoint"
            )
            raise PosbiasError(
                f"cannot write a checkpoint to {self.folder}: "
                f"{getattr(error, 'strerror', None) or error}. Free {size:,.0f} MB, or choose "
                f"another place for the output. {kept}"
            ) from error


def partial_directory(output: str | os.PathLike[str]) -> Path:
    """Return the folder of the checkpoints of an output: its name with ``.partial`` added."""
    path = Path(output)
    return path.with_name(path.name + ".partial")


def _state_file(shard: Shard) -> str:
    if shard.count == 1:
        return STATE_FILE
    return STATE_FILE.replace(".", f"-{shard.rank}-of-{shard.count}.")


def _replace_file(target: Path, arrays: Arrays, metadata: dict[str, str]) -> None:
    # The lock excludes other writers, so that the name may be fixed; a killed run's is overwritten.
    work = target.with_suffix(".tmp")
    try:
        save_file(arrays, work, metadata=metadata)
        with work.open("rb+") as stream:
            os.fsync(stream.fileno())
        work.replace(target)
    except BaseException:
        work.unlink(missing_ok=True)
        raise
    sync_folder(target.parent)


def _read(path: Path) -> tuple[SavedState, Any]:
    try:
        with safe_open(path, framework="numpy") as stream:
            metadata = stream.metadata()
            arrays = {name: np.array(stream.get_tensor(name)) for name in stream.keys()}  # noqa: SIM118
        progress, identity = json.loads(metadata["progress"]), json.loads(metadata["identity"])
        return SavedState(arrays=arrays, **progress), identity
    except (OSError, SafetensorError, ValueError, TypeError, KeyError) as error:
        raise ArtifactError(
            f"the checkpoint {path} cannot be read ({error}); it was edited or damaged. Remove its "
            "folder to begin anew"
        ) from error


def _plain(value: Mapping[str, Any]) -> Any:
    """Return a value as it comes back from JSON."""
    return json.loads(json.dumps(value, default=str))


def _first_difference(theirs: Any, ours: Any, place: str = "") -> tuple[str, Any, Any] | None:
    """Return place and both values of the first difference of two JSON values."""
    if not isinstance(theirs, dict) or not isinstance(ours, dict):
        return None if theirs == ours else (place, theirs, ours)
    for key in [*ours, *(k for k in theirs if k not in ours)]:
        inner = f"{place}.{key}" if place else key
        found = _first_difference(theirs.get(key), ours.get(key), inner)
        if found is not None:
            return found
    return None


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
