"""Position biases: the part of an attention logit that depends on the lag alone.

The lag of target (query) i and source (key) j is ``i - j``: zero on the diagonal, positive for
the past, negative for the future. Every bias is a small immutable value.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from posbias.errors import InputError
from posbias.kernels._checks import as_integer, as_real, as_reals

__all__ = [
    "ALiBi",
    "Cosine",
    "KerpleLog",
    "KerplePower",
    "LagTable",
    "NoPE",
    "Position",
    "RopeSum",
    "T5Buckets",
]

Vector = NDArray[np.float64]


class Position(ABC):
    """A bias b(i - j) on attention logits.

    A subclass is a frozen dataclass whose fields, in `describe`, are the fields of the spec file;
    `type_name` is the ``type`` there. It implements `lag_logits`, and `future_logits` if the
    bias is not a function of ``|i - j|``.
    """

    type_name: ClassVar[str]

    @abstractmethod
    def lag_logits(self, n: int) -> Vector:
        """Return the bias of the lags i - j = 0..n-1, shape (n,), a new array."""

    def future_logits(self, n: int) -> Vector:
        """Return the bias of the lags i - j = 0, -1, ..., -(n-1), shape (n,), a new array."""
        return self.lag_logits(n)

    def largest(self, n: int) -> float:
        """Return the largest finite absolute bias among the lags 0..n-1 of either sign."""
        logits = self.lag_logits(n)
        return float(np.abs(logits[np.isfinite(logits)]).max(initial=0.0))

    def describe(self) -> dict[str, Any]:
        """Return the JSON-serialisable ``position`` entry of a spec file."""
        values = {f.name: getattr(self, f.name) for f in fields(self)}  # type: ignore[arg-type]
        return {"type": self.type_name, **{k: _plain(v) for k, v in values.items()}}


@dataclass(frozen=True)
class NoPE(Position):
    """No position bias: b = 0, uniform attention over the visible keys."""

    type_name: ClassVar[str] = "nope"

    def lag_logits(self, n: int) -> Vector:
        """Return zeros, shape (n,)."""
        return np.zeros(n)

    def largest(self, n: int) -> float:
        """Return zero."""
        return 0.0


@dataclass(frozen=True)
class ALiBi(Position):
    """Linear bias, ``b(l) = -slope * l`` for the past.

    Parameters
    ----------
    slope : float
        m, in nats per position; negative slopes favour the distant past.
    future : {"abs", "signed"}
        Bias of keys j > i where the mask shows them: ``-slope |i - j|`` or ``-slope (i - j)``.

    Notes
    -----
    Source: Press, Smith and Lewis, *Train Short, Test Long* (2022).
    """

    slope: float
    future: str = "abs"
    type_name: ClassVar[str] = "alibi"

    def __post_init__(self) -> None:
        object.__setattr__(self, "slope", as_real(self.slope, "the ALiBi slope"))
        if self.future not in ("abs", "signed"):
            raise InputError(f"ALiBi future is {self.future!r}; 'abs' or 'signed' is required")
        object.__setattr__(self, "future", str(self.future))

    def lag_logits(self, n: int) -> Vector:
        """Return ``-slope * l`` for l = 0..n-1, shape (n,)."""
        return -self.slope * np.arange(n, dtype=np.float64)

    def future_logits(self, n: int) -> Vector:
        """Return the bias of keys 0..n-1 positions ahead, shape (n,)."""
        past = self.lag_logits(n)
        return past if self.future == "abs" else -past

    def largest(self, n: int) -> float:
        """Return ``|slope| (n - 1)``."""
        return abs(self.slope) * (n - 1)


@dataclass(frozen=True)
class KerpleLog(Position):
    """Kerple, logarithmic: ``b(l) = -r1 log(1 + r2 |l|)`` with r1, r2 >= 0.

    Notes
    -----
    Source: Chi, Fan, Ramadge and Rudnicky, *KERPLE* (2022).
    """

    r1: float
    r2: float
    type_name: ClassVar[str] = "kerple_log"

    def __post_init__(self) -> None:
        object.__setattr__(self, "r1", as_real(self.r1, "Kerple r1", low=0.0))
        object.__setattr__(self, "r2", as_real(self.r2, "Kerple r2", low=0.0))

    def lag_logits(self, n: int) -> Vector:
        """Return ``-r1 log(1 + r2 l)`` for l = 0..n-1, shape (n,)."""
        return np.asarray(-self.r1 * np.log1p(self.r2 * np.arange(n)), dtype=np.float64)


@dataclass(frozen=True)
class KerplePower(Position):
    """Kerple, power: ``b(l) = -r1 |l| ** r2`` with r1 >= 0 and r2 > 0.

    Notes
    -----
    Source: Chi, Fan, Ramadge and Rudnicky, *KERPLE* (2022).
    """

    r1: float
    r2: float
    type_name: ClassVar[str] = "kerple_power"

    def __post_init__(self) -> None:
        object.__setattr__(self, "r1", as_real(self.r1, "Kerple r1", low=0.0))
        object.__setattr__(self, "r2", as_real(self.r2, "Kerple r2", above=0.0))

    def lag_logits(self, n: int) -> Vector:
        """Return ``-r1 l ** r2`` for l = 0..n-1, shape (n,)."""
        with np.errstate(over="ignore"):
            powers = np.arange(n, dtype=np.float64) ** self.r2
        return _finite(-self.r1 * powers, self) if self.r1 else np.zeros(n)


@dataclass(frozen=True)
class T5Buckets(Position):
    """T5's bucketed bias, unidirectional as in decoders.

    Lags below ``num_buckets // 2`` have a bucket each; the others share logarithmically growing
    buckets up to `max_distance`, beyond which all lags fall into the last one. Future keys fall
    into bucket 0.

    Parameters
    ----------
    num_buckets : int
        B >= 2.
    max_distance : int
        Larger than ``num_buckets // 2``.
    bias : sequence of float, length B
        Logit of each bucket.

    Notes
    -----
    Source: Raffel et al., *Exploring the Limits of Transfer Learning* (2020); the bucket bounds
    are those of the reference implementation in float32.
    """

    num_buckets: int
    max_distance: int
    bias: Sequence[float]
    type_name: ClassVar[str] = "t5"

    def __post_init__(self) -> None:
        buckets = as_integer(self.num_buckets, "T5 num_buckets", low=2)
        low = buckets // 2 + 1
        object.__setattr__(self, "num_buckets", buckets)
        distance = as_integer(self.max_distance, "T5 max_distance", low=low)
        object.__setattr__(self, "max_distance", distance)
        bias = as_reals(self.bias, "T5 bias", size=buckets)
        object.__setattr__(self, "bias", tuple(bias.tolist()))

    def lag_logits(self, n: int) -> Vector:
        """Return the bias of the bucket of each lag 0..n-1, shape (n,)."""
        return np.asarray(self.bias, dtype=np.float64)[self.buckets(n)]

    def future_logits(self, n: int) -> Vector:
        """Return the bias of bucket 0, shape (n,)."""
        return np.full(n, self.bias[0])

    def buckets(self, n: int) -> NDArray[np.int64]:
        """Return the bucket of each lag 0..n-1, shape (n,)."""
        exact = self.num_buckets // 2
        lags = np.arange(n)
        distant = np.maximum(lags, exact).astype(np.float32)
        ratio = np.log(distant / exact) / np.float32(np.log(self.max_distance / exact))
        large = exact + (ratio * np.float32(self.num_buckets - exact)).astype(np.int64)
        return np.where(lags < exact, lags, np.minimum(large, self.num_buckets - 1))


@dataclass(frozen=True)
class Cosine(Position):
    """One frequency of a rotary-like bias: ``b(l) = amp cos(theta l)``."""

    amp: float
    theta: float
    type_name: ClassVar[str] = "cosine"

    def __post_init__(self) -> None:
        object.__setattr__(self, "amp", as_real(self.amp, "the cosine amp"))
        object.__setattr__(self, "theta", as_real(self.theta, "the cosine theta"))

    def lag_logits(self, n: int) -> Vector:
        """Return ``amp cos(theta l)`` for l = 0..n-1, shape (n,)."""
        return np.asarray(self.amp * np.cos(self.theta * np.arange(n)), dtype=np.float64)


@dataclass(frozen=True)
class RopeSum(Position):
    """The bias of a rotary head with equal query and key components.

    ``b(l) = amp (2 / dim) sum over k < dim / 2 of cos(base ** (-2 k / dim) l)``.

    Parameters
    ----------
    amp : float
        Logit at lag 0.
    dim : int
        Even head dimension, at least 2.
    base : float
        Positive base of the frequencies, 10000 in most models.
    """

    amp: float
    dim: int
    base: float
    type_name: ClassVar[str] = "rope_sum"

    def __post_init__(self) -> None:
        object.__setattr__(self, "amp", as_real(self.amp, "the rope_sum amp"))
        object.__setattr__(self, "dim", as_integer(self.dim, "the rope_sum dim", low=2))
        object.__setattr__(self, "base", as_real(self.base, "the rope_sum base", above=0.0))
        if self.dim % 2:
            raise InputError(f"the rope_sum dim is {self.dim}; an even number is required")

    def lag_logits(self, n: int) -> Vector:
        """Return the mean cosine times `amp` for l = 0..n-1, shape (n,); cost O(n dim)."""
        lags = np.arange(n, dtype=np.float64)
        total = np.zeros(n)
        for k in range(self.dim // 2):
            total += np.cos(self.base ** (-2.0 * k / self.dim) * lags)
        return self.amp * (2.0 / self.dim) * total


@dataclass(frozen=True, eq=False)
class LagTable(Position):
    """A bias given lag by lag.

    Parameters
    ----------
    bias : array_like, shape (m,)
        Logit of ``|i - j|`` = 0..m-1; lags beyond the table have the last entry. None or -inf
        means that the lag is never attended to.
    """

    bias: Vector
    type_name: ClassVar[str] = "table"

    def __init__(self, bias: ArrayLike | Sequence[float | None]) -> None:
        given = bias
        if isinstance(bias, (list, tuple)):
            given = [-np.inf if value is None else value for value in bias]
        table = as_reals(given, "the lag table", minus_infinity=True).copy()  # type: ignore[arg-type]
        if not np.isfinite(table).any():
            raise InputError("the lag table has no finite entry; at least one lag must be visible")
        table.setflags(write=False)
        object.__setattr__(self, "bias", table)

    def lag_logits(self, n: int) -> Vector:
        """Return the table continued by its last entry, shape (n,)."""
        logits = np.full(n, self.bias[-1])
        known = min(n, self.bias.size)
        logits[:known] = self.bias[:known]
        return logits

    def __eq__(self, other: object) -> bool:
        return isinstance(other, LagTable) and np.array_equal(self.bias, other.bias)

    def __hash__(self) -> int:
        return hash(("table", self.bias.tobytes()))


def _finite(logits: Vector, position: Position) -> Vector:
    """Return `logits` if none has overflowed."""
    if not np.isfinite(logits[-1]):
        raise InputError(f"{position!r} overflows at lag {logits.size - 1}; use smaller numbers")
    return logits


def _plain(value: Any) -> Any:
    """Return a field as JSON-serialisable numbers, -inf as None."""
    if isinstance(value, np.ndarray):
        return [None if np.isneginf(x) else x for x in value.tolist()]
    if isinstance(value, tuple):
        return list(value)
    return value


POSITIONS: Mapping[str, type[Position]] = {
    kind.type_name: kind
    for kind in (NoPE, ALiBi, KerpleLog, KerplePower, T5Buckets, Cosine, RopeSum, LagTable)
}
"""The position biases by their ``type`` in a spec file."""
