"""What the constructor of a measurement refuses, key by key and array by array."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
from synthetic_measurement import LENGTH, make, make_parts

from posbias.errors import ArtifactError
from posbias.measurement import Measurement
from posbias.measurement.schema import ARRAYS, MANIFEST, array_spec, influence_array

DELETE = object()


def set_key(manifest: dict[str, Any], path: str, value: Any) -> None:
    *groups, last = path.split(".")
    for group in groups:
        manifest = manifest[group]
    if value is DELETE:
        del manifest[last]
    else:
        manifest[last] = value


def refused(manifest: Any, arrays: Any) -> str:
    with pytest.raises(ArtifactError) as caught:
        Measurement(manifest, arrays)
    message = str(caught.value)
    assert "\n" not in message
    return message


@pytest.mark.parametrize("path", [p for p, spec in MANIFEST.items() if spec.required])
def test_every_required_key_is_missed(path: str) -> None:
    manifest, arrays = make_parts()
    set_key(manifest, path, DELETE)
    assert path in refused(manifest, arrays)


@pytest.mark.parametrize("path", list(MANIFEST))
@pytest.mark.parametrize("value", [-1, 1.5, [[1]], ""], ids=str)
def test_values_of_a_wrong_kind_are_refused(path: str, value: Any) -> None:
    manifest, arrays = make_parts()
    set_key(manifest, path, value)
    assert path in refused(manifest, arrays)


@pytest.mark.parametrize("path", list(MANIFEST))
def test_null_is_accepted_exactly_where_the_schema_says(path: str) -> None:
    manifest, arrays = make_parts()
    set_key(manifest, path, None)
    if MANIFEST[path].nullable:
        assert Measurement(manifest, arrays).n == LENGTH
    else:
        assert path in refused(manifest, arrays)


@pytest.mark.parametrize(
    ("path", "value", "fragment"),
    [
        ("model.layres", 3, "did you mean model.layers"),
        ("seconds", 3, "belong under run"),
        ("format", "other", "not a measurement"),
        ("version", 2, "reads version 1"),
        ("version", True, "reads version 1"),
        ("created", "yesterday", "ISO 8601"),
        ("created", "2026-01-02T03:04:05", "UTC"),
        ("created", "2026-01-02T03:04:05+02:00", "UTC"),
        ("text.sha256", "AB" * 32, "hexadecimal"),
        ("model.position_scheme", {"type": "spiral"}, "alibi"),
        ("model.layers", 4, "layer_windows has 3 entries"),
        ("model.layer_windows", [None, 0, None], "sliding window"),
        ("windows.length", 1, "at least 2"),
        ("windows.count", 3, "one per window"),
        ("windows.starts", [[0, 0], [0, 16], [0, 8], [2, 5]], "ascend"),
        ("windows.starts", [[0, 0], [0, 0], [0, 8], [2, 5]], "ascend"),
        ("windows.starts", [[0, 0], [0, 7], [0, 16], [2, 5]], "overlap"),
        ("windows.starts", [[0, 0], [0], [0, 16], [2, 5]], "starts"),
        ("libraries", {"torch": "2"}, "transformers"),
        ("command", ["posbias", 3], "argument list"),
        ("preflight", {"x": {"passed": 1, "value": 0, "tolerance": 0}}, "passed"),
        ("preflight", {"x": {"passed": True}}, "tolerance"),
        ("run", {"seconds": float("nan")}, "JSON"),
        ("run", {"seconds": np.float64(1.0), "x": {1, 2}}, "JSON"),
    ],
)
def test_inconsistent_manifests_are_refused(path: str, value: Any, fragment: str) -> None:
    manifest, arrays = make_parts()
    set_key(manifest, path, value)
    assert fragment in refused(manifest, arrays)


@pytest.mark.parametrize("manifest", [None, [], "x"])
def test_a_manifest_is_a_mapping(manifest: Any) -> None:
    assert "JSON object" in refused(manifest, make_parts()[1])


def test_a_start_token_makes_windows_take_one_token_less() -> None:
    manifest, arrays = make_parts()
    manifest["windows"].update(first_token_is_bos=True, starts=[[0, 0], [0, 7], [0, 14], [2, 5]])
    assert Measurement(manifest, arrays).windows == 4


def test_two_special_tokens_make_windows_take_two_tokens_less() -> None:
    manifest, arrays = make_parts()
    manifest["windows"].update(first_token_is_bos=True, starts=[[0, 0], [0, 6], [0, 12], [2, 5]])
    assert "overlap" in refused(manifest, arrays)
    manifest["windows"].update(prefix=2, packed=True)
    assert Measurement(manifest, arrays).windows == 4


@pytest.mark.parametrize(
    "name", [n for n, s in ARRAYS.items() if s.required] + [influence_array("gradient")]
)
def test_every_required_array_is_missed(name: str) -> None:
    manifest, arrays = make_parts()
    del arrays[name]
    assert f"array {name} is missing" in refused(manifest, arrays)


@pytest.mark.parametrize("name", sorted(make_parts()[1]))
def test_no_array_may_be_of_another_type_shape_or_not_finite(name: str) -> None:
    manifest, arrays = make_parts()
    other = "int32" if arrays[name].dtype.kind == "i" else "float32"
    assert "type" in refused(manifest, {**arrays, name: arrays[name].astype(other)})
    assert "shape" in refused(manifest, {**arrays, name: arrays[name][..., :-1].copy()})
    assert "NumPy" in refused(manifest, {**arrays, name: arrays[name].tolist()})
    if arrays[name].dtype.kind == "f":
        for value in (np.nan, np.inf, -np.inf):
            damaged = arrays[name].copy()
            damaged.flat[-1] = value
            message = refused(manifest, {**arrays, name: damaged})
            assert name in message
            assert "1 such entries" in message


@pytest.mark.parametrize("name", sorted(n for n in make_parts()[1] if array_spec(n).low == 0.0))  # type: ignore[union-attr]
def test_negative_entries_are_refused_where_none_can_be(name: str) -> None:
    manifest, arrays = make_parts()
    arrays[name] = arrays[name].copy()
    arrays[name].flat[0] = -1
    assert "[0, " in refused(manifest, arrays)


@pytest.mark.parametrize("name", sorted(n for n in make_parts()[1] if array_spec(n).high == 1.0))  # type: ignore[union-attr]
def test_shares_above_one_are_refused(name: str) -> None:
    manifest, arrays = make_parts()
    arrays[name] = arrays[name].copy()
    arrays[name].flat[0] = 1.0 + 1e-12
    assert "[0, 1]" in refused(manifest, arrays)


def test_unknown_arrays_are_refused() -> None:
    manifest, arrays = make_parts()
    extra = {**arrays, "mixing.norms.windows": np.zeros(3)}
    assert "did you mean mixing.norm.windows" in refused(manifest, extra)


def test_slopes_belong_to_alibi_and_alibi_needs_slopes() -> None:
    manifest, arrays = make_parts(alibi=True)
    other = copy.deepcopy(manifest)
    other["model"]["position_scheme"]["type"] = "rotary"
    assert "belong to alibi" in refused(other, arrays)
    del arrays["position.slopes"]
    assert "position.slopes is missing" in refused(manifest, arrays)


@pytest.mark.parametrize("name", ["logits.lag.sum", "logits.lag.count"])
def test_lag_sums_and_counts_come_together(name: str) -> None:
    manifest, arrays = make_parts()
    del arrays[name]
    assert f"{name} is missing" in refused(manifest, arrays)


def test_lag_sums_without_pairs_are_refused() -> None:
    manifest, arrays = make_parts(layer_windows=[None, 3, None])
    arrays["logits.lag.sum"][1, 0, 5] = 1.0
    assert "(1, 0, 5)" in refused(manifest, arrays)


def test_kernels_must_be_causal_windowed_and_stochastic() -> None:
    manifest, arrays = make_parts(layer_windows=[None, 3, None])
    for index, fragment in [
        ((0, 2, 3), "above the diagonal"),
        ((1, 7, 0), "sliding window of 3"),
        ((2, 4, 4), "row 4 sums to"),
    ]:
        damaged = arrays["kernel.attention.sum"].copy()
        damaged[index] += 0.1
        assert fragment in refused(manifest, {**arrays, "kernel.attention.sum": damaged})


def test_influence_that_is_zero_everywhere_is_refused() -> None:
    manifest, arrays = make_parts()
    arrays["influence.gradient.windows"][:] = 0.0
    assert "zero everywhere" in refused(manifest, arrays)


def test_arrays_are_read_only_and_the_manifest_is_a_copy() -> None:
    measurement = make()
    with pytest.raises(ValueError, match="read-only"):
        measurement.arrays["mixing.norm.windows"][0, 0, 0] = 0.5
    measurement.manifest["model"]["id"] = "other"
    assert measurement.manifest["model"]["id"] == "example/tiny"


@pytest.mark.parametrize(
    ("name", "exists"),
    [
        ("influence.gradient.windows", True),
        ("influence.gradient-x-input.windows", True),
        ("influence.Gradient.windows", False),
        ("influence..windows", False),
        ("influence.a b.windows", False),
        ("influence.gradient", False),
        ("gradient.windows", False),
        ("gradient", False),
    ],
)
def test_names_of_influence_arrays(name: str, exists: bool) -> None:
    assert (array_spec(name) is not None) == exists
