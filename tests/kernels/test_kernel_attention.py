"""AttentionKernel: construction, restriction, descriptions."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from naive_kernels import MASKS, POSITIONS, naive_matrix

from posbias.errors import InputError
from posbias.kernels import (
    ALiBi,
    AttentionKernel,
    Head,
    LagTable,
    NoPE,
    Sink,
    SlidingWindow,
    WindowSink,
    kernel_from_description,
)

KEY = [0.5, -1.0, 2.0, 0.0, 1.0, 3.0]


def test_weights_are_normalised_and_zero_weights_left_out() -> None:
    heads = [Head(ALiBi(0.5), weight=3.0), Head(weight=1.0), Head(ALiBi(-5.0), weight=0.0)]
    kernel = AttentionKernel(6, heads)
    np.testing.assert_allclose(kernel.weights, [0.75, 0.25, 0.0])
    parts = [AttentionKernel(6, [head]).toarray() for head in heads[:2]]
    np.testing.assert_allclose(kernel.toarray(), 0.75 * parts[0] + 0.25 * parts[1], rtol=1e-14)
    kernel.weights[0] = 9.0
    assert kernel.weights[0] == 0.75


def test_huge_weights_do_not_overflow() -> None:
    kernel = AttentionKernel(3, [Head(weight=1e308), Head(weight=1e308)])
    np.testing.assert_allclose(kernel.weights, [0.5, 0.5])


def test_temperature_divides_all_logits() -> None:
    hot = AttentionKernel(
        6, [Head(ALiBi(1.0), diagonal=2.0, key=KEY, sink=Sink(2, 1.0))], temperature=0.5
    )
    cold = AttentionKernel(
        6, [Head(ALiBi(2.0), diagonal=4.0, key=2 * np.array(KEY), sink=Sink(2, 2.0))]
    )
    np.testing.assert_allclose(hot.toarray(), cold.toarray(), rtol=1e-13)
    assert hot.temperature == 0.5


def test_alibi_constructor_is_the_list_of_heads() -> None:
    quick = AttentionKernel.alibi(
        9, [0.5, 0.2], diagonal=[1.0, -1.0], weights=[1.0, 3.0], mask=SlidingWindow(4)
    )
    heads = [Head(ALiBi(0.5), diagonal=1.0), Head(ALiBi(0.2), diagonal=-1.0, weight=3.0)]
    assert quick.heads == tuple(heads)
    assert quick.mask == SlidingWindow(4)
    np.testing.assert_array_equal(
        quick.toarray(), AttentionKernel(9, heads, mask=SlidingWindow(4)).toarray()
    )


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: AttentionKernel(0, [Head()]), "n >= 1"),
        (lambda: AttentionKernel(2.0, [Head()]), "2.0"),  # type: ignore[arg-type]
        (lambda: AttentionKernel(3, []), "at least one head"),
        (lambda: AttentionKernel(3, ["x"]), "head 0 is 'x'"),  # type: ignore[list-item]
        (lambda: AttentionKernel(3, [Head(key=[0.0])]), "1 key logits for 3"),
        (lambda: AttentionKernel(3, [Head(weight=0.0)]), "all zero"),
        (lambda: AttentionKernel(3, [Head()], mask="causal"), "'causal'"),  # type: ignore[arg-type]
        (lambda: AttentionKernel(3, [Head()], temperature=0.0), "more than 0"),
        (lambda: AttentionKernel(3, [Head()], temperature=np.nan), "nan"),
        (lambda: AttentionKernel(3, [Head()], temperature=1e-320, mask=None).row(0), None),
        (
            lambda: AttentionKernel(3, [Head(diagonal=1.0)], temperature=1e-300),
            "diagonal logits reach",
        ),
        (lambda: AttentionKernel(300, [Head(ALiBi(1e300))]), "ALiBi logits reach"),
        (lambda: AttentionKernel(3, [Head(key=[1e13, 0, 0])]), "key logits reach"),
        (lambda: AttentionKernel(3, [Head(LagTable([None, 0.0]))]), "query 0 sees no key"),
        (
            lambda: AttentionKernel(
                5, [Head(LagTable([None, None, 0.0, None]))], mask=WindowSink(2, 1)
            ),
            "sees no key",
        ),
        (lambda: AttentionKernel.alibi(3, [0.1, np.inf]), r"slopes\[1\] is inf"),
        (lambda: AttentionKernel.alibi(3, []), "at least one head"),
        (lambda: AttentionKernel.alibi(3, [0.1], diagonal=[1.0, 2.0]), r"\(2,\)"),
        (lambda: AttentionKernel.alibi(3, [0.1], weights=[1.0, 2.0]), r"\(2,\)"),
        (lambda: AttentionKernel.alibi(3, [0.1], diagonal=True), "True"),
    ],
)
def test_wrong_arguments_are_named(build, message: str | None) -> None:
    if message is None:  # the limit itself is fine
        np.testing.assert_allclose(build(), [1.0, 0.0, 0.0])
        return
    with pytest.raises(InputError, match=message):
        build()


@pytest.mark.parametrize("mask", MASKS, ids=lambda m: "-".join(map(str, m.values())))
def test_restriction_is_the_rule_on_fewer_positions(mask) -> None:
    for position in POSITIONS:
        if position["type"] == "table" and mask["type"] == "full":
            continue
        head = {"position": position, "diagonal": -1.0, "sink": {"count": 3, "logit": 2.0}}
        long = {"heads": [{**head, "key": KEY * 2}], "mask": mask, "temperature": 2.0}
        short = {"heads": [{**head, "key": (KEY * 2)[:7]}], "mask": mask, "temperature": 2.0}
        given_rows = kernel_from_description(long, 12).restrict(7).toarray()
        np.testing.assert_allclose(
            given_rows, naive_matrix(short, 7).astype(float), rtol=1e-12, atol=1e-300
        )


descriptions = st.fixed_dictionaries(
    {
        "heads": st.lists(
            st.fixed_dictionaries(
                {"position": st.sampled_from(POSITIONS)},
                optional={
                    "weight": st.floats(0.1, 10.0),
                    "diagonal": st.floats(-50.0, 50.0),
                    "key": st.lists(st.floats(-5, 5), min_size=6, max_size=6),
                    "sink": st.fixed_dictionaries(
                        {"count": st.integers(0, 9), "logit": st.floats(-5, 5)}
                    ),
                },
            ),
            min_size=1,
            max_size=3,
        ),
        "mask": st.sampled_from(MASKS),
        "temperature": st.floats(0.1, 10.0),
    }
)


@settings(max_examples=60)
@given(layer=descriptions)
def test_descriptions_round_trip_exactly(layer) -> None:
    kernel = kernel_from_description(layer, 6)
    text = json.dumps(kernel.describe(), allow_nan=False)
    again = kernel_from_description(json.loads(text), 6)
    assert again.heads == kernel.heads
    assert again.mask == kernel.mask
    assert again.temperature == kernel.temperature
    np.testing.assert_allclose(kernel.toarray(), naive_matrix(layer, 6).astype(float), rtol=1e-11)


def test_plain_alibi_heads_have_the_short_description() -> None:
    kernel = AttentionKernel.alibi(5, [0.5, 0.25], diagonal=1.0)
    assert kernel.describe() == {
        "alibi": {"slopes": [0.5, 0.25], "diagonal": 1.0, "weights": None},
        "mask": {"type": "causal"},
        "temperature": 1.0,
    }
    uneven = AttentionKernel.alibi(5, [0.5, 0.25], diagonal=[1.0, 2.0], weights=[1.0, 2.0])
    assert uneven.describe()["alibi"] == {
        "slopes": [0.5, 0.25],
        "diagonal": [1.0, 2.0],
        "weights": [1.0, 2.0],
    }
    signed = AttentionKernel(5, [Head(ALiBi(0.5, "signed"))])
    assert "heads" in signed.describe()


def test_everything_in_a_description_but_the_heads_has_a_default() -> None:
    kernel = kernel_from_description({"heads": [{}]}, 4)
    assert kernel.heads == (Head(NoPE()),)
    nothing = {"heads": [{"key": None, "sink": None, "position": None}], "mask": None}
    assert kernel_from_description(nothing, 4).heads == kernel.heads


@pytest.mark.parametrize(
    ("layer", "message"),
    [
        ([], "a layer is"),
        ({}, "exactly one of 'heads' and 'alibi'"),
        ({"heads": [{}], "alibi": {"slopes": [1.0]}}, "exactly one"),
        ({"heads": [{}], "masks": {}}, "'masks', did you mean 'mask'"),
        ({"heads": [{}], 3: 1}, "unknown key 3"),
        ({"heads": {}}, "a list is required"),
        ({"heads": "ab"}, "a list is required"),
        ({"heads": [3]}, r"heads\[0\] is 3"),
        ({"heads": [{"diag": 1.0}]}, r"heads\[0\] has an unknown key 'diag', .* 'diagonal'"),
        ({"heads": [{}, {"position": "nope"}]}, r"heads\[1\].position is 'nope'"),
        ({"heads": [{"position": {"type": "alibii", "slope": 1}}]}, "did you mean 'alibi'"),
        ({"heads": [{"position": {"type": ["alibi"]}}]}, r"\['alibi'\]"),
        ({"heads": [{"position": {"type": "alibi"}}]}, "lacks the key 'slope'"),
        ({"heads": [{"position": {"type": "alibi", "slop": 1.0}}]}, "did you mean 'slope'"),
        ({"heads": [{"position": {"type": "alibi", "slope": "x"}}]}, r"heads\[0\].position: .*'x'"),
        ({"heads": [{"sink": {"count": 1}}]}, r"heads\[0\].sink lacks the key 'logit'"),
        ({"heads": [{"sink": {"count": 1.5, "logit": 0.0}}]}, r"heads\[0\].sink: .*1.5"),
        ({"heads": [{"weight": "a"}]}, r"heads\[0\]: .*'a'"),
        ({"heads": [{"key": [1.0]}]}, "1 key logits for 4"),
        ({"heads": [{}], "mask": {"type": "window"}}, "mask has type 'window'"),
        ({"heads": [{}], "mask": {"type": "sliding_window"}}, "lacks the key 'window'"),
        ({"heads": [{}], "mask": {"type": "causal", "window": 3}}, "unknown key 'window'"),
        ({"heads": [{}], "temperature": -1.0}, "temperature is -1"),
        ({"alibi": [0.5]}, r"alibi is \[0.5\]"),
        ({"alibi": {}}, "alibi lacks the key 'slopes'"),
        ({"alibi": {"slopes": [0.5], "slope": 1}}, "did you mean 'slopes'"),
    ],
)
def test_wrong_descriptions_name_the_place(layer, message: str) -> None:
    with pytest.raises(InputError, match=message):
        kernel_from_description(layer, 4)
