"""The result of a comparison: distances and shapes of profiles, with intervals."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from posbias.atomic import atomic_write_text
from posbias.errors import InputError
from posbias.metrics import FLAT
from posbias.notebook import card, table
from posbias.optional import import_frames
from posbias.uncertainty import (
    DISTANCES,
    FIGURES,
    Interval,
    Paired,
    Uncertainty,
    interval,
    units_needed,
    with_range,
)

if TYPE_CHECKING:
    import pandas

Array = NDArray[np.float64]

__all__ = ["ALIKE", "INTERVAL_FIELDS", "RECOMMENDED", "Comparison", "ComparisonRow"]

RECOMMENDED = "*"
"""Mark of the prediction that a rule recommends before any is compared."""

ALIKE = "~"
"""Mark of a prediction that the text does not tell apart from the closest one."""

INTERVAL_FIELDS = tuple(f"{name}_{end}" for name in FIGURES for end in ("low", "high"))
"""Keys of the ends of intervals in files, beside the fields of a row."""


@dataclass(frozen=True)
class ComparisonRow:
    """One profile against the measured one; distances and shapes as in `posbias.metrics`.

    Attributes
    ----------
    variant : str
        Name of the profile.
    w1 : float
        Wasserstein-1 distance on positions divided by n - 1, in [0, 1].
    spearman : float
        Rank correlation of the masses, in [-1, 1]; nan if one of the profiles is constant.
    js : float
        Jensen-Shannon divergence in nats, in [0, log 2].
    tv : float
        Total variation, in [0, 1].
    primacy, recency, trough_position, trough_depth, mean_position, entropy, is_u_shaped
        Figures of the profile itself, see `posbias.metrics.shape_figures`.
    """

    variant: str
    w1: float
    spearman: float
    js: float
    tv: float
    primacy: float
    recency: float
    trough_position: int
    trough_depth: float
    mean_position: float
    entropy: float
    is_u_shaped: bool

    @property
    def has_trough(self) -> bool:
        """Whether the profile has a least position: a flat one has none."""
        return self.trough_depth > FLAT

    def as_dict(self) -> dict[str, Any]:
        """Return the row as JSON-serialisable values; an undefined correlation is None."""
        row = asdict(self)
        return {**row, "spearman": None if math.isnan(self.spearman) else self.spearman}


@dataclass(frozen=True)
class Comparison:
    """Predicted profiles against a measured one.

    Attributes
    ----------
    rows : tuple of ComparisonRow
        One per prediction, in the order given.
    measured : ComparisonRow
        The shape of the measured profile, and its distances to itself.
    n : int
        Number of positions of all profiles.
    estimator : str or None
        Choice of estimator of the predictions (``auto``, or the text of one), if all that know
        theirs share it.
    recommended : str or None
        The prediction that a rule recommends before any is compared, see `posbias.recommend`.
    sampling : mapping or None
        How the intervals were made, see `posbias.uncertainty.comparison.Uncertainty.as_dict`;
        None without intervals.
    intervals : mapping of str to mapping of str to Interval
        By name of the profile, then by figure (`posbias.uncertainty.comparison.FIGURES`). The
        distances of the measured profile to itself have no ends. Empty without intervals.
    against_best : tuple of Paired
        Every other prediction against `best`; empty without intervals.
    uncertainty : Uncertainty or None
        The resamples; None without intervals, or if the comparison was read from a file.
    """

    rows: tuple[ComparisonRow, ...]
    measured: ComparisonRow
    n: int
    estimator: str | None = None
    recommended: str | None = None
    sampling: Mapping[str, Any] | None = None
    intervals: Mapping[str, Mapping[str, Interval]] = field(default_factory=dict)
    against_best: tuple[Paired, ...] = ()
    uncertainty: Uncertainty | None = field(default=None, compare=False, repr=False)

    def __getitem__(self, variant: str) -> ComparisonRow:
        """Return the row of a prediction by name."""
        for row in self.rows:
            if row.variant == variant:
                return row
        raise KeyError(variant)

    @property
    def best(self) -> ComparisonRow:
        """The row of smallest W1, the first one in case of ties."""
        return min(self.rows, key=lambda row: row.w1)

    def with_uncertainty(self, uncertainty: Uncertainty) -> Comparison:
        """Return the comparison with the intervals that resamples of its profiles give."""
        found = {
            row.variant: {
                name: interval(
                    getattr(row, name), uncertainty.predictions[row.variant].figures[name]
                )
                for name in FIGURES
            }
            for row in self.rows
        }
        own = uncertainty.measured.figures
        found[self.measured.variant] = {
            name: interval(getattr(self.measured, name), None if name in DISTANCES else own[name])
            for name in FIGURES
        }
        complete = replace(
            self, sampling=uncertainty.as_dict(), intervals=found, uncertainty=uncertainty
        )
        best = self.best.variant
        others = [row.variant for row in self.rows if row.variant != best]
        return replace(complete, against_best=tuple(complete.paired(name, best) for name in others))

    def paired(self, first: str, second: str) -> Paired:
        """Say whether one prediction is closer to the measured profile than another.

        Both W1 are resampled with the same draws of text (paired bootstrap), which removes what
        they have in common: two predictions may be told apart although their intervals overlap.

        Raises
        ------
        InputError
            If there are no resamples.
        KeyError
            If there is no prediction of that name.
        """
        if self.uncertainty is None:
            raise InputError(
                "this comparison has no resamples; compare with a measurement of at least two "
                "windows, not with a profile or a file of an earlier comparison"
            )
        difference = self[first].w1 - self[second].w1
        return self.uncertainty.paired(first, second, difference)

    def units_needed(self, variant: str, half_width: float = 0.01) -> int | None:
        """Estimate how many documents or windows give W1 of a prediction to +- `half_width`.

        See `posbias.uncertainty.intervals.units_needed`; None without intervals.
        """
        if self.sampling is None:
            return None
        return units_needed(self.intervals[variant]["w1"], half_width, self.sampling["units"])

    def bands(self) -> dict[str, tuple[Array, Array]]:
        """Return the interval of each position of the profiles that are resampled, by name.

        Both ends of shape (n,), pointwise; of the measured profile under ``"measured"``. Empty
        without resamples.
        """
        if self.uncertainty is None:
            return {}
        profiles = {"measured": self.uncertainty.measured, **self.uncertainty.predictions}
        return {name: (p.low, p.high) for name, p in profiles.items() if p.moves}

    def marks(self, variant: str) -> str:
        """Return the marks of a prediction in tables: `RECOMMENDED`, `ALIKE`, both or none."""
        alike = [p.first for p in self.against_best if p.verdict == "not distinguished"]
        recommended = RECOMMENDED if variant == self.recommended else ""
        return recommended + (ALIKE if variant in alike else "")

    def shown(self, variant: str, figure: str, digits: int = 4) -> str:
        """Return a figure for people, with its interval if it has one.

        Parameters
        ----------
        variant : str
            Name of a prediction, or of the measured profile.
        figure : str
            One of `posbias.uncertainty.comparison.FIGURES`.
        digits : int
            Digits after the point; the ends of the interval have one less.

        Returns
        -------
        str
            A dash for the trough of a flat profile.
        """
        row = self.measured if variant == self.measured.variant else self[variant]
        if figure == "trough_position" and not row.has_trough:
            return "-"
        found = self.intervals.get(variant, {}).get(figure)
        return with_range(found or Interval(float(getattr(row, figure))), digits)

    def to_rows(self) -> list[dict[str, Any]]:
        """Return the rows of the predictions as JSON-serialisable dicts, see `as_dict`."""
        return [self._as_dict(row) for row in self.rows]

    def as_dict(self) -> dict[str, Any]:
        """Return everything but the resamples as JSON-serialisable values.

        Returns
        -------
        dict
            ``n``, ``estimator``, ``recommended``, ``measured`` and ``rows``. With intervals, each
            row also has ``w1_low``, ``w1_high`` and so on for every figure (None where it is
            undefined), ``intervals`` says how they were made, and ``against_best`` holds the paired
            comparisons with the closest prediction.
        """
        found = {
            "n": self.n,
            "estimator": self.estimator,
            "recommended": self.recommended,
            "measured": self._as_dict(self.measured),
            "rows": self.to_rows(),
        }
        if self.sampling is None:
            return found
        pairs = [pair.as_dict() for pair in self.against_best]
        return {**found, "intervals": dict(self.sampling), "against_best": pairs}

    def _as_dict(self, row: ComparisonRow) -> dict[str, Any]:
        """Return a row with the ends of its intervals, if there are any in this comparison."""
        found = row.as_dict()
        if self.sampling is None:
            return found
        known = self.intervals[row.variant]
        for name in FIGURES:
            found[f"{name}_low"], found[f"{name}_high"] = known[name].low, known[name].high
        return found

    def to_pandas(self) -> pandas.DataFrame:
        """Return a data frame with a row per profile, the measured one first, as `write_csv`.

        Raises
        ------
        InputError
            If pandas is not installed.
        """
        rows = [self._as_dict(self.measured), *self.to_rows()]
        frame: pandas.DataFrame = import_frames("pandas").DataFrame(rows)
        undefined = [*DISTANCES, *(name for name in INTERVAL_FIELDS if name in frame)]
        return frame.astype(dict.fromkeys(undefined, "float64"))

    def _repr_html_(self) -> str:
        header = ("variant", "W1", "Spearman", "JS", "primacy", "recency", "trough")
        rows = [
            (
                f"{row.variant} {self.marks(row.variant)}".rstrip(),
                self.shown(row.variant, "w1"),
                self.shown(row.variant, "spearman", 3),
                *(f"{row.js:.4f}", f"{row.primacy:.4f}", f"{row.recency:.4f}"),
                row.trough_position if row.has_trough else "-",
            )
            for row in (self.measured, *self.rows)
        ]
        facts = [("positions:", self.n), ("estimator:", self.estimator or "-")]
        facts += [("intervals:", self.basis)]
        used = "".join(self.marks(row.variant) for row in self.rows)
        meanings = {
            RECOMMENDED: "recommended by a rule that looks at no distance",
            ALIKE: f"not distinguished from {self.best.variant}",
        }
        facts += [(mark, meaning) for mark, meaning in meanings.items() if mark in used]
        return card("Comparison with the measured profile", facts, table(header, rows))

    @property
    def basis(self) -> str:
        """What the intervals rest on, e.g. ``64 windows``, or why there are none."""
        if self.sampling is None:
            return "none, they need at least two windows of a measurement"
        count, kind = self.sampling["units"], self.sampling["unit"]
        fixed = self.sampling["held_fixed"]
        said = f"{100 * self.sampling['level']:.0f} %, bootstrap over {count:,} {kind}"
        effective = self.sampling.get("effective_units")
        if effective is not None and round(effective) < count:
            said += f", effectively {effective:,.0f}"
        return f"{said}; held fixed: {', '.join(fixed)}" if fixed else said

    def write_csv(self, path: str | Path, *, overwrite: bool = False) -> None:
        """Write a line per profile, the measured one first; ``"-"`` is standard output.

        Numbers have all digits; an undefined correlation is an empty cell. Intervals are in
        further columns (`INTERVAL_FIELDS`), if there are any.

        Raises
        ------
        OutputExistsError
            If the file exists and `overwrite` is false.
        """
        stream = io.StringIO()
        names = [field.name for field in fields(ComparisonRow)]
        names += [] if self.sampling is None else INTERVAL_FIELDS
        writer = csv.DictWriter(stream, names, lineterminator="\n")
        writer.writeheader()
        writer.writerows([self._as_dict(self.measured), *self.to_rows()])
        atomic_write_text(path, stream.getvalue(), overwrite=overwrite)

    def write_json(self, path: str | Path, *, overwrite: bool = False) -> None:
        """Write `as_dict` as JSON; ``"-"`` is standard output.

        Raises
        ------
        OutputExistsError
            If the file exists and `overwrite` is false.
        """
        text = json.dumps(self.as_dict(), indent=2, allow_nan=False, ensure_ascii=False) + "\n"
        atomic_write_text(path, text, overwrite=overwrite)
