from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from posbias.errors import OutputExistsError, ProfileError
from posbias.profile import Profile, ProfileSet
from posbias.profile_files import read_profiles, to_csv, to_json, write_csv, write_json

NAMES = st.text(st.characters(categories=["L", "N", "P", "S"]), min_size=1, max_size=8)


@st.composite
def profile_sets(draw: st.DrawFn) -> ProfileSet:
    n = draw(st.integers(2, 6))
    names = draw(st.lists(NAMES, min_size=2, max_size=4, unique=True))
    raw = arrays(np.float64, n, elements=st.floats(1e-9, 1.0, allow_subnormal=False))
    return ProfileSet({name: Profile.from_scores(draw(raw), name=name) for name in names})


def file_with(folder: Path, text: str, name: str = "p.csv") -> Path:
    path = folder / name
    path.write_bytes(text.encode())
    return path


# --- round trips --------------------------------------------------------------------------------


@pytest.mark.parametrize(("write", "ending"), [(write_csv, "csv"), (write_json, "JSON")])
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(profiles=profile_sets())
def test_round_trip_keeps_names_order_and_every_bit(
    tmp_path: Path, write: Callable[..., None], ending: str, profiles: ProfileSet
) -> None:
    path = tmp_path / f"p.{ending}"
    write(profiles, path, overwrite=True)
    again = read_profiles(path)
    assert list(again) == list(profiles)
    for name, profile in profiles.items():
        assert again[name].mass.tobytes() == profile.mass.tobytes()
        assert again[name].name == name


def test_json_keeps_errors_quantity_and_origin(tmp_path: Path) -> None:
    profile = Profile(
        [0.1, 0.9],
        stderr=[0.01, 1 / 3],
        quantity="gradient influence",
        name="measured",
        origin={"model": "toy", "windows": 8},
    )
    write_json(profile, tmp_path / "p.json")
    again = read_profiles(tmp_path / "p.json")["measured"]
    assert again.stderr is not None
    assert profile.stderr is not None
    assert again.stderr.tobytes() == profile.stderr.tobytes()
    assert (again.quantity, again.origin) == (profile.quantity, profile.origin)


def test_single_profile_has_the_column_mass_and_takes_the_name_of_the_file(tmp_path: Path) -> None:
    write_csv(Profile([0.25, 0.75], name="anything"), tmp_path / "bloom.csv")
    assert (tmp_path / "bloom.csv").read_text() == "position,mass\n0,0.25\n1,0.75\n"
    assert list(read_profiles(tmp_path / "bloom.csv")) == ["bloom"]
    write_csv({"only": Profile([0.25, 0.75])}, tmp_path / "one.csv")
    assert (tmp_path / "one.csv").read_text().startswith("position,mass\n")


def test_published_profiles_load(published_dir: Path) -> None:
    profiles = read_profiles(published_dir / "bloom-176b_fineweb-edu_256_profiles.csv")
    assert list(profiles) == ["no_residual", "residual", "residual_content", "measured"]
    assert profiles.n == 256
    assert profiles["measured"].mass[0] == 0.007547171
    for profile in profiles.values():
        assert profile.mass.sum() == pytest.approx(1.0, abs=4e-5)


def test_dash_is_standard_output(capsys: pytest.CaptureFixture[str]) -> None:
    profiles = {"a": Profile([0.5, 0.5]), "b": Profile([1.0, 0.0])}
    write_csv(profiles, "-")
    assert capsys.readouterr().out == "position,a,b\n0,0.5,1.0\n1,0.5,0.0\n"
    write_json(profiles, "-")
    document = json.loads(capsys.readouterr().out)
    assert (document["format"], document["version"]) == ("posbias.profiles", 1)
    assert [entry["mass"] for entry in document["profiles"]] == [[0.5, 0.5], [1.0, 0.0]]


@pytest.mark.parametrize("write", [write_csv, write_json])
def test_existing_files_are_refused(tmp_path: Path, write: Callable[..., None]) -> None:
    path = file_with(tmp_path, "precious")
    with pytest.raises(OutputExistsError):
        write(Profile([0.5, 0.5]), path)
    assert path.read_text() == "precious"


@pytest.mark.parametrize(
    "text",
    [
        "\ufeffposition,mass\n0,0.5\n1,0.5\n",
        "position,mass\r\n0,0.5\r\n1,0.5\r\n",
        "position,mass\r0,0.5\r1,0.5",
        "position,mass\n0,0.5\n1,0.5\n\n  \n,\n",
        ' position , mass \n0, 5e-1\n1 ,"+.5"\n',
    ],
)
def test_tolerated_forms(tmp_path: Path, text: str) -> None:
    assert read_profiles(file_with(tmp_path, text))["p"].mass.tolist() == [0.5, 0.5]


# --- bad files ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is no profile CSV"),
        ("position,mass\n0,1\n", "at least two lines"),
        ("pos,mass\n0,0.5\n1,0.5\n", "header 'position,mass'"),
        ("position\n0\n1\n", "at least one, all named"),
        ("position,a,\n0,0.5,\n1,0.5,\n", "all named"),
        ("position,a,a\n0,1,1\n1,0,0\n", "two columns 'a'"),
        ("position,a,b\n0,1,1\n1,0,-0.5\n", "line 3 column 'b' is '-0.5'"),
        ("position,a,b\n0,1,\n1,0,0\n", "line 2 column 'b' is empty"),
        ("position,a,b\n0,1,nan\n1,0,0\n", "line 2 column 'b' is 'nan'"),
        ("position,a\n0,inf\n1,0\n", "line 2 column 'a' is 'inf'"),
        ("position,a\n0,1e999\n1,0\n", "line 2 column 'a' is '1e999'"),
        ("position,a\n0,one\n1,0\n", "line 2 column 'a' is 'one'"),
        ("position,a\n0,1_0\n1,0\n", "line 2 column 'a' is '1_0'"),
        ("position,a\n0,1,0\n1,0\n", "line 2 has 3 cells; 2 are required"),
        ("position,a,b\n0,1\n1,0\n", "line 2 has 2 cells; 3 are required"),
        ("position,a\n0,0.5\n2,0.5\n", "line 3 has the position '2'; position 1 is required"),
        ("position,a\n1,0.5\n2,0.5\n", "line 2 has the position '1'; position 0"),
        ("position,a\n0,0.5\n0,0.5\n", "line 3 repeats position 0 or has it out of order"),
        ("position,a\n0,0.5\n\n1,0.5\n", "line 3 has the position ''"),
        ("position,a\n0.0,0.5\n1.0,0.5\n", "has the position '0.0'"),
        ("position,a\n0,0.5\n1,0.6\n", "sums to 1.1"),
        ('position,a\n0,"0.5\n1,0.5\n', "is no CSV"),
        ('position,"a\nb"\n0,0.5\n1,x\n', "line 4 column"),
    ],
)
def test_bad_csv_is_refused_with_its_place(tmp_path: Path, text: str, message: str) -> None:
    path = file_with(tmp_path, text)
    with pytest.raises(ProfileError, match=message) as caught:
        read_profiles(path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def json_with(**entry: object) -> str:
    profile = {"name": "a", "mass": [0.5, 0.5], **entry}
    return json.dumps({"format": "posbias.profiles", "version": 1, "profiles": [profile]})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "is no JSON"),
        ("[" * 100_000, "is no JSON"),
        ("[]", "'format': 'posbias.profiles' is required"),
        ('{"format": "posbias.profiles", "version": 2}', "has version 2"),
        ('{"format": "posbias.profiles", "version": true}', "has version True"),
        ('{"format": "posbias.profiles", "version": 1}', "lacks 'profiles'"),
        ('{"format": "posbias.profiles", "version": 1, "profiles": [3]}', r"profiles\[0\]"),
        (json_with(nmae="b"), "nmae"),
        (json_with(name=3), "has name 3; a text is required"),
        (json_with(origin=[]), "has origin"),
        (json_with(quantity=None), "has quantity None"),
        (json_with(mass=[[0.5], 0.5]), "profile 'a'"),
        (json_with(mass=["0.5", "0.5"]), "real numbers are required"),
        (json_with(mass=[float("nan"), 0.5]), "profile 'a': mass at position 0 is nan"),
        (json_with(stderr=[0.1]), "profile 'a'"),
    ],
)
def test_bad_json_is_refused(tmp_path: Path, text: str, message: str) -> None:
    path = file_with(tmp_path, text, "p.json")
    with pytest.raises(ProfileError, match=message) as caught:
        read_profiles(path)
    assert str(path) in str(caught.value)


def test_repeated_names_and_other_lengths_are_refused(tmp_path: Path) -> None:
    document = json.loads(json_with())
    document["profiles"] *= 2
    with pytest.raises(ProfileError, match="two profiles named 'a'"):
        read_profiles(file_with(tmp_path, json.dumps(document), "p.json"))
    document["profiles"][1] = {"name": "b", "mass": [0.5, 0.25, 0.25]}
    with pytest.raises(ProfileError, match="different lengths"):
        read_profiles(file_with(tmp_path, json.dumps(document), "p.json"))


def test_files_that_cannot_be_read_are_refused(tmp_path: Path) -> None:
    (tmp_path / "latin.csv").write_bytes(b"position,\xe9\n0,0.5\n1,0.5\n")
    for name in ("missing.csv", "latin.csv", "."):
        with pytest.raises(ProfileError, match=r"cannot read profiles|no UTF-8"):
            read_profiles(tmp_path / name)


@pytest.mark.parametrize("name", ["", " a", "a\n", "a\nb"])
def test_names_that_would_not_come_back_are_refused(name: str) -> None:
    with pytest.raises(ProfileError, match="cannot be a CSV column"):
        to_csv({"first": Profile([0.5, 0.5]), name: Profile([0.5, 0.5])})


@pytest.mark.parametrize("origin", [{"x": {1, 2}}, {"x": float("nan")}])
def test_origin_that_is_no_json_is_refused(origin: dict[str, object]) -> None:
    with pytest.raises(ProfileError, match="origin"):
        to_json(Profile([0.5, 0.5], origin=origin))
