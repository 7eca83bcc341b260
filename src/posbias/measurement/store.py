"""Measurements on disk: a directory with manifest.json and arrays.safetensors.

The manifest also holds, for the files, shape and dtype of every array, the SHA-256 of
arrays.safetensors and that of its own content. The directory appears at once, when everything is
on disk.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from posbias.atomic import atomic_directory
from posbias.errors import ArtifactError, InputError, OutputExistsError, shown
from posbias.measurement._arrays import check_array, check_layout, check_names
from posbias.measurement._manifest import check_manifest, check_version
from posbias.measurement.schema import Dimensions, in_order

__all__ = [
    "ARRAYS_FILE",
    "MANIFEST_FILE",
    "PROFILES_FILE",
    "REPORT_FILE",
    "RUN_FOLDER",
    "Stored",
    "StoredArrays",
    "foreign_entries",
    "is_measurement",
    "is_report",
    "read",
    "refuse_foreign",
    "write",
]

MANIFEST_FILE = "manifest.json"
ARRAYS_FILE = "arrays.safetensors"

REPORT_FILE = "report.html"
"""Name of the page that a report writes into a measurement."""

REPORT_MARK = b'<meta name="generator" content="posbias'
"""What the head of such a page holds."""

RUN_FOLDER = "measurement"
"""Name of the measurement in the output directory of a run."""

PROFILES_FILE = "profiles.json"
"""Name of the profiles in the output directory of a run."""

_DTYPES = {"F64": "float64", "I64": "int64"}
_FILE_KEYS = ("arrays", "arrays_sha256", "manifest_sha256")


@dataclass(frozen=True)
class Stored:
    """What `read` returns: a checked manifest and arrays that are read when first used."""

    path: Path
    manifest: dict[str, Any]
    arrays: StoredArrays
    dimensions: Dimensions
    sha256: str


class StoredArrays(Mapping[str, NDArray[Any]]):
    """The arrays of one file by name; each is read and checked when first used, then kept.

    The file stays open: replacing it on disk does not change what is read.
    """

    def __init__(self, path: Path, dimensions: Dimensions, layer_windows: list[int | None]) -> None:
        self._file = _open(path)
        self._path = path
        self._dimensions = dimensions
        self._layer_windows = layer_windows
        self._names = tuple(in_order(self._file.keys()))
        self._read: dict[str, NDArray[Any]] = {}

    def layout(self) -> dict[str, dict[str, Any]]:
        """Return shape and dtype by name from the header of the file, without reading values."""
        layout = {}
        for name in self._names:
            view = self._file.get_slice(name)
            dtype = str(view.get_dtype())
            layout[name] = {
                "shape": list(view.get_shape()),
                "dtype": _DTYPES.get(dtype, dtype),
            }
        return layout

    def __getitem__(self, name: str) -> NDArray[Any]:
        if name not in self._names:
            raise KeyError(name)
        if name not in self._read:
            array: NDArray[Any] = self._file.get_tensor(name)
            try:
                check_array(name, array, self._dimensions, self._layer_windows)
            except ArtifactError as error:
                raise ArtifactError(f"{self._path}: {error}") from error
            array.setflags(write=False)
            self._read[name] = array
        return self._read[name]

    def __contains__(self, name: object) -> bool:
        return name in self._names

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


def is_measurement(path: str | PathLike[str]) -> bool:
    """Return whether `path` is a directory with a manifest, i.e. meant to be a measurement."""
    return os.path.isfile(Path(path) / MANIFEST_FILE)


def read(path: str | PathLike[str]) -> Stored:
    """Open a stored measurement: check the manifest, both SHA-256 and the layout of all arrays.

    The output directory of a run stands for the measurement in it.

    Raises
    ------
    ArtifactError
        If a file is missing, truncated, edited, or of another version; in one line that names
        the path.
    """
    if not os.fspath(path):
        raise ArtifactError("the name of the measurement is empty; a directory is required")
    folder = _within_run(Path(path))
    try:
        manifest, layout, sha256 = _read_manifest(folder)
        dimensions = check_manifest(manifest)
        check_names(layout, manifest)
        arrays_file = folder / ARRAYS_FILE
        _check_sha256(arrays_file, sha256)
        arrays = StoredArrays(arrays_file, dimensions, manifest["model"]["layer_windows"])
        _check_layout(arrays.layout(), layout, dimensions)
    except ArtifactError as error:
        raise ArtifactError(f"{shown(folder)}: {error}") from error
    except OSError as error:
        raise ArtifactError(
            f"{folder}: cannot be read ({error.strerror}); check path and rights"
        ) from error
    return Stored(folder, manifest, arrays, dimensions, sha256)


def write(
    path: str | PathLike[str],
    manifest: Mapping[str, Any],
    arrays: Mapping[str, NDArray[Any]],
    *,
    overwrite: bool = False,
) -> Path:
    """Write a checked manifest and checked arrays to the directory `path`, all or nothing.

    Raises
    ------
    OutputExistsError
        If `path` exists and `overwrite` is false, or if it holds anything but a measurement and
        its report.
    """
    if not os.fspath(path):
        raise InputError("the name of the output is empty; a directory is required")
    target_folder = Path(path)
    if overwrite and is_measurement(target_folder):
        refuse_foreign(target_folder, foreign_entries(target_folder))
    with atomic_directory(target_folder, overwrite=overwrite, is_ours=_is_replaceable) as folder:
        target = folder / ARRAYS_FILE
        _save_arrays(arrays, target)
        stored = dict(manifest)
        stored["arrays"] = {
            name: {"shape": list(array.shape), "dtype": array.dtype.name}
            for name, array in arrays.items()
        }
        stored["arrays_sha256"] = _sha256(target)
        stored["manifest_sha256"] = _content_sha256(stored)
        text = json.dumps(stored, indent=1, ensure_ascii=False, allow_nan=False)
        (folder / MANIFEST_FILE).write_text(text + "\n", encoding="utf-8")
        # The library writes a file for the owner only; it gets the rights of the other one.
        target.chmod(stat.S_IMODE((folder / MANIFEST_FILE).stat().st_mode))
    return target_folder


def foreign_entries(folder: Path) -> list[str]:
    """Return the names in the folder of a measurement that posbias did not write.

    A ``report.html`` is a report only if its head says that posbias made it.
    """
    return sorted(entry.name for entry in folder.iterdir() if not _is_ours(entry))


def refuse_foreign(folder: Path, names: Sequence[str]) -> None:
    """Raise `OutputExistsError` if there are names of foreign files in a folder to be replaced."""
    if names:
        more = f" and {len(names) - 3} more" if len(names) > 3 else ""
        them = "it" if len(names) == 1 else "them"
        raise OutputExistsError(
            f"{folder} also holds {', '.join(names[:3])}{more}, which posbias did not write, so it "
            f"is not replaced even with overwrite; move {them}, or choose another name"
        )


def is_report(file: Path) -> bool:
    """Return whether a file is a page that posbias made, from its head."""
    if not file.is_file():
        return False
    with file.open("rb") as stream:
        return REPORT_MARK in stream.read(4096)


def _within_run(folder: Path) -> Path:
    """Return the measurement inside the output directory of a run, else the folder itself."""
    inner = folder / RUN_FOLDER
    return inner if is_measurement(inner) and not is_measurement(folder) else folder


def _save_arrays(arrays: Mapping[str, NDArray[Any]], target: Path) -> None:
    try:
        save_file({name: np.ascontiguousarray(array) for name, array in arrays.items()}, target)
    except SafetensorError as error:
        # How the library reports a full disk.
        raise OSError(str(error)) from error


def _read_manifest(folder: Path) -> tuple[dict[str, Any], dict[str, Any], str]:
    """Return the manifest, the layout of the arrays and the SHA-256 of their file."""
    if not os.path.exists(folder):
        raise ArtifactError("there is no such directory; give the directory that measure wrote")
    if not folder.is_dir():
        raise ArtifactError(
            f"this is a file; a measurement is the directory with {MANIFEST_FILE} and {ARRAYS_FILE}"
        )
    file = folder / MANIFEST_FILE
    if not file.is_file():
        raise ArtifactError(f"{MANIFEST_FILE} is missing; this directory is not a measurement")
    try:
        manifest = json.loads(file.read_text(encoding="utf-8"))
    except (UnicodeDecodeError, json.JSONDecodeError, RecursionError) as error:
        raise ArtifactError(
            f"{MANIFEST_FILE} is not JSON ({error}); it is truncated or was edited, measure again"
        ) from error
    if not isinstance(manifest, dict):
        raise ArtifactError(f"{MANIFEST_FILE} holds no JSON object; this is not a measurement")
    check_version(manifest)
    missing = [key for key in _FILE_KEYS if key not in manifest]
    if missing:
        raise ArtifactError(
            f"{MANIFEST_FILE} has no key {missing[0]}; it was edited, measure again"
        )
    stated = manifest.pop("manifest_sha256")
    actual = _content_sha256(manifest)
    if actual != stated:
        raise ArtifactError(
            f"{MANIFEST_FILE} was edited: its content has SHA-256 {actual[:12]}..., it says "
            f"{str(stated)[:12]}...; copy it again or measure again"
        )
    layout, sha256 = manifest.pop("arrays"), manifest.pop("arrays_sha256")
    if not isinstance(layout, dict) or not isinstance(sha256, str):
        raise ArtifactError(
            f"arrays and arrays_sha256 of {MANIFEST_FILE} have wrong types; measure again"
        )
    return manifest, layout, sha256


def _check_sha256(file: Path, expected: str) -> None:
    if not file.is_file():
        raise ArtifactError(f"{ARRAYS_FILE} is missing; copy the whole directory or measure again")
    actual = _sha256(file)
    if actual != expected:
        raise ArtifactError(
            f"{ARRAYS_FILE} has SHA-256 {actual[:12]}..., the manifest says {expected[:12]}...; it "
            "is truncated or was edited, copy it again or measure again"
        )


def _check_layout(
    found: dict[str, dict[str, Any]], stated: dict[str, Any], dimensions: Dimensions
) -> None:
    for kind, names in (
        ("the manifest lists but the file lacks", stated.keys() - found.keys()),
        ("the file holds but the manifest does not list", found.keys() - stated.keys()),
    ):
        if names:
            raise ArtifactError(
                f"{kind} array {min(names)}; the manifest was edited, measure again"
            )
    for name, layout in found.items():
        check_layout(name, layout["dtype"], tuple(layout["shape"]), dimensions)
        if stated[name] != layout:
            raise ArtifactError(
                f"array {name} is {layout} in the file, the manifest says {stated[name]}; the "
                "manifest was edited, measure again"
            )


def _open(path: Path) -> Any:
    try:
        return safe_open(path, framework="numpy")
    except SafetensorError as error:
        raise ArtifactError(
            f"{ARRAYS_FILE} is not a safetensors file ({error}); measure again"
        ) from error


def _is_replaceable(folder: Path) -> bool:
    """Return whether a folder is a measurement, at most with its report."""
    return is_measurement(folder) and not foreign_entries(folder)


def _is_ours(entry: Path) -> bool:
    return entry.name in {MANIFEST_FILE, ARRAYS_FILE} or (
        entry.name == REPORT_FILE and is_report(entry)
    )


def _content_sha256(manifest: Mapping[str, Any]) -> str:
    """Return the SHA-256 of a manifest whatever its layout and the order of its keys."""
    text = json.dumps(manifest, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(text.encode("ascii")).hexdigest()


def _sha256(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
