"""The document: whole, self-contained, escaped, and saying what was measured."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import synthetic_measurement
from report_pages import Document, measurement_of, outside_addresses, saved

from posbias.errors import ArtifactError, InputError, OutputExistsError
from posbias.measurement import Measurement
from posbias.predict import predict
from posbias.report import render_report, write_report
from posbias.report.page import embed_json

FIGURES = {"profiles", "mixing", "kernels", "depth"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("report")


@pytest.fixture(scope="module")
def short(folder: Path) -> Path:
    return saved(synthetic_measurement.make(), folder / "short")


@pytest.fixture(scope="module")
def long(folder: Path) -> Path:
    return saved(measurement_of(600), folder / "long")


@pytest.fixture(scope="module")
def page(short: Path) -> Document:
    return Document(render_report([short]))


def check_structure(document: Document) -> None:
    assert document.unbalanced == []
    assert document.open == []
    ids = document.ids()
    assert len(ids) == len(set(ids))
    for _, attributes in document.elements:
        for name in ("aria-labelledby", "aria-describedby"):
            assert set(attributes.get(name, "").split()) <= set(ids)
        if attributes.get("href", "").startswith("#"):
            assert attributes["href"][1:] in ids
    assert len(document.all("h1")) == 1
    assert all("scope" in cell for cell in document.all("th"))
    assert outside_addresses(document) == []


def test_page_is_whole_and_needs_nothing_else(page: Document) -> None:
    check_structure(page)
    policy = next(m for m in page.all("meta") if "http-equiv" in m)
    assert policy["content"].startswith("default-src 'none'")
    assert {m["data-figure"] for m in page.all("div") if "data-figure" in m} == FIGURES
    assert all(m["data-description"] for m in page.all("div") if "data-figure" in m)


def test_page_says_what_was_measured(page: Document) -> None:
    text = page.visible()
    for words in ("example/tiny", "text.txt", "ab" * 32, "12,345", "identity"):
        assert words in text
    assert "arXiv 2602.16837" in text
    assert "no command is recorded" in text
    assert "1,000 bootstrap resamples" in text
    assert "✓ passed" in text


def test_table_has_one_row_per_profile(page: Document, short: Path) -> None:
    names = ["measured", *predict(short)]
    assert list(page.data()["profiles"]["panels"][0]["series"]) == names
    rows = [text for tag, text in page.texts if tag == "th"]
    assert [name for name in rows if name in names] == names


def test_data_are_the_profiles(page: Document, short: Path) -> None:
    measured = Measurement.open(short).influence()
    panel = page.data()["profiles"]["panels"][0]
    assert panel["edges"] == list(range(9))
    assert panel["series"]["measured"] == pytest.approx(measured.mass * 8, rel=1e-4)
    depth = page.data()["depth"]["series"]["residual+content"]
    profile = predict(short)["residual+content"]
    assert depth["profiles"][-1] == pytest.approx(profile.mass * 8, rel=1e-3)
    assert depth["first"][-1] == pytest.approx(profile.mass[0], rel=1e-4)
    assert depth["profiles"][0] == [0.0] * 7 + [8.0]


def test_long_profiles_are_binned_and_their_ends_are_not(long: Path) -> None:
    document = Document(render_report([long]))
    check_structure(document)
    whole, first, last = document.data()["profiles"]["panels"]
    measured = Measurement.open(long).influence().mass
    assert len(whole["edges"]) == 513
    widths = np.diff(whole["edges"])
    assert np.array(whole["series"]["measured"]) @ widths / 600 == pytest.approx(1.0, abs=1e-4)
    assert first["series"]["measured"] == pytest.approx(measured[:64] * 600, rel=1e-4)
    assert last["edges"][-1] == 600
    assert last["series"]["measured"] == pytest.approx(measured[-64:] * 600, rel=1e-4)
    low, high = (np.array(last["band"][key]) for key in ("low", "high"))
    assert (low <= high).all()


def test_report_without_measured_influence(folder: Path) -> None:
    manifest, arrays = synthetic_measurement.make_parts(alibi=False)
    manifest["influence_method"] = None
    del arrays["influence.gradient.windows"]
    path = saved(Measurement(manifest, arrays), folder / "silent")
    document = Document(render_report([path]))
    check_structure(document)
    assert "Influence was not measured" in document.visible()
    assert "Rank correlation" not in document.visible()
    first = next(iter(document.data()["profiles"]["panels"][0]["series"]))
    assert first == "residual+measured"
    assert "rotary positions act inside content; not separable" in document.visible()


def test_report_of_one_window_states_no_interval(folder: Path) -> None:
    path = saved(synthetic_measurement.make([[0, 0]]), folder / "one")
    document = Document(render_report([path]))
    check_structure(document)
    assert "band" not in document.data()["profiles"]["panels"][0]
    assert not any(
        "interval" in text and "to" in text
        for tag, text in document.texts
        if tag == "p" and text.startswith("Per token")
    )


def test_further_methods_of_influence_stand_beside_the_main_one(folder: Path, short: Path) -> None:
    manifest, arrays = synthetic_measurement.make_parts()
    rng = np.random.default_rng(5)
    arrays["influence.occlusion.windows"] = rng.uniform(0.0, 1.0, (4, 8))
    manifest["influence_method"] = "occlusion"
    path = saved(Measurement(manifest, arrays), folder / "methods")
    document = Document(render_report([path]))
    check_structure(document)
    series = document.data()["profiles"]["panels"][0]["series"]
    assert list(series)[:3] == ["measured", "measured by gradient", "attention-only"]
    expected = Measurement.open(short).influence("gradient").mass
    assert series["measured by gradient"] == pytest.approx(expected * 8, rel=1e-4)
    text = document.visible()
    assert "Influence by occlusion is the change of the distribution" in text
    assert "Influence by gradient is the size of the gradient" in text
    comparison = Document(render_report([short, path])).visible()
    assert "different measures of influence" in comparison


def hostile(manifest: dict[str, Any]) -> None:
    manifest["model"]["id"] = "</script><script>alert(1)</script>"
    manifest["text"]["source"] = '"><img src=x onerror=alert(2)>'
    manifest["command"] = ["posbias", "run", "a b", "</pre><b>"]


def test_names_from_a_measurement_are_only_text(folder: Path) -> None:
    manifest, arrays = synthetic_measurement.make_parts()
    hostile(manifest)
    path = saved(Measurement(manifest, arrays), folder / "hostile")
    other = saved(synthetic_measurement.make([[1, 0], [1, 8]]), folder / "other")
    for sources in ([path], [path, other]):
        document = Document(render_report(sources))
        check_structure(document)
        assert len(document.all("script")) == 2
        assert document.all("img") == []
        assert "alert(1)" in document.visible()
        assert "posbias run 'a b' '</pre><b>'" in document.visible()


def test_embedded_json_cannot_end_its_element() -> None:
    text = embed_json({"name": "</script><!--&amp;\u2028"})
    assert not set("<>&\u2028") & set(text)


def test_comparison_of_lengths(short: Path, long: Path) -> None:
    document = Document(render_report([short, long]))
    check_structure(document)
    data = document.data()
    assert [m["label"] for m in data["measurements"]] == [
        "example/tiny, 8 tokens",
        "example/tiny, 600 tokens",
    ]
    assert data["kinds"][0] == "measured"
    for measurement in data["measurements"]:
        widths = np.diff(measurement["edges"])
        for values in measurement["series"].values():
            total = np.array(values) @ widths / measurement["n"]
            assert total == pytest.approx(1.0, abs=1e-3)
    assert "W1 between the profiles" in document.visible()


def test_measurements_that_look_alike_are_told_apart_by_folder(short: Path, folder: Path) -> None:
    twin = saved(synthetic_measurement.make([[1, 0], [1, 8]]), folder / "twin")
    document = Document(render_report([short, twin]))
    assert [m["label"] for m in document.data()["measurements"]] == [
        f"example/tiny ({short})",
        f"example/tiny ({twin})",
    ]


def test_report_goes_into_the_directory_of_the_run(short: Path, tmp_path: Path) -> None:
    Measurement.open(short).save(tmp_path / "run" / "measurement")
    written = write_report(tmp_path / "run")
    assert written == tmp_path / "run" / "report.html"
    before = written.read_text(encoding="utf-8")
    with pytest.raises(OutputExistsError, match="exists already"):
        write_report([tmp_path / "run"])
    write_report([tmp_path / "run"], overwrite=True, estimator="frobenius")
    assert "--estimator frobenius" in written.read_text(encoding="utf-8")
    assert "--estimator frobenius" not in before


def test_wrong_sources(short: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="does not exist"):
        render_report([tmp_path / "none"])
    with pytest.raises(InputError, match="is a file"):
        render_report([short / "manifest.json"])
    with pytest.raises(InputError, match="given twice"):
        render_report([short, short / "."])
    with pytest.raises(InputError, match="no measurement"):
        render_report([])
    with pytest.raises(ArtifactError):
        render_report([tmp_path])


def test_sizes_of_long_and_deep_models_stay_small(long: Path) -> None:
    assert len(render_report([long])) < 1_000_000
