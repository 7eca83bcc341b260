"""Measurements as pandas data frames and as an xarray dataset (optional dependencies)."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from posbias.errors import InputError
from posbias.measurement.schema import array_spec
from posbias.optional import import_frames

if TYPE_CHECKING:
    import pandas
    import xarray

    from posbias.measurement.artifact import Measurement

__all__ = ["TABLES", "to_pandas", "to_xarray"]

Columns = dict[str, Any]


def to_pandas(measurement: Measurement, table: str) -> pandas.DataFrame:
    """Return one table of a measurement as a data frame.

    Layers count from 1 (bottom), heads, positions and windows from 0.

    Parameters
    ----------
    measurement : Measurement
        What to tabulate.
    table : {"mixing", "content", "influence", "profiles", "windows"}
        ``mixing``: per layer lambda by every recorded estimator and standard deviations.
        ``content``: per layer and head d, its standard deviation over windows, and what else was
        recorded (slope, spread of the logits, attention to the first key, ...).
        ``influence``: long form, per method and position mass and standard error.
        ``profiles``: wide form, per position one column of mass for each method.
        ``windows``: per window document, offset, probability of the next token, mean lambda.

    Raises
    ------
    InputError
        If there is no such table, it needs influence that was not measured, or pandas is missing.
    """
    if table not in TABLES:
        raise InputError(f"table {table!r} is unknown; use one of {tuple(TABLES)}")
    frame = import_frames("pandas").DataFrame(TABLES[table](measurement))
    return frame


def to_xarray(measurement: Measurement) -> xarray.Dataset:
    """Return all arrays as a dataset with dimensions window, layer, head, position, key.

    Layers have coordinates 1..T, windows the coordinates document and offset. Each variable has
    the attributes unit and description; the dataset has the manifest as JSON.

    Raises
    ------
    InputError
        If xarray is missing.
    """
    library = import_frames("xarray")
    manifest = measurement.manifest
    variables = {}
    for name, array in measurement.arrays.items():
        spec = array_spec(name)
        if spec is not None:
            about = {"unit": spec.unit, "description": spec.description}
            variables[name] = (_dimensions(spec.shape), array, about)
    starts = np.array(manifest["windows"]["starts"])
    coordinates = {
        "layer": np.arange(1, measurement.layers + 1),
        "document": ("window", starts[:, 0]),
        "offset": ("window", starts[:, 1]),
    }
    dataset: xarray.Dataset = library.Dataset(
        variables, coordinates, {"manifest": json.dumps(manifest)}
    )
    return dataset


def _mixing(measurement: Measurement) -> Columns:
    columns: Columns = {"layer": np.arange(1, measurement.layers + 1)}
    for name in measurement.mixing_estimators:
        columns[name] = measurement.mixing(name)
        columns[f"{name}_std"] = measurement.mixing_std(name)
    return columns


def _content(measurement: Measurement) -> Columns:
    layers, heads = measurement.layers, measurement.heads
    columns: Columns = {
        "layer": np.repeat(np.arange(1, layers + 1), heads),
        "head": np.tile(np.arange(heads), layers),
        "d": measurement.content().ravel(),
        "d_std": measurement.content_std().ravel(),
    }
    for name, array in measurement.arrays.items():
        spec = array_spec(name)
        if spec is None or spec.shape not in {("D", "T", "H"), ("T", "H")}:
            continue
        column = name.removesuffix(".windows").replace(".", "_")
        columns[column] = (array.mean(axis=0) if "D" in spec.shape else array).ravel()
    return columns


def _influence(measurement: Measurement) -> Columns:
    methods = measurement.influence_methods
    profiles = [measurement.influence(method) for method in methods] or [measurement.influence()]
    unknown = np.full(measurement.n, np.nan)
    return {
        "method": np.repeat(methods, measurement.n),
        "position": np.tile(np.arange(measurement.n), len(methods)),
        "mass": np.concatenate([p.mass for p in profiles]),
        "stderr": np.concatenate([unknown if p.stderr is None else p.stderr for p in profiles]),
    }


def _profiles(measurement: Measurement) -> Columns:
    methods = measurement.influence_methods or (None,)
    masses = {str(method): measurement.influence(method).mass for method in methods}
    return {"position": np.arange(measurement.n), **masses}


def _windows(measurement: Measurement) -> Columns:
    starts = np.array(measurement.manifest["windows"]["starts"])
    return {
        "window": np.arange(measurement.windows),
        "document": starts[:, 0],
        "offset": starts[:, 1],
        "next_probability": measurement.arrays["next.probability.windows"],
        "mixing_norm": measurement.arrays["mixing.norm.windows"].mean(axis=(1, 2)),
    }


TABLES: Mapping[str, Callable[[Measurement], Columns]] = {
    "mixing": _mixing,
    "content": _content,
    "influence": _influence,
    "profiles": _profiles,
    "windows": _windows,
}
"""Tables by name."""


def _dimensions(letters: tuple[str, ...]) -> tuple[str, ...]:
    names = {"D": "window", "T": "layer", "H": "head", "n": "position", "B": "block", "L": "lag"}
    dimensions = [names[letter] for letter in letters]
    if dimensions.count("position") == 2:
        dimensions[-1] = "key"
    if dimensions.count("block") == 2:
        dimensions[-1] = "key block"
    return tuple(dimensions)
