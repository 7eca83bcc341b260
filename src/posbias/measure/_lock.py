"""A lock on a folder that no process can leave behind."""

from __future__ import annotations

import os
import socket
import sys
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

from posbias.errors import OutputExistsError, PosbiasError

__all__ = ["DirectoryLock"]

_ATTEMPTS = 100


class DirectoryLock:
    """Exclusive use of a folder by one process, held through an open file.

    The system frees it when the process ends, also when it is killed; a lock file that was left
    behind locks nothing. Its text, process and host, is for people.

    Parameters
    ----------
    folder : Path
        Made if it does not exist.
    name : str
        Name of the lock file in it.
    """

    def __init__(self, folder: Path, *, name: str) -> None:
        self._folder = folder
        self._path = folder / name
        self._stream: BinaryIO | None = None

    def acquire(self) -> None:
        """Take the lock.

        Raises
        ------
        OutputExistsError
            If another run holds it.
        PosbiasError
            If the folder cannot be made or written.
        """
        try:
            for _ in range(_ATTEMPTS):
                self._folder.mkdir(parents=True, exist_ok=True)
                stream = open(self._path, "ab+", buffering=0)  # noqa: SIM115  held open
                if not _is_locked(stream):
                    raise self._held_by_other(stream)
                if self._is_current(stream):
                    break
                # Its holder removed the file between opening and locking: it locks nothing now.
                stream.close()
            else:
                raise PosbiasError(f"cannot lock {self._folder}: other runs keep replacing it")
            stream.truncate(0)
            stream.write(f"process {os.getpid()} on {socket.gethostname()}\n".encode())
        except OSError as error:
            raise PosbiasError(
                f"cannot write {self._folder}: {error.strerror or error}; choose an output in a "
                "folder that you may write to"
            ) from error
        self._stream = stream

    def release(self) -> None:
        """Free the lock and leave the folder."""
        if self._stream is not None:
            self._stream.close()
            self._stream = None

    def remove(self) -> None:
        """Remove the lock and the folder, unless it holds anything else."""
        with suppress(OSError):
            self._path.unlink()
        self.release()
        with suppress(OSError):
            self._folder.rmdir()

    def _is_current(self, stream: BinaryIO) -> bool:
        try:
            return os.path.samestat(os.fstat(stream.fileno()), os.stat(self._path))
        except FileNotFoundError:
            return False

    def _held_by_other(self, stream: BinaryIO) -> OutputExistsError:
        with suppress(OSError):
            stream.seek(0)
        holder = stream.read().decode(errors="replace").strip() or "another process"
        stream.close()
        return OutputExistsError(
            f"{self._folder} is in use: {holder} is running for the same output. Wait for it, or "
            "choose another output"
        )


def _is_locked(stream: BinaryIO) -> bool:
    """Lock an open file if no other process has, and say whether."""
    try:
        if sys.platform == "win32":
            import msvcrt

            msvcrt.locking(stream.fileno(), msvcrt.LK_NBLCK, 1)
        else:
            import fcntl

            fcntl.flock(stream.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):
        return False
    return True
