"""Documents as plain JSON values, checked with the place of whatever is strange."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from posbias.errors import SpecError

__all__ = ["MAX_NESTING", "one_line", "plain", "shown"]

MAX_NESTING = 50
"""Levels of mappings and lists that a document may have."""

_LARGEST = 2**53
_LONGEST_MESSAGE = 600


def plain(value: Any, place: str, *, booleans: bool = False, level: int = 0) -> Any:
    """Return a copy of mappings, sequences, arrays, numbers and text as plain JSON values.

    Parameters
    ----------
    value : Any
        The document or a part of it.
    place : str
        Its name in messages.
    booleans : bool
        Whether true and false may occur.
    level : int
        Nesting of `value`.

    Raises
    ------
    SpecError
        If a number is not finite or, being whole, not exact in float64, a key or a value is of
        another type, or nesting is deeper than `MAX_NESTING`. Cost O(size).
    """
    if isinstance(value, (np.ndarray, np.generic)):
        value = value.tolist()
    if type(value) is float and math.isfinite(value):
        return value
    if isinstance(value, Mapping):
        _refuse_deep(level, place)
        return {
            _key(key, place): plain(
                item, f"{place}.{key}" if place else str(key), booleans=booleans, level=level + 1
            )
            for key, item in value.items()
        }
    if isinstance(value, (list, tuple)):
        _refuse_deep(level, place)
        if all(type(item) is float for item in value) and all(map(math.isfinite, value)):
            return list(value)
        return [
            plain(item, f"{place}[{index}]", booleans=booleans, level=level + 1)
            for index, item in enumerate(value)
        ]
    return _scalar(value, place, booleans)


def one_line(error: object) -> str:
    """Return a message as one line; the middle of a very long one is left out."""
    text = " ".join(str(error).split())
    if len(text) <= _LONGEST_MESSAGE:
        return text
    half = _LONGEST_MESSAGE // 2
    return f"{text[:half]} ... {text[-half:]}"


def shown(value: object) -> str:
    """Return a value as it is shown in a message: one line, at most about 80 characters."""
    text = " ".join(repr(value).split())
    return text if len(text) <= 80 else f"{text[:60]} ... {text[-12:]}"


def _key(key: Any, place: str) -> str:
    if not isinstance(key, str):
        raise SpecError(f"{place or 'the spec'} has the key {shown(key)}; keys are text")
    return _text(key, f"a key of {place or 'the spec'}")


def _text(value: str, place: str) -> str:
    try:
        value.encode("utf-8")
    except UnicodeEncodeError:
        raise SpecError(f"{place} is {value!a}, which is no valid Unicode text") from None
    return value


def _scalar(value: Any, place: str, booleans: bool) -> Any:
    if value is None:
        return None
    if isinstance(value, str):
        return _text(value, place)
    if isinstance(value, bool):
        if booleans:
            return value
        raise SpecError(f"{place} is {str(value).lower()}; true and false mean nothing here")
    if isinstance(value, int):
        if abs(value) > _LARGEST:
            raise SpecError(f"{place} is a whole number beyond 2^53; a smaller one is required")
        return int(value)
    if isinstance(value, float):
        if not math.isfinite(value):
            raise SpecError(f"{place} is {value}; a finite number is required")
        return float(value)
    raise SpecError(
        f"{place} is of type {type(value).__name__}; numbers, text, lists and mappings are required"
    )


def _refuse_deep(level: int, place: str) -> None:
    if level >= MAX_NESTING:
        raise SpecError(f"{one_line(place)} is nested deeper than {MAX_NESTING} levels")
