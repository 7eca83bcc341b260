"""Write the report of one or several measurements."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from os import PathLike
from pathlib import Path

from posbias.atomic import atomic_write_text, refuse_existing
from posbias.errors import InputError
from posbias.estimator import AUTO, checked_choice
from posbias.measurement import Measurement
from posbias.measurement.store import REPORT_FILE
from posbias.report.page import render
from posbias.report.several import several_page
from posbias.report.single import single_page
from posbias.report.sources import common_estimator, open_source

__all__ = ["default_path", "render_report", "write_report"]

AnyPath = str | PathLike[str]


def write_report(
    sources: Sequence[AnyPath] | AnyPath,
    out: AnyPath | None = None,
    *,
    estimator: str | None = None,
    overwrite: bool = False,
) -> Path:
    """Write one self-contained HTML file about one measurement, or a comparison of several.

    Parameters
    ----------
    sources : path or sequence of paths
        Directories of measurements or of runs.
    out : path, optional
        The file; by default that of `default_path`.
    estimator : str, optional
        Of all predictions, see `posbias.predict.predict`; by default the one that the runs among
        the sources used, else ``"auto"``.
    overwrite : bool
        Whether an existing file may be replaced.

    Returns
    -------
    Path
        The file.

    Raises
    ------
    InputError
        If there is no source, one is given twice or is no directory, or runs used different
        estimators and none is chosen.
    ArtifactError
        If a measurement is damaged.
    OutputExistsError
        If the sources can be opened, the file exists and `overwrite` is false; before anything is
        computed.
    """
    paths = [Path(p) for p in ([sources] if isinstance(sources, (str, PathLike)) else sources)]
    measurements = _opened(paths)
    target = default_path(paths) if out is None else Path(out)
    if not overwrite:
        refuse_existing(target)
    page = _rendered(measurements, paths, estimator)
    atomic_write_text(target, page, overwrite=overwrite)
    return target


def render_report(sources: Sequence[AnyPath], *, estimator: str | None = None) -> str:
    """Return the HTML document that `write_report` writes.

    Notes
    -----
    Cost per measurement: the predictions, `posbias.uncertainty.RESAMPLES` resamples of
    them (`posbias.uncertainty.resample_comparison`), and for a single one T (T + 1) / 2 products
    with each of three sets of kernels plus the checks of `posbias.report.verdicts`.
    """
    paths = [Path(p) for p in sources]
    return _rendered(_opened(paths), paths, estimator)


def default_path(sources: Sequence[Path]) -> Path:
    """Return ``report.html`` in the directory of a single source, else in the current folder."""
    return sources[0] / REPORT_FILE if len(sources) == 1 else Path(REPORT_FILE)


def _opened(paths: Sequence[Path]) -> list[Measurement]:
    if not paths:
        raise InputError("there is no measurement to report; give at least one directory")
    if len({p.resolve() for p in paths}) < len(paths):
        raise InputError(f"a measurement is given twice among {', '.join(map(str, paths))}")
    return [open_source(p) for p in paths]


def _rendered(
    measurements: Sequence[Measurement], paths: Sequence[Path], estimator: str | None
) -> str:
    names = [str(p) for p in paths]
    estimator = checked_choice(estimator or common_estimator(paths))
    page = (
        single_page(measurements[0], names[0], estimator)
        if len(measurements) == 1
        else several_page(measurements, names, estimator)
    )
    words = ["posbias", "report", *names]
    words += [] if estimator == AUTO else ["--estimator", estimator]
    return render(page, command=shlex.join(words))
