"""Kernels from the layer entries of a spec file."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import fields
from typing import Any, TypeVar

from posbias.errors import InputError
from posbias.kernels.attention import AttentionKernel
from posbias.kernels.head import Head, Sink
from posbias.kernels.masks import MASKS, Causal, Mask
from posbias.kernels.positions import POSITIONS, NoPE, Position

__all__ = ["kernel_from_description"]

Built = TypeVar("Built")


def kernel_from_description(description: Mapping[str, Any], n: int) -> AttentionKernel:
    """Return the kernel of a layer entry, the inverse of `AttentionKernel.describe`.

    Parameters
    ----------
    description : mapping
        Either ``{"heads": [...]}`` or ``{"alibi": {...}}``, with optional ``"mask"`` and
        ``"temperature"``. A head has the optional keys ``weight``, ``position``, ``diagonal``,
        ``key`` and ``sink``; ``alibi`` has ``slopes`` and the optional ``diagonal`` and
        ``weights``.
    n : int
        Number of positions.

    Raises
    ------
    InputError
        If a key is unknown or missing, or a value is out of range; the message names the place.

    Examples
    --------
    >>> layer = {"heads": [{"position": {"type": "alibi", "slope": 0.5}}]}
    >>> kernel_from_description(layer, 3).row(1).round(3)
    array([0.378, 0.622, 0.   ])
    """
    _check_keys(description, "a layer", optional=("heads", "alibi", "mask", "temperature"))
    given = [key for key in ("heads", "alibi") if key in description]
    if len(given) != 1:
        raise InputError(
            f"a layer has the keys {sorted(description)}; exactly one of 'heads' and 'alibi' is "
            "required"
        )
    shared: dict[str, Any] = {"mask": _mask(description.get("mask"))}
    if "temperature" in description:
        shared["temperature"] = description["temperature"]
    if "alibi" in description:
        bank = description["alibi"]
        _check_keys(bank, "alibi", required=("slopes",), optional=("diagonal", "weights"))
        options = {key: value for key, value in bank.items() if key != "slopes"}
        return _place(
            "alibi", lambda: AttentionKernel.alibi(n, bank["slopes"], **options, **shared)
        )
    heads = description["heads"]
    if not isinstance(heads, Sequence) or isinstance(heads, (str, bytes)):
        raise InputError(f"the heads of a layer are {heads!r}; a list is required")
    return AttentionKernel(n, [_head(head, k) for k, head in enumerate(heads)], **shared)


def _head(description: Mapping[str, Any], index: int) -> Head:
    what = f"heads[{index}]"
    optional = ("weight", "position", "diagonal", "key", "sink")
    _check_keys(description, what, optional=optional)
    options = {key: description[key] for key in ("weight", "diagonal") if key in description}
    if description.get("key") is not None:
        options["key"] = description["key"]
    if description.get("sink") is not None:
        sink = description["sink"]
        _check_keys(sink, f"{what}.sink", required=("count", "logit"))
        options["sink"] = _place(f"{what}.sink", lambda: Sink(**sink))
    position = description.get("position")
    built = NoPE() if position is None else _position(position, f"{what}.position")
    return _place(what, lambda: Head(built, **options))


def _position(description: Mapping[str, Any], what: str) -> Position:
    return _typed(description, what, POSITIONS)


def _mask(description: Mapping[str, Any] | None) -> Mask:
    return Causal() if description is None else _typed(description, "mask", MASKS)


def _typed(description: Mapping[str, Any], what: str, kinds: Mapping[str, type[Built]]) -> Built:
    """Build the object that the ``type`` of a description names."""
    if not isinstance(description, Mapping) or "type" not in description:
        raise InputError(f"{what} is {description!r}; a mapping with a 'type' is required")
    name = description["type"]
    if not isinstance(name, str) or name not in kinds:
        raise InputError(f"{what} has type {name!r}{_nearest(str(name), kinds)}; {_one_of(kinds)}")
    kind = kinds[name]
    own = list(fields(kind))  # type: ignore[arg-type]
    optional = [f.name for f in own if f.name == "future"]
    required = [f.name for f in own if f.name != "future"]
    _check_keys(description, what, required=("type", *required), optional=optional)
    options = {key: value for key, value in description.items() if key != "type"}
    return _place(what, lambda: kind(**options))


def _check_keys(
    description: Any, what: str, *, required: Collection[str] = (), optional: Collection[str] = ()
) -> None:
    """Raise `InputError` unless `description` is a mapping with the right keys."""
    if not isinstance(description, Mapping):
        raise InputError(f"{what} is {description!r}; a mapping is required")
    known = [*required, *optional]
    for key in description:
        if key not in known:
            near = _nearest(str(key), known)
            raise InputError(f"{what} has an unknown key {key!r}{near}; {_one_of(known)}")
    for key in required:
        if key not in description:
            raise InputError(f"{what} lacks the key {key!r}; {_one_of(known)}")


def _nearest(name: str, known: Collection[str]) -> str:
    near = difflib.get_close_matches(name, list(known), n=1)
    return f", did you mean {near[0]!r}?" if near else ""


def _one_of(known: Collection[str]) -> str:
    return f"valid are {', '.join(repr(name) for name in known)}"


def _place(what: str, build: Callable[[], Built]) -> Built:
    """Build, naming the place in an error."""
    try:
        return build()
    except InputError as error:
        raise InputError(f"{what}: {error}") from None
