"""Silence what transformers and the hub client print while a model is loaded."""

from __future__ import annotations

import logging
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
    from huggingface_hub import utils as hub_utils
    from transformers.utils import logging as transformers_logging

    # Without types: neither library declares these functions to type checkers.
    hub: Any = hub_utils
    transformers: Any = transformers_logging
    hub_logger = logging.getLogger("huggingface_hub")
    verbosity, hub_level = transformers.get_verbosity(), hub_logger.level
    has_bars = transformers.is_progress_bar_enabled()
    has_download_bars = not hub.are_progress_bars_disabled()
    transformers.set_verbosity_error()
    hub_logger.setLevel(logging.ERROR)
    if has_bars:
        transformers.disable_progress_bar()
        if has_download_bars:
            hub.enable_progress_bars()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        transformers.set_verbosity(verbosity)
        hub_logger.setLevel(hub_level)
        if has_bars:
            transformers.enable_progress_bar()
