"""Documents streamed from the `datasets` library."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from posbias.errors import TextError
from posbias.models.hub import is_hub_reachable, one_line


def iterate_dataset(name: str, *, field: str, split: str) -> Iterator[str]:
    """Yield the documents of a data set in its order, streamed.

    Parameters
    ----------
    name : str
        ``NAME`` or ``NAME:CONFIG``: a hub id, a folder of data files, or a folder written by
        ``Dataset.save_to_disk``.
    field, split : str
        Which field of which split holds the text.

    Raises
    ------
    TextError
        If the library is missing, the data set, config, split or field does not exist, or a row
        holds no string.
    """
    rows = _open(name, split)
    for index, row in enumerate(_guarded(rows, name, split)):
        place = f"row {index} of datasets:{name}"
        if field not in row:
            available = ", ".join(map(repr, row)) or "none"
            raise TextError(f"{place} has no field {field!r}; available fields: {available}")
        if not isinstance(row[field], str):
            raise TextError(
                f"{place}: field {field!r} is {type(row[field]).__name__}; a string is required"
            )
        yield row[field]


def _open(name: str, split: str) -> Any:
    try:
        import datasets
    except ImportError as error:
        raise TextError(
            f"datasets:{name} needs the datasets library, which cannot be imported ({error}). "
            "Install it: pip install 'posbias[datasets]'"
        ) from error
    # A folder may have a colon in its name.
    dataset, _, config = (name, "", "") if os.path.isdir(name) else name.partition(":")
    if not dataset:
        raise TextError("datasets: lacks a name; write datasets:NAME or datasets:NAME:CONFIG")
    if not os.path.isdir(dataset) and not is_hub_reachable():
        raise TextError(
            f"cannot read datasets:{name}: no such folder here, and the hub cannot be reached. "
            "Check the name or the connection, or give a folder written by Dataset.save_to_disk"
        )
    try:
        if _is_saved_to_disk(Path(dataset)):
            saved = datasets.load_from_disk(dataset)
            return saved[split] if isinstance(saved, datasets.DatasetDict) else saved
        return datasets.load_dataset(dataset, config or None, split=split, streaming=True)
    except Exception as error:
        raise _failure(name, split, error) from error


def _is_saved_to_disk(path: Path) -> bool:
    return (path / "state.json").is_file() or (path / "dataset_dict.json").is_file()


def _guarded(rows: Any, name: str, split: str) -> Iterator[Mapping[str, Any]]:
    """Iterate over rows; streams report damaged or unreachable files only here."""
    iterator = iter(rows)
    while True:
        try:
            row = next(iterator)
        except StopIteration:
            return
        except Exception as error:
            raise _failure(name, split, error) from error
        yield row


def _failure(name: str, split: str, error: Exception) -> TextError:
    """Wrap any error of the library, whose kinds are many and undocumented."""
    return TextError(
        f"cannot read datasets:{name}, split {split!r}: {one_line(error)}. "
        "Check name, config, split and the connection"
    )
