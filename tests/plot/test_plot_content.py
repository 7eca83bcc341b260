"""Heat maps over layers and heads show the numbers they are given."""

from __future__ import annotations

import numpy as np
import pytest

from posbias.errors import InputError
from posbias.measurement import ContentFit
from posbias.plot import content_figure, plot_heads

RNG = np.random.default_rng(0)
D = RNG.normal(size=(3, 5))


def test_the_first_layer_is_at_the_bottom_and_heads_count_from_one() -> None:
    ax = plot_heads(D, label="d")
    mesh = ax.collections[0]
    assert np.array_equal(np.asarray(mesh.get_array()).reshape(3, 5), D)
    corners = mesh.get_coordinates()
    assert corners[0, 0].tolist() == [0.5, 0.5]
    assert corners[-1, -1].tolist() == [5.5, 3.5]
    assert not ax.yaxis_inverted()
    assert ax.get_title(loc="left") == "d"


def test_signed_values_meet_at_zero() -> None:
    low, high = plot_heads(D, around_zero=True).collections[0].get_clim()
    assert high == -low == np.abs(D).max()


def test_values_that_are_not_finite_are_blank() -> None:
    table = D.copy()
    table[1, 2] = np.inf
    shown = plot_heads(table).collections[0].get_array()
    assert np.ma.getmaskarray(shown).reshape(3, 5).sum() == 1


@pytest.mark.parametrize("values", [np.ones(3), np.full((2, 2), np.nan)])
def test_wrong_tables_are_refused(values: np.ndarray) -> None:
    with pytest.raises(InputError, match=r"\(layers, heads\)"):
        plot_heads(values)


def test_figure_has_one_map_per_number() -> None:
    diagonal, lower = RNG.uniform(0.5, 1.0, (2, 3, 5))
    fit = ContentFit(diagonal, lower, D / 2.0, RNG.uniform(0.0, 0.2, (3, 5)))
    figure = content_figure(D, fit, title="model on text")
    maps = {
        ax.get_title(loc="left"): ax.collections[0] for ax in figure.axes if ax.get_title("left")
    }
    expected = {
        "content term d, logits": D,
        "separation, in spreads": fit.separation,
        "variance explained": fit.explained,
        "spread on the diagonal, logits": diagonal,
        "spread below it, logits": lower,
    }
    assert list(maps) == list(expected)
    for name, values in expected.items():
        assert np.array_equal(np.asarray(maps[name].get_array()).reshape(3, 5), values)
    spreads = [maps[name].get_clim() for name in list(expected)[3:]]
    assert spreads[0] == spreads[1] == (0.0, max(diagonal.max(), lower.max()))
