"""One attention head: a position bias and an abstraction of its content."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from posbias.errors import InputError
from posbias.kernels._checks import as_integer, as_real, as_reals
from posbias.kernels.positions import NoPE, Position

__all__ = ["Head", "Sink"]

Vector = NDArray[np.float64]


@dataclass(frozen=True)
class Sink:
    """An extra logit on the first keys.

    Parameters
    ----------
    count : int
        Number of keys s >= 0 that have it.
    logit : float
        The logit, in nats; negative values make the first keys less attractive.
    """

    count: int
    logit: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "count", as_integer(self.count, "the sink count", low=0))
        object.__setattr__(self, "logit", as_real(self.logit, "the sink logit"))


@dataclass(frozen=True, eq=False)
class Head:
    """The logits of one head, up to a constant that cancels in the softmax.

    ``logit(i, j) = position(i - j) + diagonal [i == j] + key[j] + sink.logit [j < sink.count]``

    Parameters
    ----------
    position : Position
        Bias by lag.
    weight : float
        Weight of the head in the mixture of a layer, >= 0; only ratios matter.
    diagonal : float
        d: by how much a token's logit with itself exceeds its logit with others, in nats.
    key : array_like, shape (n,), optional
        Content that depends on the key alone, in nats; stored read-only.
    sink : Sink, optional
        Extra logit on the first keys.

    Raises
    ------
    InputError
        If a number is not finite or has the wrong type.

    Examples
    --------
    >>> from posbias.kernels import ALiBi
    >>> Head(ALiBi(0.5), diagonal=1.0).diagonal
    1.0
    """

    position: Position
    weight: float
    diagonal: float
    key: Vector | None
    sink: Sink | None

    def __init__(
        self,
        position: Position | None = None,
        *,
        weight: float = 1.0,
        diagonal: float = 0.0,
        key: ArrayLike | None = None,
        sink: Sink | None = None,
    ) -> None:
        position = NoPE() if position is None else position
        if not isinstance(position, Position):
            raise InputError(f"the position of a head is {position!r}; a Position is required")
        if sink is not None and not isinstance(sink, Sink):
            raise InputError(f"the sink of a head is {sink!r}; a Sink(count, logit) is required")
        if key is not None:
            key = as_reals(key, "the key logits").copy()
            key.setflags(write=False)
        object.__setattr__(self, "position", position)
        object.__setattr__(self, "weight", as_real(weight, "the weight of a head", low=0.0))
        object.__setattr__(self, "diagonal", as_real(diagonal, "the diagonal term of a head"))
        object.__setattr__(self, "key", key)
        object.__setattr__(self, "sink", sink)

    @property
    def law(self) -> tuple[Any, ...]:
        """What decides the shape of the head away from its diagonal, hashable."""
        key = None if self.key is None else self.key.tobytes()
        return self.position, self.sink, key

    def key_logits(self, n: int) -> Vector | None:
        """Return key and sink logits summed, shape (n,), or None if there are none."""
        if self.key is None and (self.sink is None or not self.sink.count):
            return None
        logits = np.zeros(n) if self.key is None else self.key[:n].copy()
        if self.sink is not None:
            logits[: self.sink.count] += self.sink.logit
        return logits

    def restrict(self, n: int) -> Head:
        """Return the head over the first `n` positions."""
        if self.key is None:
            return self
        return Head(
            self.position,
            weight=self.weight,
            diagonal=self.diagonal,
            key=self.key[:n],
            sink=self.sink,
        )

    def describe(self) -> Mapping[str, Any]:
        """Return the JSON-serialisable ``heads`` entry of a spec file."""
        entry: dict[str, Any] = {"weight": self.weight, "position": self.position.describe()}
        entry["diagonal"] = self.diagonal
        if self.key is not None:
            entry["key"] = self.key.tolist()
        if self.sink is not None:
            entry["sink"] = {"count": self.sink.count, "logit": self.sink.logit}
        return entry

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Head):
            return NotImplemented
        mine = (self.weight, self.diagonal, self.law)
        return mine == (other.weight, other.diagonal, other.law)

    def __hash__(self) -> int:
        return hash((self.weight, self.diagonal, self.law))
