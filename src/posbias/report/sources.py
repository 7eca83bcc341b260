"""The measurements that a report is about, and names that tell them apart."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from os import PathLike
from pathlib import Path

from posbias.errors import InputError, shown
from posbias.measurement import Measurement
from posbias.predict import DEFAULT_ESTIMATOR, recorded_estimator, refuse_model

__all__ = ["common_estimator", "labels", "open_source"]


def open_source(path: str | PathLike[str]) -> Measurement:
    """Open a measurement, or the one in the output directory of a run.

    Raises
    ------
    InputError
        If the path is a file, does not exist, or is a model that has not been measured.
    ArtifactError
        If the measurement is damaged.
    """
    folder = Path(path)
    if not os.path.isdir(folder):
        what = "is a file" if os.path.exists(folder) else "does not exist"
        raise InputError(
            f"{shown(folder)} {what}; a report needs the directory of a measurement, as posbias "
            "run or posbias measure writes it"
        )
    refuse_model(folder)
    return Measurement.open(folder)


def common_estimator(paths: Sequence[Path]) -> str:
    """Return the choice of estimator of the runs among the directories; auto without a run.

    Raises
    ------
    InputError
        If they used different ones.
    """
    recorded = {path: recorded_estimator(path) for path in paths}
    used = {path: name for path, name in recorded.items() if name is not None}
    if len(set(used.values())) > 1:
        raise InputError(
            f"the runs used different estimators "
            f"({', '.join(f'{name} in {path}' for path, name in used.items())}); choose one with "
            "--estimator"
        )
    return next(iter(used.values()), DEFAULT_ESTIMATOR)


def labels(measurements: Sequence[Measurement], names: Sequence[str]) -> list[str]:
    """Return a distinct label per measurement: the model, and what else is needed.

    Parameters
    ----------
    measurements : sequence of Measurement
        What is labelled.
    names : sequence of str
        Their directories, which are distinct.
    """
    models = [m.manifest["model"]["id"] for m in measurements]
    lengths = [f"{model}, {m.n:,} tokens" for model, m in zip(models, measurements, strict=True)]
    full = [f"{model} ({name})" for model, name in zip(models, names, strict=True)]
    for chosen in (models, lengths):
        if max(Counter(chosen).values()) == 1:
            return chosen
    return full
