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
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from posbias.atomic import atomic_write_text
from posbias.errors import ProfileError, shown
from posbias.profile import Profile, ProfileSet

__all__ = ["read_profiles", "to_csv", "to_json", "write_csv", "write_json"]

FORMAT = "posbias.profiles"
VERSION = 1
SINGLE = "mass"

# Plain decimal numbers; float() alone would also read 1_000 and digits of other scripts.
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)
_ENTRY_KEYS = ("name", "mass", "stderr", "quantity", "origin")


def read_profiles(path: str | Path) -> ProfileSet:
    """Read the profiles of a CSV or JSON file, by its ending.

    The only column of a CSV, if it is named ``mass``, takes the file's stem as its name. A byte
    order mark, Windows line ends and empty lines at the end are accepted.

    Raises
    ------
    ProfileError
        If the file is missing or a cell is empty, not a number, negative, NaN or infinite (its line
        and column are named), a position is missing, repeated or out of order, names repeat, or a
        column does not sum to 1 within `posbias.profile.MASS_TOLERANCE`.
    """
    file = Path(path)
    try:
        text = file.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise ProfileError(
            f"{shown(file)} is no UTF-8 text (byte {error.start}); save it as UTF-8"
        ) from error
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise ProfileError(f"cannot read profiles from {shown(file)}: {reason}") from error
    if file.suffix.lower() == ".json":
        return _parse_json(text, file)
    return _parse_csv(text, file)


def write_csv(
    profiles: Profile | Mapping[str, Profile], path: str | Path, *, overwrite: bool = False
) -> None:
    """Write profiles as CSV; ``"-"`` is standard output.

    Standard errors, quantity and origin have no place in a CSV; `write_json` keeps them.

    Raises
    ------
    ProfileError
        If a name cannot be a column header.
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
    ProfileError
        If an origin cannot be written as JSON.
    OutputExistsError
        If the file exists and `overwrite` is false.
    """
    atomic_write_text(path, to_json(profiles), overwrite=overwrite)


def to_csv(profiles: Profile | Mapping[str, Profile]) -> str:
    """Return the text of a CSV file.

    Raises
    ------
    ProfileError
        If one of several names is empty, begins or ends with white space, or holds a line break.
    """
    named = {SINGLE: profiles} if isinstance(profiles, Profile) else dict(profiles)
    columns = [p.mass.tolist() for p in ProfileSet(named).values()]
    names = list(named) if len(named) > 1 else [SINGLE]
    for name in names:
        if not name or name != name.strip() or len(name.splitlines()) > 1:
            raise ProfileError(
                f"the profile name {name!r} cannot be a CSV column; a name of one line without "
                "white space around it is required"
            )
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(["position", *names])
    for position, row in enumerate(zip(*columns, strict=True)):
        writer.writerow([position, *map(repr, row)])
    return stream.getvalue()


def to_json(profiles: Profile | Mapping[str, Profile]) -> str:
    """Return the text of a JSON file.

    Raises
    ------
    ProfileError
        If an origin cannot be written as JSON.
    """
    named = {profiles.name: profiles} if isinstance(profiles, Profile) else dict(profiles)
    entries = [
        {
            "name": name,
            "quantity": p.quantity,
            "mass": p.mass.tolist(),
            "stderr": None if p.stderr is None else p.stderr.tolist(),
            "origin": dict(p.origin),
        }
        for name, p in ProfileSet(named).items()
    ]
    document = {"format": FORMAT, "version": VERSION, "profiles": entries}
    try:
        return json.dumps(document, indent=1, allow_nan=False) + "\n"
    except (TypeError, ValueError) as error:
        raise ProfileError(
            f"the origin of a profile cannot be written as JSON: {error}; plain numbers, text, "
            "lists and mappings are required"
        ) from error


def _parse_csv(text: str, file: Path) -> ProfileSet:
    lines = _csv_lines(text, file)
    if len(lines) < 3 or lines[0][1][0].strip() != "position":
        raise ProfileError(
            f"{file} is no profile CSV; a header 'position,mass' or 'position,<name>...' and at "
            "least two lines of positions are required"
        )
    names = [name.strip() for name in lines[0][1][1:]]
    if not names or "" in names:
        raise ProfileError(f"{file} has the columns {names}; at least one, all named, are required")
    if len(set(names)) != len(names):
        repeated = next(name for name in names if names.count(name) > 1)
        raise ProfileError(f"{file} has two columns {repeated!r}; column names must be distinct")
    columns: dict[str, list[float]] = {name: [] for name in names}
    for position, (line, cells) in enumerate(lines[1:]):
        where = f"{file} line {line}"
        _check_position(cells[0].strip(), position, where)
        if len(cells) != len(names) + 1:
            raise ProfileError(
                f"{where} has {len(cells)} cells; {len(names) + 1} are required, as in the header"
            )
        for name, cell in zip(names, cells[1:], strict=True):
            columns[name].append(_number(cell.strip(), f"{where} column {name!r}"))
    if names == [SINGLE]:
        columns = {file.stem: columns[SINGLE]}
    return _named({name: {"mass": column} for name, column in columns.items()}, file)


def _csv_lines(text: str, file: Path) -> list[tuple[int, list[str]]]:
    """Return line numbers and cells; empty lines are dropped at the end only."""
    reader = csv.reader(io.StringIO(text), strict=True)
    try:
        lines = [(reader.line_num, cells or [""]) for cells in reader]
    except csv.Error as error:
        raise ProfileError(f"{file} line {reader.line_num} is no CSV: {error}") from error
    while lines and not any(cell.strip() for cell in lines[-1][1]):
        lines.pop()
    return lines


def _check_position(cell: str, position: int, where: str) -> None:
    if cell == str(position):
        return
    if cell.isascii() and cell.isdigit() and int(cell) < position:
        problem = f"repeats position {cell} or has it out of order"
    else:
        problem = f"has the position {cell!r}"
    raise ProfileError(
        f"{where} {problem}; position {position} is required here (0, 1, 2, ... without gaps)"
    )


def _number(cell: str, where: str) -> float:
    if not cell:
        raise ProfileError(f"{where} is empty; a finite non-negative number is required")
    value = float(cell) if _NUMBER.fullmatch(cell) else math.nan
    if not math.isfinite(value) or value < 0:
        raise ProfileError(f"{where} is {cell!r}; a finite non-negative number is required")
    return value


def _parse_json(text: str, file: Path) -> ProfileSet:
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ProfileError(f"{file} is no JSON: {error}") from error
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise ProfileError(f"{file} is no profile file; 'format': {FORMAT!r} is required")
    version = document.get("version")
    if version != VERSION or isinstance(version, bool):
        raise ProfileError(f"{file} has version {version!r}; this posbias reads {VERSION}")
    listed = document.get("profiles")
    if not isinstance(listed, list) or not listed:
        raise ProfileError(f"{file} lacks 'profiles', a list of at least one profile")
    entries: dict[str, dict[str, Any]] = {}
    for index, entry in enumerate(listed):
        _check_entry(entry, f"{file}, profiles[{index}]")
        if entry["name"] in entries:
            raise ProfileError(f"{file} holds two profiles named {entry['name']!r}")
        entries[entry["name"]] = {key: value for key, value in entry.items() if key != "name"}
    return _named(entries, file)


def _check_entry(entry: Any, where: str) -> None:
    if not isinstance(entry, dict) or not {"name", "mass"} <= entry.keys() <= set(_ENTRY_KEYS):
        given = sorted(entry) if isinstance(entry, dict) else type(entry).__name__
        raise ProfileError(
            f"{where} has the keys {given}; 'name' and 'mass' are required, {_ENTRY_KEYS[2:]} are "
            "optional"
        )
    kinds: Sequence[tuple[str, type]] = (("name", str), ("quantity", str), ("origin", dict))
    for key, kind in kinds:
        if key in entry and not isinstance(entry[key], kind):
            raise ProfileError(
                f"{where} has {key} {entry[key]!r}; a {'mapping' if kind is dict else 'text'} is "
                "required"
            )


def _named(entries: Mapping[str, Mapping[str, Any]], file: Path) -> ProfileSet:
    profiles = {}
    for name, entry in entries.items():
        try:
            options = {"origin": {"file": file.name}, "quantity": "read from file", **entry}
            profiles[name] = Profile(name=name, **options)
        except ValueError as error:
            raise ProfileError(f"{file}, profile {name!r}: {error}") from error
    try:
        return ProfileSet(profiles)
    except ProfileError as error:
        raise ProfileError(f"{file}: {error}") from error
