"""posbias.load: every kind of file gives its object, everything else one clear line."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import synthetic_measurement

import posbias
from posbias.compare import Comparison
from posbias.errors import ArtifactError, InputError, ProfileError, SpecError
from posbias.profile_files import write_csv, write_json
from posbias.spec import Spec, save_spec

PROFILES = posbias.ProfileSet(
    {
        "measured": posbias.Profile([0.5, 0.2, 0.3], stderr=[0.1, 0.0, 0.1]),
        "uniform": posbias.Profile([1 / 3] * 3),
    }
)
SPEC = Spec("mine", 4, 3, [{"heads": [{}]}], {"type": "constant", "value": 0.4})


@pytest.mark.parametrize("place", ["measurement", "."])
def test_measurement_or_run(place: str, tmp_path: Path) -> None:
    made = synthetic_measurement.make()
    made.save(tmp_path / "run" / "measurement")
    opened = posbias.load(tmp_path / "run" / place)
    assert isinstance(opened, posbias.Measurement)
    assert opened.manifest == made.manifest


def test_profiles(tmp_path: Path) -> None:
    write_csv(PROFILES, tmp_path / "p.csv")
    write_json(PROFILES, tmp_path / "p.json")
    for name in ("p.csv", "p.json"):
        opened = posbias.load(tmp_path / name)
        assert isinstance(opened, posbias.ProfileSet)
        assert all(np.array_equal(opened[k].mass, PROFILES[k].mass) for k in PROFILES)


@pytest.mark.parametrize("name", ["s.yaml", "s.json", "s.yml"])
def test_specs(name: str, tmp_path: Path) -> None:
    save_spec(SPEC, tmp_path / name)
    assert posbias.load(str(tmp_path / name)) == SPEC


def test_config_of_a_model(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "bloom", "n_layer": 3, "n_head": 2}')
    opened = posbias.load(tmp_path / "config.json")
    assert isinstance(opened, Spec)
    assert opened.depth == 3
    with pytest.raises(InputError, match=r"is a model; measure it"):
        posbias.load(tmp_path)


def test_published_config(published_dir: Path) -> None:
    opened = posbias.load(published_dir / "no_content_bloom.yaml")
    assert isinstance(opened, Spec)
    assert opened.depth == 70


def saved_comparison(folder: Path) -> tuple[Comparison, dict[str, Any]]:
    made = posbias.compare(PROFILES["measured"], {"uniform": PROFILES["uniform"]})
    made.write_json(folder / "c.json")
    return made, json.loads((folder / "c.json").read_text())


def test_comparison(tmp_path: Path) -> None:
    made, document = saved_comparison(tmp_path)
    opened = posbias.load(tmp_path / "c.json")
    assert isinstance(opened, Comparison)
    assert opened.as_dict() == made.as_dict() == document
    assert math.isnan(opened["uniform"].spearman)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"n": 1}, "n 1; a number of positions"),
        ({"n": True}, "n True"),
        ({"rows": {}}, "'rows' must be a list"),
        ({"estimator": 3}, "'estimator' a name or null"),
        ({"measured": None}, "measured is no row"),
        ({"rows": [{"variant": "x"}]}, r"rows\[0\] is no row of a comparison; exactly"),
    ],
)
def test_damaged_comparison(change: dict[str, Any], message: str, tmp_path: Path) -> None:
    _, document = saved_comparison(tmp_path)
    (tmp_path / "d.json").write_text(json.dumps({**document, **change}))
    with pytest.raises(InputError, match=message):
        posbias.load(tmp_path / "d.json")


@pytest.mark.parametrize(
    ("key", "value"),
    [("w1", "0.1"), ("w1", None), ("variant", 1), ("is_u_shaped", 1), ("js", True)],
)
def test_comparison_with_a_value_of_another_type(key: str, value: Any, tmp_path: Path) -> None:
    _, document = saved_comparison(tmp_path)
    document["rows"][0][key] = value
    (tmp_path / "d.json").write_text(json.dumps(document))
    with pytest.raises(InputError, match=rf"rows\[0\] has {key} "):
        posbias.load(tmp_path / "d.json")


def test_table_of_a_comparison_names_the_json(tmp_path: Path) -> None:
    made, _ = saved_comparison(tmp_path)
    made.write_csv(tmp_path / "c.csv")
    with pytest.raises(InputError, match=r"table of a comparison; load the \.json"):
        posbias.load(tmp_path / "c.csv")


@pytest.mark.parametrize("bad", ["", None, 3, b""])
def test_no_path(bad: Any) -> None:
    with pytest.raises(InputError, match="the path to load is"):
        posbias.load(bad)


def test_nothing_that_posbias_reads(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="does not exist"):
        posbias.load(tmp_path / "nowhere")
    with pytest.raises(InputError, match="directory without a measurement"):
        posbias.load(tmp_path)
    (tmp_path / "x.json").write_text("[1, 2]")
    with pytest.raises(SpecError, match="this is no spec"):
        posbias.load(tmp_path / "x.json")
    (tmp_path / "x.csv").write_text("a,b\n1,2\n")
    with pytest.raises(ProfileError, match="is no profile CSV"):
        posbias.load(tmp_path / "x.csv")
    (tmp_path / "y.json").write_text("{")
    with pytest.raises(SpecError, match="not valid JSON"):
        posbias.load(tmp_path / "y.json")
    (tmp_path / "z.bin").write_bytes(b"\xff\x00")
    with pytest.raises(SpecError, match="no UTF-8 text"):
        posbias.load(tmp_path / "z.bin")


def test_damaged_measurement(tmp_path: Path) -> None:
    synthetic_measurement.make().save(tmp_path / "m")
    (tmp_path / "m" / "arrays.safetensors").write_bytes(b"")
    with pytest.raises(ArtifactError):
        posbias.load(tmp_path / "m")


@pytest.mark.parametrize("name", ["report.html", "figure.png"])
def test_pages_and_pictures_are_told_from_data(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(b"\x89PNG\x00")
    with pytest.raises(InputError, match=r"page or a picture.*a measurement directory"):
        posbias.load(tmp_path / name)


def test_a_manifest_names_its_directory(tmp_path: Path) -> None:
    synthetic_measurement.make().save(tmp_path / "m")
    with pytest.raises(InputError, match=r"load its directory, .*m$"):
        posbias.load(tmp_path / "m" / "manifest.json")
