"""The package's own form: what it accepts, refuses and means."""

from __future__ import annotations

import json
from importlib.resources import files
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from posbias.errors import SpecError
from posbias.rollout import MixingSchedule
from posbias.spec import Spec, alibi_slopes, load_spec, parse_spec, spec_schema, textbook_slopes

EXAMPLES = Path(str(files("posbias.spec") / "examples"))
HEADS = {"heads": [{"position": {"type": "nope"}}]}
MIXING = {"type": "constant", "value": 0.3}


def document(**changes: Any) -> dict[str, Any]:
    whole = {"posbias_spec": 1, "length": 4, "depth": 2, "layers": [HEADS], "mixing": MIXING}
    return {key: value for key, value in {**whole, **changes}.items() if value is not ...}


# --- the schema ---------------------------------------------------------------------------------

VALIDATOR = jsonschema.Draft202012Validator(spec_schema())


def is_accepted(value: Any) -> bool:
    try:
        parse_spec(value)
    except SpecError:
        return False
    return True


def test_schema_is_one() -> None:
    jsonschema.Draft202012Validator.check_schema(spec_schema())


def test_schema_is_a_copy() -> None:
    spec_schema().clear()
    assert spec_schema()["type"] == "object"


@pytest.mark.parametrize("file", sorted(EXAMPLES.glob("*.yaml")), ids=lambda file: file.name)
def test_examples(file: Path) -> None:
    spec = load_spec(file)
    VALIDATOR.validate(spec.as_dict())
    assert spec.rollout().profile().mass.sum() == pytest.approx(1)
    assert parse_spec(spec.as_dict()) == spec


ODD = st.sampled_from([None, True, "0.5", [], {}, -1, 0.5, ["a"], {"type": "x"}, [True]])


def maybe_odd(good: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Return good values, and an odd one now and then."""
    return st.integers(0, 59).flatmap(lambda k: ODD if k == 7 else good)


def mapping(
    required: dict[str, st.SearchStrategy[Any]], **optional: st.SearchStrategy[Any]
) -> st.SearchStrategy[dict[str, Any]]:
    """Return mappings whose values may be odd, that may lack a key or have a foreign one."""

    def spoil(pair: tuple[dict[str, Any], int]) -> dict[str, Any]:
        values, dice = pair
        if dice == 3:
            return {**values, "colour": 1}
        if dice == 5 and values:
            return dict(list(values.items())[1:])
        return values

    fixed = st.fixed_dictionaries(
        {key: maybe_odd(value) for key, value in required.items()},
        optional={key: maybe_odd(value) for key, value in optional.items()},
    )
    return st.tuples(fixed, st.integers(0, 39)).map(spoil)


def typed(name: str, **fields: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    return mapping({"type": st.just(name), **fields})


real = st.floats(-5, 5).map(lambda x: round(x, 3) + 0.0001)
unit = st.floats(0, 1).map(lambda x: round(x, 3))
masks = st.one_of(
    typed("causal"),
    typed("full"),
    typed("sliding_window", window=st.integers(0, 5)),
    typed("window_sink", window=st.integers(1, 5), sinks=st.integers(-1, 5)),
    typed("prefix_lm", prefix=st.integers(-1, 5)),
)
positions = st.one_of(
    typed("nope"),
    typed("alibi", slope=real),
    mapping({"type": st.just("alibi"), "slope": real}, future=st.sampled_from(["abs", "signed"])),
    typed("kerple_log", r1=real, r2=real),
    typed("kerple_power", r1=real, r2=real),
    typed("t5", num_buckets=st.just(2), max_distance=st.just(4), bias=st.just([1, 0.5])),
    typed("cosine", amp=real, theta=real),
    typed("rope_sum", amp=real, dim=st.integers(1, 4), base=real),
    typed("table", bias=st.lists(real | st.none(), min_size=1, max_size=4)),
)
heads = mapping(
    {},
    weight=real,
    position=positions,
    diagonal=real,
    key=st.just([0.5, 0, 1, 2]),
    sink=mapping({"count": st.integers(-1, 3), "logit": real}),
)
banks = st.integers(1, 3).flatmap(
    lambda size: mapping(
        {"slopes": st.lists(real, min_size=size, max_size=size)},
        diagonal=real | st.lists(real, min_size=size, max_size=size),
        weights=st.lists(st.floats(0.5, 2), min_size=size, max_size=size),
    )
)
layer_lists = st.one_of(
    st.lists(
        mapping(
            {
                "heads": st.lists(
                    heads.filter(lambda h: h.get("weight") != 0), min_size=1, max_size=2
                )
            },
            mask=masks,
            temperature=real,
        )
        | mapping({"alibi": banks}, mask=masks),
        min_size=2,
        max_size=2,
    ),
    st.lists(mapping({"alibi": banks}, mask=masks), min_size=1, max_size=1),
)
mixings = st.one_of(
    typed("constant", value=unit),
    typed("power", lambda0=unit, beta=st.floats(0, 3)),
    typed("exponential", lambda0=unit, rho=unit),
    typed("custom", values=st.lists(unit, min_size=2, max_size=2)),
    typed("custom", values=st.just([[0.1, 0.2, 0.3, 0.4], [0.5, 0.5, 0.5, 0.5]])),
)
documents = mapping(
    {"posbias_spec": st.just(1), "length": st.just(4), "layers": layer_lists},
    depth=st.just(2),
    mixing=mixings,
    mask=masks,
    name=st.just("x"),
    provenance=st.just({"a": [True, None]}),
)


@settings(max_examples=120)
@given(documents)
@example(document(depth=...))
@example(document(depth=..., mixing={"type": "custom", "values": [0.1, 0.2]}))
@example(document(depth=..., layers=[HEADS, HEADS]))
@example(document(mixing=...))
@example(document(mixing=None))
@example(document(mask=None))
@example(document(posbias_spec=True))
@example(document(posbias_spec=2))
@example(document(name=None))
@example(document(length=2**40))
@example(document(layers=[{**HEADS, "mask": None}]))
@example(document(layers=[{"heads": [{"position": None, "key": None, "sink": None}]}]))
@example(document(layers=[{"alibi": {"slopes": [1], "weights": None}}]))
@example(document(layers=[{"alibi": {"slopes": [1, True]}}]))
@example(document(mask={"type": "causual"}, layers=[{**HEADS, "mask": {"type": "full"}}]))
def test_parser_and_schema_agree(value: Any) -> None:
    assert is_accepted(value) == VALIDATOR.is_valid(value), value


# --- meaning ------------------------------------------------------------------------------------


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
        ({"layers": [{"alibi": {"slopes": [object()]}}]}, "of type object"),
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


# --- arbitrary documents ------------------------------------------------------------------------

scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 40),
    st.floats(),
    st.text(max_size=3),
    st.sampled_from([10**400, 2**40, "alibi", "causal", "nope", "constant", "custom", "full"]),
)
KEYS = [
    "heads",
    "alibi",
    "slopes",
    "diagonal",
    "weights",
    "mask",
    "type",
    "window",
    "temperature",
    "weight",
    "position",
    "key",
    "sink",
    "count",
    "logit",
    "bias",
    "value",
    "values",
    "slope",
]
anything = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(KEYS) | st.text(max_size=2), inner, max_size=4)
    ),
    max_leaves=10,
)


def parse_or_message(value: Any) -> Spec | str:
    """Return the spec, or the message of a `SpecError`; any other exception passes."""
    try:
        return parse_spec(value)
    except SpecError as error:
        return str(error)


@settings(max_examples=60)
@given(
    st.sampled_from(
        ["name", "length", "depth", "mask", "layers", "mixing", "provenance", "posbias_spec"]
    ),
    anything,
)
def test_any_value_under_any_key(key: str, value: Any) -> None:
    outcome = parse_or_message(document(**{key: value}))
    if isinstance(outcome, Spec):
        assert parse_spec(json.loads(json.dumps(outcome.as_dict()))) == outcome
    else:
        assert "\n" not in outcome


@settings(max_examples=60)
@given(st.sampled_from(["layer", "alibi", "head", "position", "mask", "sink"]), anything)
def test_any_value_inside_a_layer(place: str, value: Any) -> None:
    entry = {
        "layer": value,
        "alibi": {"alibi": value},
        "head": {"heads": [value]},
        "position": {"heads": [{"position": value}]},
        "mask": {**HEADS, "mask": value},
        "sink": {"heads": [{"sink": value}]},
    }[place]
    outcome = parse_or_message(document(layers=[entry]))
    if isinstance(outcome, Spec):
        assert outcome.kernels()[0].n == outcome.length
    else:
        assert outcome.startswith("layers[0]")
        assert "\n" not in outcome
