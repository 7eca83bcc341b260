"""Libraries that posbias can use but does not need."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from posbias.errors import InputError

__all__ = ["import_frames"]


def import_frames(library: str) -> Any:
    """Import pandas or xarray.

    Raises
    ------
    InputError
        If it is not installed.
    """
    try:
        return import_module(library)
    except ModuleNotFoundError as error:
        raise InputError(
            f"{library} is not installed; tables need it: pip install 'posbias[frames]'"
        ) from error
