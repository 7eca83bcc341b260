"""Mixing schedules."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from posbias.errors import InputError
from posbias.rollout import MixingSchedule


def test_the_formulas_start_at_layer_one() -> None:
    assert MixingSchedule.constant(3, 0.4).values.tolist() == [0.4, 0.4, 0.4]
    np.testing.assert_allclose(
        MixingSchedule.power(4, 0.8, 0.5).values, 0.8 / np.sqrt([1, 2, 3, 4])
    )
    np.testing.assert_allclose(MixingSchedule.exponential(3, 0.8, 0.5).values, [0.8, 0.4, 0.2])
    assert MixingSchedule.custom([0.0, 1.0]).values.tolist() == [0.0, 1.0]
    assert MixingSchedule.exponential(3, 0.8, 0.0).values.tolist() == [0.8, 0.0, 0.0]


@given(
    st.one_of(
        st.fixed_dictionaries({"type": st.just("constant"), "value": st.floats(0, 1)}),
        st.fixed_dictionaries(
            {"type": st.just("power"), "lambda0": st.floats(0, 1), "beta": st.floats(0, 5)}
        ),
        st.fixed_dictionaries(
            {"type": st.just("exponential"), "lambda0": st.floats(0, 1), "rho": st.floats(0, 1)}
        ),
        st.fixed_dictionaries(
            {
                "type": st.just("custom"),
                "values": st.lists(st.floats(0, 1), min_size=5, max_size=5),
            }
        ),
    )
)
def test_descriptions_round_trip(description) -> None:
    schedule = MixingSchedule.from_description(description, 5)
    again = json.loads(json.dumps(schedule.describe()))
    assert again == description
    assert MixingSchedule.from_description(again, 5) == schedule
    assert hash(MixingSchedule.from_description(again, 5)) == hash(schedule)
    assert schedule.depth == len(schedule) == 5


def test_schedules_per_position() -> None:
    values = np.linspace(0.0, 1.0, 6).reshape(2, 3)
    schedule = MixingSchedule(values)
    assert schedule.is_per_position
    assert (schedule.depth, schedule.positions) == (2, 3)
    assert MixingSchedule.from_description(schedule.describe(), 2) == schedule
    np.testing.assert_array_equal(schedule.restrict(2).values, values[:, :2])
    with pytest.raises(InputError, match="cannot be restricted to 4"):
        schedule.restrict(4)
    layerwise = MixingSchedule([0.5])
    assert layerwise.restrict(9) is layerwise
    assert layerwise.positions is None
    assert not layerwise.is_per_position


def test_values_are_copied_and_read_only() -> None:
    values = np.array([0.5, 0.25])
    schedule = MixingSchedule(values)
    values[0] = 0.9
    assert schedule.values[0] == 0.5
    with pytest.raises(ValueError, match="read-only"):
        schedule.values[0] = 0.1
    described = schedule.describe()
    described["values"][0] = 7.0
    assert schedule.describe()["values"][0] == 0.5


def test_equality_is_by_value() -> None:
    assert MixingSchedule.constant(2, 0.5) == MixingSchedule([0.5, 0.5])
    assert MixingSchedule.constant(2, 0.5) != MixingSchedule([0.5, 0.4])
    assert MixingSchedule([0.5]) != 0.5
    assert "constant" in repr(MixingSchedule.constant(2, 0.5))


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: MixingSchedule([]), r"\(0,\)"),
        (lambda: MixingSchedule(0.5), r"\(\)"),
        (lambda: MixingSchedule(np.zeros((2, 2, 2))), r"\(2, 2, 2\)"),
        (lambda: MixingSchedule([0.5, 1.5]), r"layer 2 is 1.5"),
        (lambda: MixingSchedule([0.5, -0.1]), r"layer 2 is -0.1"),
        (lambda: MixingSchedule([[0.5], [np.nan]]), r"layer 2, position 0 is nan"),
        (lambda: MixingSchedule([np.inf]), r"layer 1 is inf"),
        (lambda: MixingSchedule([True]), "layer 1 is True"),
        (lambda: MixingSchedule([1j]), "layer 1 is 1j"),
        (lambda: MixingSchedule(["a"]), "layer 1 is .a."),
        (lambda: MixingSchedule([[0.1], [0.1, 0.2]]), "different lengths"),
        (lambda: MixingSchedule.constant(0, 0.5), "depth of a schedule is 0"),
        (lambda: MixingSchedule.constant(2.0, 0.5), "2.0"),
        (lambda: MixingSchedule.constant(True, 0.5), "True"),
        (lambda: MixingSchedule.constant(2, 1.5), r"constant schedule: .*layer 1 is 1.5"),
        (lambda: MixingSchedule.constant(2, np.nan), "value of a schedule is nan"),
        (lambda: MixingSchedule.constant(2, "x"), "'x'"),
        (lambda: MixingSchedule.power(3, 0.5, -2.0), r"power schedule: .*layer 2 is 2 \(2 such"),
        (lambda: MixingSchedule.exponential(3, 0.5, 3.0), r"layer 2 is 1.5"),
        (lambda: MixingSchedule.exponential(3, 0.5, -0.5), r"layer 2 is -0.25"),
        (lambda: MixingSchedule.from_description([], 2), "a mapping with a 'type'"),
        (lambda: MixingSchedule.from_description({"value": 0.5}, 2), "a mapping with a 'type'"),
        (lambda: MixingSchedule.from_description({"type": "linear"}, 2), "'linear'"),
        (lambda: MixingSchedule.from_description({"type": ["power"]}, 2), r"\['power'\]"),
        (
            lambda: MixingSchedule.from_description({"type": "constant", "lambda": 0.5}, 2),
            "lacks the key 'value'",
        ),
        (
            lambda: MixingSchedule.from_description({"type": "custom", "values": [0.5]}, 2),
            "has 1 layers; 2 are required",
        ),
    ],
)
def test_wrong_schedules_are_named(build, message: str) -> None:
    with pytest.raises(InputError, match=message):
        build()
