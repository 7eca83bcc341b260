"""Validation of numbers, vectors and weights that a user hands in."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from posbias.errors import InputError

__all__ = ["as_integer", "as_matrix", "as_real", "as_reals", "as_stack", "as_weights"]

Vector = NDArray[np.float64]


def as_real(value: object, what: str, *, low: float = -np.inf, above: float = -np.inf) -> float:
    """Return a finite real number >= `low` and > `above`, or raise `InputError`."""
    is_number = isinstance(value, (int, float, np.integer, np.floating))
    if not is_number or isinstance(value, (bool, np.bool_)):
        raise InputError(f"{what} is {value!r}; a real number is required")
    number = float(value)  # type: ignore[arg-type]
    if not np.isfinite(number):
        raise InputError(f"{what} is {number}; a finite number is required")
    if number < low:
        raise InputError(f"{what} is {number:g}; at least {low:g} is required")
    if number <= above:
        raise InputError(f"{what} is {number:g}; more than {above:g} is required")
    return number


def as_integer(value: object, what: str, *, low: int) -> int:
    """Return an integer >= `low`, or raise `InputError`."""
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, (int, np.integer)):
        raise InputError(f"{what} is {value!r}; an integer is required")
    if value < low:
        raise InputError(f"{what} is {value}; at least {low} is required")
    return int(value)


def as_reals(
    values: ArrayLike, what: str, *, size: int | None = None, minus_infinity: bool = False
) -> Vector:
    """Return a float64 vector of finite reals (or -inf, where allowed), or raise `InputError`.

    The result may share memory with `values`.
    """
    vector = _real_array(values, what)
    if vector.ndim != 1 or (size is not None and vector.size != size):
        wanted = "one axis" if size is None else f"shape ({size},)"
        if vector.ndim == 0:
            raise InputError(
                f"{what} is {vector:g}; a list of numbers is required, such as [{vector:g}]"
            )
        raise InputError(f"{what} has shape {vector.shape}; {wanted} is required")
    good = np.isfinite(vector)
    if minus_infinity:
        good |= np.isneginf(vector)
    _require(vector, good, what, "finite numbers are required")
    return vector


def as_matrix(values: ArrayLike, what: str) -> NDArray[np.float64]:
    """Return a square float64 matrix of finite reals, or raise `InputError`."""
    matrix = _real_array(values, what)
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1] or not matrix.size:
        raise InputError(f"{what} has shape {matrix.shape}; a square matrix is required")
    with np.errstate(over="ignore", invalid="ignore"):
        total = matrix.sum()
    if not np.isfinite(total):  # cheaper than a look at every entry
        _require(matrix, np.isfinite(matrix), what, "finite numbers are required")
    return matrix


def as_stack(values: ArrayLike, what: str, width: int) -> NDArray[np.float64]:
    """Return vectors stacked as a float64 array (Q, width) of finite reals, or raise."""
    stack = _real_array(values, what)
    if stack.ndim != 2 or stack.shape[1] != width:
        raise InputError(f"{what} have shape {stack.shape}; (Q, {width}) is required")
    _require(stack, np.isfinite(stack), what, "finite numbers are required")
    return stack


def as_weights(weights: ArrayLike | None, count: int, what: str) -> Vector:
    """Return non-negative weights with a positive sum, divided by it; None means equal weights."""
    if weights is None:
        return np.full(count, 1.0 / count)
    vector = as_reals(weights, what, size=count)
    _require(vector, vector >= 0.0, what, "non-negative weights are required")
    top = float(vector.max())
    if top == 0.0:
        raise InputError(f"{what} are all zero; at least one positive weight is required")
    scaled = vector / top  # the sum of large weights must not overflow
    return np.asarray(scaled / scaled.sum(), dtype=np.float64)


def _real_array(values: ArrayLike, what: str) -> NDArray[np.float64]:
    try:
        array = np.asarray(values)
    except ValueError as error:
        raise InputError(f"{what} is not a rectangular array of numbers: {error}") from None
    if array.dtype.kind not in "fiu":
        for index, value in enumerate(values if isinstance(values, (list, tuple)) else ()):
            if not isinstance(
                value, (int, float, np.integer, np.floating, list, tuple, np.ndarray)
            ):
                raise InputError(f"{what}[{index}] is {value!r}; a real number is required")
        raise InputError(f"{what} has type {array.dtype}; real numbers are required")
    return array.astype(np.float64, copy=False)


def _require(array: NDArray[Any], good: NDArray[np.bool_], what: str, need: str) -> None:
    if good.all():
        return
    index = tuple(int(k) for k in np.argwhere(~good)[0])
    place = index[0] if len(index) == 1 else index
    count = int(good.size - good.sum())
    raise InputError(f"{what}[{place}] is {array[index]:g} ({count} such entries); {need}")
