"""Check arrays against the schema: names, types, shapes, ranges, stochasticity."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from posbias.errors import ArtifactError
from posbias.kernels.summary import NEAREST_LAGS, block_edges, pair_counts
from posbias.measurement.schema import (
    ARRAYS,
    ROW_TOLERANCE,
    ArraySpec,
    Dimensions,
    array_spec,
    influence_array,
)

__all__ = ["check_array", "check_layout", "check_names", "check_pairs", "readonly"]

Array = NDArray[Any]

KERNEL = "kernel.attention.sum"
SUMMARY = frozenset({"summary.near.sum", "summary.far.sum"})


def check_names(names: Iterable[str], manifest: Mapping[str, Any]) -> None:
    """Check that all required arrays are there and none that the schema does not know."""
    present = set(names)
    unknown = sorted(name for name in present if array_spec(name) is None)
    if unknown:
        near = difflib.get_close_matches(unknown[0], ARRAYS, n=1)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise ArtifactError(f"array {unknown[0]} is not part of the schema{hint}")
    required = {name for name, spec in ARRAYS.items() if spec.required}
    if manifest["influence_method"] is not None:
        required.add(influence_array(manifest["influence_method"]))
    if manifest["model"]["position_scheme"]["type"] == "alibi":
        required.add("position.slopes")
    elif "position.slopes" in present:
        raise ArtifactError(
            "array position.slopes is there, but model.position_scheme.type is "
            f"{manifest['model']['position_scheme']['type']!r}; slopes belong to alibi only"
        )
    if present & SUMMARY:
        required = (required - {KERNEL}) | SUMMARY
        if KERNEL in present:
            raise ArtifactError(
                f"arrays {KERNEL} and {min(present & SUMMARY)} are both there; kernels are kept in "
                "full or summarised, not both"
            )
    if present & {"logits.lag.sum", "logits.lag.count"}:
        required |= {"logits.lag.sum", "logits.lag.count"}
    missing = sorted(required - present)
    if missing:
        raise ArtifactError(
            f"array {missing[0]} is missing ({len(missing)} in all); the measurement is "
            "incomplete, measure again"
        )


def check_layout(name: str, dtype: str, shape: tuple[int, ...], dims: Dimensions) -> None:
    """Check type and shape of an array whose name the schema knows."""
    spec = _spec(name)
    if dtype != spec.dtype:
        raise ArtifactError(
            f"array {name} has type {dtype}; {spec.dtype} is required, convert it on purpose"
        )
    expected = dims.shape(spec.shape)
    if shape != expected:
        raise ArtifactError(
            f"array {name} has shape {shape}; ({', '.join(spec.shape)}) = {expected} is required "
            "by the manifest"
        )


def check_array(name: str, array: Array, dims: Dimensions, layer_windows: list[int | None]) -> None:
    """Check layout and values of one array.

    Cost: one or two passes over the values, without a copy of the whole array.
    """
    check_layout(name, array.dtype.name, array.shape, dims)
    spec = _spec(name)
    _check_range(name, array, spec)
    if name in SUMMARY:
        _check_hidden(name, array, dims.positions, layer_windows)
    if name.startswith("kernel."):
        for t, layer in enumerate(array):
            _check_kernel(name, layer, dims.windows, t=t, window=layer_windows[t])
    if name.startswith("influence.") and not array.sum() > 0.0:
        raise ArtifactError(
            f"array {name} is zero everywhere; the probability of the next token does not depend "
            "on the input, which points to saturated or underflowing values"
        )


def check_pairs(arrays: Mapping[str, Array], dims: Dimensions) -> None:
    """Check what relates two arrays.

    Lag sums must be zero where no pair was counted; the rows of summarised kernels sum to one.
    """
    if arrays.keys() >= SUMMARY:
        _check_summary(arrays, dims)
    if "logits.lag.sum" not in arrays:
        return
    empty = arrays["logits.lag.count"] == 0
    bad = np.argwhere(empty[:, None, :] & (arrays["logits.lag.sum"] != 0.0))
    if bad.size:
        raise ArtifactError(
            f"array logits.lag.sum is not zero at {_place(bad[0])}, but no pair was counted there"
        )


def _check_hidden(name: str, array: Array, n: int, layer_windows: Sequence[int | None]) -> None:
    """Check that a summary has no attention where its mask shows no pair."""
    for t, window in enumerate(layer_windows):
        far, near = pair_counts(block_edges(n), lags=NEAREST_LAGS, window=window)
        bad = np.argwhere((array[t] > 0.0) & ((near if "near" in name else far) == 0.0))
        if bad.size:
            raise ArtifactError(
                f"{name} is {array[t][tuple(bad[0])]:g} at layer {t}, {_place(bad[0])}, where no "
                "query sees a key"
            )


def _check_summary(arrays: Mapping[str, Array], dims: Dimensions) -> None:
    sums = arrays["summary.near.sum"].sum(axis=2) + arrays["summary.far.sum"].sum(axis=2)
    means = sums / (dims.windows * np.diff(block_edges(dims.positions)))
    t, block = np.unravel_index(np.abs(means - 1.0).argmax(), means.shape)
    if abs(means[t, block] - 1.0) > ROW_TOLERANCE:
        raise ArtifactError(
            f"the summarised kernel of layer {t}: rows of block {block} sum to "
            f"{means[t, block]:.6g} per query and window; 1 within {ROW_TOLERANCE:g} is required"
        )


def _spec(name: str) -> ArraySpec:
    spec = array_spec(name)
    if spec is None:
        raise ArtifactError(f"array {name} is not part of the schema")
    return spec


def _check_range(name: str, array: Array, spec: ArraySpec) -> None:
    # Minimum and maximum propagate NaN and show infinities: no temporary of the array's size.
    low, high = float(array.min()), float(array.max())
    if low >= spec.low and high <= spec.high and np.isfinite(low) and np.isfinite(high):
        return
    good = np.isfinite(array) & (array >= spec.low) & (array <= spec.high)
    bad = np.argwhere(~good)
    raise ArtifactError(
        f"array {name} is {array[tuple(bad[0])]} at {_place(bad[0])} ({len(bad)} such entries); "
        f"finite values in [{spec.low:g}, {spec.high:g}] are required ({spec.unit})"
    )


def _check_kernel(name: str, layer: Array, windows: int, *, t: int, window: int | None) -> None:
    if np.triu(layer, 1).any():
        i, j = np.argwhere(np.triu(layer, 1))[0]
        raise ArtifactError(
            f"{name} is {layer[i, j]:g} at layer {t}, query {i}, key {j}; a causal "
            "kernel is zero above the diagonal"
        )
    if window is not None and np.tril(layer, -window).any():
        i, j = np.argwhere(np.tril(layer, -window))[0]
        raise ArtifactError(
            f"{name} is {layer[i, j]:g} at layer {t}, query {i}, key {j}, outside "
            f"the sliding window of {window} keys that model.layer_windows states"
        )
    sums = layer.sum(axis=1) / windows
    worst = int(np.abs(sums - 1.0).argmax())
    if abs(sums[worst] - 1.0) > ROW_TOLERANCE:
        raise ArtifactError(
            f"{name}, layer {t}: row {worst} sums to {sums[worst]:.6g} per window; "
            f"1 within {ROW_TOLERANCE:g} is required (the array is a sum over {windows} windows)"
        )


def _place(index: NDArray[np.intp]) -> str:
    return str(tuple(int(i) for i in index))


def readonly(array: NDArray[Any]) -> NDArray[Any]:
    """Return a view of an array that cannot be written to."""
    view = array.view()
    view.setflags(write=False)
    return view
