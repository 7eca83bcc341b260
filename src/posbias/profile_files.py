"""Profiles in CSV and JSON files.

CSV: a header ``position,mass`` for one profile, ``position,<name>,<name>...`` for several, then one
line per position in order. JSON: the same with names, quantities, standard errors and origin.
Numbers are written with all digits, so reading gives the same float64 values.
"""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from posbias.atomic import atomic_write_text
from posbias.errors import ProfileError
from posbias.profile import Profile, ProfileSet

__all__ = ["read_profiles", "to_csv", "to_json", "write_csv", "write_json"]

FORMAT = "posbias.profiles"
VERSION = 1
SINGLE = "mass"


def read_profiles(path: str | Path) -> ProfileSet:
    """Read the profiles of a CSV or JSON file, by its ending.

    A CSV column named ``mass`` takes the file's stem as its name.

    Raises
    ------
    ProfileError
        If the file is missing or a cell is empty, not a number, negative, NaN or infinite (its line
        and column are named), positions are not 0, 1, 2, ..., names repeat, or a column does not
        sum to 1.
    """
    file = Path(path)
    try:
        text = file.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise ProfileError(f"cannot read profiles from {file}: {error}") from error
    if file.suffix.lower() == ".json":
        return _parse_json(text, file)
    return _parse_csv(text, file)


def write_csv(
    profiles: Profile | Mapping[str, Profile], path: str | Path, *, overwrite: bool = False
) -> None:
    """Write profiles as CSV; ``"-"`` is standard output.

    Raises
    ------
    OutputExistsError
        If the file exists and `overwrite` is false.
    """
    atomic_write_text(path, to_csv(profiles), overwrite=overwrite)


def write_json(
    profiles: Profile | Mapping[str, Profile], path: str | Path, *, overwrite: bool = False
) -> None:
    """Write profiles with their origin as JSON; ``"-"`` is standard output.

    Raises
    ------
    OutputExistsError
        If the file exists and `overwrite` is false.
    """
    atomic_write_text(path, to_json(profiles), overwrite=overwrite)


def to_csv(profiles: Profile | Mapping[str, Profile]) -> str:
    """Return the text of a CSV file."""
    named = {SINGLE: profiles} if isinstance(profiles, Profile) else dict(profiles)
    header = ["position", *(named if len(named) > 1 else [SINGLE])]
    columns = [p.mass.tolist() for p in ProfileSet(named).values()]
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(header)
    for position, row in enumerate(zip(*columns, strict=True)):
        writer.writerow([position, *map(repr, row)])
    return stream.getvalue()


def to_json(profiles: Profile | Mapping[str, Profile]) -> str:
    """Return the text of a JSON file."""
    named = {profiles.name: profiles} if isinstance(profiles, Profile) else dict(profiles)
    entries = [
        {
            "name": name,
            "quantity": p.quantity,
            "mass": p.mass.tolist(),
            "stderr": None if p.stderr is None else p.stderr.tolist(),
            "origin": dict(p.origin),
        }
        for name, p in named.items()
    ]
    document = {"format": FORMAT, "version": VERSION, "profiles": entries}
    return json.dumps(document, indent=1, allow_nan=False) + "\n"


def _parse_csv(text: str, file: Path) -> ProfileSet:
    rows = [row for row in csv.reader(io.StringIO(text)) if row]
    if len(rows) < 3 or not rows[0] or rows[0][0].strip() != "position":
        raise ProfileError(
            f"{file} is no profile CSV; a header 'position,mass' or 'position,<name>...' and at "
            "least two lines are required"
        )
    names = [name.strip() for name in rows[0][1:]]
    if not names or "" in names or len(set(names)) != len(names):
        raise ProfileError(f"{file} has columns {names}; at least one name, all distinct")
    columns: dict[str, list[float]] = {name: [] for name in names}
    for position, row in enumerate(rows[1:]):
        if len(row) != len(names) + 1 or row[0].strip() != str(position):
            raise ProfileError(
                f"{file} line {position + 2} is {','.join(row)!r}; position {position} and "
                f"{len(names)} numbers are required"
            )
        for name, cell in zip(names, row[1:], strict=True):
            columns[name].append(_number(cell, f"{file} line {position + 2} column {name!r}"))
    return _named(
        {
            (file.stem if name == SINGLE and len(names) == 1 else name): {"mass": column}
            for name, column in columns.items()
        },
        file,
    )


def _parse_json(text: str, file: Path) -> ProfileSet:
    try:
        document = json.loads(text)
    except json.JSONDecodeError as error:
        raise ProfileError(f"{file} is no JSON: {error}") from error
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise ProfileError(f"{file} is no profile file; 'format': {FORMAT!r} is required")
    if document.get("version") != VERSION:
        raise ProfileError(
            f"{file} has version {document.get('version')!r}; this posbias reads {VERSION}"
        )
    try:
        entries = {
            entry["name"]: {
                key: entry[key] for key in ("mass", "stderr", "quantity", "origin") if key in entry
            }
            for entry in document["profiles"]
        }
        repeated = len(entries) != len(document["profiles"])
    except (KeyError, TypeError, AttributeError) as error:
        raise ProfileError(
            f"{file} is damaged: every profile needs 'name' and 'mass' ({error})"
        ) from error
    if repeated:
        raise ProfileError(f"{file} holds two profiles of the same name")
    return _named(entries, file)


def _named(entries: Mapping[str, Mapping[str, Any]], file: Path) -> ProfileSet:
    profiles = {}
    for name, entry in entries.items():
        try:
            options = {"origin": {"file": file.name}, "quantity": "read from file", **entry}
            profiles[name] = Profile(name=name, **options)
        except ProfileError as error:
            raise ProfileError(f"{file}, profile {name!r}: {error}") from error
    return ProfileSet(profiles)


def _number(cell: str, where: str) -> float:
    try:
        value = float(cell)
    except ValueError:
        value = math.nan
    if not math.isfinite(value) or value < 0:
        raise ProfileError(f"{where} is {cell!r}; a finite non-negative number is required")
    return value
