"""Start, middle and end of a context, and what the shares of influence on them say."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from posbias.metrics import END_SHARE, shape_figures, wasserstein
from posbias.profile import Profile
from posbias.report.resampling import Interval, Statistic, bootstrap, interval

__all__ = ["ZoneFigures", "Zones", "profile_distances", "zone_figures"]

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
    """Shares of influence of one profile, with intervals over windows where they are known.

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


def zone_figures(mass: Array, rows: Array | None = None) -> ZoneFigures:
    """Return the shares of a profile, shape (n,), with intervals from its windows, shape (D, n)."""
    zones = Zones(mass.size)
    statistics: dict[str, Statistic] = {
        "start": lambda p: zones.shares(p)[0],
        "middle": lambda p: zones.shares(p)[1],
        "end": lambda p: zones.shares(p)[2],
    }
    if zones.has_middle:
        statistics["start ratio"] = lambda p: zones.ratio(*zones.shares(p)[:2])
        statistics["end ratio"] = lambda p: zones.ratio(*zones.shares(p)[:0:-1])
    resampled = {} if rows is None else bootstrap(rows, {**statistics, "shape": _u_shaped})
    found = {
        name: interval(float(statistic(mass[None])[0]), resampled.get(name))
        for name, statistic in statistics.items()
    }
    shape = shape_figures(mass)
    return ZoneFigures(
        start=found["start"],
        middle=found["middle"],
        end=found["end"],
        start_ratio=found.get("start ratio"),
        end_ratio=found.get("end ratio"),
        trough=shape.trough_position,
        trough_share=1.0 - shape.trough_depth,
        is_u_shaped=shape.is_u_shaped,
        u_shaped_resamples=float(resampled["shape"].mean()) if resampled else None,
    )


def profile_distances(
    measured: Profile, rows: Array, predicted: dict[str, Profile]
) -> dict[str, Interval]:
    """Return W1 of each prediction to the measured profile, with intervals over windows.

    Parameters
    ----------
    measured : Profile
        The measured influence.
    rows : ndarray, shape (D, n)
        Its windows on one common scale.
    predicted : dict of str to Profile
        Held fixed: only the measured influence is resampled.
    """
    statistics = {name: partial(_distances, cdf=p.cdf) for name, p in predicted.items()}
    resampled = bootstrap(rows, statistics)
    return {
        name: interval(wasserstein(profile, measured), resampled.get(name))
        for name, profile in predicted.items()
    }


def _u_shaped(profiles: Array) -> Array:
    return np.array([float(shape_figures(profile).is_u_shaped) for profile in profiles])


def _distances(profiles: Array, *, cdf: Array) -> Array:
    """Return W1 of each profile to the one with the given cumulative mass, shape (B,)."""
    gaps = np.abs(np.cumsum(profiles, axis=1) - cdf)[:, :-1]
    distances: Array = gaps.sum(axis=1) / (cdf.size - 1)
    return distances
