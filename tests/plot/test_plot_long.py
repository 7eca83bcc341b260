"""Long profiles and profiles of several lengths: bins keep the mass, and the labels say so."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib.figure import Figure

from posbias.errors import ProfileError
from posbias.plot import (
    COLUMN_WIDTH,
    LINE_STYLES,
    PAGE_WIDTH,
    plot_profiles,
    plot_relative,
    profiles_figure,
    relative_figure,
    window_band,
)
from posbias.plot._bins import LONGEST_WITHOUT_BINS, bins_of
from posbias.profile import Profile

LONG = 3000


def random_profile(n: int, seed: int = 0) -> Profile:
    return Profile(np.random.default_rng(seed).dirichlet(np.full(n, 0.5)))


@given(st.integers(2, 40_000))
def test_bins_cover_every_position_once_and_stay_few(n: int) -> None:
    bins = bins_of(n)
    assert bins.edges[0] == 0
    assert bins.edges[-1] == bins.n == n
    assert (bins.widths >= 1).all()
    assert bins.widths.size <= LONGEST_WITHOUT_BINS
    assert (bins.widths == bins.widths[::-1]).all() or n > LONGEST_WITHOUT_BINS
    if bins.end:
        assert {bins.end, n - bins.end} <= set(bins.edges.tolist())


@given(st.integers(2, 9000), st.integers(0, 9))
def test_bins_keep_the_mass(n: int, seed: int) -> None:
    mass, bins = random_profile(n, seed).mass, bins_of(n)
    means = bins.means(mass)
    assert (means * bins.widths).sum() == pytest.approx(1.0, rel=1e-12)
    for b in (0, means.size // 2, means.size - 1):
        positions = range(int(bins.edges[b]), int(bins.edges[b + 1]))
        assert means[b] == pytest.approx(sum(mass[j] for j in positions) / len(positions))
        assert bins.centres[b] == pytest.approx(np.mean(positions))


def test_drawn_line_of_a_long_profile_has_its_mass() -> None:
    profile = random_profile(LONG)
    ax = plot_profiles({"residual": profile})
    (line,) = ax.lines
    widths = bins_of(LONG).widths
    assert (line.get_ydata() * widths).sum() == pytest.approx(1.0, rel=1e-12)
    assert (line.get_xdata() * widths).sum() == pytest.approx(LONG * (LONG - 1) / 2)
    assert ax.get_xlabel() == "position (means over 9, ends singly)"


def test_both_ends_of_a_long_profile_keep_single_positions() -> None:
    """A spike on token 0 or on the last token must not be averaged away."""
    mass = np.full(LONG, 0.2 / (LONG - 2))
    mass[0], mass[-1] = 0.3, 0.5
    (line,) = plot_profiles({"residual": Profile(mass)}).lines
    assert (line.get_ydata()[0], line.get_ydata()[-1]) == (0.3, 0.5)


def test_short_profiles_are_not_binned() -> None:
    assert plot_profiles({"a": random_profile(LONGEST_WITHOUT_BINS)}).get_xlabel() == "position"
    bins = bins_of(LONGEST_WITHOUT_BINS)
    assert (bins.widths == 1).all()


def test_long_band_is_that_of_the_binned_shares() -> None:
    profile = random_profile(LONG)
    windows = np.random.default_rng(1).random((7, LONG)) + 0.1
    (band,) = plot_profiles({"measured": profile}, windows=windows).collections
    bins = bins_of(LONG)
    binned = np.array(
        [
            [row[a:b].sum() / row.sum() for a, b in zip(bins.edges, bins.edges[1:], strict=False)]
            for row in windows
        ]
    )
    low, high = window_band(binned)
    vertices = band.get_paths()[0].vertices[:, 1]
    assert vertices.min() == pytest.approx((low / bins.widths).min())
    assert vertices.max() == pytest.approx((high / bins.widths).max())


@pytest.mark.parametrize("width", [COLUMN_WIDTH, PAGE_WIDTH])
def test_three_panels_show_the_ends_and_what_lies_between(width: float) -> None:
    profiles = {"residual": random_profile(LONG), "uniform": Profile(np.full(LONG, 1 / LONG))}
    figure = profiles_figure(profiles, title="long", width=width)
    left, middle, right = figure.axes
    titles = [ax.get_title(loc="center") for ax in figure.axes]
    assert titles == ["first 2 %", "between", "last 2 %"]
    assert left.get_xlim()[1] == middle.get_xlim()[0] == 59.5
    assert middle.get_xlim()[1] == right.get_xlim()[0] == LONG - 60.5
    assert right.get_xlim()[1] > LONG - 1
    assert left.get_ylim() == middle.get_ylim() == right.get_ylim()
    assert "means over 9" in middle.get_xlabel()
    assert all(len(ax.lines) == 2 for ax in figure.axes)
    assert len(figure.legends) == 1


def test_short_profiles_have_one_panel() -> None:
    figure = profiles_figure({"residual": random_profile(300)}, title="short")
    (ax,) = figure.axes
    assert ax.get_title(loc="left") == "short"


@settings(max_examples=12)
@given(st.lists(st.integers(2, 2000), min_size=1, max_size=4, unique=True))
def test_area_under_every_relative_curve_is_one(lengths: list[int]) -> None:
    profiles = {str(n): random_profile(n) for n in lengths}
    ax = plot_relative(profiles, Figure().add_subplot())
    assert len(ax.patches) == len(lengths)
    for patch, profile in zip(ax.patches, profiles.values(), strict=True):
        heights, edges, _ = patch.get_data()
        assert (heights * np.diff(edges)).sum() == pytest.approx(1.0, rel=1e-12)
        assert (edges[0], edges[-1]) == (0.0, 1.0)
        assert (
            heights[0] == pytest.approx(profile.n * profile.mass[0], rel=1e-12) or profile.n > 512
        )


def test_relative_label_says_when_it_averages() -> None:
    short = plot_relative({"a": random_profile(100)})
    assert short.get_xlabel() == "position / length"
    long = plot_relative({"a": random_profile(LONG), "b": random_profile(100)})
    assert long.get_xlabel() == "position / length; means over up to 9, ends finer"


def test_ordered_curves_get_lighter_and_others_differ_in_colour_and_dashes() -> None:
    profiles = {f"m{k}": random_profile(20, k) for k in range(8)}
    ordered = plot_relative(profiles, Figure().add_subplot(), ordered=True)
    # Luma of the edge colour, ITU-R BT.601.
    luma = [np.dot(p.get_edgecolor()[:3], [0.299, 0.587, 0.114]) for p in ordered.patches]
    assert (np.diff(luma) > 0).all()
    assert max(luma) < 0.8
    others = plot_relative(profiles, Figure().add_subplot())
    looks = {(p.get_edgecolor(), str(p.get_linestyle())) for p in others.patches}
    assert len(looks) == len(profiles)


def test_relative_figure_enlarges_the_ends() -> None:
    profiles = {"a": random_profile(200), "b": random_profile(LONG)}
    left, middle, right = relative_figure(profiles, labels={"a": "A"}).axes
    assert left.get_xlim()[1] == middle.get_xlim()[0] == pytest.approx(0.02)
    assert middle.get_xlim()[1] == right.get_xlim()[0] == pytest.approx(0.98)
    assert [text.get_text() for text in left.figure.legends[0].get_texts()] == ["A", "b"]
    assert len(relative_figure({"a": random_profile(99)}).axes) == 1


def test_fixed_looks_of_variants_are_kept_in_the_panels() -> None:
    figure = profiles_figure({"residual": random_profile(LONG)})
    assert {ax.lines[0].get_color() for ax in figure.axes} == {LINE_STYLES["residual"].color}


@pytest.mark.parametrize("draw", [profiles_figure, relative_figure, plot_relative])
def test_nothing_to_draw_is_refused(draw) -> None:
    with pytest.raises(ProfileError, match="at least one"):
        draw({})
