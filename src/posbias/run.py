"""The whole path in one call: measure, predict, compare, draw, and write everything down."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from posbias.atomic import atomic_directory, check_parent, refuse_existing
from posbias.compare import Comparison, compare
from posbias.errors import InputError, OutputExistsError
from posbias.estimator import Estimator, ladder
from posbias.measurement import Measurement
from posbias.measurement.estimates import record_for
from posbias.measurement.store import (
    PROFILES_FILE,
    REPORT_FILE,
    RUN_FOLDER,
    foreign_entries,
    is_report,
    refuse_foreign,
)
from posbias.predict import DEFAULT_ESTIMATOR, predict
from posbias.profile import Profile, ProfileSet
from posbias.recommend import recommend
from posbias.uncertainty import Interval, mixing_intervals

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from posbias.measure.checkpoint import PartialRun
    from posbias.measure.options import MeasureOptions

__all__ = ["RUN_FILES", "Progress", "RunResult", "is_run_directory", "run", "run_measurement"]

Progress = Callable[[int, int], None]
"""Called with the number of windows done and their total."""


MEASUREMENT = RUN_FOLDER

RUN_FILES = (
    "profiles.csv",
    PROFILES_FILE,
    "comparison.csv",
    "comparison.json",
    "figure.png",
    "figure.svg",
)
"""Files of an output directory, beside the folder of the measurement."""

_OURS = {MEASUREMENT, *RUN_FILES}


@dataclass(frozen=True, eq=False)
class RunResult:
    """What one run found.

    Parameters
    ----------
    measurement : Measurement
        What the model did.
    profiles : ProfileSet
        The measured influence under ``"measured"``, then the predicted variants.
    comparison : Comparison
        Distances of the variants to the measured influence.
    directory : Path
        Where everything was written.
    """

    measurement: Measurement
    profiles: ProfileSet
    comparison: Comparison
    directory: Path

    def as_dict(self) -> dict[str, Any]:
        """Return everything but the arrays as JSON-serialisable values.

        That is model, text, comparison, attention sinks, recommended estimator with reasons,
        mixing and files.
        """
        manifest = self.measurement.manifest
        return {
            "model": manifest["model"]["id"],
            "text": manifest["text"]["source"],
            "windows": manifest["windows"]["count"],
            "length": manifest["windows"]["length"],
            **self.comparison.as_dict(),
            "sinks": self.measurement.sinks().as_dict(),
            "recommendation": recommend(self.measurement).as_dict(),
            "mixing": [
                {"layer": t, "value": found.value, "low": found.low, "high": found.high}
                for t, found in enumerate(self._mixing(), start=1)
            ],
            "directory": str(self.directory),
            "files": [MEASUREMENT, *RUN_FILES],
        }

    def advice(self) -> list[str]:
        """Return sinks, what treating them moved, and the recommended estimator, in words."""
        found = recommend(self.measurement)
        start = bool(self.measurement.manifest["windows"]["first_token_is_bos"])
        return [
            *self.measurement.sinks().lines(start_token=start),
            *(line for name, p in self.profiles.items() for line in _moved(name, p)),
            f"recommended estimator: {found.estimator}, as {'; '.join(found.reasons)}",
        ]

    def _mixing(self) -> list[Interval]:
        return mixing_intervals(self.measurement, self.comparison.estimator or DEFAULT_ESTIMATOR)


def run(  # noqa: PLR0913  the parameters of measure and of run_measurement
    model: Any = "embedded:bloom",
    text: Any = "embedded",
    *,
    out: str | Path,
    options: MeasureOptions | None = None,
    estimator: str | Estimator = DEFAULT_ESTIMATOR,
    overwrite: bool = False,
    progress: Progress | None = None,
    partial: PartialRun | None = None,
    command: list[str] | None = None,
) -> RunResult:
    """Measure a model on a text, predict its influence profile, compare, and write everything.

    Parameters
    ----------
    model, text
        As in `posbias.measure`.
    out : path
        The output directory: the measurement, `RUN_FILES`.
    options : MeasureOptions, optional
        Of the measurement.
    estimator : str or Estimator
        Of the predictions, see `posbias.predict.predict`.
    overwrite : bool
        Whether an output directory of an earlier run may be replaced.
    progress : callable, optional
        Called with the windows done and their total.
    partial : PartialRun, optional
        Where checkpoints go and a run continues.
    command : list of str, optional
        Argument list to record in the manifest.

    Returns
    -------
    RunResult

    Raises
    ------
    OutputExistsError
        Before anything is measured, if `out` exists and may not be replaced.
    InputError
        If the options leave out the measured influence, or what the estimator needs.
    PosbiasError
        As in `posbias.measure` and `posbias.predict`.
    """
    if not str(out):
        raise InputError("the name of the output is empty; a directory is required")
    chosen = ladder(estimator)
    _refuse(Path(out), overwrite)
    if options is not None:
        _check_recorded(options, chosen)
    if options is not None and not options.influence:
        raise InputError(
            "influence none was asked for, but a run compares with the measured influence; name a "
            "method, or use measure and predict"
        )
    from posbias.measure import measure

    measurement = measure(
        model, text, options=options, progress=progress, partial=partial, command=command
    )
    return run_measurement(measurement, out=out, estimator=estimator, overwrite=overwrite)


def run_measurement(
    measurement: Measurement,
    *,
    out: str | Path,
    estimator: str | Estimator = DEFAULT_ESTIMATOR,
    overwrite: bool = False,
) -> RunResult:
    """Do everything that `run` does after measuring.

    Parameters
    ----------
    measurement : Measurement
        With measured influence.
    out : path
        The output directory.
    estimator : str or Estimator
        Of the predictions, see `posbias.predict.predict`.
    overwrite : bool
        Whether an output directory of an earlier run may be replaced.

    Returns
    -------
    RunResult

    Raises
    ------
    InputError
        If the measurement has no measured influence.
    OutputExistsError
        If `out` exists and may not be replaced.
    """
    predicted = predict(measurement, estimator=estimator)
    measured = measurement.influence()
    comparison = compare(measurement, predicted)
    profiles = ProfileSet({"measured": measured, **predicted})
    target = Path(out)
    result = RunResult(measurement, profiles, comparison, target)
    figure = _figure(result, estimator)
    with atomic_directory(target, overwrite=overwrite, is_ours=is_run_directory) as folder:
        _write(result, figure, folder)
    return result


def is_run_directory(path: Path) -> bool:
    """Return whether a folder holds nothing but a run and its report, so that it may go."""
    return path.is_dir() and not _foreign_files(path)


def _moved(name: str, profile: Profile) -> list[str]:
    """Say how much of the kernels a treatment of sinks moved or dropped, if there were any."""
    treated = profile.origin.get("sinks", {})
    if not treated.get("positions"):
        return []
    done = {"identity": "moved to the diagonal", "drop": "dropped"}[treated["treatment"]]
    return [f"{name}: {100.0 * treated['mass']:.0f} % of its kernels was on sinks and is {done}"]


def _foreign_files(path: Path) -> list[str]:
    """Return the names in the output directory of a run that posbias did not write."""
    inner, report = path / MEASUREMENT, path / REPORT_FILE
    names = [e.name for e in path.iterdir() if e.name not in {*_OURS, REPORT_FILE}]
    if report.exists() and not is_report(report):
        names.append(REPORT_FILE)
    if inner.is_dir():
        names += [f"{MEASUREMENT}/{name}" for name in foreign_entries(inner)]
    elif inner.exists():
        names.append(MEASUREMENT)
    return sorted(names)


def _refuse(out: Path, overwrite: bool) -> None:
    """Refuse an output directory that could not be written after minutes of measuring."""
    check_parent(out)
    if not overwrite:
        refuse_existing(out)
        return
    if out.is_dir() and any((out / name).exists() for name in _OURS):
        refuse_foreign(out, _foreign_files(out))
    if out.exists() and not is_run_directory(out):
        raise OutputExistsError(
            f"{out} exists and was not made by posbias, so it is not replaced even with "
            "overwrite; choose another name or remove it yourself"
        )


def _check_recorded(options: MeasureOptions, chosen: Estimator) -> None:
    """Refuse an estimator that needs what would not be measured."""
    needed, levels = record_for(chosen), ("paper", "default", "all")
    if levels.index(needed) > levels.index(options.record):
        raise InputError(
            f"estimator {str(chosen)!r} needs what record={options.record!r} leaves out; measure "
            f"with record={needed!r} (--record {needed})"
        )
    if chosen.mixing == "jacobian" and not options.jacobian:
        raise InputError(
            f"estimator {str(chosen)!r} needs local derivatives; measure with jacobian=8 "
            "(--jacobian 8) or more"
        )
    if options.kernels == "summary" and chosen.kernel_kind != "attention":
        raise InputError(
            f"estimator {str(chosen)!r} needs kernels in full, but they would be summarised; "
            "measure with kernels='full', or take kernel=attention with addition=amplitudes"
        )


def _write(result: RunResult, figure: Figure, folder: Path) -> None:
    from posbias.plot import save_figure
    from posbias.profile_files import write_csv, write_json

    result.measurement.save(folder / MEASUREMENT)
    write_csv(result.profiles, folder / "profiles.csv")
    write_json(result.profiles, folder / PROFILES_FILE)
    result.comparison.write_csv(folder / "comparison.csv")
    result.comparison.write_json(folder / "comparison.json")
    save_figure(figure, folder / "figure.png")
    save_figure(figure, folder / "figure.svg")


def _figure(result: RunResult, estimator: str | Estimator) -> Figure:
    from posbias.plot import measurement_figure

    measurement, manifest = result.measurement, result.measurement.manifest
    title = (
        f"{Path(manifest['model']['id']).name} · {measurement.windows} windows of "
        f"{measurement.n} tokens"
    )
    profiles: dict[str, Profile] = dict(result.profiles)
    mixing = ladder(estimator).mixing_name
    recommended = result.comparison.recommended
    labels = {} if recommended is None else {recommended: f"{recommended} (recommended)"}
    return measurement_figure(
        profiles,
        measurement.mixing(mixing),
        bands=result.comparison.bands(),
        spread=measurement.mixing_std(mixing),
        labels=labels,
        title=title,
    )
