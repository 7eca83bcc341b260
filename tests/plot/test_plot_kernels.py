"""Heat maps and lines by lag show the numbers of the kernels."""

from __future__ import annotations

import numpy as np
import pytest

from posbias.errors import InputError
from posbias.kernels import AttentionKernel, DenseKernel, Head, PrefixLM, SlidingWindow
from posbias.plot import COLUMN_WIDTH, kernels_figure, mean_by_lag, plot_kernel, plot_lags

N = 20


def random_kernel(n: int, seed: int = 0) -> DenseKernel:
    rng = np.random.default_rng(seed)
    array = np.tril(rng.random((n, n)) + 0.01)
    return DenseKernel(array / array.sum(axis=1, keepdims=True))


def test_map_of_a_short_kernel_is_the_matrix() -> None:
    kernel = random_kernel(N)
    ax = plot_kernel(kernel)
    shown = ax.collections[0].get_array().reshape(N, N)
    assert np.array_equal(np.ma.getmaskarray(shown), np.triu(np.ones((N, N), dtype=bool), 1))
    lower = np.tril_indices(N)
    assert np.allclose(shown[lower], kernel.toarray()[lower], rtol=1e-12)
    low, high = ax.get_ylim()
    assert low > high  # the first query is at the top


@pytest.mark.parametrize("n", [129, 300])
def test_blocks_of_a_long_kernel_are_means_over_visible_pairs(n: int) -> None:
    kernel = random_kernel(n)
    array = kernel.toarray()
    mesh = plot_kernel(kernel).collections[0]
    edges = mesh.get_coordinates()[0, :, 0] + 0.5
    shown = mesh.get_array().reshape(edges.size - 1, edges.size - 1)
    for a, b in ((0, 0), (7, 7), (90, 3), (127, 127), (127, 0)):
        pairs = [
            array[i, j]
            for i in range(int(edges[a]), int(edges[a + 1]))
            for j in range(int(edges[b]), int(edges[b + 1]))
            if j <= i
        ]
        assert shown[a, b] == pytest.approx(np.mean(pairs), rel=1e-9)


def test_pairs_outside_a_window_are_below_the_scale_and_not_blank() -> None:
    kernel = AttentionKernel(N, [Head()], mask=SlidingWindow(4))
    mesh = plot_kernel(kernel).collections[0]
    shown = mesh.get_array().reshape(N, N)
    assert not np.ma.getmaskarray(shown)[10, 2]
    assert shown[10, 2] < mesh.norm.vmin < shown[10, 9]


def test_one_map_per_different_kernel_on_one_scale() -> None:
    first, second = random_kernel(N), random_kernel(N, 1)
    figure = kernels_figure([first, first, second, first], title="three", width=COLUMN_WIDTH)
    maps = [ax for ax in figure.axes if ax.get_title(loc="left")]
    assert [ax.get_title(loc="left") for ax in maps] == ["layers 1-2, 4", "layer 3"]
    limits = {ax.collections[0].get_clim() for ax in maps}
    assert len(limits) == 1
    assert limits.pop()[1] == max(first.toarray().max(), second.toarray().max())


def test_of_many_layers_twelve_are_drawn_and_the_title_says_so() -> None:
    figure = kernels_figure([random_kernel(4, seed) for seed in range(30)], title="deep")
    titles = [ax.get_title(loc="left") for ax in figure.axes if ax.get_title(loc="left")]
    assert len(titles) == 12
    assert (titles[0], titles[-1]) == ("layer 1", "layer 30")
    assert figure.get_suptitle() == "deep · 12 of 30 layers"


@pytest.mark.parametrize("kernel", [random_kernel(N), AttentionKernel.alibi(40, (0.3, 0.01))])
def test_mean_by_lag_against_loops(kernel) -> None:
    array = kernel.toarray()
    n = kernel.n
    expected = [np.mean([array[i, i - lag] for i in range(lag, n)]) for lag in range(n)]
    assert np.allclose(mean_by_lag(kernel), expected, rtol=1e-10, atol=0)


def test_lag_lines_are_means_of_pairs_and_one_line_per_kernel() -> None:
    n = 200
    first, second = random_kernel(n), random_kernel(n, 1)
    ax = plot_lags([first, first, second])
    assert [line.get_label() for line in ax.lines] == ["layers 1-2", "layer 3", "1 / n"]
    lags, weights = ax.lines[0].get_data()
    array = first.toarray()
    assert np.array_equal(lags[:16], np.arange(16))
    assert np.allclose(weights[:16], mean_by_lag(first)[:16], rtol=1e-12)
    # The last bin holds the largest lags, symmetric around its centre.
    width = round(2 * (n - 1 - lags[-1])) + 1
    pairs = [array[i, i - lag] for lag in range(n - width, n) for i in range(lag, n)]
    assert weights[-1] == pytest.approx(np.mean(pairs), rel=1e-9)


def test_many_layers_get_a_colour_bar_in_place_of_names() -> None:
    ax = plot_lags([random_kernel(6, seed) for seed in range(9)])
    assert not ax.figure.legends
    bar = ax.figure.axes[1]
    assert bar.get_ylabel() == "layer"
    first, *_, last = (text.get_text() for text in bar.get_yticklabels())
    assert (first, last) == ("1", "9")


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: kernels_figure([]), "at least one kernel"),
        (lambda: plot_lags([random_kernel(3), random_kernel(4)]), "same number"),
        (lambda: mean_by_lag(AttentionKernel(9, [Head()], mask=PrefixLM(4))), "causal"),
        (lambda: mean_by_lag(AttentionKernel(20_000, [Head()])), "16384"),
    ],
)
def test_what_cannot_be_drawn_is_refused(call, words: str) -> None:
    with pytest.raises(InputError, match=words):
        call()
