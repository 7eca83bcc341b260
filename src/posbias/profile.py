"""Influence profiles: how much each input position matters for one output position."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from posbias.errors import ProfileError
from posbias.notebook import card, curves
from posbias.optional import import_frames

if TYPE_CHECKING:
    import pandas

__all__ = ["MASS_TOLERANCE", "Profile", "ProfileSet"]

Vector = NDArray[np.float64]

MASS_TOLERANCE = 1e-3
"""How far the total mass of a profile may be from one (published figures are rounded)."""


@dataclass(frozen=True, eq=False)
class Profile:
    """A probability distribution of influence over input positions.

    Parameters
    ----------
    mass : array_like, shape (n,)
        Share of the influence of each position 0..n-1; finite, non-negative, sums to one within
        `MASS_TOLERANCE`. Stored as a read-only float64 array, never trimmed or renormalised.
    stderr : array_like, shape (n,), optional
        Standard error of `mass`, finite and non-negative.
    quantity : str
        What the mass is, e.g. ``"rollout"`` or ``"gradient influence"``.
    name : str
        Short label for tables and legends, e.g. ``"residual+content"``.
    origin : mapping
        Where it comes from (source, parameters), JSON-serialisable.

    Raises
    ------
    ProfileError
        If the mass is not a probability vector of at least two positions or `stderr` does not fit.

    Examples
    --------
    >>> p = Profile([0.5, 0.2, 0.3], name="example")
    >>> p.n, float(p.mass[0])
    (3, 0.5)
    """

    mass: Vector
    stderr: Vector | None = None
    quantity: str = "rollout"
    name: str = ""
    origin: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        mass = _readonly_vector(self.mass, "mass")
        with np.errstate(over="ignore"):  # a sum beyond the range is refused as infinite
            total = float(mass.sum())
        if abs(total - 1.0) > MASS_TOLERANCE:
            raise ProfileError(
                f"the mass of profile {self.name!r} sums to {total:.6g}; it must sum to 1 within "
                f"{MASS_TOLERANCE:g}. Normalise the values yourself if they are raw scores"
            )
        object.__setattr__(self, "mass", mass)
        if self.stderr is not None:
            stderr = _readonly_vector(self.stderr, "stderr")
            if stderr.shape != mass.shape:
                raise ProfileError(
                    f"stderr has {stderr.size} entries, mass has {mass.size}; they must match"
                )
            object.__setattr__(self, "stderr", stderr)

    @property
    def n(self) -> int:
        """Number of positions."""
        return int(self.mass.size)

    @property
    def cdf(self) -> Vector:
        """Cumulative mass, shape (n,)."""
        return np.cumsum(self.mass)

    @classmethod
    def from_scores(cls, scores: ArrayLike, **kwargs: Any) -> Profile:
        """Normalise non-negative scores, shape (n,), into a profile.

        Raises
        ------
        ProfileError
            If a score is negative or not finite, or all are zero.
        """
        values = _readonly_vector(scores, "scores")
        with np.errstate(over="ignore"):
            total = float(values.sum())
        if total <= 0.0 or not np.isfinite(total):
            raise ProfileError(f"scores sum to {total:g}; a positive finite sum is required")
        return cls(values / total, **kwargs)

    def to_pandas(self) -> pandas.DataFrame:
        """Return a data frame of n rows: ``position``, ``mass`` and, if known, ``stderr``.

        Raises
        ------
        InputError
            If pandas is not installed.
        """
        columns = {"position": np.arange(self.n), "mass": self.mass}
        if self.stderr is not None:
            columns["stderr"] = self.stderr
        frame: pandas.DataFrame = import_frames("pandas").DataFrame(columns)
        return frame

    def __len__(self) -> int:
        return self.n

    def _repr_html_(self) -> str:
        label = self.name or self.quantity
        top = int(self.mass.argmax())
        facts = [
            ("quantity:", self.quantity),
            ("positions:", self.n),
            ("most influential:", f"position {top} with {self.mass[top]:.3g}"),
        ]
        return card(f"Profile {label}", facts, curves({label: self.mass}))

    def __repr__(self) -> str:
        return f"Profile(name={self.name!r}, quantity={self.quantity!r}, n={self.n})"


class ProfileSet(Mapping[str, Profile]):
    """Profiles of equal length by name, in the order in which they are shown.

    Parameters
    ----------
    profiles : mapping of str to Profile
        At least one; all of the same length.

    Raises
    ------
    ProfileError
        If there is none or lengths differ. Profiles are never trimmed to fit.
    """

    def __init__(self, profiles: Mapping[str, Profile]) -> None:
        lengths = {name: p.n for name, p in profiles.items()}
        if not lengths:
            raise ProfileError("a profile set needs at least one profile, got none")
        if len(set(lengths.values())) > 1:
            raise ProfileError(f"profiles have different lengths {lengths}; they must be equal")
        self._profiles = dict(profiles)

    @property
    def n(self) -> int:
        """Number of positions of every profile."""
        return next(iter(self._profiles.values())).n

    def __getitem__(self, name: str) -> Profile:
        return self._profiles[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._profiles)

    def __len__(self) -> int:
        return len(self._profiles)

    def to_pandas(self) -> pandas.DataFrame:
        """Return a data frame of n rows: ``position``, then a column of mass per profile.

        Raises
        ------
        ProfileError
            If a profile is named ``position``.
        InputError
            If pandas is not installed.
        """
        if "position" in self._profiles:
            raise ProfileError(
                "a profile is named 'position', as the first column of the table is; give it "
                "another name"
            )
        columns = {name: profile.mass for name, profile in self._profiles.items()}
        frame: pandas.DataFrame = import_frames("pandas").DataFrame(
            {"position": np.arange(self.n), **columns}
        )
        return frame

    def _repr_html_(self) -> str:
        masses = {name: profile.mass for name, profile in self._profiles.items()}
        facts = [("profiles:", len(self)), ("positions:", self.n)]
        return card("Profiles", facts, curves(masses))

    def __repr__(self) -> str:
        return f"ProfileSet({list(self)}, n={self.n})"


def _readonly_vector(values: ArrayLike, what: str) -> Vector:
    """Check a finite non-negative vector and return a read-only float64 copy."""
    raw = np.asarray(values)
    if raw.dtype.kind not in "fiu":
        raise ProfileError(f"{what} has type {raw.dtype}; real numbers are required")
    if raw.ndim != 1 or raw.size < 2:
        raise ProfileError(f"{what} has shape {raw.shape}; one axis of at least 2 is required")
    vector = raw.astype(np.float64)
    bad = np.flatnonzero(~(np.isfinite(vector) & (vector >= 0.0)))
    if bad.size:
        raise ProfileError(
            f"{what} at position {bad[0]} is {vector[bad[0]]:g} ({bad.size} such entries); "
            "finite non-negative values are required"
        )
    vector.setflags(write=False)
    return vector
