"""The stochastic order of two profiles."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from posbias.errors import ProfileError
from posbias.profile import Profile
from posbias.theory import mean_position, stochastic_order

SCORES = hnp.arrays(np.float64, 7, elements=st.floats(0.01, 1.0))


def naive_margin(p, q) -> float:
    return min(sum(p[: k + 1]) - sum(q[: k + 1]) for k in range(len(p) - 1))


@given(SCORES, SCORES)
def test_agrees_with_partial_sums(p, q):
    p, q = p / p.sum(), q / q.sum()
    order = stochastic_order(p, q)
    margin, reverse = naive_margin(p.tolist(), q.tolist()), naive_margin(q.tolist(), p.tolist())
    assert order.margin == pytest.approx(margin, abs=1e-14)
    assert order.max_violation == pytest.approx(max(0.0, -margin), abs=1e-14)
    assert order.reverse_violation == pytest.approx(max(0.0, -reverse), abs=1e-14)
    assert order.mean_first == pytest.approx(sum(i * x for i, x in enumerate(p)), abs=1e-13)


@given(SCORES, SCORES)
def test_reversal_swaps_the_directions(p, q):
    p, q = p / p.sum(), q / q.sum()
    there, back = stochastic_order(p, q), stochastic_order(q, p)
    assert (there.holds, there.reverse_holds) == (back.reverse_holds, back.holds)
    opposite = {"later": "earlier", "earlier": "later", "neither": "neither"}
    assert back.direction == opposite[there.direction]


@given(SCORES, SCORES, st.floats(0.0, 1.0))
def test_an_ordered_pair_has_ordered_means(p, q, share):
    """Moving mass up the line gives a later profile whose mean rises by what was moved."""
    p = p / p.sum()
    later = (1.0 - share) * p
    later[1:] += share * p[:-1]
    later[-1] += share * p[-1]
    order = stochastic_order(p, later)
    assert order.holds
    assert order.mean_second >= order.mean_first - 1e-12


def test_equal_profiles_are_ordered_both_ways():
    order = stochastic_order([0.5, 0.5], [0.5, 0.5])
    assert (order.holds, order.reverse_holds, order.direction) == (True, True, "neither")


def test_the_witness_is_where_the_order_fails():
    order = stochastic_order([0.1, 0.0, 0.9], [0.0, 0.6, 0.4])
    assert not order.holds
    assert order.witness == 1
    assert order.margin == pytest.approx(-0.5)
    assert order.as_dict()["direction"] == "neither"


def test_profiles_are_accepted_as_they_are():
    assert mean_position(Profile([0.25, 0.25, 0.5])) == 1.25


def test_different_lengths_are_refused():
    with pytest.raises(ProfileError, match="3 and 2 positions"):
        stochastic_order([0.2, 0.3, 0.5], [0.5, 0.5])
