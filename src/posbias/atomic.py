"""Writing files and directories so that nobody ever sees half of one."""

from __future__ import annotations

import errno
import json
import os
import secrets
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from posbias.errors import InputError, OutputExistsError, PosbiasError

__all__ = [
    "atomic_directory",
    "atomic_write_bytes",
    "atomic_write_text",
    "check_parent",
    "has_posbias_manifest",
    "refuse_existing",
    "sync_folder",
]

STDOUT = "-"

_OCCUPIED = {errno.EEXIST, errno.ENOTEMPTY, errno.ENOTDIR, errno.EISDIR}
_NO_LINKS = {errno.EPERM, errno.EACCES, errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOTSUP}
_ATTEMPTS = 100


def atomic_write_text(path: str | Path, text: str, *, overwrite: bool = False) -> None:
    """Write UTF-8 text to a file that appears complete or not at all; ``"-"`` is standard output.

    Raises
    ------
    InputError
        If the text is no valid Unicode or `path` cannot be the name of a file.
    OutputExistsError
        If the file exists and `overwrite` is false.
    PosbiasError
        If the file cannot be written (full disk, no permission); nothing is left behind.
    """
    if str(path) == STDOUT:
        sys.stdout.write(text)
        return
    try:
        data = text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise InputError(
            f"cannot write {path}: the text has a lone surrogate at character {error.start}; "
            "valid Unicode is required"
        ) from error
    atomic_write_bytes(path, data, overwrite=overwrite)


def atomic_write_bytes(path: str | Path, data: bytes, *, overwrite: bool = False) -> None:
    """Write bytes to a file that appears complete or not at all.

    The data goes to a temporary file in the same folder, is flushed to the disk and then renamed.
    Without `overwrite` the rename is a hard link, which fails if another process was faster.
    With it a symbolic link at `path` is replaced, not followed.

    Raises
    ------
    InputError
        If `path` is a folder or cannot be the name of a file.
    OutputExistsError
        If the file exists and `overwrite` is false.
    PosbiasError
        If the file cannot be written (full disk, no permission); nothing is left behind.
    """
    target = _target(path)
    with _readable_os_errors(target):
        if not overwrite:
            refuse_existing(target)
        elif target.is_dir():
            raise InputError(f"{target} is a folder; the name of a file is required")
        target.parent.mkdir(parents=True, exist_ok=True)
        source = _temporary(target)
        try:
            with open(source, "xb") as stream:
                stream.write(data)
                stream.flush()
                os.fsync(stream.fileno())
            if overwrite:
                os.replace(source, target)
            else:
                _claim(source, target)
            sync_folder(target.parent)
        finally:
            with suppress(FileNotFoundError):
                os.unlink(source)


def has_posbias_manifest(folder: Path) -> bool:
    """Whether a folder holds a ``manifest.json`` whose ``format`` begins with ``posbias.``."""
    try:
        manifest = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return isinstance(manifest, dict) and str(manifest.get("format", "")).startswith("posbias.")


@contextmanager
def atomic_directory(
    path: str | Path,
    *,
    overwrite: bool = False,
    is_ours: Callable[[Path], bool] = has_posbias_manifest,
) -> Iterator[Path]:
    """Yield a temporary folder that becomes `path` when the block ends without an exception.

    Parameters
    ----------
    path : str or Path
        The folder to make.
    overwrite : bool
        Replace an existing folder. The old one stays in place until the new one is complete and on
        the disk.
    is_ours : callable
        Says whether an existing folder was made by posbias and may be replaced. An empty folder
        always may.

    Raises
    ------
    OutputExistsError
        If something exists at `path` and may not be replaced, also if it appears meanwhile.
    PosbiasError
        If the folder cannot be written (full disk, no permission); nothing is left behind.
    """
    target = _target(path)
    with _readable_os_errors(target):
        _refuse_directory(target, overwrite=overwrite, is_ours=is_ours)
        target.parent.mkdir(parents=True, exist_ok=True)
        work = _temporary(target)
        work.mkdir()
        try:
            yield work
            _sync_tree(work)
            _place_directory(work, target, overwrite=overwrite, is_ours=is_ours)
            sync_folder(target.parent)
        finally:
            shutil.rmtree(work, ignore_errors=True)


def check_parent(path: str | Path) -> None:
    """Raise `InputError` if `path` lies below a file, so that nothing can be written there."""
    for parent in Path(path).parents:
        if os.path.isdir(parent):
            return
        if os.path.lexists(parent):
            raise InputError(
                f"{path} cannot be written: its parent {parent} is a file, a folder is required"
            )


def refuse_existing(path: str | Path) -> None:
    """Raise `OutputExistsError` if `path` exists."""
    if os.path.lexists(path):
        raise _exists(path)


def sync_folder(folder: Path) -> None:
    """Flush a folder's entries to the disk, where the system lets one open a folder."""
    try:
        handle = os.open(folder, os.O_RDONLY)
    except PermissionError:
        return
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _target(path: str | Path) -> Path:
    """Return `path`, or raise `InputError` if no file can have that name."""
    if not str(path) or "\0" in str(path):
        raise InputError(f"{str(path)!r} cannot be the name of an output; a path is required")
    return Path(path)


def _exists(path: str | Path) -> OutputExistsError:
    return OutputExistsError(
        f"{path} exists already and is not overwritten unasked; choose another name or pass "
        "overwrite=True (--overwrite)"
    )


def _refuse_directory(target: Path, *, overwrite: bool, is_ours: Callable[[Path], bool]) -> None:
    if not overwrite:
        refuse_existing(target)
        return
    for _ in range(_ATTEMPTS):
        looked_at = _identity(target)
        if looked_at is None or _is_replaceable(target, is_ours):
            return
        # Another writer may have swapped the folder under the check; then it is repeated.
        if _identity(target) == looked_at:
            raise _foreign(target)


def _is_replaceable(folder: Path, is_ours: Callable[[Path], bool]) -> bool:
    try:
        return (
            not folder.is_symlink()
            and folder.is_dir()
            and (not any(folder.iterdir()) or is_ours(folder))
        )
    except FileNotFoundError:
        return False


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        status = os.lstat(path)
    except FileNotFoundError:
        return None
    return status.st_dev, status.st_ino


def _foreign(target: Path) -> OutputExistsError:
    return OutputExistsError(
        f"{target} exists and was not made by posbias, so it is not replaced even with overwrite; "
        "choose another name or remove it yourself"
    )


def _claim(source: Path, target: Path) -> None:
    """Give `source` the name `target` unless that is taken, as one step."""
    try:
        try:
            os.link(source, target)
        except OSError as error:
            if error.errno not in _NO_LINKS:
                raise
            # A file system without hard links: take the name with an empty file, then fill it.
            open(target, "xb").close()
            try:
                os.replace(source, target)
            except OSError:
                os.unlink(target)
                raise
    except FileExistsError:
        raise _exists(target) from None


def _place_directory(
    work: Path, target: Path, *, overwrite: bool, is_ours: Callable[[Path], bool]
) -> None:
    """Rename `work` to `target`; an old `target` steps aside first and comes back on failure.

    A writer that was faster leaves a complete folder at `target`: it is refused, or replaced in
    its turn, as if it had been there from the start.
    """
    for _ in range(_ATTEMPTS):
        if not overwrite:
            refuse_existing(target)
        aside = _temporary(target)
        had_old = overwrite and _is_renamed(target, aside)
        if had_old and not _is_replaceable(aside, is_ours):
            os.rename(aside, target)
            raise _foreign(target)
        try:
            os.rename(work, target)
        except OSError as error:
            if had_old and not os.path.lexists(target):
                os.rename(aside, target)
            elif had_old:
                shutil.rmtree(aside, ignore_errors=True)
            if error.errno not in _OCCUPIED:
                raise
        else:
            if had_old:
                shutil.rmtree(aside, ignore_errors=True)
            return
    raise PosbiasError(
        f"cannot replace {target}: other processes keep writing it; give each process a name of "
        "its own"
    )


def _is_renamed(source: Path, target: Path) -> bool:
    """Rename `source` if it exists and say whether it did."""
    try:
        os.rename(source, target)
    except FileNotFoundError:
        return False
    return True


@contextmanager
def _readable_os_errors(target: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise PosbiasError(
            f"cannot write {target}: {error.strerror or error}; nothing was left behind. Free some "
            "space or choose a folder that you may write to"
        ) from error


def _temporary(target: Path) -> Path:
    """Return an unused name in the folder of `target`, hidden and short."""
    return target.parent / f".posbias-{secrets.token_hex(8)}.tmp"


def _sync_tree(folder: Path) -> None:
    for entry in sorted(folder.rglob("*")):
        if entry.is_dir():
            sync_folder(entry)
        elif not entry.is_symlink():
            with open(entry, "rb+") as stream:
                os.fsync(stream.fileno())
    sync_folder(folder)
