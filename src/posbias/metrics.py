"""Distances between influence profiles and figures of their shape (NumPy and SciPy only)."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from posbias.errors import ProfileError
from posbias.profile import Profile

__all__ = [
    "END_SHARE",
    "U_MARGIN",
    "ShapeFigures",
    "jensen_shannon",
    "shape_figures",
    "smooth",
    "spearman",
    "total_variation",
    "wasserstein",
]

Vector = NDArray[np.float64]
ProfileLike = Profile | ArrayLike

END_SHARE = 10
"""One over the share of positions that counts as the start and as the end."""

U_MARGIN = 0.25
"""Both ends of a U-shape lie above the interior minimum by at least this share of it."""


def wasserstein(p: ProfileLike, q: ProfileLike) -> float:
    """Return the Wasserstein-1 distance on positions divided by n - 1, in [0, 1].

    On the line it is the area between the cumulative sums, sum_k |P(k) - Q(k)| / (n - 1).

    Raises
    ------
    ProfileError
        If either is no profile or their lengths differ. Cost O(n).
    """
    a, b = _pair(p, q)
    return float(np.abs(np.cumsum(a - b)[:-1]).sum() / (a.size - 1))


def spearman(p: ProfileLike, q: ProfileLike) -> float:
    """Return Spearman's rank correlation of the masses, in [-1, 1], ties at mean rank.

    It is undefined, nan, if one profile is constant (the uniform baseline).

    Raises
    ------
    ProfileError
        If either is no profile or their lengths differ. Cost O(n log n).
    """
    from scipy.stats import rankdata

    a, b = (rankdata(x) for x in _pair(p, q))
    a, b = a - a.mean(), b - b.mean()
    scale = float(np.linalg.norm(a) * np.linalg.norm(b))
    return float(a @ b / scale) if scale > 0.0 else float("nan")


def jensen_shannon(p: ProfileLike, q: ProfileLike) -> float:
    """Return the Jensen-Shannon divergence in nats, in [0, log 2].

    Raises
    ------
    ProfileError
        If either is no profile or their lengths differ. Cost O(n).
    """
    from scipy.special import rel_entr

    a, b = _pair(p, q)
    middle = (a + b) / 2
    return float((rel_entr(a, middle).sum() + rel_entr(b, middle).sum()) / 2)


def total_variation(p: ProfileLike, q: ProfileLike) -> float:
    """Return half the L1 distance of the masses, in [0, 1].

    Raises
    ------
    ProfileError
        If either is no profile or their lengths differ. Cost O(n).
    """
    a, b = _pair(p, q)
    return float(np.abs(a - b).sum() / 2)


@dataclass(frozen=True)
class ShapeFigures:
    """Figures that describe the shape of one profile (see `shape_figures`)."""

    primacy: float
    recency: float
    trough_position: int
    trough_depth: float
    mean_position: float
    entropy: float
    is_u_shaped: bool

    def as_dict(self) -> dict[str, Any]:
        """Return the figures as a JSON-serialisable dict."""
        return asdict(self)


def shape_figures(p: ProfileLike) -> ShapeFigures:
    """Describe the shape of a profile of n positions.

    ``primacy`` and ``recency``
        Mass of the first and of the last ceil(n / 10) positions.
    ``trough_position``
        Position of the minimum of the smoothed profile (`smooth`), the first one in case of ties.
    ``trough_depth``
        One minus the smoothed minimum divided by the uniform mass 1 / n: 0 if the least
        influential place has its fair share, 1 if it has none, negative never.
    ``mean_position``
        sum_j j p_j, in [0, n - 1].
    ``entropy``
        -sum_j p_j log p_j in nats, in [0, log n].
    ``is_u_shaped``
        Whether the smoothed minimum is strictly inside and both smoothed ends lie above it by at
        least `U_MARGIN` times its value.

    Raises
    ------
    ProfileError
        If `p` is no profile. Cost O(n).
    """
    from scipy.special import entr

    mass = _mass(p)
    n = mass.size
    ends = -(-n // END_SHARE)
    curve = smooth(mass)
    trough = int(np.argmin(curve))
    least = float(curve[trough])
    threshold = least * (1 + U_MARGIN)
    inside = 0 < trough < n - 1
    return ShapeFigures(
        primacy=float(mass[:ends].sum()),
        recency=float(mass[-ends:].sum()),
        trough_position=trough,
        trough_depth=1.0 - n * least,
        mean_position=float(np.arange(n) @ mass),
        entropy=float(entr(mass).sum()),
        is_u_shaped=bool(inside and min(curve[0], curve[-1]) > threshold),
    )


def smooth(mass: ArrayLike) -> Vector:
    """Return the centred moving average over about n / 16 positions, shape (n,).

    The half width is n // 32; near an end the average shrinks symmetrically, so that position 0
    and position n - 1 keep their own values and no mass from one side biases the other.
    """
    values = np.asarray(mass, dtype=np.float64)
    n = values.size
    position = np.arange(n)
    half = np.minimum(np.minimum(position, n - 1 - position), n // 32)
    total = np.concatenate([[0.0], np.cumsum(values)])
    smoothed: Vector = (total[position + half + 1] - total[position - half]) / (2 * half + 1)
    return smoothed


def _pair(p: ProfileLike, q: ProfileLike) -> tuple[Vector, Vector]:
    a, b = _mass(p), _mass(q)
    if a.size != b.size:
        raise ProfileError(
            f"profiles have {a.size} and {b.size} positions; equal lengths are required. Predict "
            "at the length of the measurement; profiles are never trimmed"
        )
    return a, b


def _mass(p: ProfileLike) -> Vector:
    return p.mass if isinstance(p, Profile) else Profile(p).mass  # type: ignore[arg-type]
