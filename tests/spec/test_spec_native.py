"""The package's own form: what it means and what it refuses."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from spec_documents import HEADS, MIXING, document

from posbias.errors import SpecError
from posbias.rollout import MixingSchedule
from posbias.spec import Spec, alibi_slopes, parse_spec, textbook_slopes


def test_defaults() -> None:
    spec = parse_spec(document(mixing=...))
    assert (spec.name, spec.depth, spec.mixing) == ("unnamed", 2, None)
    assert parse_spec(document(depth=..., layers=[HEADS] * 3)).depth == 3
    custom = {"type": "custom", "values": [0.1] * 5}
    assert parse_spec(document(depth=..., mixing=custom)).depth == 5


def test_mask_of_the_document_stands_for_layers_without() -> None:
    own = {**HEADS, "mask": {"type": "full"}}
    spec = parse_spec(document(mask={"type": "sliding_window", "window": 2}, layers=[HEADS, own]))
    assert [kernel.is_causal for kernel in spec.kernels()] == [True, False]
    assert spec.kernels()[0].row(3).tolist() == [0, 0, 0.5, 0.5]


def test_missing_mixing_says_what_to_do() -> None:
    with pytest.raises(SpecError, match=r"with_mixing\(0.3\) or --mixing"):
        parse_spec(document(mixing=...)).rollout()


@pytest.mark.parametrize(
    ("mixing", "values"),
    [
        (0.25, [0.25, 0.25]),
        (1, [1, 1]),
        (np.float32(0.5), [0.5, 0.5]),
        ([0.1, 0.2], [0.1, 0.2]),
        (np.array([0.1, 0.2]), [0.1, 0.2]),
        ({"type": "power", "lambda0": 0.4, "beta": 1}, [0.4, 0.2]),
        (MixingSchedule.exponential(2, 0.4, 0.5), [0.4, 0.2]),
    ],
)
def test_with_mixing(mixing: Any, values: list[float]) -> None:
    bare = parse_spec(document(mixing=...))
    spec = bare.with_mixing(mixing)
    np.testing.assert_allclose(spec.schedule().values, values, rtol=1e-15)
    assert bare.mixing is None
    assert parse_spec(json.loads(json.dumps(spec.as_dict()))) == spec


@pytest.mark.parametrize(
    "mixing",
    [
        1.5,
        -0.1,
        float("nan"),
        True,
        None,
        "0.3",
        [0.1],
        [0.1, 0.2, 0.3],
        [],
        [0.1, True],
        {},
        {"type": "constant", "value": "1"},
        [[0.1] * 3] * 2,
        [[0.1], [0.1, 0.2]],
        MixingSchedule.constant(3, 0.1),
        {"type": "power", "lambda0": 0.5, "beta": -2000},
    ],
    ids=repr,
)
def test_wrong_mixing(mixing: Any) -> None:
    with pytest.raises(SpecError) as caught:
        parse_spec(document()).with_mixing(mixing)
    assert "mixing" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_mixing_per_position_fixes_the_length() -> None:
    spec = parse_spec(document(mixing={"type": "custom", "values": [[0.1] * 4, [0.2] * 4]}))
    assert spec.rollout().n == 4
    with pytest.raises(SpecError, match="4 positions"):
        spec.rollout(3)


def test_other_lengths() -> None:
    spec = parse_spec(document())
    assert spec.rollout(9).profile().n == 9
    for n in (1, 0, -3, 2.0, "4", True, 2**40):
        with pytest.raises(SpecError, match="n is"):
            spec.kernels(n)  # type: ignore[arg-type]


def test_key_logits_fix_the_length() -> None:
    spec = parse_spec(document(layers=[{"heads": [{"key": [0, 1, 2, 3]}]}]))
    assert spec.rollout().n == 4
    with pytest.raises(SpecError, match=r"layers\[0\].* 4 key logits for 5 positions"):
        spec.rollout(5)
    assert spec.without_content().rollout(5).n == 5


@pytest.mark.parametrize(
    ("layer", "has_content"),
    [
        (HEADS, False),
        ({"alibi": {"slopes": [0.5, 1]}}, False),
        ({"alibi": {"slopes": [0.5, 1], "diagonal": 0.0}}, False),
        ({"alibi": {"slopes": [0.5, 1], "diagonal": [0, -1]}}, True),
        ({"heads": [{}, {"diagonal": 0.0}]}, False),
        ({"heads": [{}, {"diagonal": 0.5}]}, True),
        ({"heads": [{"key": [0, 1, 2, 3]}]}, True),
        ({"heads": [{"sink": {"count": 1, "logit": 2}}]}, True),
    ],
)
def test_content(layer: dict[str, Any], has_content: bool) -> None:
    spec = parse_spec(document(layers=[layer]))
    assert spec.has_content is has_content
    bare = spec.without_content()
    assert not bare.has_content
    assert (bare == spec) or has_content or layer is not HEADS
    same = np.allclose(bare.kernels()[0].toarray(), spec.kernels()[0].toarray(), atol=1e-15)
    assert same is not has_content


def test_without_content_keeps_the_rest() -> None:
    mask = {"type": "sliding_window", "window": 3}
    layer = {"alibi": {"slopes": [0.5, 1], "diagonal": 2, "weights": [1, 3]}, "mask": mask}
    heads = {
        "heads": [
            {"weight": 1, "position": {"type": "alibi", "slope": 0.5}, "diagonal": 1.0},
            {"weight": 3, "position": {"type": "alibi", "slope": 1}, "key": [1, 2, 3, 4]},
        ],
        "mask": mask,
        "temperature": 2.0,
    }
    spec = parse_spec(document(layers=[{**layer, "temperature": 2}, heads])).without_content()
    first, second = (kernel.toarray() for kernel in spec.kernels())
    np.testing.assert_allclose(first, second, atol=1e-15)
    logits = -np.array([2, 1, 0])[:, None] * np.array([0.5, 1]) / 2
    shares = np.exp(logits) / np.exp(logits).sum(axis=0)
    np.testing.assert_allclose(first[3, 1:], shares @ [0.25, 0.75], atol=1e-15)


def test_layers_that_differ_in_content_alone_become_one() -> None:
    layers = [{"alibi": {"slopes": [1], "diagonal": d}} for d in (0.5, 0.7)]
    spec = parse_spec(document(layers=layers))
    assert len(spec.without_content().layers) == 1
    assert spec.without_content().depth == 2


def test_equal_layers_share_a_kernel() -> None:
    other = {"alibi": {"slopes": [1]}}
    kernels = parse_spec(document(depth=3, layers=[HEADS, other, dict(HEADS)])).kernels()
    assert kernels[0] is kernels[2]
    assert kernels[0] is not kernels[1]


def test_specs_do_not_share_state_with_their_input() -> None:
    slopes = np.array([0.5, 1.0])
    layer = {"alibi": {"slopes": slopes}}
    spec = Spec("x", np.int64(4), 2, [layer], MIXING)  # type: ignore[arg-type]
    slopes[0] = 7
    layer.clear()
    spec.as_dict()["layers"].clear()
    assert spec.as_dict()["layers"] == [{"alibi": {"slopes": [0.5, 1.0]}}]
    assert type(spec.length) is int


def test_equality_leaves_provenance_out() -> None:
    spec = parse_spec(document())
    assert spec == spec.with_provenance({"file": "other"})
    assert spec != spec.with_mixing(0.4)
    assert spec != "spec"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"lenght": 3}, "unknown key 'lenght', did you mean 'length'?"),
        ({"length": ...}, "lacks the key 'length'"),
        ({"layers": ...}, "lacks the key 'layers'"),
        ({"depth": ...}, "lacks the key 'depth'"),
        ({"length": 1}, "length is 1"),
        ({"length": 8.0}, "length is 8.0"),
        ({"length": True}, "length is True"),
        ({"length": "8"}, "length is '8'"),
        ({"depth": 0}, "depth is 0"),
        ({"depth": 2**60}, "depth is"),
        ({"depth": 3, "layers": [HEADS, HEADS]}, "layers has 2 entries for depth 3"),
        ({"layers": []}, "layers is []"),
        ({"layers": HEADS}, "layers is {"),
        ({"layers": [1]}, "layers[0] is 1"),
        ({"layers": [HEADS, {"head": []}]}, "layers[1] has an unknown key 'head', did you mean"),
        ({"layers": [{}]}, "layers[0]"),
        ({"layers": [{"heads": []}]}, "layers[0]"),
        ({"layers": [{"heads": [{"wieght": 1}]}]}, "heads[0] has an unknown key 'wieght', did"),
        ({"layers": [{"heads": [{"diagonal": "x"}]}]}, "layers[0]: heads[0]"),
        ({"layers": [{"heads": [{"diagonal": float("nan")}]}]}, "layers[0].heads[0].diagonal"),
        ({"layers": [{"heads": [{"diagonal": 10**400}]}]}, "layers[0].heads[0].diagonal"),
        ({"layers": [{"heads": [{"position": {"type": "aliby"}}]}]}, "did you mean 'alibi'"),
        ({"layers": [{"alibi": {"slope": [1]}}]}, "did you mean 'slopes'"),
        ({"layers": [{"alibi": {"slopes": [1, 2], "diagonal": [1]}}]}, "shape (1,)"),
        ({"layers": [{"alibi": {"slopes": [[1]]}}]}, "layers[0]"),
        ({"layers": [{"alibi": {"slopes": {1: 2}}}]}, "keys are text"),
        ({"layers": [{"alibi": {"slopes": [Ellipsis]}}]}, "of type ellipsis"),
        ({"mask": {"type": "causual"}}, "mask"),
        ({"mixing": {"type": "constant", "value": 1.5}}, "mixing"),
        ({"mixing": 0.3}, "mixing is 0.3"),
        ({"mixing": {"type": "custom", "values": [0.1]}}, "1 layers; 2 are required"),
        ({"provenance": []}, "provenance is []"),
        ({"provenance": {"a": float("inf")}}, "provenance.a is inf"),
        ({"name": 3}, "name is 3"),
        ({"posbias_spec": "1"}, "posbias_spec is '1'"),
    ],
    ids=str,
)
def test_wrong_documents(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(SpecError) as caught:
        parse_spec(document(**changes))
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "layer",
    [
        {"alibi": {"slopes": [1e8]}},
        {"alibi": {"slopes": [1e308]}},
        {"alibi": {"slopes": [1], "diagonal": [-1e300]}},
        {"alibi": {"slopes": [1]}, "temperature": 1e-300},
        {"heads": [{"diagonal": 2e8}]},
        {"heads": [{"key": [0, 0, 0, -1e308]}]},
        {"heads": [{"sink": {"count": 1, "logit": 1e300}}]},
        {"heads": [{"position": {"type": "table", "bias": [1e308, None, -1e308]}}]},
        {"heads": [{"position": {"type": "kerple_power", "r1": 1, "r2": 1e300}}]},
        {"heads": [{"position": {"type": "cosine", "amp": 1e200, "theta": 1}}]},
    ],
    ids=str,
)
def test_logits_beyond_float64_are_refused(layer: dict[str, Any]) -> None:
    with pytest.raises(SpecError, match=r"layers\[0\]: .*(logits reach|overflows)"):
        parse_spec(document(layers=[layer]))


large = st.sampled_from([0.0, 1e-320, 1.0, -700.0, 1e4, -1e6, 1e7])
large_heads = st.fixed_dictionaries(
    {
        "position": st.one_of(
            st.builds(lambda x: {"type": "alibi", "slope": x}, large),
            st.builds(lambda x: {"type": "cosine", "amp": x, "theta": 1}, large),
            st.builds(lambda x: {"type": "table", "bias": [x, -x, None, x]}, large),
        )
    },
    optional={
        "diagonal": large,
        "key": st.lists(large, min_size=4, max_size=4),
        "sink": st.fixed_dictionaries({"count": st.integers(0, 5), "logit": large}),
    },
)


@settings(max_examples=60)
@given(st.lists(large_heads, min_size=1, max_size=2), st.sampled_from(["causal", "full"]))
def test_large_logits_give_rows_that_sum_to_one(heads: list[Any], mask: str) -> None:
    spec = parse_spec(document(layers=[{"heads": heads, "mask": {"type": mask}}]))
    assert spec.rollout().profile().mass.sum() == pytest.approx(1, abs=1e-9)


def test_deep_documents_are_refused() -> None:
    nested: Any = []
    for _ in range(2000):
        nested = [nested]
    with pytest.raises(SpecError, match="deeper"):
        parse_spec(document(provenance={"a": nested}))


def test_slopes_of_twelve_heads() -> None:
    eight = [2.0**-k for k in range(1, 9)]
    np.testing.assert_allclose(alibi_slopes(8), eight, rtol=1e-15)
    np.testing.assert_allclose(textbook_slopes(8), eight, rtol=1e-15)
    extra = [2.0**-0.5, 2.0**-1.5, 2.0**-2.5, 2.0**-3.5]
    np.testing.assert_allclose(alibi_slopes(12), [*eight, *extra], rtol=1e-15)
    np.testing.assert_allclose(textbook_slopes(12), [2 ** (-8 * h / 12) for h in range(1, 13)])
    for wrong in (0, -1, 2.0, True, "8"):
        with pytest.raises(ValueError, match="heads"):
            alibi_slopes(wrong)  # type: ignore[arg-type]
