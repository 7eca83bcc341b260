"""Comparisons: the published figures, naive distances, files, and what is refused."""

from __future__ import annotations

import csv
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from synthetic_measurement import LENGTH, make, make_parts

from posbias.compare import Comparison, ComparisonRow, compare
from posbias.errors import InputError, OutputExistsError, ProfileError, SpecError
from posbias.measurement import Measurement
from posbias.predict import VARIANTS, predict
from posbias.profile import Profile, ProfileSet
from posbias.profile_files import write_csv, write_json
from posbias.spec import Spec, save_spec

MASS = [0.4, 0.1, 0.05, 0.15, 0.3]


@pytest.fixture
def measured() -> Profile:
    return Profile(MASS, name="measured")


@pytest.fixture
def predicted() -> Profile:
    return Profile([0.1, 0.2, 0.15, 0.25, 0.3], name="residual")


def test_the_published_curves_are_as_far_apart_as_the_paper_shows(published_dir: Path) -> None:
    result = compare(
        published_dir / "bloom-176b_fineweb-edu_256_profiles.csv",
        [
            published_dir / "no_content_bloom-noresidual.yaml",
            published_dir / "no_content_bloom.yaml",
            published_dir / "all_content_fineweb-edu_bloom.yaml",
        ],
    )
    found = [(r.variant, round(r.w1, 4), round(r.spearman, 3)) for r in result.rows]
    assert found == [
        ("attention-only", 0.6511, -0.575),
        ("residual", 0.0790, 0.907),
        ("residual+content", 0.0159, 0.831),
    ]
    assert result.best.variant == "residual+content"


def test_the_uniform_baseline_of_the_published_curve(published_dir: Path) -> None:
    file = published_dir / "bloom-176b_fineweb-edu_256_profiles.csv"
    uniform = predict(published_dir / "no_content_bloom.yaml", variants=["uniform"])
    row = compare(file, uniform, column="measured")["uniform"]
    assert round(row.w1, 4) == 0.1516
    assert math.isnan(row.spearman)


def test_distances_written_out(measured: Profile, predicted: Profile) -> None:
    row = compare(measured, predicted)["residual"]
    p, q = predicted.mass, measured.mass
    assert row.w1 == pytest.approx(sum(abs(sum((p - q)[: k + 1])) for k in range(4)) / 4)
    assert row.tv == pytest.approx(sum(abs(p - q)) / 2)
    halves = [
        x * math.log(2 * x / (x + y)) + y * math.log(2 * y / (x + y))
        for x, y in zip(p, q, strict=True)
    ]
    assert row.js == pytest.approx(sum(halves) / 2)
    ranks = np.argsort(np.argsort(p)), np.argsort(np.argsort(q))
    assert row.spearman == pytest.approx(np.corrcoef(*ranks)[0, 1])
    assert (row.primacy, row.recency) == (0.1, 0.3)
    assert row.mean_position == pytest.approx(sum(j * p[j] for j in range(5)))


def test_the_measured_profile_has_a_row_of_its_own(measured: Profile, predicted: Profile) -> None:
    result = compare(measured, predicted)
    own = result.measured
    assert (own.variant, own.w1, own.js, own.tv) == ("measured", 0.0, 0.0, 0.0)
    assert own.spearman == pytest.approx(1.0)
    assert (own.primacy, own.trough_position, own.is_u_shaped) == (0.4, 2, True)
    assert result.n == 5
    assert [row["variant"] for row in result.to_rows()] == ["residual"]
    assert compare(Profile(MASS), predicted).measured.variant == "measured"


def test_a_measurement_against_all_its_variants(tmp_path: Path) -> None:
    direct = compare(make(alibi=False), predict(make(alibi=False)))
    assert {*VARIANTS} - {row.variant for row in direct.rows} == {
        *("energy-rollout", "paper+mlp", "paper")
    }
    assert direct.recommended == "residual+measured"
    folder = make(alibi=False).save(tmp_path / "m")
    stored = compare(folder, folder)
    assert [row.w1 for row in stored.rows] == [row.w1 for row in direct.rows]
    assert direct.measured.mean_position == pytest.approx(
        float(np.arange(LENGTH) @ make().influence().mass)
    )


def test_predictions_in_many_forms(measured: Profile, predicted: Profile, tmp_path: Path) -> None:
    write_csv(predicted, tmp_path / "single.csv")
    write_json({"a": predicted, "measured": measured}, tmp_path / "both.json")
    write_csv({"measured": measured, "x": measured}, tmp_path / "pair.csv")
    write_csv({"measured": measured, "y": predicted}, tmp_path / "pair2.csv")
    write_json(measured, tmp_path / "only.json")
    forms: list[tuple[Any, list[str]]] = [
        (predicted, ["residual"]),
        (Profile(MASS), ["predicted"]),
        ({"b": predicted, "a": measured}, ["b", "a"]),
        (ProfileSet({"p": predicted}), ["p"]),
        (tmp_path / "single.csv", ["single"]),
        (str(tmp_path / "both.json"), ["a"]),
        (tmp_path / "only.json", ["measured"]),
        ([tmp_path / "pair.csv", str(tmp_path / "pair2.csv")], ["x", "y"]),
    ]
    for form, names in forms:
        assert [row.variant for row in compare(measured, form).rows] == names


def test_shared_names_are_told_apart_by_their_files(tmp_path: Path) -> None:
    for name, slope in (("steep", 1.0), ("flat", 0.1)):
        spec = Spec(name, 5, 2, ({"alibi": {"slopes": [slope]}},)).with_mixing(0.3)
        save_spec(spec, tmp_path / f"{name}.json")
    paths = [tmp_path / "steep.json", tmp_path / "flat.json"]
    names = [row.variant for row in compare(Profile(MASS), paths).rows]
    assert names == ["residual (steep.json)", "residual (flat.json)"]
    with pytest.raises(ProfileError, match="a second time"):
        compare(Profile(MASS), [paths[0], paths[0]])


def test_the_measured_column_of_a_file(predicted: Profile, tmp_path: Path) -> None:
    file = tmp_path / "curves.csv"
    write_csv({"first": Profile(MASS), "second": predicted}, file)
    assert compare(file, predicted, column="second").rows[0].w1 == 0.0
    assert compare(file, predicted, column="second").measured.variant == "second"
    with pytest.raises(
        ProfileError, match="no profile 'measured', it has first, second; choose one"
    ):
        compare(file, predicted)
    with pytest.raises(ProfileError, match="no profile 'third'"):
        compare(file, predicted, column="third")
    write_csv(predicted, tmp_path / "single.csv")
    assert compare(tmp_path / "single.csv", predicted).rows[0].w1 == 0.0


def test_a_column_belongs_to_a_file(measured: Profile, tmp_path: Path) -> None:
    folder = make().save(tmp_path / "m")
    for reference in (measured, make(), folder):
        with pytest.raises(InputError, match="files of profiles only"):
            compare(reference, measured, column="measured")


def test_lengths_are_never_trimmed(measured: Profile) -> None:
    with pytest.raises(ProfileError, match=r"'a' has 4 positions.*has 5; predict with n=5"):
        compare(measured, {"a": Profile([0.25] * 4)})


@pytest.mark.parametrize("wrong", [3, [Profile(MASS)], [3], {"a": MASS}, None])
def test_wrong_predictions(measured: Profile, wrong: Any) -> None:
    with pytest.raises(InputError):
        compare(measured, wrong)


@pytest.mark.parametrize("empty", [{}, []])
def test_no_predictions(measured: Profile, empty: Any) -> None:
    with pytest.raises(ProfileError, match="at least one"):
        compare(measured, empty)


def test_wrong_measured_profiles(measured: Profile, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="measured profile is a list"):
        compare(MASS, measured)  # type: ignore[arg-type]
    with pytest.raises(ProfileError, match="cannot read"):
        compare(tmp_path / "nothing.csv", measured)
    manifest, arrays = make_parts()
    manifest["influence_method"] = None
    del arrays["influence.gradient.windows"]
    with pytest.raises(InputError, match="no measured influence"):
        compare(Measurement(manifest, arrays), measured)


def test_damaged_json_is_refused_as_a_spec(measured: Profile, tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text("{")
    with pytest.raises(SpecError, match="JSON"):
        compare(measured, tmp_path / "x.json")


def with_uniform(measured: Profile, predicted: Profile) -> Comparison:
    return compare(measured, {"uniform": Profile([0.2] * 5), "residual": predicted})


def test_csv_files_hold_all_digits_and_empty_cells(
    measured: Profile, predicted: Profile, tmp_path: Path
) -> None:
    result = with_uniform(measured, predicted)
    result.write_csv(tmp_path / "c.csv")
    rows = list(csv.DictReader((tmp_path / "c.csv").read_text().splitlines()))
    assert [row["variant"] for row in rows] == ["measured", "uniform", "residual"]
    assert list(rows[0]) == list(ComparisonRow.__dataclass_fields__)
    assert rows[1]["spearman"] == ""
    assert float(rows[2]["w1"]) == result["residual"].w1
    with pytest.raises(OutputExistsError):
        result.write_csv(tmp_path / "c.csv")
    result.write_csv(tmp_path / "c.csv", overwrite=True)


def test_json_files_hold_null_for_undefined_correlations(
    measured: Profile, predicted: Profile, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    result = with_uniform(measured, predicted)
    result.write_json(tmp_path / "c.json")
    document = json.loads((tmp_path / "c.json").read_text())
    assert document == result.as_dict()
    assert document["rows"][0]["spearman"] is None
    assert document["measured"]["variant"] == "measured"
    with pytest.raises(OutputExistsError):
        result.write_json(tmp_path / "c.json")
    result.write_json("-")
    assert json.loads(capsys.readouterr().out) == document


def test_rows_by_name(measured: Profile, predicted: Profile) -> None:
    result = with_uniform(measured, predicted)
    assert result["uniform"] is result.rows[0]
    with pytest.raises(KeyError):
        result["measured"]
