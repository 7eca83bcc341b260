"""Merging: any partition of the windows gives the single run again."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from synthetic_measurement import Arrays, make, make_parts

from posbias.errors import InputError
from posbias.measurement import Measurement, merge

STARTS = [[0, 0], [0, 8], [0, 30], [1, 3], [4, 0], [4, 9], [7, 2]]


def same(first: Measurement, second: Measurement) -> bool:
    return first.manifest == second.manifest and all(
        np.array_equal(first.arrays[name], second.arrays[name])
        for name in {*first.arrays, *second.arrays}
    )


@given(
    labels=st.lists(st.integers(0, 3), min_size=len(STARTS), max_size=len(STARTS)),
    order=st.permutations(range(4)),
)
def test_any_partition_in_any_order_is_the_single_run(labels: list[int], order: list[int]) -> None:
    groups = [[s for s, label in zip(STARTS, labels, strict=True) if label == g] for g in order]
    merged = merge([make(group) for group in groups if group])
    assert same(merged, make(STARTS))


@given(order=st.permutations(range(3)))
def test_inexact_sums_agree_to_rounding_and_do_not_depend_on_the_order(order: list[int]) -> None:
    parts = []
    for group in (STARTS[:1], STARTS[1:4], STARTS[4:]):
        manifest, arrays = make_parts(group)
        arrays["logits.lag.sum"] = arrays["logits.lag.sum"] / 3.0
        parts.append(Measurement(manifest, arrays))
    total = merge([parts[k] for k in order]).arrays["logits.lag.sum"]
    assert np.array_equal(total, merge(parts).arrays["logits.lag.sum"])
    single = make(STARTS).arrays["logits.lag.sum"] / 3.0
    assert np.allclose(total, single, rtol=0, atol=1e-13)


def test_merging_in_two_steps_is_merging_in_one() -> None:
    a, b, c = (make([STARTS[k], STARTS[k + 3]]) for k in range(3))
    assert same(merge([merge([c, a]), b]), merge([a, b, c]))


def test_one_measurement_is_itself() -> None:
    assert same(merge([make()]), make())


def test_stored_measurements_merge(tmp_path: Path) -> None:
    paths = [make([start]).save(tmp_path / str(k)) for k, start in enumerate(STARTS)]
    merged = merge([Measurement.open(path) for path in reversed(paths)])
    assert same(merged, make(STARTS))
    assert merged.path is None


def test_provenance_of_the_parts_is_kept_where_it_agrees() -> None:
    manifest, arrays = make_parts([[0, 0]])
    manifest["windows"]["seed"] = 7
    manifest["created"] = "2026-05-05T00:00:00+00:00"
    manifest["command"] = ["posbias", "measure"]
    manifest["run"] = {"device": "cuda"}
    manifest["preflight"] = {
        "identity": {"passed": False, "value": 3e-4, "tolerance": 1e-5},
        "rows": {"passed": True, "value": None, "tolerance": None},
    }
    merged = merge([make([[1, 0]]), Measurement(manifest, arrays)]).manifest
    assert merged["windows"]["seed"] is None
    assert merged["command"] is None
    assert merged["created"] == "2026-05-05T00:00:00+00:00"
    assert merged["run"] == {"parts": [{"device": "cuda"}, {"device": "cpu"}]}
    assert merged["preflight"] == {
        "identity": {"passed": False, "value": 3e-4, "tolerance": 1e-5},
        "rows": {"passed": True, "value": None, "tolerance": None},
    }


def test_nothing_to_merge() -> None:
    with pytest.raises(InputError, match="at least one"):
        merge([])


def with_slope(manifest: dict[str, Any], arrays: Arrays) -> None:
    arrays["position.slopes"][2, 1] = 0.75


@pytest.mark.parametrize(
    ("change", "fragments"),
    [
        (lambda m, a: m["model"].update(id="other"), ["model.id", "'example/tiny'", "'other'"]),
        (lambda m, a: m["model"].update(dtype="bfloat16"), ["'float32'", "'bfloat16'"]),
        (lambda m, a: m["model"].update(revision="abc"), ["model.revision", "None", "'abc'"]),
        (lambda m, a: m["text"].update(sha256="cd" * 32), ["text.sha256", "abab", "cdcd"]),
        (lambda m, a: m["windows"].update(first_token_is_bos=True), ["False", "True"]),
        (lambda m, a: m["windows"].update(packed=True), ["windows.packed", "nothing", "True"]),
        (lambda m, a: m["libraries"].update(torch="1"), ["libraries", "'torch': '1'"]),
        (lambda m, a: m.update(posbias_version="9"), ["posbias_version", "'0.1.0'", "'9'"]),
        (with_slope, ["position.slopes", "(2, 1)", "0.25", "0.75"]),
        (lambda m, a: a.pop("content.explained.windows"), ["content.explained.windows"]),
    ],
)
def test_other_settings_are_refused_with_both_values(
    change: Callable[[dict[str, Any], Arrays], Any], fragments: list[str]
) -> None:
    manifest, arrays = make_parts([[1, 0]])
    change(manifest, arrays)
    for parts in ([make([[0, 0]]), Measurement(manifest, arrays)],) * 2:
        with pytest.raises(InputError) as caught:
            merge(parts)
        assert all(fragment in str(caught.value) for fragment in fragments)
        parts.reverse()


@pytest.mark.parametrize("start", [[0, 8], [0, 1], [0, 15]])
def test_overlapping_windows_are_refused(start: list[int]) -> None:
    with pytest.raises(InputError, match="windows overlap: document 0 offset"):
        merge([make([[0, 8], [3, 0]]), make([start])])


def test_the_message_names_stored_parts(tmp_path: Path) -> None:
    path = make([[0, 0]]).save(tmp_path / "part")
    with pytest.raises(InputError, match="part") as caught:
        merge([Measurement.open(path), make([[0, 0]])])
    assert "made in memory" in str(caught.value)
