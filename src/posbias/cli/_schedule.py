"""Mixing schedules on the command line: ``power:0.3:1.2`` and the like."""

from __future__ import annotations

import math
from typing import Any

from posbias.cli._options import NUMBER
from posbias.errors import InputError

__all__ = ["SCHEDULE_HELP", "parse_schedule"]

SCHEDULE_HELP = (
    "constant:VALUE, power:LAMBDA0:BETA (lambda0 / t^beta), exponential:LAMBDA0:RHO "
    "(lambda0 rho^(t-1)), or custom:V1,V2,... (one value per layer)"
)

_PARAMETERS = {
    "constant": ("value",),
    "power": ("lambda0", "beta"),
    "exponential": ("lambda0", "rho"),
}


def parse_schedule(text: str) -> dict[str, Any]:
    """Return the description of a mixing schedule, as `MixingSchedule.from_description` reads it.

    Raises
    ------
    InputError
        If the kind is unknown, a number is missing or is no number. Ranges are checked where the
        schedule is made.

    Examples
    --------
    >>> parse_schedule("power:0.3:1.2")
    {'type': 'power', 'lambda0': 0.3, 'beta': 1.2}
    >>> parse_schedule("custom:0.5,0.25")
    {'type': 'custom', 'values': [0.5, 0.25]}
    """
    kind, *fields = text.split(":")
    if kind == "custom" and len(fields) == 1:
        return {"type": kind, "values": [_number(word, text) for word in fields[0].split(",")]}
    if kind not in _PARAMETERS or len(fields) != len(_PARAMETERS[kind]):
        raise InputError(f"the schedule {text!r} is not understood; write {SCHEDULE_HELP}")
    values = (_number(word, text) for word in fields)
    return {"type": kind, **dict(zip(_PARAMETERS[kind], values, strict=True))}


def _number(word: str, text: str) -> float:
    if not NUMBER.fullmatch(word):
        raise InputError(f"{word!r} in the schedule {text!r} is no number; write {SCHEDULE_HELP}")
    value = float(word)
    if not math.isfinite(value):
        raise InputError(f"{word} in the schedule {text!r} is too large; write {SCHEDULE_HELP}")
    return value
