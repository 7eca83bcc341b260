"""Tables of a measurement, and what happens without pandas and xarray."""

from __future__ import annotations

import importlib
import json
import sys

import numpy as np
import pytest
from synthetic_measurement import HEADS, LAYERS, LENGTH, make, make_parts

from posbias.errors import InputError
from posbias.measurement import Measurement


@pytest.fixture(scope="module")
def measurement() -> Measurement:
    return make()


def test_mixing_has_a_line_per_layer(measurement: Measurement) -> None:
    frame = measurement.to_pandas("mixing").set_index("layer")
    assert list(frame.index) == [1, 2, 3]
    assert frame.loc[2, "norm"] == measurement.mixing()[1]
    assert frame.loc[3, "frobenius_std"] == measurement.mixing_std("frobenius")[2]


def test_content_has_a_line_per_layer_and_head(measurement: Measurement) -> None:
    frame = measurement.to_pandas("content").set_index(["layer", "head"])
    assert len(frame) == LAYERS * HEADS
    assert frame.loc[(2, 1), "d"] == measurement.content()[1, 1]
    assert frame.loc[(2, 1), "d_std"] == measurement.content_std()[1, 1]
    assert frame.loc[(3, 1), "position_slopes"] == 0.25
    explained = measurement.arrays["content.explained.windows"][:, 0, 1].mean()
    assert frame.loc[(1, 1), "content_explained"] == pytest.approx(explained)


def test_influence_in_long_and_wide_form(measurement: Measurement) -> None:
    profile = measurement.influence()
    long = measurement.to_pandas("influence")
    assert list(long["method"].unique()) == ["gradient"]
    assert np.array_equal(long["mass"], profile.mass)
    assert np.array_equal(long["stderr"], profile.stderr)  # type: ignore[arg-type]
    wide = measurement.to_pandas("profiles")
    assert list(wide.columns) == ["position", "gradient"]
    assert np.array_equal(wide["gradient"], profile.mass)
    assert make([[0, 0]]).to_pandas("influence")["stderr"].isna().all()


def test_windows_have_a_line_each(measurement: Measurement) -> None:
    frame = measurement.to_pandas("windows")
    assert frame[["document", "offset"]].to_numpy().tolist() == [[0, 0], [0, 8], [0, 16], [2, 5]]
    tokens = measurement.arrays["mixing.norm.windows"]
    assert frame["mixing_norm"][1] == pytest.approx(tokens[1].mean())


@pytest.mark.parametrize("table", ["influence", "profiles"])
def test_tables_of_influence_that_was_not_measured(table: str) -> None:
    manifest, arrays = make_parts()
    manifest["influence_method"] = None
    del arrays["influence.gradient.windows"]
    with pytest.raises(InputError, match="no measured influence"):
        Measurement(manifest, arrays).to_pandas(table)


def test_unknown_tables(measurement: Measurement) -> None:
    with pytest.raises(InputError, match="table 'heads' is unknown"):
        measurement.to_pandas("heads")


def test_the_dataset_holds_every_array_with_its_unit(measurement: Measurement) -> None:
    dataset = measurement.to_xarray()
    assert dict(dataset.sizes) == {
        "window": 4,
        "layer": LAYERS,
        "position": LENGTH,
        "key": LENGTH,
        "head": HEADS,
    }
    assert set(dataset.data_vars) == set(measurement.arrays)
    kernel = dataset["kernel.attention.sum"]
    assert kernel.dims == ("layer", "position", "key")
    assert float(kernel.sel(layer=2)[3, 1]) == kernel.to_numpy()[1, 3, 1]
    assert dataset["content.lower.windows"].attrs["unit"] == "logit"
    assert list(dataset["document"].to_numpy()) == [0, 0, 0, 2]
    assert json.loads(dataset.attrs["manifest"]) == measurement.manifest


@pytest.mark.parametrize("library", ["pandas", "xarray"])
def test_missing_libraries_are_named(
    measurement: Measurement, library: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    importlib.import_module(library)
    monkeypatch.setitem(sys.modules, library, None)
    convert = {"pandas": lambda: measurement.to_pandas("mixing"), "xarray": measurement.to_xarray}
    with pytest.raises(InputError, match=rf"{library} is not installed.*posbias\[frames\]"):
        convert[library]()
