"""First-order stochastic order of two influence profiles."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from posbias.errors import ProfileError
from posbias.profile import Profile

__all__ = ["ORDER_TOLERANCE", "StochasticOrder", "mean_position", "stochastic_order"]

ORDER_TOLERANCE = 1e-10
"""Largest violation of an order of distribution functions that counts as rounding."""


@dataclass(frozen=True)
class StochasticOrder:
    """How two profiles p and q compare; "earlier" means CDF_p >= CDF_q everywhere.

    Parameters
    ----------
    holds, reverse_holds : bool
        Whether p is earlier than q, and q earlier than p, up to the tolerance. Both: equal.
    margin : float
        Smallest CDF_p(k) - CDF_q(k) over k < n-1; negative when the order is violated.
    witness : int
        The position k where the margin is attained.
    max_violation, reverse_violation : float
        Largest amount by which each direction is violated, 0 when it is not.
    mean_first, mean_second : float
        Mean positions of p and q, in positions.
    """

    holds: bool
    reverse_holds: bool
    margin: float
    witness: int
    max_violation: float
    reverse_violation: float
    mean_first: float
    mean_second: float

    @property
    def direction(self) -> str:
        """Where q lies from p: ``"later"``, ``"earlier"`` or ``"neither"``."""
        if self.holds == self.reverse_holds:
            return "neither"
        return "later" if self.holds else "earlier"

    def as_dict(self) -> dict[str, Any]:
        """Return the fields and the direction as JSON-serialisable values."""
        return {**asdict(self), "direction": self.direction}


def stochastic_order(
    p: Profile | ArrayLike, q: Profile | ArrayLike, *, tolerance: float = ORDER_TOLERANCE
) -> StochasticOrder:
    """Compare two profiles in the first-order stochastic order.

    Parameters
    ----------
    p, q : Profile or array_like, shape (n,)
        Two profiles of the same length.
    tolerance : float
        Violations up to this size count as rounding.

    Returns
    -------
    StochasticOrder
        Both directions with margin and witness. Cost O(n).

    Raises
    ------
    ProfileError
        If the lengths differ.

    Examples
    --------
    >>> stochastic_order([0.5, 0.3, 0.2], [0.2, 0.3, 0.5]).holds
    True
    >>> stochastic_order([0.4, 0.2, 0.4], [0.2, 0.6, 0.2]).direction
    'neither'
    """
    first, second = _mass(p), _mass(q)
    if first.shape != second.shape:
        raise ProfileError(
            f"profiles of {first.size} and {second.size} positions cannot be ordered; "
            "compare profiles of the same context length"
        )
    difference = np.cumsum(first - second)[:-1]
    witness = int(np.argmin(difference))
    margin, reverse = float(difference[witness]), -float(difference.max())
    return StochasticOrder(
        holds=margin >= -tolerance,
        reverse_holds=reverse >= -tolerance,
        margin=margin,
        witness=witness,
        max_violation=max(0.0, -margin),
        reverse_violation=max(0.0, -reverse),
        mean_first=mean_position(first),
        mean_second=mean_position(second),
    )


def mean_position(p: Profile | ArrayLike) -> float:
    """Return the mean position of a profile, in positions 0..n-1."""
    mass = _mass(p)
    return float(np.arange(mass.size) @ mass)


def _mass(p: Profile | ArrayLike) -> NDArray[np.float64]:
    return p.mass if isinstance(p, Profile) else Profile(np.asarray(p)).mass
