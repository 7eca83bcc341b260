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
    "FLAT",
    "U_MARGIN",
    "ShapeFigures",
    "distance_arrays",
    "jensen_shannon",
    "shape_arrays",
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

FLAT = 1e-9
"""Depth of the trough up to which a profile is flat and has no least position."""

U_MARGIN = 0.25
"""Both ends of a U-shape lie above its trough by more than this share of the uniform mass 1 / n."""

_TIE = 1e-12
"""Relative difference below which smoothed masses count as equal (rounding of their sums)."""


def wasserstein(p: ProfileLike, q: ProfileLike) -> float:
    """Return the Wasserstein-1 distance on positions divided by n - 1, in [0, 1].

    On the line it is the area between the cumulative sums, sum_k |P(k) - Q(k)| / (n - 1) with k
    over 0..n-2. Two profiles whose totals differ by rounding are compared as they are.

    Raises
    ------
    ProfileError
        If either is no profile or their lengths differ. Cost O(n).
    """
    return float(_wasserstein(*_pair(p, q)))


def spearman(p: ProfileLike, q: ProfileLike) -> float:
    """Return Spearman's rank correlation of the masses, in [-1, 1], ties at mean rank.

    It is undefined where one of the profiles is constant, as the uniform baseline is: the result
    is nan then, without a warning. Tables show it as ``-``, JSON as null.

    Raises
    ------
    ProfileError
        If either is no profile or their lengths differ. Cost O(n log n).
    """
    return float(_spearman(*_pair(p, q)))


def jensen_shannon(p: ProfileLike, q: ProfileLike) -> float:
    """Return the Jensen-Shannon divergence in nats, in [0, log 2].

    It is the mean of the two Kullback-Leibler divergences to the average of p and q. It is no
    distance; its square root is one.

    Raises
    ------
    ProfileError
        If either is no profile or their lengths differ. Cost O(n).
    """
    return float(_jensen_shannon(*_pair(p, q)))


def total_variation(p: ProfileLike, q: ProfileLike) -> float:
    """Return half the L1 distance of the masses, in [0, 1].

    Raises
    ------
    ProfileError
        If either is no profile or their lengths differ. Cost O(n).
    """
    return float(_total_variation(*_pair(p, q)))


def distance_arrays(p: Vector, q: Vector) -> dict[str, Vector]:
    """Return all distances between many profiles at once.

    Parameters
    ----------
    p, q : ndarray, shape (..., n)
        Profiles along the last axis, taken as they are, and of shapes that broadcast.

    Returns
    -------
    dict of str to ndarray, shape (...)
        ``w1``, ``spearman``, ``js``, ``tv``: `wasserstein`, `spearman`, `jensen_shannon` and
        `total_variation` of each pair. Cost O(n log n) per pair.
    """
    return {
        "w1": _wasserstein(p, q),
        "spearman": _spearman(p, q),
        "js": _jensen_shannon(p, q),
        "tv": _total_variation(p, q),
    }


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

    @property
    def has_trough(self) -> bool:
        """Whether the trough is deeper than `FLAT`; a flat profile has no least position."""
        return self.trough_depth > FLAT

    def as_dict(self) -> dict[str, Any]:
        """Return the figures as a JSON-serialisable dict."""
        return asdict(self)


def shape_figures(p: ProfileLike) -> ShapeFigures:
    """Describe the shape of a profile of n positions.

    ``primacy`` and ``recency``
        Mass of the first and of the last ceil(n / 10) positions.
    ``trough_position``
        Position of the minimum of the smoothed profile (`smooth`), the first one in case of ties
        (values that differ by less than 1e-12 of the minimum).
    ``trough_depth``
        One minus the smoothed minimum divided by the uniform mass 1 / n: 0 if the least
        influential place has its fair share, 1 if it has nothing.
    ``mean_position``
        sum_j j p_j, in [0, n - 1].
    ``entropy``
        -sum_j p_j log p_j in nats, in [0, log n].
    ``is_u_shaped``
        Whether the trough is strictly inside and the smoothed profile at position 0 and at
        position n - 1 exceeds the trough by more than `U_MARGIN` / n.

    Raises
    ------
    ProfileError
        If `p` is no profile. Cost O(n).
    """
    found = {name: values[()] for name, values in shape_arrays(_mass(p)).items()}
    return ShapeFigures(
        primacy=float(found["primacy"]),
        recency=float(found["recency"]),
        trough_position=int(found["trough_position"]),
        trough_depth=float(found["trough_depth"]),
        mean_position=float(found["mean_position"]),
        entropy=float(found["entropy"]),
        is_u_shaped=bool(found["is_u_shaped"]),
    )


def shape_arrays(p: Vector) -> dict[str, NDArray[Any]]:
    """Return the figures of `shape_figures` of many profiles at once.

    Parameters
    ----------
    p : ndarray, shape (..., n)
        Profiles along the last axis, taken as they are.

    Returns
    -------
    dict of str to ndarray, shape (...)
        The attributes of `ShapeFigures`. Cost O(n) per profile.
    """
    from scipy.special import entr

    n = p.shape[-1]
    ends = -(-n // END_SHARE)
    curve = smooth(p)
    least = curve.min(axis=-1)
    trough = np.argmax(curve <= least[..., None] * (1 + _TIE), axis=-1)
    is_inside = (trough > 0) & (trough < n - 1)
    rise = np.minimum(curve[..., 0], curve[..., -1]) - least
    return {
        "primacy": p[..., :ends].sum(axis=-1),
        "recency": p[..., -ends:].sum(axis=-1),
        "trough_position": trough,
        "trough_depth": np.asarray(1.0 - n * least),
        "mean_position": np.asarray(p @ np.arange(float(n))),
        "entropy": entr(p).sum(axis=-1),
        "is_u_shaped": is_inside & (rise > U_MARGIN / n),
    }


def smooth(mass: ArrayLike) -> Vector:
    """Return the centred moving average over 2 h + 1 positions, h = n // 32, shape (..., n).

    The width is about n / 16; profiles shorter than 32 positions stay as they are. Near an end
    the average shrinks symmetrically: position j averages over j - g..j + g with
    g = min(h, j, n - 1 - j), so that the ends keep their own values and a straight line stays
    straight. Sums are formed without subtraction, so that small values keep their digits. O(n).
    """
    values = np.asarray(mass, dtype=np.float64)
    half = values.shape[-1] // 32
    if half == 0:
        return values.copy()
    width = 2 * half + 1
    sizes = np.arange(1.0, width, 2.0)
    start = np.cumsum(values[..., : width - 2], axis=-1)[..., ::2] / sizes
    end = np.cumsum(values[..., : -(width - 1) : -1], axis=-1)[..., ::2] / sizes
    middle = _window_sums(values, width) / width
    return np.concatenate([start, middle, end[..., ::-1]], axis=-1)


def _window_sums(values: Vector, width: int) -> Vector:
    """Return the sum of every `width` consecutive values, shape (..., n - width + 1).

    A window is the end of one block of `width` values and the start of the next: a suffix sum and
    a prefix sum, both exact to rounding of their own size.
    """
    *outer, n = values.shape
    count = -(-n // width) + 1
    padded = np.zeros((*outer, count * width))
    padded[..., :n] = values
    blocks = padded.reshape(*outer, count, width)
    suffix = np.cumsum(blocks[..., ::-1], axis=-1)[..., ::-1].reshape(padded.shape)
    # The prefix sum before each position; windows that start on a block need none of the next.
    before = np.zeros_like(blocks)
    np.cumsum(blocks[..., :-1], axis=-1, out=before[..., 1:])
    before = before.reshape(padded.shape)
    last = n - width + 1
    return np.asarray(suffix[..., :last] + before[..., width : width + last])


def _wasserstein(a: Vector, b: Vector) -> Vector:
    gaps = np.abs(np.cumsum(a - b, axis=-1)[..., :-1])
    return np.asarray(gaps.sum(axis=-1) / (a.shape[-1] - 1))


def _spearman(a: Vector, b: Vector) -> Vector:
    from scipy.stats import rankdata

    x, y = rankdata(a, axis=-1), rankdata(b, axis=-1)
    x -= x.mean(axis=-1, keepdims=True)
    y -= y.mean(axis=-1, keepdims=True)
    scale = np.sqrt((x * x).sum(axis=-1) * (y * y).sum(axis=-1))
    correlation = np.full(scale.shape, np.nan)
    np.divide((x * y).sum(axis=-1), scale, out=correlation, where=scale > 0.0)
    return correlation


def _jensen_shannon(a: Vector, b: Vector) -> Vector:
    from scipy.special import rel_entr

    middle = (a + b) / 2
    divergence = (rel_entr(a, middle).sum(axis=-1) + rel_entr(b, middle).sum(axis=-1)) / 2
    # Rounding alone can take the divergence of nearly equal profiles below its bound 0.
    return np.asarray(np.maximum(0.0, divergence))


def _total_variation(a: Vector, b: Vector) -> Vector:
    return np.asarray(np.abs(a - b).sum(axis=-1) / 2)


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
