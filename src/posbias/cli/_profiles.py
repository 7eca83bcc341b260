"""Measured and predicted profiles named on the command line, under names that differ."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from posbias.cli._sources import load_source
from posbias.errors import InputError

if TYPE_CHECKING:
    from posbias.profile import Profile, ProfileSet

__all__ = ["load_measured", "load_predicted"]

MEASURED = "measured"


def load_measured(path: Path, column: str | None) -> Profile:
    """Return the profile that predictions are compared with.

    Parameters
    ----------
    path : Path
        A measurement, the output directory of a run, or a file of profiles.
    column : str, optional
        Which profile of a file; by default the only one, or the one named ``measured``.

    Raises
    ------
    InputError
        If the column does not exist, several come into question, or it is a spec.
    """
    if path.is_dir():
        from posbias.measurement import Measurement

        source = load_source(path)
        if column is not None or not isinstance(source, Measurement):
            raise InputError(f"{path} is a measurement; --column applies to files of profiles")
        return source.influence()
    if not _holds_profiles(path):
        raise InputError(
            f"{path} holds no measured profile; give a measurement directory or a profile file "
            "(.csv or .json) first, then the predictions"
        )
    from posbias.profile_files import read_profiles

    profiles = read_profiles(path)
    name = column or (MEASURED if len(profiles) > 1 else next(iter(profiles)))
    if name not in profiles:
        hint = "" if column else "; choose one with --column"
        raise InputError(f"{path} has no column {name!r}, it has {', '.join(profiles)}{hint}")
    return profiles[name]


def load_predicted(paths: Sequence[Path]) -> ProfileSet:
    """Return all predictions of the sources, in their order.

    A measurement gives every variant, a spec the profile that it describes, a file of profiles
    every profile but the measured one. A name that several sources share gets the name of its
    file appended.

    Raises
    ------
    InputError
        If the same prediction is given twice.
    """
    from posbias.profile import ProfileSet

    found = [(name, path, profile) for path in paths for name, profile in _predictions(path)]
    uses = Counter(name for name, _, _ in found)
    profiles: dict[str, Profile] = {}
    for name, path, profile in found:
        label = name if uses[name] == 1 else f"{name} ({path.name})"
        if label in profiles:
            raise InputError(f"{path} gives the prediction {label!r} a second time")
        profiles[label] = profile
    return ProfileSet(profiles)


def _predictions(path: Path) -> list[tuple[str, Profile]]:
    if _holds_profiles(path):
        from posbias.profile_files import read_profiles

        profiles = read_profiles(path)
        others = [(name, p) for name, p in profiles.items() if name != MEASURED]
        return others or list(profiles.items())
    from posbias.predict import predict

    return list(predict(load_source(path)).items())


def _holds_profiles(path: Path) -> bool:
    """Return whether a file holds profiles rather than a spec."""
    if path.suffix.lower() == ".csv":
        return True
    if path.suffix.lower() != ".json" or not path.is_file():
        return False
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except ValueError:
        return False
    return isinstance(document, dict) and document.get("format") == "posbias.profiles"
