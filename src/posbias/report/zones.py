"""Start, middle and end of a context, and what the shares of influence on them say."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from posbias.metrics import END_SHARE, shape_arrays, shape_figures
from posbias.uncertainty import TAILS, Interval, interval

__all__ = ["ZoneFigures", "Zones", "zone_figures"]

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Zones:
    """The first and the last ceil(n / 10) positions, and the middle between them.

    Parameters
    ----------
    n : int
        Number of positions.
    """

    n: int

    @property
    def size(self) -> int:
        """Positions of the start, and of the end."""
        return -(-self.n // END_SHARE)

    @property
    def has_middle(self) -> bool:
        """Whether there are positions between the two."""
        return 2 * self.size < self.n

    def shares(self, profiles: Array) -> tuple[Array, Array, Array]:
        """Return the mass on start, middle and end of profiles, shape (..., n)."""
        ends = self.size
        return (
            profiles[..., :ends].sum(axis=-1),
            profiles[..., ends : self.n - ends].sum(axis=-1),
            profiles[..., self.n - ends :].sum(axis=-1),
        )

    def ratio(self, part: Array, middle: Array) -> Array:
        """Return influence per position of an end over that of the middle, infinite over 0."""
        per_middle = np.asarray(middle / (self.n - 2 * self.size))
        ratio = np.full(np.shape(part), np.inf)
        np.divide(part / self.size, per_middle, out=ratio, where=per_middle > 0.0)
        return ratio


@dataclass(frozen=True)
class ZoneFigures:
    """Shares of influence of one profile, with intervals where they are known.

    Parameters
    ----------
    start, middle, end : Interval
        Mass on the three zones.
    start_ratio, end_ratio : Interval or None
        Influence per position of an end over that of the middle; None without a middle.
    trough : int
        Position of the least influence, smoothed.
    trough_share : float
        Smoothed influence there in multiples of the fair share 1 / n.
    is_u_shaped : bool
        As `posbias.metrics.shape_figures` defines it.
    u_shaped_resamples : float or None
        Share of the resamples that are U-shaped.
    trough_range : tuple of int, or None
        First and last position of the interval of `trough`, rounded outwards.
    last_token : float or None
        Share of the influence on the last zone that is on the last position alone; None if the
        zone holds one position, or nothing.
    """

    start: Interval
    middle: Interval
    end: Interval
    start_ratio: Interval | None
    end_ratio: Interval | None
    trough: int
    trough_share: float
    is_u_shaped: bool
    u_shaped_resamples: float | None
    trough_range: tuple[int, int] | None = None
    last_token: float | None = None


def zone_figures(mass: Array, resampled: Array | None = None) -> ZoneFigures:
    """Return the shares of a profile, shape (n,), with intervals from its resamples, (B, n)."""
    zones = Zones(mass.size)
    values = _zone_values(zones, mass)
    drawn = {} if resampled is None else _zone_values(zones, resampled)
    found = {name: interval(float(value), drawn.get(name)) for name, value in values.items()}
    shape = shape_figures(mass)
    alike, trough = None, None
    if resampled is not None:
        shapes = shape_arrays(resampled)
        alike = float(shapes["is_u_shaped"].mean())
        low, high = np.quantile(shapes["trough_position"], TAILS)
        trough = math.floor(low), math.ceil(high)
    end = found["end"].value
    return ZoneFigures(
        start=found["start"],
        middle=found["middle"],
        end=found["end"],
        start_ratio=found.get("start ratio"),
        end_ratio=found.get("end ratio"),
        trough=shape.trough_position,
        trough_share=1.0 - shape.trough_depth,
        is_u_shaped=shape.is_u_shaped,
        u_shaped_resamples=alike,
        trough_range=trough,
        last_token=float(mass[-1]) / end if zones.size > 1 and end > 0.0 else None,
    )


def _zone_values(zones: Zones, profiles: Array) -> dict[str, Array]:
    """Return shares and ratios of profiles, shape (..., n), each of shape (...)."""
    start, middle, end = zones.shares(profiles)
    found = {"start": start, "middle": middle, "end": end}
    if zones.has_middle:
        found["start ratio"] = zones.ratio(start, middle)
        found["end ratio"] = zones.ratio(end, middle)
    return found
