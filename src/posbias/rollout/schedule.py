"""Mixing schedules: how much each layer mixes its attention update into the stream."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from posbias.errors import InputError

__all__ = ["MixingSchedule"]

Array = NDArray[np.float64]


class MixingSchedule:
    """Mixing coefficients lambda_t of the layers t = 1..T, bottom first.

    The transition of layer t is ``R_t = (1 - lambda_t) I + lambda_t A_t``.

    Parameters
    ----------
    values : array_like, shape (T,) or (T, n)
        Coefficients in [0, 1], one per layer or one per layer and target position. Entry 0 is
        layer 1. Nothing is clipped.

    Raises
    ------
    InputError
        If there is no layer, or a value is not a real number in [0, 1].

    Examples
    --------
    >>> MixingSchedule.power(3, 0.9, 1.0).values.round(2)
    array([0.9 , 0.45, 0.3 ])
    """

    def __init__(self, values: ArrayLike) -> None:
        array = _checked(values)
        array.setflags(write=False)
        self._values = array
        self._description: dict[str, Any] | None = None

    @classmethod
    def constant(cls, depth: int, value: float) -> MixingSchedule:
        """Return lambda_t = value for t = 1..depth."""
        value = _real(value, "value")
        values = np.full(_depth(depth), value)
        return cls._described(values, {"type": "constant", "value": value})

    @classmethod
    def power(cls, depth: int, lambda0: float, beta: float) -> MixingSchedule:
        """Return lambda_t = lambda0 / t ** beta for t = 1..depth."""
        lambda0, beta = _real(lambda0, "lambda0"), _real(beta, "beta")
        values = lambda0 * np.arange(1.0, _depth(depth) + 1.0) ** -beta
        return cls._described(values, {"type": "power", "lambda0": lambda0, "beta": beta})

    @classmethod
    def exponential(cls, depth: int, lambda0: float, rho: float) -> MixingSchedule:
        """Return lambda_t = lambda0 * rho ** (t - 1) for t = 1..depth."""
        lambda0, rho = _real(lambda0, "lambda0"), _real(rho, "rho")
        values = lambda0 * rho ** np.arange(0.0, _depth(depth))
        return cls._described(values, {"type": "exponential", "lambda0": lambda0, "rho": rho})

    @classmethod
    def custom(cls, values: ArrayLike) -> MixingSchedule:
        """Return the schedule of the given coefficients, shape (T,) or (T, n)."""
        return cls(values)

    @classmethod
    def from_description(cls, description: Mapping[str, Any], depth: int) -> MixingSchedule:
        """Return the schedule of a spec file over `depth` layers, the inverse of `describe`.

        Parameters
        ----------
        description : mapping
            ``{"type": "constant", "value"}``, ``{"type": "power", "lambda0", "beta"}``,
            ``{"type": "exponential", "lambda0", "rho"}`` or ``{"type": "custom", "values"}``.
        depth : int
            T.

        Raises
        ------
        InputError
            If the type or a key is unknown, a key is missing, or the values are out of range or
            not one per layer.
        """
        depth = _depth(depth)
        name, options = _parse(description)
        if name != "custom":
            build: Callable[..., MixingSchedule] = getattr(cls, name)
            return build(depth, **options)
        schedule = cls.custom(options["values"])
        if schedule.depth != depth:
            raise InputError(
                f"the custom schedule has {schedule.depth} layers; {depth} are required"
            )
        return schedule

    @property
    def values(self) -> Array:
        """The coefficients, read-only, shape (T,) or (T, n)."""
        return self._values

    @property
    def depth(self) -> int:
        """T, the number of layers."""
        return int(self._values.shape[0])

    @property
    def is_per_position(self) -> bool:
        """Whether each target position has a coefficient of its own."""
        return self._values.ndim == 2

    @property
    def positions(self) -> int | None:
        """Number of positions of a schedule per position, else None."""
        return int(self._values.shape[1]) if self.is_per_position else None

    def restrict(self, n: int) -> MixingSchedule:
        """Return the schedule over the first `n` positions; itself if it is per layer."""
        if not self.is_per_position:
            return self
        if not 1 <= n <= self._values.shape[1]:
            raise InputError(
                f"a schedule over {self._values.shape[1]} positions cannot be restricted to {n}"
            )
        return MixingSchedule(self._values[:, :n])

    def describe(self) -> dict[str, Any]:
        """Return the JSON-serialisable ``mixing`` entry of a spec file."""
        if self._description is not None:
            return dict(self._description)
        return {"type": "custom", "values": self._values.tolist()}

    @classmethod
    def _described(cls, values: Array, description: dict[str, Any]) -> MixingSchedule:
        try:
            schedule = cls(values)
        except InputError as error:
            raise InputError(f"the {description['type']} schedule: {error}") from None
        schedule._description = description
        return schedule

    def __len__(self) -> int:
        return self.depth

    def __eq__(self, other: object) -> bool:
        return isinstance(other, MixingSchedule) and np.array_equal(self._values, other._values)

    def __hash__(self) -> int:
        return hash((self._values.shape, self._values.tobytes()))

    def __repr__(self) -> str:
        kind = self.describe()["type"]
        return f"MixingSchedule({kind}, depth={self.depth}, per_position={self.is_per_position})"


_FIELDS = {
    "constant": ("value",),
    "power": ("lambda0", "beta"),
    "exponential": ("lambda0", "rho"),
    "custom": ("values",),
}


def _parse(description: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """Return type and fields of a description."""
    if not isinstance(description, Mapping) or "type" not in description:
        raise InputError(f"the mixing is {description!r}; a mapping with a 'type' is required")
    name = description["type"]
    if not isinstance(name, str) or name not in _FIELDS:
        raise InputError(f"the mixing has type {name!r}; valid are {', '.join(_FIELDS)}")
    options = {key: value for key, value in description.items() if key != "type"}
    missing = [key for key in _FIELDS[name] if key not in options]
    unknown = [str(key) for key in options if key not in _FIELDS[name]]
    if missing or unknown:
        problem = (
            f"lacks the key {missing[0]!r}" if missing else f"has an unknown key {unknown[0]!r}"
        )
        raise InputError(
            f"the {name} mixing {problem}; it takes {', '.join(map(repr, _FIELDS[name]))} beside "
            "'type'"
        )
    return name, options


def _checked(values: ArrayLike) -> Array:
    """Return a float64 copy of coefficients in [0, 1] or raise `InputError`."""
    try:
        raw = np.asarray(values)
    except ValueError:
        raise InputError(
            "the mixing coefficients are numbers and lists, or lists of different lengths; numbers "
            "are required, one per layer, or lists of one number per position"
        ) from None
    if raw.dtype.kind not in "fiu":
        _refuse_entry(values)
        raise InputError(f"the mixing coefficients have type {raw.dtype}; reals are required")
    if raw.ndim not in (1, 2) or not raw.size:
        raise InputError(
            f"the mixing coefficients have shape {raw.shape}; (T,) or (T, n) with T, n >= 1 is "
            "required"
        )
    array = raw.astype(np.float64)
    bad = np.argwhere(~((array >= 0.0) & (array <= 1.0)))
    if len(bad):
        index = tuple(int(k) for k in bad[0])
        place = f"layer {index[0] + 1}" + (f", position {index[1]}" if array.ndim == 2 else "")
        raise InputError(
            f"the mixing coefficient of {place} is {array[index]:g} ({len(bad)} such values); a "
            "number in [0, 1] is required, it is the share of attention in a transition"
        )
    return array


def _refuse_entry(values: ArrayLike) -> None:
    """Raise `InputError` for the first entry of a list that is no real number."""
    for layer, value in enumerate(values if isinstance(values, (list, tuple)) else (), start=1):
        if isinstance(value, bool) or not isinstance(value, (int, float, list, tuple)):
            given = "empty" if value is None else repr(value)
            raise InputError(
                f"the mixing coefficient of layer {layer} is {given}; a number is required"
            )


def _real(value: object, what: str) -> float:
    good = isinstance(value, (int, float, np.integer, np.floating))
    if not good or isinstance(value, bool) or not np.isfinite(value):  # type: ignore[call-overload]
        raise InputError(f"{what} of a schedule is {value!r}; a finite real number is required")
    return float(value)  # type: ignore[arg-type]


def _depth(depth: object) -> int:
    if isinstance(depth, bool) or not isinstance(depth, (int, np.integer)) or depth < 1:
        raise InputError(f"the depth of a schedule is {depth!r}; an integer >= 1 is required")
    return int(depth)
