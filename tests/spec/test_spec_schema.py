"""Schema and parser agree, and no document makes the parser fail in another way than it should."""

from __future__ import annotations

import json
from importlib.resources import files
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from spec_documents import HEADS, document

from posbias.errors import SpecError
from posbias.spec import Spec, load_spec, parse_spec, spec_schema

EXAMPLES = Path(str(files("posbias.spec") / "examples"))
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
