"""What the profiles of one measurement and their comparison say."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from posbias.compare import Comparison, compare
from posbias.comparison import ComparisonRow
from posbias.measurement import Measurement
from posbias.predict import VARIANTS, predict
from posbias.profile import ProfileSet
from posbias.report.zones import ZoneFigures, zone_figures
from posbias.uncertainty import Interval, Paired, draw, sampling_units

__all__ = ["Findings", "find"]

Array = NDArray[np.float64]

WITHOUT_INFLUENCE = "residual+measured"
"""The prediction that stands for the model where no influence was measured and none recommended."""


@dataclass(frozen=True, eq=False)
class Findings:
    """What profiles and their comparison say about one measurement.

    Parameters
    ----------
    profiles : ProfileSet
        The leading profile first: ``measured``, or a prediction where influence is missing. Then
        influence by further methods, then the predictions.
    figures : ZoneFigures
        Of the leading profile.
    comparison : Comparison or None
        Distances to the measured profile; None without measured influence.
    resampled : ndarray, shape (B, n), or None
        The measured profile of each resample, None where there are none.
    """

    profiles: ProfileSet
    figures: ZoneFigures
    comparison: Comparison | None = None
    resampled: Array | None = None

    @property
    def is_measured(self) -> bool:
        """Whether influence was measured."""
        return self.comparison is not None

    @property
    def distances(self) -> dict[str, Interval]:
        """W1 of the predictions by name, empty without measured influence."""
        if self.comparison is None:
            return {}
        known = self.comparison.intervals
        return {
            row.variant: known[row.variant]["w1"] if known else Interval(row.w1)
            for row in self.comparison.rows
            if row.variant in VARIANTS
        }

    @property
    def recommended(self) -> str | None:
        """The prediction that the rule recommends, which looks at no distance."""
        return _recommended(self.profiles)

    @property
    def ranked(self) -> list[ComparisonRow]:
        """The predictions by their W1, the closest first; empty without measured influence."""
        if self.comparison is None:
            return []
        rows = [row for row in self.comparison.rows if row.variant in VARIANTS]
        return sorted(rows, key=lambda row: row.w1)

    @property
    def against_closest(self) -> dict[str, Paired]:
        """Every other prediction against the closest one, by name; empty without intervals.

        Influence by a further method is no prediction and takes no part.
        """
        if self.comparison is None or self.comparison.uncertainty is None:
            return {}
        closest, *others = (row.variant for row in self.ranked)
        return {name: self.comparison.paired(name, closest) for name in others}

    @property
    def alike(self) -> list[str]:
        """Predictions that the text does not tell apart from the closest one."""
        pairs = self.against_closest.items()
        return [name for name, pair in pairs if pair.verdict == "not distinguished"]

    @property
    def basis(self) -> str:
        """What the intervals rest on."""
        return "none" if self.comparison is None else self.comparison.basis


def find(measurement: Measurement, estimator: str) -> Findings:
    """Predict all variants of a measurement and compare them with what it measured."""
    predicted = predict(measurement, estimator=estimator)
    if not measurement.influence_methods:
        leading = _recommended(predicted) or WITHOUT_INFLUENCE
        names = sorted(predicted, key=lambda name: name != leading)
        profiles = ProfileSet({name: predicted[name] for name in names})
        return Findings(profiles, zone_figures(profiles[names[0]].mass))
    measured = measurement.influence()
    others = {
        f"measured by {method}": measurement.influence(method)
        for method in measurement.influence_methods[1:]
    }
    draws = draw(sampling_units(measurement))
    resampled = None if draws is None else draws.profiles(measurement.influence_windows())
    return Findings(
        profiles=ProfileSet({"measured": measured, **others, **predicted}),
        figures=zone_figures(measured.mass, resampled),
        comparison=compare(measurement, {**others, **predicted}),
        resampled=resampled,
    )


def _recommended(profiles: ProfileSet) -> str | None:
    """Return the prediction that the rule recommends."""
    names = [name for name, profile in profiles.items() if profile.origin.get("recommended")]
    return names[0] if names else None
