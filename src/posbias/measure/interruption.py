"""Interruptions that wait until the batch is done and its numbers are on the disk."""

from __future__ import annotations

import logging
import signal
import threading
from types import FrameType, TracebackType
from typing import Any

__all__ = ["DeferredSignals"]

_log = logging.getLogger(__name__)


class DeferredSignals:
    """Keeps SIGINT and SIGTERM until they are asked for, as a context manager.

    The second signal interrupts at once. In threads other than the main one, where Python delivers
    no signals, nothing changes.
    """

    def __init__(self) -> None:
        self.received: signal.Signals | None = None
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> DeferredSignals:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                before = signal.signal(number, self._receive)
                # A handler that was not set from Python cannot be restored from here either.
                self._before[number] = signal.SIG_DFL if before is None else before
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for number, before in self._before.items():
            signal.signal(number, before)

    def _receive(self, number: int, frame: FrameType | None) -> None:
        if self.received is not None:
            raise KeyboardInterrupt
        self.received = signal.Signals(number)
        _log.info("finishing this batch, then saving; interrupt again to stop at once")
