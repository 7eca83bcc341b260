"""Writing files and directories so that nobody ever sees half of one."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from posbias.errors import InputError, OutputExistsError, PosbiasError

__all__ = ["atomic_directory", "atomic_write_bytes", "atomic_write_text", "refuse_existing"]

STDOUT = "-"


def atomic_write_text(path: str | Path, text: str, *, overwrite: bool = False) -> None:
    """Write UTF-8 text to a file that appears complete or not at all; ``"-"`` is standard output.

    Raises
    ------
    OutputExistsError
        If the file exists and `overwrite` is false.
    PosbiasError
        If the file cannot be written (full disk, no permission); nothing is left behind.
    """
    if str(path) == STDOUT:
        sys.stdout.write(text)
        return
    atomic_write_bytes(path, text.encode("utf-8"), overwrite=overwrite)


def atomic_write_bytes(path: str | Path, data: bytes, *, overwrite: bool = False) -> None:
    """Write bytes to a file that appears complete or not at all.

    The data goes to a temporary file in the same folder, is flushed to the disk and then renamed.
    Without `overwrite` the rename is a hard link, which fails if another process was faster.

    Raises
    ------
    OutputExistsError
        If the file exists and `overwrite` is false.
    PosbiasError
        If the file cannot be written (full disk, no permission); nothing is left behind.
    """
    target = Path(path)
    if not overwrite:
        refuse_existing(target)
    with _readable_os_errors(target):
        target.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
        try:
            with os.fdopen(handle, "wb") as stream:
                stream.write(data)
                stream.flush()
                os.fsync(stream.fileno())
            os.chmod(name, 0o666 & ~_umask())
            _move_into_place(Path(name), target, overwrite=overwrite)
        finally:
            with suppress(FileNotFoundError):
                os.unlink(name)


@contextmanager
def atomic_directory(
    path: str | Path,
    *,
    overwrite: bool = False,
    is_ours: Callable[[Path], bool] | None = None,
) -> Iterator[Path]:
    """Yield a temporary folder that becomes `path` when the block ends without an exception.

    Parameters
    ----------
    path : str or Path
        The folder to make.
    overwrite : bool
        Replace an existing folder. The old one is kept until the new one is complete.
    is_ours : callable, optional
        Says whether an existing folder may be replaced; one that posbias did not make is refused.

    Raises
    ------
    OutputExistsError
        If the folder exists and may not be replaced.
    PosbiasError
        If it cannot be written; nothing is left behind.
    """
    target = Path(path)
    _refuse_directory(target, overwrite=overwrite, is_ours=is_ours)
    with _readable_os_errors(target):
        target.parent.mkdir(parents=True, exist_ok=True)
        work = Path(tempfile.mkdtemp(dir=target.parent, prefix=f".{target.name}."))
        try:
            yield work
            os.chmod(work, 0o777 & ~_umask())
            _sync_tree(work)
            _refuse_directory(target, overwrite=overwrite, is_ours=is_ours)
            _replace_directory(work, target)
        finally:
            shutil.rmtree(work, ignore_errors=True)


def refuse_existing(path: str | Path) -> None:
    """Raise `OutputExistsError` if `path` exists."""
    if os.path.lexists(path):
        raise OutputExistsError(
            f"{path} exists already and is not overwritten unasked; choose another name or pass "
            "overwrite=True (--overwrite)"
        )


def _refuse_directory(
    target: Path, *, overwrite: bool, is_ours: Callable[[Path], bool] | None
) -> None:
    if not overwrite:
        refuse_existing(target)
    elif os.path.lexists(target) and (
        target.is_symlink() or not target.is_dir() or (is_ours and not is_ours(target))
    ):
        raise OutputExistsError(
            f"{target} exists and was not made by posbias, so it is not replaced even with "
            "overwrite; choose another name or remove it yourself"
        )


def _move_into_place(source: Path, target: Path, *, overwrite: bool) -> None:
    if overwrite:
        if target.is_dir():
            raise InputError(f"{target} is a folder; a file name is required")
        os.replace(source, target)
    else:
        try:
            os.link(source, target)
        except FileExistsError:
            refuse_existing(target)
    _sync(target.parent)


def _replace_directory(work: Path, target: Path) -> None:
    """Rename `work` to `target`; an old `target` steps aside first and comes back on failure."""
    aside = None
    if target.exists():
        aside = Path(tempfile.mkdtemp(dir=target.parent, prefix=f".{target.name}.old."))
        os.rename(target, aside)
    try:
        os.rename(work, target)
    except OSError:
        if aside is not None:
            os.rename(aside, target)
        raise
    _sync(target.parent)
    if aside is not None:
        shutil.rmtree(aside, ignore_errors=True)


@contextmanager
def _readable_os_errors(target: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise PosbiasError(
            f"cannot write {target}: {error.strerror or error}; nothing was changed. Free some "
            "space or choose a folder that you may write to"
        ) from error


def _sync_tree(folder: Path) -> None:
    for entry in sorted(folder.rglob("*")):
        _sync(entry)
    _sync(folder)


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
