"""The text of an estimator, its axes, and what is said about a wrong one."""

from __future__ import annotations

import itertools

import pytest

from posbias.errors import InputError
from posbias.estimator import AXES, ENERGY_ROLLOUT, NAMED, PAPER, Estimator, checked_choice, ladder

ALL = [
    Estimator(mixing, mlp, kernel, sinks, addition)
    for mixing, mlp, kernel, sinks, addition in itertools.product(
        AXES["mixing"], (False, True), AXES["kernel"], AXES["sinks"], AXES["addition"]
    )
    if not (mlp and mixing in ("frobenius", "jacobian"))
]


def test_every_estimator_is_read_from_its_own_text() -> None:
    texts = {str(estimator) for estimator in ALL}
    assert len(texts) == len(ALL) == 180
    for estimator in ALL:
        assert Estimator.parse(str(estimator)) == estimator
        assert Estimator.parse(f" {str(estimator).replace(',', ' , ').replace('=', ' = ')}") == (
            estimator
        )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("paper", Estimator()),
        ("norm", Estimator()),
        ("frobenius", Estimator(mixing="frobenius")),
        ("norm,mixing=frobenius", Estimator(mixing="frobenius")),
        ("paper,sinks=identity", Estimator(sinks="identity")),
        ("paper,mixing=energy,mlp=true", Estimator(mixing="energy", mlp=True)),
        (
            "energy-rollout",
            Estimator("centred-energy", True, "centred-value-weighted", "identity", "energies"),
        ),
        (
            "energy-rollout,mlp=false",
            Estimator("centred-energy", False, "centred-value-weighted", "identity", "energies"),
        ),
    ],
)
def test_texts(text: str, expected: Estimator) -> None:
    assert Estimator.parse(text) == expected


def test_the_shortest_text_is_chosen() -> None:
    assert str(Estimator()) == "paper"
    assert str(Estimator(mixing="frobenius", sinks="drop")) == "frobenius,sinks=drop"
    assert str(Estimator(mixing="energy", mlp=True)) == "paper,mixing=energy,mlp=true"
    assert checked_choice("norm") == "paper"
    assert checked_choice("energy-rollout,mlp=true") == "energy-rollout"
    assert [checked_choice(name) for name in NAMED] == list(NAMED)


def test_names_of_what_a_measurement_holds() -> None:
    assert (PAPER.mixing_name, PAPER.kernel_kind) == ("norm", "attention")
    assert ENERGY_ROLLOUT.mixing_name == "centred-energy+mlp"
    assert ENERGY_ROLLOUT.kernel_kind == "centred-value-weighted-energy"
    assert Estimator(addition="energies").kernel_kind == "attention-energy"
    assert Estimator(kernel="value-weighted").kernel_kind == "value-weighted"


def test_the_ladder_of_auto_is_the_paper_s() -> None:
    assert ladder("auto") == ladder("paper") == ladder(PAPER) == PAPER
    assert ladder("energy-rollout") == ENERGY_ROLLOUT
    assert checked_choice("auto") == "auto"


@pytest.mark.parametrize(
    ("text", "fragment"),
    [
        ("", "a name"),
        (" ", "a name"),
        ("mean", "estimator 'mean' is unknown, valid are auto, paper"),
        ("energy_rollout", "did you mean 'energy-rollout'"),
        ("paper,sink=keep", "did you mean 'sinks'"),
        ("paper,mixing=centered", "did you mean 'centred'"),
        ("paper,mlp=yes", "false, true"),
        ("paper,sinks", "no setting"),
        ("paper,", "no setting"),
        ("paper,sinks=keep,sinks=drop", "given twice"),
        ("auto,sinks=keep", "takes no settings"),
        ("auto", "no estimator but a rule"),
        ("frobenius,mlp=true", "does not go with mixing=frobenius"),
        ("paper,mixing=jacobian,mlp=true", "does not go with mixing=jacobian"),
    ],
)
def test_wrong_texts(text: str, fragment: str) -> None:
    with pytest.raises(InputError) as caught:
        Estimator.parse(text)
    assert fragment in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("axis", "value"),
    [("mixing", "mean"), ("mlp", "true"), ("mlp", 1), ("kernel", None), ("sinks", "Keep")],
)
def test_wrong_values(axis: str, value: object) -> None:
    with pytest.raises(InputError, match=axis):
        Estimator(**{axis: value})  # type: ignore[arg-type]
