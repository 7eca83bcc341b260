"""Data frames of profiles and comparisons, and what notebooks show."""

from __future__ import annotations

import colorsys
import io
import re
import sys
from xml.etree import ElementTree

import numpy as np
import pandas as pd
import pytest
import synthetic_measurement
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from posbias import Comparison, Measurement, Profile, ProfileSet, compare
from posbias.errors import InputError, ProfileError
from posbias.notebook import curves
from posbias.palette import TINTS
from posbias.profile_files import to_csv

EVIL = "<script>alert('x')</script> & \"q\""


@pytest.fixture
def measurement() -> Measurement:
    return synthetic_measurement.make()


@pytest.fixture
def comparison() -> Comparison:
    measured = Profile([0.5, 0.2, 0.3], name="measured")
    return compare(measured, {"uniform": Profile([1 / 3] * 3), EVIL: Profile([0.2, 0.2, 0.6])})


def test_frame_of_a_profile() -> None:
    frame = Profile([0.5, 0.2, 0.3]).to_pandas()
    assert list(frame.columns) == ["position", "mass"]
    assert frame["mass"].tolist() == [0.5, 0.2, 0.3]
    with_error = Profile([0.5, 0.5], stderr=[0.1, 0.2]).to_pandas()
    assert with_error["stderr"].tolist() == [0.1, 0.2]


def test_frame_of_a_set_is_its_csv() -> None:
    profiles = ProfileSet({"a": Profile([0.1, 0.9]), "b+c": Profile([0.25, 0.75])})
    frame = profiles.to_pandas()
    pd.testing.assert_frame_equal(frame, pd.read_csv(io.StringIO(to_csv(profiles))))
    with pytest.raises(ProfileError, match="named 'position'"):
        ProfileSet({"position": Profile([0.5, 0.5])}).to_pandas()


def test_frame_of_a_comparison_is_its_csv(
    comparison: Comparison, capsys: pytest.CaptureFixture[str]
) -> None:
    comparison.write_csv("-")
    written = pd.read_csv(io.StringIO(capsys.readouterr().out))
    pd.testing.assert_frame_equal(comparison.to_pandas(), written)


def test_changing_a_frame_leaves_the_profile_alone() -> None:
    profile = Profile([0.5, 0.5])
    frame = profile.to_pandas()
    frame.loc[0, "mass"] = 7.0
    assert profile.mass.tolist() == [0.5, 0.5]


def test_pandas_is_optional(comparison: Comparison, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    profile = Profile([0.5, 0.5])
    for result in (profile, ProfileSet({"p": profile}), comparison):
        with pytest.raises(InputError, match=r"pandas is not installed.*posbias\[frames\]"):
            result.to_pandas()


def parsed(page: str) -> ElementTree.Element:
    """Parse the HTML, which is written as well-formed XML but for the DOCTYPE."""
    return ElementTree.fromstring(page)


def shown_by(result: object) -> str:
    page: str = result._repr_html_()  # type: ignore[attr-defined]
    root = parsed(page)
    tags = {element.tag for element in root.iter()}
    assert not tags & {"script", "link", "img", "iframe", "style"}
    assert not re.search(r"(?:href|src|url\()", page)
    assert len(page) < 60_000
    return " ".join(root.itertext())


def test_measurement_is_shown(measurement: Measurement) -> None:
    text = shown_by(measurement)
    assert measurement.manifest["model"]["id"] in text
    for value in measurement.mixing():
        assert f"{value:.4f}" in text


def test_comparison_is_shown_with_its_names_escaped(comparison: Comparison) -> None:
    text = shown_by(comparison)
    assert EVIL in text
    assert "<script" not in comparison._repr_html_()
    assert f"{comparison['uniform'].w1:.4f}" in text


def test_profiles_are_shown_with_their_names_escaped() -> None:
    profile = Profile([0.5, 0.2, 0.3], name=EVIL, quantity="<b>")
    for result in (profile, ProfileSet({EVIL: profile, "b": Profile([1.0, 0.0, 0.0])})):
        assert EVIL in shown_by(result)
        assert "<script" not in result._repr_html_()


def heights(page: str) -> list[float]:
    """Return the heights above the base line of the first curve, as a share of the figure."""
    points = next(e for e in parsed(f"<div>{page}</div>").iter("polyline")).attrib["points"]
    return [156.0 - float(point.split(",")[1]) for point in points.split()]


@given(hnp.arrays(float, st.integers(2, 900), elements=st.floats(0.01, 1.0)))
def test_a_curve_keeps_the_mass(scores: np.ndarray) -> None:
    mass = scores / scores.sum()
    drawn = np.array(heights(curves({"p": mass})))
    bins = min(mass.size, 240)
    assert drawn.size == bins
    # The height is the square root of the multiple of the fair share, 148 pixels at the largest.
    means = np.array([part.mean() for part in np.array_split(mass * mass.size, bins)])
    expected = 148.0 * np.sqrt(means / max(1.0, means.max()))
    assert np.abs(drawn - expected).max() <= 0.051


def test_many_curves_differ_in_colour_or_dashes() -> None:
    page = curves({f"p{i}": np.array([0.5, 0.5]) for i in range(14)})
    styles = re.findall(r'<polyline[^>]*stroke="([^"]+)" stroke-dasharray="([^"]*)"', page)
    assert len(set(styles)) == 14


def test_a_flat_profile_shows_no_trough_and_marks_stand_behind_the_names() -> None:
    peaked = Profile([0.5, 0.1, 0.4], name="near", origin={"recommended": True})
    found = compare(
        Profile([0.5, 0.2, 0.3], name="measured"),
        {"near": peaked, "uniform": Profile([1 / 3, 1 / 3, 1 / 3])},
    )
    cells = [cell.text for cell in parsed(found._repr_html_()).iter("td")]
    near, uniform = cells.index("near *"), cells.index("uniform")
    assert (cells[near + 6], cells[uniform + 6]) == ("1", "-")
    assert found.shown("uniform", "trough_position") == "-"
    assert "recommended by a rule" in shown_by(found)


def test_curves_have_the_colours_of_their_variants_and_only_measured_that_of_the_text() -> None:
    flat = np.array([0.5, 0.5])
    names = ["attention-only", "mine", *(name for name in TINTS if name != "attention-only")]
    page = curves(dict.fromkeys(names, flat))
    styles = re.findall(r'<polyline[^>]*stroke="([^"]+)" stroke-dasharray="([^"]*)"', page)
    assert len(set(styles)) == len(names)
    colours = dict(zip(names, (colour for colour, _ in styles), strict=True))
    assert [name for name in names if colours[name] == "currentColor"] == ["measured"]
    assert all(colours[name] == TINTS[name].either for name in TINTS)


def test_a_variant_has_one_hue_everywhere() -> None:
    for name, tint in TINTS.items():
        if name not in {"measured", "uniform"}:
            hues = [hue(c) for c in (tint.figure, tint.light, tint.dark, tint.either)]
            assert max(hues) - min(hues) < 20, name


def hue(colour: str) -> float:
    """Return the angle on the colour wheel in degrees."""
    red, green, blue = (int(colour[k : k + 2], 16) / 255 for k in (1, 3, 5))
    return 360.0 * colorsys.rgb_to_hsv(red, green, blue)[0]
