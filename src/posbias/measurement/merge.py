"""Merge measurements of the same model, text and settings over disjoint windows."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from posbias.errors import InputError
from posbias.measurement._manifest import text_tokens, value_at
from posbias.measurement.artifact import Measurement
from posbias.measurement.schema import MANIFEST, array_spec

__all__ = ["merge"]


def merge(measurements: Sequence[Measurement]) -> Measurement:
    """Return the measurement of all windows together.

    The result does not depend on the order of the arguments: windows are ordered by document and
    offset, sums are added in the order of the first window of each part. Arrays per window equal
    those of a single run exactly; sums over windows up to the rounding of another order of
    summation. Packed windows, which may span documents, are checked for overlap within the
    document of their start only.

    Parameters
    ----------
    measurements : sequence of Measurement
        At least one. All must agree on every manifest key that the schema calls a setting (model,
        tokenizer, text, window length, libraries, ...), on the arrays recorded and on the slopes.

    Raises
    ------
    InputError
        If there is none, settings differ, arrays differ, or windows overlap.
    """
    if not measurements:
        raise InputError("merge needs at least one measurement, got none")
    parts = sorted(measurements, key=lambda part: part.manifest["windows"]["starts"])
    manifests = [part.manifest for part in parts]
    for part, manifest in zip(parts[1:], manifests[1:], strict=True):
        _check_settings(parts[0], manifests[0], part, manifest)
        _check_arrays(parts[0], part)
    starts = [(*start, p) for p, m in enumerate(manifests) for start in m["windows"]["starts"]]
    order = sorted(range(len(starts)), key=lambda k: starts[k])
    _check_disjoint([starts[k] for k in order], parts, manifests[0]["windows"])
    arrays = {name: _combine(name, parts, order) for name in parts[0].arrays}
    return Measurement(_merge_manifests(manifests, [list(starts[k][:2]) for k in order]), arrays)


def _check_settings(
    first: Measurement, manifest: dict[str, Any], other: Measurement, other_manifest: dict[str, Any]
) -> None:
    for path, spec in MANIFEST.items():
        if not spec.setting:
            continue
        ours, theirs = value_at(manifest, path), value_at(other_manifest, path)
        if ours != theirs:
            raise InputError(
                f"measurements differ in {path}: {ours!r} in {_label(first)}, {theirs!r} in "
                f"{_label(other)}; only measurements with the same settings can be merged"
            )


def _check_arrays(first: Measurement, other: Measurement) -> None:
    unshared = sorted(set(first.arrays) ^ set(other.arrays))
    if unshared:
        holder, lacking = (first, other) if unshared[0] in first.arrays else (other, first)
        raise InputError(
            f"array {unshared[0]} is recorded in {_label(holder)} but not in {_label(lacking)}; "
            "measure both with the same statistics"
        )
    for name in first.arrays:
        if _rule(name) != "same" or np.array_equal(first.arrays[name], other.arrays[name]):
            continue
        ours, theirs = first.arrays[name], other.arrays[name]
        place = tuple(int(i) for i in np.argwhere(ours != theirs)[0])
        raise InputError(
            f"array {name} differs at {place}: {ours[place]!r} in {_label(first)}, "
            f"{theirs[place]!r} in {_label(other)}; these are not the same model"
        )


def _check_disjoint(
    starts: list[tuple[int, ...]], parts: list[Measurement], windows: dict[str, Any]
) -> None:
    taken = text_tokens(windows)
    for (document, offset, p), (next_document, next_offset, q) in pairwise(starts):
        if document == next_document and next_offset < offset + taken:
            raise InputError(
                f"windows overlap: document {document} offset {offset} in {_label(parts[p])}, "
                f"offset {next_offset} in {_label(parts[q])}, each of {taken} tokens; measure "
                "disjoint windows"
            )


def _combine(name: str, parts: list[Measurement], order: list[int]) -> NDArray[Any]:
    rule = _rule(name)
    if rule == "same":
        return parts[0].arrays[name]
    if rule == "windows":
        joined: NDArray[Any] = np.concatenate([part.arrays[name] for part in parts])[order]
        return joined
    total = parts[0].arrays[name].copy()
    for part in parts[1:]:
        total += part.arrays[name]
    return total


def _merge_manifests(manifests: list[dict[str, Any]], starts: list[list[int]]) -> dict[str, Any]:
    merged = dict(manifests[0])
    seeds = {manifest["windows"]["seed"] for manifest in manifests}
    merged["windows"] = {
        **merged["windows"],
        "starts": starts,
        "count": len(starts),
        "seed": seeds.pop() if len(seeds) == 1 else None,
    }
    merged["created"] = max(manifest["created"] for manifest in manifests)
    if any(manifest["command"] != merged["command"] for manifest in manifests):
        merged["command"] = None
    merged["preflight"] = _merge_preflight([manifest["preflight"] for manifest in manifests])
    runs = [manifest.get("run") for manifest in manifests]
    if any(run != runs[0] for run in runs):
        merged["run"] = {"parts": runs}
    return merged


def _merge_preflight(preflights: list[dict[str, Any]]) -> dict[str, Any]:
    """Keep the worst value of each check: the largest, against the smallest tolerance."""
    merged = {}
    for name in sorted({name for preflight in preflights for name in preflight}):
        checks = [preflight[name] for preflight in preflights if name in preflight]
        merged[name] = {
            "passed": all(check["passed"] for check in checks),
            "value": max((c["value"] for c in checks if c["value"] is not None), default=None),
            "tolerance": min(
                (c["tolerance"] for c in checks if c["tolerance"] is not None), default=None
            ),
        }
    return merged


def _rule(name: str) -> str:
    spec = array_spec(name)
    return spec.merge if spec is not None else "windows"


def _label(measurement: Measurement) -> str:
    if measurement.path is not None:
        return str(measurement.path)
    return f"the measurement of {measurement.windows} windows made in memory"
