"""Compare predicted influence profiles with a measured one."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from os import PathLike
from pathlib import Path

from posbias.comparison import Comparison, ComparisonRow
from posbias.errors import InputError, ProfileError
from posbias.measurement import Measurement
from posbias.metrics import jensen_shannon, shape_figures, spearman, total_variation, wasserstein
from posbias.predict import predict
from posbias.profile import Profile, ProfileSet
from posbias.profile_files import FORMAT as PROFILE_FORMAT
from posbias.profile_files import read_profiles
from posbias.uncertainty import resample_comparison

__all__ = [
    "Comparison",
    "ComparisonRow",
    "compare",
    "load_measured",
    "load_predicted",
    "open_measured",
]

AnyPath = str | PathLike[str]
Measured = Measurement | Profile | AnyPath
Predicted = Profile | Mapping[str, Profile] | AnyPath | Sequence[AnyPath]

MEASURED = "measured"


def compare(
    measured: Measured,
    predicted: Predicted,
    *,
    column: str | None = None,
    estimator: str | None = None,
    intervals: bool = True,
) -> Comparison:
    """Compare predicted influence profiles with a measured one.

    A measurement holds its windows of text: every figure then has an interval, see
    `posbias.uncertainty.comparison.resample_comparison`. A profile alone has none.

    Parameters
    ----------
    measured : Profile, Measurement or path
        A path is the directory of a measurement or a file of profiles (.csv, .json).
    predicted : Profile, mapping of str to Profile, path, or sequence of paths
        A path may be a file of profiles (all but the one named ``measured``, if there are
        others), a spec (the profile it describes) or a measurement (every variant). A name that
        several paths share gets the name of its file appended.
    column : str, optional
        Which profile of a file is the measured one; by default the only one, or the one named
        ``measured``.
    estimator : str, optional
        Of the measurements among the predictions, see `posbias.predict.predict`.
    intervals : bool
        Whether to resample the windows of a measurement.

    Raises
    ------
    ProfileError
        If profiles have different lengths (they are never trimmed), names repeat, or the column
        does not exist.
    InputError
        If an argument is of another type, or the measurement has no measured influence.

    Notes
    -----
    Cost O(n log n) per profile; with intervals about a thousand times as much.

    Examples
    --------
    >>> from posbias.profile import Profile
    >>> measured = Profile([0.5, 0.2, 0.3], name="measured")
    >>> result = compare(measured, {"uniform": Profile([1 / 3, 1 / 3, 1 / 3])})
    >>> round(result["uniform"].w1, 4), result["uniform"].as_dict()["spearman"]
    (0.1, None)
    """
    opened = open_measured(measured, column)
    reference = load_measured(opened)
    name = reference.name or MEASURED
    profiles = load_predicted(predicted, estimator)
    if not profiles:
        raise ProfileError("there is no predicted profile; at least one is required")
    for label, profile in profiles.items():
        if profile.n != reference.n:
            raise ProfileError(
                f"prediction {label!r} has {profile.n} positions, the measured profile has "
                f"{reference.n}; predict with n={reference.n}, profiles are never trimmed; results "
                "of several lengths stand side by side in posbias report A B and in posbias figure "
                "lengths A B"
            )
    rows = tuple(_row(label, profile, reference) for label, profile in profiles.items())
    found = Comparison(
        rows,
        _row(name, reference, reference),
        reference.n,
        estimator=_shared_estimator(profiles),
        recommended=_recommended(profiles),
    )
    if not (intervals and isinstance(opened, Measurement)):
        return found
    uncertainty = resample_comparison(opened, profiles)
    return found if uncertainty is None else found.with_uncertainty(uncertainty)


def _shared_estimator(profiles: Mapping[str, Profile]) -> str | None:
    """Return the choice of estimator that the predictions share, None if they differ."""
    origins = [profile.origin for profile in profiles.values() if "estimator" in profile.origin]
    used = {str(origin.get("estimator_choice", origin["estimator"])) for origin in origins}
    return used.pop() if len(used) == 1 else None


def _recommended(profiles: Mapping[str, Profile]) -> str | None:
    """Return the name of the recommended prediction, None without one or with several."""
    names = [name for name, profile in profiles.items() if profile.origin.get("recommended")]
    return names[0] if len(names) == 1 else None


def _row(name: str, profile: Profile, reference: Profile) -> ComparisonRow:
    return ComparisonRow(
        variant=name,
        w1=wasserstein(profile, reference),
        spearman=spearman(profile, reference),
        js=jensen_shannon(profile, reference),
        tv=total_variation(profile, reference),
        **shape_figures(profile).as_dict(),
    )


def load_measured(measured: Measured, column: str | None = None) -> Profile:
    """Return the profile that predictions are compared with, see `open_measured`."""
    opened = open_measured(measured, column)
    return opened.influence() if isinstance(opened, Measurement) else opened


def open_measured(measured: Measured, column: str | None = None) -> Measurement | Profile:
    """Return the measurement or the profile that predictions are compared with.

    Parameters
    ----------
    measured : Profile, Measurement or path
        A path names a measurement, the output directory of a run, or a file of profiles.
    column : str, optional
        Which profile of a file; by default the only one, or the one named ``measured``.

    Raises
    ------
    ProfileError
        If the column does not exist or several come into question.
    InputError
        If it is something else, or a column is given for what has none.
    """
    if isinstance(measured, (str, PathLike)):
        path = Path(measured)
        if not os.path.isdir(path):
            return _choose_column(path, column)
        measured = Measurement.open(path)
    if column is not None:
        raise InputError(f"column {column!r} was given; it applies to files of profiles only")
    if not isinstance(measured, (Measurement, Profile)):
        raise InputError(
            f"the measured profile is a {type(measured).__name__}; a Profile, a Measurement or a "
            "path is required"
        )
    return measured


def _choose_column(path: Path, column: str | None) -> Profile:
    profiles = read_profiles(path)
    name = column or (MEASURED if len(profiles) > 1 else next(iter(profiles)))
    if name not in profiles:
        first = next(iter(profiles))
        hint = "" if column else f"; choose one as column, such as {first!r} (--column {first!r})"
        raise ProfileError(f"{path} has no profile {name!r}, it has {', '.join(profiles)}{hint}")
    return profiles[name]


def load_predicted(predicted: Predicted, estimator: str | None = None) -> Mapping[str, Profile]:
    """Return all predictions by name, in their order.

    Of the paths, a measurement gives every variant, a spec the profile that it describes, a file
    of profiles every profile but the measured one. A name that several paths share gets the name
    of its file appended. The estimator is that of the measurements among them.

    Raises
    ------
    ProfileError
        If the same prediction is given twice.
    InputError
        If it is something else.
    """
    if isinstance(predicted, Profile):
        return {predicted.name or "predicted": predicted}
    if isinstance(predicted, Mapping):
        wrong = [name for name, profile in predicted.items() if not isinstance(profile, Profile)]
        if wrong:
            raise InputError(f"prediction {wrong[0]!r} is no Profile; see Profile.from_scores")
        return predicted
    if isinstance(predicted, (str, PathLike)):
        return _load_paths([Path(predicted)], estimator)
    if isinstance(predicted, Iterable):
        items = list(predicted)
        if all(isinstance(item, (str, PathLike)) for item in items):
            return _load_paths([Path(item) for item in items], estimator)
    raise InputError(
        f"predictions are a {type(predicted).__name__}; a Profile, a ProfileSet, a mapping, a path "
        "or a list of paths is required"
    )


def _load_paths(paths: Sequence[Path], estimator: str | None) -> Mapping[str, Profile]:
    loaded = [(path, _load_path(path, estimator)) for path in paths]
    found = [(name, path, p) for path, profiles in loaded for name, p in profiles.items()]
    uses = Counter(name for name, _, _ in found)
    profiles: dict[str, Profile] = {}
    for name, path, profile in found:
        label = name if uses[name] == 1 else f"{name} ({path.name})"
        if label in profiles:
            raise ProfileError(f"{path} gives the prediction {label!r} a second time")
        profiles[label] = profile
    return profiles


def _load_path(path: Path, estimator: str | None) -> Mapping[str, Profile]:
    if os.path.isdir(path):
        return predict(path, estimator=estimator)
    if not _holds_profiles(path):
        return predict(path)
    profiles = read_profiles(path)
    predictions = {name: p for name, p in profiles.items() if name != MEASURED}
    return ProfileSet(predictions) if predictions else profiles


def _holds_profiles(path: Path) -> bool:
    """Return whether a file holds profiles rather than a spec, from its ending and format key."""
    if path.suffix.lower() == ".csv":
        return True
    if path.suffix.lower() != ".json" or not os.path.isfile(path):
        return False
    try:
        document = json.loads(path.read_text(encoding="utf-8-sig"))
    except ValueError:
        return False
    return isinstance(document, dict) and document.get("format") == PROFILE_FORMAT
