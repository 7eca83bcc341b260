"""Silence what transformers and the hub client print while a model is loaded."""

from __future__ import annotations

import functools
import logging
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

__all__ = ["quiet_loading"]


@contextmanager
def quiet_loading() -> Iterator[None]:
    """Keep advice, retries and progress bars off stderr; leave no setting changed.

    What matters among the silenced messages (missing weights, unreachable hub) is checked by the
    caller and raised as an error. Bars of downloads stay, since these can take long.
    """
    with _quiet_logs(), _quiet_bars(), _quiet_gguf(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


@contextmanager
def _quiet_logs() -> Iterator[None]:
    from transformers.utils import logging as transformers_logging

    # Without types: the library does not declare these functions to type checkers.
    transformers: Any = transformers_logging
    hub = logging.getLogger("huggingface_hub")
    verbosity, level = transformers.get_verbosity(), hub.level
    transformers.set_verbosity_error()
    hub.setLevel(logging.ERROR)
    try:
        yield
    finally:
        transformers.set_verbosity(verbosity)
        hub.setLevel(level)


@contextmanager
def _quiet_bars() -> Iterator[None]:
    """Switch off the bars of transformers, which takes those of the hub with them."""
    from huggingface_hub import utils
    from transformers.utils import logging as transformers_logging

    hub: Any = utils
    transformers: Any = transformers_logging
    if not transformers.is_progress_bar_enabled():
        yield
        return
    has_downloads = not hub.are_progress_bars_disabled()
    transformers.disable_progress_bar()
    if has_downloads:
        hub.enable_progress_bars()
    try:
        yield
    finally:
        transformers.enable_progress_bar()
        if not has_downloads:
            hub.disable_progress_bars()


@contextmanager
def _quiet_gguf() -> Iterator[None]:
    """Keep the bar of expanding a GGUF file, which no setting governs, out of logs and pipes."""
    from transformers import modeling_gguf_pytorch_utils as expansion

    module: Any = expansion
    bar = getattr(module, "tqdm", None)
    if bar is None or sys.stderr.isatty():
        yield
        return
    module.tqdm = functools.partial(bar, disable=True)
    try:
        yield
    finally:
        module.tqdm = bar
