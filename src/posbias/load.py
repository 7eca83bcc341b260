"""Open whatever posbias wrote or reads, by what is in it."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from dataclasses import fields, replace
from os import PathLike
from pathlib import Path
from typing import Any

from posbias.comparison import INTERVAL_FIELDS, Comparison, ComparisonRow
from posbias.errors import InputError, shown
from posbias.measurement import Measurement, is_measurement
from posbias.measurement.store import MANIFEST_FILE, RUN_FOLDER
from posbias.predict import refuse_model
from posbias.profile import ProfileSet
from posbias.profile_files import FORMAT, read_profiles
from posbias.spec import Spec, load_spec
from posbias.uncertainty import FIGURES, VERDICTS, Interval, Paired

__all__ = ["Loaded", "load"]

Loaded = Measurement | ProfileSet | Comparison | Spec
"""What `load` returns."""


_KINDS = (
    "a measurement directory, the output directory of a run, profiles (.csv, .json), a comparison "
    "(.json), or a spec (YAML, JSON, a published config, the config.json of a model)"
)
_NO_DATA = {".html", ".htm", ".png", ".svg", ".pdf"}
_COMPARISON_KEYS = {"n", "measured", "rows"}


def load(path: str | PathLike[str]) -> Loaded:
    """Open a result or a spec.

    ====================================================  ===================================
    path                                                  result
    ====================================================  ===================================
    directory of a measurement or of a run                `posbias.measurement.Measurement`
    ``.csv`` or ``.json`` with profiles                   `posbias.profile.ProfileSet`
    ``.json`` that a comparison was written to            `posbias.compare.Comparison`
    spec in YAML or JSON, config published with the
    paper, ``config.json`` of a Hugging Face model        `posbias.spec.Spec`
    ====================================================  ===================================

    Parameters
    ----------
    path : path
        What a JSON file is, is decided by its keys, not by its name.

    Raises
    ------
    InputError
        If there is nothing, or nothing that posbias reads; `posbias.errors.ArtifactError`,
        `ProfileError` or `SpecError`, which are kinds of it, if it is damaged.

    Examples
    --------
    >>> import tempfile
    >>> from posbias.profile import Profile
    >>> from posbias.profile_files import write_csv
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_csv(Profile([0.5, 0.2, 0.3]), f"{folder}/mine.csv")
    ...     load(f"{folder}/mine.csv")
    ProfileSet(['mine'], n=3)
    """
    if not isinstance(path, (str, PathLike)) or not os.fspath(path):
        raise InputError(f"the path to load is {path!r}; {_KINDS} is required")
    file = Path(path)
    if os.path.isdir(file):
        return _load_directory(file)
    if not os.path.isfile(file):
        raise InputError(f"{shown(file)} does not exist or is no file; {_KINDS} is required")
    if file.name == MANIFEST_FILE:
        raise InputError(
            f"{shown(file)} is a part of a measurement; load its directory, {shown(file.parent)}"
        )
    if file.suffix.lower() in _NO_DATA:
        raise InputError(
            f"{shown(file)} is a page or a picture, made of results to be looked at; load what it "
            f"was made of: {_KINDS}"
        )
    if file.suffix.lower() == ".csv":
        return _load_csv(file)
    return _load_json(file) if file.suffix.lower() == ".json" else load_spec(file)


def _load_directory(folder: Path) -> Measurement:
    if is_measurement(folder) or (folder / RUN_FOLDER).is_dir():
        return Measurement.open(folder)
    refuse_model(folder)
    raise InputError(f"{shown(folder)} is a directory without a measurement; {_KINDS} is required")


def _load_csv(file: Path) -> ProfileSet:
    with open(file, encoding="utf-8-sig", errors="replace") as lines:
        header = lines.readline()
    if header.startswith("variant,"):
        raise InputError(
            f"{shown(file)} is the table of a comparison; load the .json that was written beside "
            "it, or read the table with pandas"
        )
    return read_profiles(file)


def _load_json(file: Path) -> ProfileSet | Comparison | Spec:
    document = _peek(file)
    if isinstance(document, dict):
        if document.get("format") == FORMAT:
            return read_profiles(file)
        if document.keys() >= _COMPARISON_KEYS:
            return _comparison(document, shown(file))
    return load_spec(file)


def _peek(file: Path) -> Any:
    """Return the document, or None where `load_spec` will say what is wrong with it."""
    try:
        return json.loads(file.read_text(encoding="utf-8-sig"))
    except (ValueError, OSError, RecursionError):
        return None


def _comparison(document: Mapping[str, Any], where: str) -> Comparison:
    n, estimator, rows = document["n"], document.get("estimator"), document["rows"]
    if isinstance(n, bool) or not isinstance(n, int) or n < 2:
        raise InputError(f"{where} has n {n!r}; a number of positions of at least 2 is required")
    if not isinstance(rows, list) or not (estimator is None or isinstance(estimator, str)):
        raise InputError(
            f"{where} is no comparison as posbias writes it: 'rows' must be a list and 'estimator' "
            "a name or null; write it again with posbias compare --json"
        )
    sampling = document.get("intervals")
    named = [("measured", document["measured"])]
    named += [(f"rows[{index}]", row) for index, row in enumerate(rows)]
    read = [_row(row, f"{where}, {name}", sampling is not None) for name, row in named]
    recommended = document.get("recommended")
    if not (recommended is None or isinstance(recommended, str)):
        raise InputError(f"{where} has recommended {recommended!r}; a name or null is required")
    found = Comparison(tuple(read[1:]), read[0], n, estimator, recommended)
    if sampling is None:
        return found
    return replace(
        found,
        sampling=_sampling(sampling, where),
        intervals={
            own.variant: _intervals(own, row, f"{where}, {name}")
            for own, (name, row) in zip(read, named, strict=True)
        },
        against_best=_pairs(document.get("against_best"), where),
    )


def _row(row: Any, where: str, has_intervals: bool) -> ComparisonRow:
    """Return a row as `ComparisonRow.as_dict` gives it; a correlation of null is undefined."""
    names = [field.name for field in fields(ComparisonRow)]
    required = [*names, *(INTERVAL_FIELDS if has_intervals else ())]
    if not isinstance(row, dict) or row.keys() != set(required):
        raise InputError(f"{where} is no row of a comparison; exactly {required} are required")
    kinds: dict[str, type] = {"variant": str, "is_u_shaped": bool, "trough_position": int}
    values = {name: row[name] for name in names}
    if values["spearman"] is None:
        values["spearman"] = math.nan
    for name, value in values.items():
        kind = kinds.get(name, float)
        fits = isinstance(value, (int, float) if kind is float else kind)
        if not fits or (kind is not bool and isinstance(value, bool)):
            raise InputError(f"{where} has {name} {value!r}; a {kind.__name__} is required")
    return ComparisonRow(**values)


def _sampling(sampling: Any, where: str) -> dict[str, Any]:
    """Return how the intervals were made."""
    kinds = {"level": float, "unit": str, "units": int, "held_fixed": list}
    if not isinstance(sampling, dict) or not all(
        isinstance(sampling.get(name), kind) for name, kind in kinds.items()
    ):
        raise InputError(
            f"{where} has intervals {sampling!r}; an object with {', '.join(kinds)} is required, "
            "as posbias compare --json writes it"
        )
    return sampling


def _intervals(row: ComparisonRow, values: dict[str, Any], where: str) -> dict[str, Interval]:
    """Return the intervals of a row, without ends where they are null."""
    found = {}
    for name in FIGURES:
        ends = values[f"{name}_low"], values[f"{name}_high"]
        if ends != (None, None) and not all(_is_number(end) for end in ends):
            raise InputError(f"{where} has an interval of {name} {ends}; two numbers are required")
        found[name] = Interval(float(getattr(row, name)), *ends)
    return found


def _pairs(pairs: Any, where: str) -> tuple[Paired, ...]:
    """Return the paired comparisons with the closest prediction."""
    texts = ("first", "second", "verdict")
    numbers = ("difference", "difference_low", "difference_high", "allowance", "share_closer")

    found = []
    for pair in pairs if isinstance(pairs, list) else [None]:
        if not (
            isinstance(pair, dict)
            and all(isinstance(pair.get(name), str) for name in texts)
            and all(_is_number(pair.get(name)) for name in numbers)
            and pair["verdict"] in VERDICTS
        ):
            raise InputError(
                f"{where} has against_best {pairs!r}; a list of objects with {', '.join(texts)}, "
                f"{', '.join(numbers)} is required, as posbias compare --json writes it"
            )
        difference = Interval(
            *(pair[k] for k in ("difference", "difference_low", "difference_high"))
        )
        rest = pair["allowance"], pair["share_closer"], pair["verdict"]
        found.append(Paired(pair["first"], pair["second"], difference, *rest))
    return tuple(found)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)
