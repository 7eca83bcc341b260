"""Standard output as results need it: complete, or an error in one line."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from posbias.errors import PosbiasError

__all__ = ["OutputError", "discard_rest", "reliable_stdout"]


class OutputError(PosbiasError):
    """Standard output is closed, full, or failed in another way."""


@contextmanager
def reliable_stdout() -> Iterator[None]:
    """Let standard output raise `OutputError` when it is closed or full, inside the block.

    A reader that went away still raises BrokenPipeError. Text is written to its end also when
    Python runs unbuffered, where a write that stops half-way goes unnoticed.
    """
    original = sys.stdout
    output: Any = _Output(original)
    sys.stdout = output
    try:
        yield
    finally:
        sys.stdout = original


def discard_rest() -> None:
    """Send what is still buffered nowhere: Python flushes standard output once more at exit."""
    if sys.stdout is None:
        return
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


class _Output:
    """A text stream over another one, or over None for a closed standard output."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    @property
    def encoding(self) -> str:
        """Encoding of the stream, UTF-8 if it is closed."""
        return getattr(self._stream, "encoding", None) or "utf-8"

    def isatty(self) -> bool:
        """Whether a person reads it."""
        return self._stream is not None and bool(self._stream.isatty())

    def write(self, text: str) -> int:
        """Write all of `text`."""
        if self._stream is None:
            raise OutputError(
                "standard output is closed; write results to files with --csv or --json, or leave "
                "standard output open"
            )
        with _readable_errors():
            raw = getattr(self._stream, "buffer", None)
            if isinstance(raw, io.RawIOBase):
                _write_all(raw, text.encode(self.encoding, self._stream.errors or "strict"))
            else:
                self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        """Hand everything to the system."""
        if self._stream is not None:
            with _readable_errors():
                self._stream.flush()


def _write_all(raw: io.RawIOBase, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[raw.write(rest) or 0 :]


@contextmanager
def _readable_errors() -> Iterator[None]:
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        raise OutputError(
            f"cannot write to standard output: {error.strerror or error}; free some space or send "
            "the result elsewhere"
        ) from error
