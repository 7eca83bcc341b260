"""The lines on the axes are the data, and nothing touches global plotting state."""

from __future__ import annotations

import subprocess
import sys

import matplotlib
import numpy as np
import pytest
from matplotlib.figure import Figure

from posbias.errors import InputError, ProfileError
from posbias.plot import (
    COLUMN_WIDTH,
    LINE_STYLES,
    PAGE_WIDTH,
    comparison_figure,
    measurement_figure,
    plot_cumulative,
    plot_mixing,
    plot_profiles,
    window_band,
)
from posbias.profile import Profile

N = 40


def u_shaped(seed: int, n: int = N) -> Profile:
    rng = np.random.default_rng(seed)
    x = np.linspace(-1, 1, n)
    return Profile.from_scores(0.1 + x**4 + 0.05 * rng.random(n))


@pytest.fixture
def profiles() -> dict[str, Profile]:
    return {
        "measured": u_shaped(0),
        "attention-only": Profile(np.eye(N)[0]),
        "residual": u_shaped(1),
        "fixed-half": u_shaped(2),
    }


@pytest.fixture
def windows() -> np.ndarray:
    return np.random.default_rng(3).random((12, N)) + 0.1


def test_lines_are_the_profiles(profiles: dict[str, Profile]) -> None:
    ax = plot_profiles(profiles)
    assert len(ax.lines) == len(profiles)
    for line, profile in zip(ax.lines, profiles.values(), strict=True):
        assert np.array_equal(line.get_xdata(), np.arange(N))
        assert np.array_equal(line.get_ydata(), profile.mass)
    assert ax.get_yscale() == "log"


def test_the_view_shows_the_measured_curve_and_not_the_decades_below(
    profiles: dict[str, Profile],
) -> None:
    low, high = plot_profiles(profiles).get_ylim()
    assert low < profiles["measured"].mass.min()
    assert low > 1e-3 / N
    assert high >= 1.0


def test_legend_uses_the_shown_names_and_labels(profiles: dict[str, Profile]) -> None:
    ax = plot_profiles(profiles, labels={"residual": "with residual path"})
    texts = [text.get_text() for text in ax.figure.legends[0].get_texts()]
    assert texts == ["measured", "attention-only", "with residual path", "fixed 1/2"]


def test_every_variant_has_one_look_in_every_figure(profiles: dict[str, Profile]) -> None:
    for ax in (plot_profiles(profiles), plot_cumulative(profiles)):
        for line, name in zip(ax.lines, profiles, strict=True):
            assert line.get_color() == LINE_STYLES[name].color
            assert line.get_linewidth() == LINE_STYLES[name].width


def test_looks_differ_between_variants_and_between_unknown_names() -> None:
    names = [*LINE_STYLES, *(f"model {k}" for k in range(8))]
    ax = plot_profiles({name: u_shaped(0) for name in names})
    looks = {str((line.get_color(), line._unscaled_dash_pattern)) for line in ax.lines}
    assert len(looks) == len(names)


def test_a_source_named_after_its_variant_keeps_the_look_of_the_variant() -> None:
    names = ["residual (a.yaml)", "residual (b.yaml)"]
    first, second = plot_profiles({name: u_shaped(0) for name in names}).lines
    assert first.get_color() == LINE_STYLES["residual"].color
    assert (second.get_color(), second.get_linestyle()) != (
        first.get_color(),
        first.get_linestyle(),
    )


def test_band_is_the_percentiles_of_normalised_windows(windows: np.ndarray) -> None:
    low, high = window_band(windows)
    for j in range(N):
        shares = sorted(row[j] / sum(row) for row in windows)
        # Linear interpolation between order statistics, written out.
        for share, edge in ((0.16, low[j]), (0.84, high[j])):
            rank = share * (len(shares) - 1)
            k = int(rank)
            expected = shares[k] + (rank - k) * (shares[k + 1] - shares[k])
            assert edge == pytest.approx(expected, rel=1e-12)


def test_band_is_drawn_behind_the_curves(profiles: dict[str, Profile], windows: np.ndarray) -> None:
    ax = plot_profiles(profiles, windows=windows)
    (band,) = ax.collections
    low, high = window_band(windows)
    vertices = band.get_paths()[0].vertices[:, 1]
    assert np.isclose(vertices.min(), low.min())
    assert np.isclose(vertices.max(), high.max())
    assert band.get_zorder() < min(line.get_zorder() for line in ax.lines)


def test_cumulated_lines(profiles: dict[str, Profile]) -> None:
    ax = plot_cumulative(profiles)
    for line, profile in zip(ax.lines, profiles.values(), strict=True):
        assert np.allclose(
            line.get_ydata(), [profile.mass[: k + 1].sum() for k in range(N)], atol=1e-14
        )


def test_mixing_per_layer_with_its_spread() -> None:
    mixing, spread = np.array([0.6, 0.3, 0.2]), np.array([0.1, 0.05, 0.02])
    ax = plot_mixing(mixing, spread=spread)
    line = ax.lines[-1]
    assert np.array_equal(line.get_xdata(), [1, 2, 3])
    assert np.array_equal(line.get_ydata(), mixing)
    segments = ax.collections[0].get_segments()
    assert np.allclose([s[:, 1] for s in segments], np.c_[mixing - spread, mixing + spread])
    assert ax.get_ylim()[0] == 0.0
    assert ax.get_ylim()[1] >= 0.7
    assert 0 not in ax.get_xticks()


@pytest.mark.parametrize("depth", [1, 2, 8, 12, 70, 96, 126])
def test_layer_ticks_start_at_one_and_stay_few(depth: int) -> None:
    ticks = plot_mixing(np.full(depth, 0.2)).get_xticks()
    assert ticks[0] == 1
    assert ticks[-1] <= depth
    assert len(ticks) <= 9
    assert all(float(t).is_integer() for t in ticks)


@pytest.mark.parametrize("width", [COLUMN_WIDTH, PAGE_WIDTH])
def test_measurement_figure_has_profiles_and_mixing(
    profiles: dict[str, Profile], windows: np.ndarray, width: float
) -> None:
    figure = measurement_figure(profiles, [0.5, 0.2], windows=windows, title="tiny", width=width)
    left, right = figure.axes
    assert [len(left.lines), len(right.lines)] == [4, 2]
    assert left.get_title(loc="left") == "tiny"
    assert figure.get_figwidth() == width
    assert len(figure.legends) == 1


def test_comparison_figure_names_the_distances(profiles: dict[str, Profile]) -> None:
    measured = profiles.pop("measured")
    distances = dict.fromkeys(profiles, 0.25)
    figure = comparison_figure(measured, profiles, distances)
    texts = [text.get_text() for text in figure.legends[0].get_texts()]
    assert texts[0] == "measured"
    assert texts[1] == "attention-only  W1 0.2500"
    assert texts[3] == "fixed 1/2  W1 0.2500"
    assert np.array_equal(figure.axes[0].lines[0].get_ydata(), measured.mass)


def test_given_axes_are_drawn_on(profiles: dict[str, Profile]) -> None:
    ax = Figure().add_subplot()
    assert plot_profiles(profiles, ax) is ax
    assert len(ax.get_legend().get_texts()) == len(profiles)


def test_user_settings_stay_as_they_were(profiles: dict[str, Profile]) -> None:
    before = dict(matplotlib.rcParams)
    plot_profiles(profiles)
    assert dict(matplotlib.rcParams) == before


def test_pyplot_is_not_imported() -> None:
    program = (
        "import sys, numpy as np; from posbias.plot import plot_mixing, plot_profiles;"
        "from posbias.profile import Profile; plot_mixing([0.5]);"
        "plot_profiles({'a': Profile([0.5, 0.5])}); print('matplotlib.pyplot' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "False"


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda: plot_profiles({}), ProfileError, "at least one"),
        (lambda: plot_profiles({"a": u_shaped(0), "b": u_shaped(0, 9)}), ProfileError, "different"),
        (lambda: plot_profiles({"a": u_shaped(0)}, windows=np.ones((2, 9))), ProfileError, "9"),
        (lambda: window_band(np.ones(4)), ProfileError, "shape"),
        (lambda: window_band(np.zeros((2, 4))), ProfileError, "zero"),
        (lambda: plot_mixing([]), InputError, "shape"),
        (lambda: plot_mixing([0.1, 0.2], spread=[0.1]), InputError, "spread"),
        (lambda: comparison_figure(u_shaped(0), {"a": u_shaped(1)}, {}), InputError, "missing"),
    ],
)
def test_what_does_not_fit_is_refused(call, error, words) -> None:
    with pytest.raises(error, match=words):
        call()
