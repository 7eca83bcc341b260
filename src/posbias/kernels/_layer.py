"""What the heads of a layer share, and which of them differ in their diagonal alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from posbias.errors import InputError
from posbias.kernels.head import Head
from posbias.kernels.masks import Band, Mask

__all__ = ["Law", "Layer", "laws_of", "sigmoids"]

Vector = NDArray[np.float64]


@dataclass(frozen=True)
class Layer:
    """Number of positions, mask and temperature of a layer."""

    n: int
    mask: Mask
    temperature: float

    @property
    def bands(self) -> tuple[Band, ...]:
        """The off-diagonal pairs that the mask shows."""
        return self.mask.bands(self.n)


@dataclass(frozen=True)
class Law:
    """Heads with the same rows away from the diagonal, and their normalised weights.

    With S_i the total weight of the other keys of query i and k_i the logit of its own key, a head
    with diagonal term d has ``A[i, i] = 1 / (1 + S_i exp(-k_i - d))``.
    """

    heads: tuple[Head, ...]
    weights: tuple[float, ...]

    def keys(self, layer: Layer) -> Vector | None:
        """Return the logits of the keys after the temperature, shape (n,), None if all zero."""
        logits = self.heads[0].key_logits(layer.n)
        return None if logits is None else logits / layer.temperature

    def shares(self, layer: Layer, log_mass: Vector, first: int = 0) -> tuple[Vector, Vector]:
        """Return the summed shares of the other keys and of the own key.

        Parameters
        ----------
        layer : Layer
            The layer of the heads.
        log_mass : ndarray, shape (R,)
            log S_i of the rows first, ..., first + R - 1; -inf where no other key is seen.
        first : int
            The first of the rows.

        Returns
        -------
        off, own : ndarray, shape (R,)
            Both without cancellation for any d.

        Raises
        ------
        InputError
            If a query sees no key at all.
        """
        position, keys = self.heads[0].position, self.keys(layer)
        own_key = np.full(log_mass.size, position.lag_logits(1)[0] / layer.temperature)
        if keys is not None:
            own_key += keys[first : first + log_mass.size]
        blind = np.flatnonzero(np.isneginf(own_key) & np.isneginf(log_mass))
        if blind.size:
            raise InputError(
                f"query {first + int(blind[0])} sees no key: {type(position).__name__} hides every "
                "lag that the mask shows it; give lag 0 a finite logit"
            )
        off, own = np.zeros(log_mass.size), np.zeros(log_mass.size)
        for head, weight in zip(self.heads, self.weights, strict=True):
            kept, sent = sigmoids(own_key + head.diagonal / layer.temperature - log_mass)
            own += weight * kept
            off += weight * sent
        return off, own


def laws_of(heads: Sequence[Head], weights: Sequence[float]) -> list[Law]:
    """Group the heads of positive weight by their law."""
    found: dict[object, tuple[list[Head], list[float]]] = {}
    for head, weight in zip(heads, weights, strict=True):
        if weight > 0.0:
            members = found.setdefault(head.law, ([], []))
            members[0].append(head)
            members[1].append(weight)
    return [Law(tuple(members), tuple(shares)) for members, shares in found.values()]


def sigmoids(x: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return 1 / (1 + exp(-x)) and 1 / (1 + exp(x)), each with full relative accuracy."""
    small = np.exp(-np.abs(x))
    large = 1.0 / (1.0 + small)
    small *= large
    negative = x < 0.0
    other = np.where(negative, large, small)
    np.copyto(large, small, where=negative)
    return large, other
