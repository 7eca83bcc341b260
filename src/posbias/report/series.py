"""The numbers behind the figures of a page."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from posbias.binning import bin_edges, end_size, mean_shares, round_digits
from posbias.measurement import Measurement
from posbias.profile import Profile
from posbias.rollout import Rollout
from posbias.uncertainty import band

__all__ = ["PROFILE_BINS", "depth_series", "mixing_series", "profile_panels"]

Array = NDArray[np.float64]

PROFILE_BINS = 512
"""Most bins of a profile over the whole context."""

_DEPTH_BINS = 256
_DEPTH_DIGITS = 4


def profile_panels(
    profiles: Mapping[str, Profile], resampled: Array | None = None
) -> dict[str, Any]:
    """Return the profiles over the whole context and, for long ones, over both ends.

    Parameters
    ----------
    profiles : mapping of str to Profile
        Of one length n.
    resampled : ndarray, shape (B, n), optional
        Resamples of the profile ``measured``, for its band.

    Returns
    -------
    dict
        ``n`` and ``panels``: per panel its name, the ``edges`` of the bins, ``series`` by name in
        multiples of the fair share, and ``band`` (the interval of the measured profile, bin by
        bin).
    """
    n = next(iter(profiles.values())).n
    masses = {name: profile.mass for name, profile in profiles.items()}
    whole = bin_edges(n, PROFILE_BINS)
    panels = [_panel("all positions", masses, resampled, edges=whole)]
    ends = end_size(n)
    if ends:
        for name, first in ((f"first {ends}", 0), (f"last {ends}", n - ends)):
            edges = np.arange(first, first + ends + 1)
            panels.append(_panel(f"{name} positions", masses, resampled, edges=edges))
    return {"n": n, "panels": panels}


def mixing_series(measurement: Measurement) -> dict[str, Any]:
    """Return lambda per layer by both estimators, with the spread of the first."""
    return {
        "norm": round_digits(measurement.mixing("norm")),
        "std": round_digits(measurement.mixing_std("norm")),
        "frobenius": round_digits(measurement.mixing("frobenius")),
    }


def depth_series(rollouts: Mapping[str, Rollout]) -> dict[str, Any]:
    """Return the profile of the last position after 0..T layers for several rollouts.

    Returns
    -------
    dict
        ``edges`` of the bins, and per rollout ``profiles`` (T + 1 rows in multiples of the fair
        share), ``first`` and ``last`` (mass on token 0 and on the query itself) and ``mean``
        (mean position over n - 1), each after 0..T layers. Cost T (T + 1) / 2 products each.
    """
    n = next(iter(rollouts.values())).n
    edges = bin_edges(n, _DEPTH_BINS)
    positions = np.linspace(0.0, 1.0, n)
    found: dict[str, Any] = {"edges": edges.tolist(), "series": {}}
    for name, rollout in rollouts.items():
        profiles = rollout.depth_profiles()
        binned = mean_shares(profiles, edges, n)
        found["series"][name] = {
            "profiles": [round_digits(row, _DEPTH_DIGITS) for row in binned],
            "first": round_digits(profiles[:, 0]),
            "last": round_digits(profiles[:, -1]),
            "mean": round_digits(profiles @ positions),
        }
    return found


def _panel(
    name: str, masses: Mapping[str, Array], resampled: Array | None, *, edges: NDArray[np.int64]
) -> dict[str, Any]:
    """Cut out the positions that the edges span and bin them."""
    panel: dict[str, Any] = {"name": name, "edges": edges.tolist()}
    cut = slice(int(edges[0]), int(edges[-1]))
    n = next(iter(masses.values())).size
    inner = edges - edges[0]
    panel["series"] = {
        key: round_digits(mean_shares(mass[cut], inner, n)) for key, mass in masses.items()
    }
    if resampled is not None:
        low, high = band(mean_shares(resampled[:, cut], inner, n))
        panel["band"] = {"low": round_digits(low), "high": round_digits(high)}
    return panel
