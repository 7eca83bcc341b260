"""Measurements on disk: round trips, and every kind of damage."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file
from synthetic_measurement import make

from posbias.errors import ArtifactError, OutputExistsError
from posbias.measurement import Measurement, is_measurement, open_measurement


@pytest.fixture
def stored(tmp_path: Path) -> Path:
    return make().save(tmp_path / "m")


def edit(folder: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    file = folder / "manifest.json"
    manifest = json.loads(file.read_text())
    change(manifest)
    if isinstance(manifest, dict) and "manifest_sha256" in manifest:
        del manifest["manifest_sha256"]
        text = json.dumps(manifest, sort_keys=True, separators=(",", ":"))
        manifest["manifest_sha256"] = hashlib.sha256(text.encode()).hexdigest()
    file.write_text(json.dumps(manifest))


def rewrite_arrays(folder: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    """Change the arrays and make the manifest fit again, as a forger would."""
    file = folder / "arrays.safetensors"
    arrays = load_file(file)
    change(arrays)
    save_file(arrays, file)
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    edit(folder, lambda m: m.update(arrays_sha256=digest))


def refused(folder: Path) -> str:
    with pytest.raises(ArtifactError) as caught:
        Measurement.open(folder)
    message = str(caught.value)
    assert message.startswith(str(folder))
    assert "\n" not in message
    return message


def test_what_is_saved_is_opened(stored: Path) -> None:
    original, opened = make(), open_measurement(stored)
    assert opened.manifest == original.manifest
    assert set(opened.arrays) == set(original.arrays)
    for name, array in original.arrays.items():
        assert np.array_equal(opened.arrays[name], array)
        assert opened.arrays[name].dtype == array.dtype
        assert not opened.arrays[name].flags.writeable
    assert opened.path == stored
    assert opened.sha256 == hashlib.sha256((stored / "arrays.safetensors").read_bytes()).hexdigest()
    assert opened.influence().origin["source"] == str(stored)


def test_saving_twice_gives_the_same_bytes(stored: Path, tmp_path: Path) -> None:
    again = Measurement.open(stored).save(tmp_path / "again")
    for name in ("manifest.json", "arrays.safetensors"):
        assert (again / name).read_bytes() == (stored / name).read_bytes()


def test_arrays_are_read_when_used_and_kept(stored: Path) -> None:
    opened = Measurement.open(str(stored))
    assert "mixing.norm.windows" in opened.arrays
    assert "nothing" not in opened.arrays
    assert opened.arrays["mixing.norm.windows"] is opened.arrays["mixing.norm.windows"]
    with pytest.raises(KeyError):
        opened.arrays["nothing"]


def test_replacing_the_directory_leaves_open_measurements_alone(stored: Path) -> None:
    opened = Measurement.open(stored)
    make([[0, 0]]).save(stored, overwrite=True)
    assert opened.arrays["mixing.norm.windows"].shape[0] == 4
    assert Measurement.open(stored).windows == 1


def test_a_measurement_can_replace_itself(stored: Path) -> None:
    Measurement.open(stored).save(stored, overwrite=True)
    assert Measurement.open(stored).windows == 4


def test_nothing_is_overwritten_unasked(stored: Path) -> None:
    with pytest.raises(OutputExistsError):
        make([[0, 0]]).save(stored)
    assert Measurement.open(stored).windows == 4


def test_folders_of_others_are_never_replaced(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").write_text("years of work")
    with pytest.raises(OutputExistsError):
        make().save(tmp_path / "mine", overwrite=True)
    assert (tmp_path / "mine" / "thesis.tex").read_text() == "years of work"


def test_a_measurement_with_a_foreign_file_is_not_replaced(stored: Path) -> None:
    (stored / "notes.txt").write_text("mine")
    with pytest.raises(OutputExistsError):
        make().save(stored, overwrite=True)
    assert (stored / "notes.txt").exists()


def test_a_failed_save_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("posbias.measurement.store._sha256", fail)
    with pytest.raises(KeyboardInterrupt):
        make().save(tmp_path / "m")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("mask", [0o022, 0o077, 0o002])
def test_every_file_follows_the_umask(tmp_path: Path, mask: int) -> None:
    before = os.umask(mask)
    try:
        folder = make().save(tmp_path / "m")
    finally:
        os.umask(before)
    assert folder.stat().st_mode & 0o777 == 0o777 & ~mask
    for file in folder.iterdir():
        assert file.stat().st_mode & 0o777 == 0o666 & ~mask, file.name


def test_a_foreign_report_blocks_overwriting_and_is_named(stored: Path) -> None:
    (stored / "report.html").write_text("<html>a page of my own</html>")
    with pytest.raises(OutputExistsError, match=r"also holds report\.html, which posbias did not"):
        make().save(stored, overwrite=True)
    assert (stored / "report.html").read_text() == "<html>a page of my own</html>"


def test_is_measurement(stored: Path, tmp_path: Path) -> None:
    assert is_measurement(stored)
    assert not is_measurement(tmp_path)


@pytest.mark.parametrize(
    "change",
    [
        lambda m: m["model"]["layer_windows"].__setitem__(0, 2),
        lambda m: m["windows"].update(seed=7),
        lambda m: m["model"].update(dtype="float64"),
        lambda m: m.update(manifest_sha256="0" * 64),
        lambda m: m.update(manifest_sha256=None),
    ],
)
def test_an_edit_that_leaves_the_manifest_consistent_is_noticed(
    stored: Path, change: Callable[[dict[str, Any]], Any]
) -> None:
    file = stored / "manifest.json"
    manifest = json.loads(file.read_text())
    change(manifest)
    file.write_text(json.dumps(manifest))
    assert "manifest.json was edited" in refused(stored)


def test_the_manifest_may_be_laid_out_anew(stored: Path) -> None:
    file = stored / "manifest.json"
    manifest = json.loads(file.read_text())
    file.write_text(json.dumps(dict(reversed(manifest.items())), indent=4))
    assert Measurement.open(stored).manifest == make().manifest


def test_missing_paths(tmp_path: Path, stored: Path) -> None:
    assert "no such directory" in refused(tmp_path / "nowhere")
    assert "is a file" in refused(stored / "manifest.json")
    (stored / "arrays.safetensors").unlink()
    assert "arrays.safetensors is missing" in refused(stored)
    (stored / "manifest.json").unlink()
    assert "manifest.json is missing" in refused(stored)


@pytest.mark.parametrize("keep", [0.0, 0.3, 0.99])
@pytest.mark.parametrize("name", ["manifest.json", "arrays.safetensors"])
def test_truncation(stored: Path, name: str, keep: float) -> None:
    data = (stored / name).read_bytes()
    (stored / name).write_bytes(data[: int(keep * len(data))])
    assert "truncated" in refused(stored)


@pytest.mark.parametrize("text", [b"\xff\xfe", b"[1]", b"3", b"[" * 100_000])
def test_manifests_that_are_no_object(stored: Path, text: bytes) -> None:
    (stored / "manifest.json").write_bytes(text)
    assert "manifest.json" in refused(stored)


def test_one_flipped_bit(stored: Path) -> None:
    file = stored / "arrays.safetensors"
    data = bytearray(file.read_bytes())
    data[-5] ^= 1
    file.write_bytes(data)
    assert "SHA-256" in refused(stored)


@pytest.mark.parametrize(
    ("change", "fragment"),
    [
        (lambda m: m.update(version=2), "format version 2"),
        (lambda m: m.update(format="x"), "not a measurement of posbias"),
        (lambda m: m.pop("format"), "not a measurement of posbias"),
        (lambda m: m.pop("arrays"), "no key arrays"),
        (lambda m: m.pop("arrays_sha256"), "no key arrays_sha256"),
        (lambda m: m.pop("manifest_sha256"), "no key manifest_sha256"),
        (lambda m: m.update(arrays=[]), "wrong types"),
        (lambda m: m.update(arrays_sha256=3), "wrong types"),
        (lambda m: m["model"].update(layers=4), "layer_windows"),
        (lambda m: m["model"].update(heads=3), "has shape"),
        (lambda m: m["arrays"].pop("next.probability.windows"), "is missing"),
        (lambda m: m["arrays"].pop("content.explained.windows"), "does not list"),
        (lambda m: m["arrays"].update({"content.first.windows": {}}), "the file lacks"),
        (lambda m: m["arrays"].update({"other": {}}), "not part of the schema"),
        (lambda m: m["arrays"]["logits.lag.count"].update(dtype="int8"), "the manifest says"),
    ],
)
def test_edited_manifests(
    stored: Path, change: Callable[[dict[str, Any]], Any], fragment: str
) -> None:
    edit(stored, change)
    assert fragment in refused(stored)


def test_arrays_that_are_no_safetensors_file(stored: Path) -> None:
    file = stored / "arrays.safetensors"
    file.write_bytes(b"not a header")
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    edit(stored, lambda m: m.update(arrays_sha256=digest))
    assert "not a safetensors file" in refused(stored)


def test_extra_and_missing_arrays_in_the_file(stored: Path) -> None:
    rewrite_arrays(stored, lambda a: a.update(extra=np.zeros(2)))
    assert "does not list array extra" in refused(stored)
    rewrite_arrays(stored, lambda a: (a.pop("extra"), a.pop("mixing.norm.windows")))
    assert "the file lacks array mixing.norm.windows" in refused(stored)


def test_another_type_in_the_file(stored: Path) -> None:
    name = "mixing.norm.windows"
    rewrite_arrays(stored, lambda a: a.update({name: a[name].astype(np.float32)}))
    assert "type F32" in refused(stored)


def test_forged_values_are_found_when_they_are_used(stored: Path) -> None:
    rewrite_arrays(stored, lambda a: a["mixing.norm.windows"].fill(2.0))
    opened = Measurement.open(stored)
    with pytest.raises(ArtifactError, match=r"arrays\.safetensors: array mixing\.norm\.windows"):
        opened.mixing()


def test_unreadable_files(stored: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> str:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "read_text", refuse)
    assert "Permission denied" in refused(stored)
