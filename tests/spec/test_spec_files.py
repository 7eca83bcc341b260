"""Files: YAML 1.2, JSON, round trips, and files that are no specs."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from posbias.errors import OutputExistsError, SpecError
from posbias.spec import Spec, load_spec, parse_spec, save_spec
from posbias.spec._yaml import dump_yaml, parse_yaml


def parse(text: str) -> Any:
    return parse_yaml(text, "spec.yaml")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e-5", 1e-5),
        ("1E5", 1e5),
        ("-.5e+1", -5.0),
        ("1.", 1.0),
        ("+3", 3),
        ("010", 10),
        ("0o17", 15),
        ("0x1F", 31),
        (".inf", math.inf),
        ("-.INF", -math.inf),
        ("~", None),
        ("null", None),
        ("", None),
        ("true", True),
        ("FALSE", False),
        ("yes", "yes"),
        ("no", "no"),
        ("on", "on"),
        ("1_000", "1_000"),
        ("1:30", "1:30"),
        ("2020-01-02", "2020-01-02"),
        ("'1'", "1"),
        ('"null"', "null"),
        ("!!str 1", "1"),
        (".", "."),
        ("-a", "-a"),
        ("1e", "1e"),
        ("<<", "<<"),
    ],
)
def test_scalars_of_yaml_1_2(text: str, value: object) -> None:
    parsed = parse(f"a: {text}")["a"]
    assert parsed == value
    assert type(parsed) is type(value)


def test_nan_is_a_number() -> None:
    assert math.isnan(parse("a: .nan")["a"])


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("a:\t1\t# note\n\t\nb: [1,\t2,\n\t3]\n", {"a": 1, "b": [1, 2, 3]}),
        ("a: {b:\t1,\tc: 2}\t\n", {"a": {"b": 1, "c": 2}}),
        ('a: "x\ty"\n', {"a": "x\ty"}),
        ("a: 'x\ty'\n", {"a": "x\ty"}),
        ("- &x {a: 1}\n- *x\n", [{"a": 1}, {"a": 1}]),
        ("", None),
    ],
)
def test_structures(text: str, value: object) -> None:
    assert parse(text) == value


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("\ta: 1\n", "line 1"),
        ("a:\n\tb: 1\n", "line 2"),
        ("a:\n  b: 1\n\tc: 2\n", "tab"),
        ("a: 1\nb: 2\na: 3\n", "'a' is repeated in line 3"),
        ("{a: {b: 1, b: 2}}", "'b' is repeated"),
        ("1: 2\n", "the key 1 is not text"),
        ("? [a]\n: b", "is not text"),
        ("a: !!python/name:os.system x", "tag"),
        ("a: !foo 1", "tag !foo"),
        ("a: !!set {b, c}", "tag"),
        ("a: 1\n---\nb: 2", "second document"),
        ("a: *x", "alias"),
        ("a: &x [*x]", "no anchor before it"),
        ("a: {b", "line 1"),
        ("a: \x01", "control characters"),
        ("a: " + "9" * 5000, "digits"),
        ("[" * 60 + "]" * 60, "levels"),
        ("[" * 100_000, "nest"),
    ],
)
def test_refused_yaml(text: str, reason: str) -> None:
    with pytest.raises(SpecError) as caught:
        parse(text)
    message = str(caught.value)
    assert message.startswith("spec.yaml is not valid YAML: ")
    assert reason in message
    assert "\n" not in message


def test_aliases_do_not_explode() -> None:
    lines = ["a0: &a0 [0, 0, 0, 0, 0, 0, 0, 0, 0, 0]"]
    lines += [f"a{k}: &a{k} [{', '.join([f'*a{k - 1}'] * 10)}]" for k in range(1, 12)]
    with pytest.raises(SpecError, match="aliases expand"):
        parse("\n".join(lines))


numbers = st.floats(allow_nan=False, allow_infinity=False) | st.integers(-(2**53), 2**53)
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=8) | st.sampled_from(
    ["1e-5", "yes", "no", "null", "~", "0o7", "010", ".5", "1:30", "<<", "=", " x ", "\t", "a: b"]
)
values = st.recursive(
    st.none() | st.booleans() | numbers | texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=12,
)


@given(values)
def test_yaml_round_trip(value: Any) -> None:
    parsed = parse(dump_yaml(value))
    assert parsed == value
    assert repr(parsed) == repr(value)


plain_texts = st.text("ab1.-e#:{}[], \"'\\\t", max_size=6)


@given(st.lists(numbers | plain_texts | st.dictionaries(plain_texts, numbers), max_size=4))
def test_json_is_yaml(value: Any) -> None:
    assert parse(json.dumps(value)) == value


# --- specs --------------------------------------------------------------------------------------

reals = st.floats(-50, 50)
schedules = st.one_of(
    st.none(),
    st.builds(lambda v: {"type": "constant", "value": v}, st.floats(0, 1)),
    st.builds(lambda a, b: {"type": "power", "lambda0": a, "beta": b}, st.floats(0, 1), st.just(2)),
    st.builds(
        lambda a, b: {"type": "exponential", "lambda0": a, "rho": b}, st.floats(0, 1), st.just(0.3)
    ),
    st.builds(
        lambda v: {"type": "custom", "values": v}, st.lists(st.floats(0, 1), min_size=2, max_size=2)
    ),
)
banks = st.builds(
    lambda slopes, diagonal: {"alibi": {"slopes": slopes, "diagonal": diagonal}},
    st.lists(reals, min_size=1, max_size=3),
    reals,
)
heads = st.fixed_dictionaries(
    {},
    optional={
        "weight": st.floats(0.1, 5),
        "diagonal": reals,
        "key": st.lists(reals, min_size=4, max_size=4),
        "sink": st.fixed_dictionaries({"count": st.integers(0, 6), "logit": reals}),
        "position": st.sampled_from(
            [
                {"type": "nope"},
                {"type": "kerple_log", "r1": 1, "r2": 0.1},
                {"type": "table", "bias": [0.5, None, 1e-9]},
            ]
        ),
    },
)
layers = banks | st.builds(lambda hs: {"heads": hs}, st.lists(heads, min_size=1, max_size=2))
specs = st.builds(
    lambda name, layers, mixing: Spec(name, 4, 2, tuple(layers), mixing, {"note": name}),
    texts,
    st.lists(layers, min_size=1, max_size=2),
    schedules,
)


@given(specs)
def test_documents_round_trip(spec: Spec) -> None:
    document = spec.as_dict()
    assert parse_spec(document) == spec
    assert repr(parse_spec(parse(dump_yaml(document))).as_dict()) == repr(document)
    assert repr(parse_spec(json.loads(json.dumps(document))).as_dict()) == repr(document)


LAYER = {"alibi": {"slopes": [0.1 + 0.2, 1e-300, 5e-324]}}
MIXING = {"type": "constant", "value": 1 / 3}


@pytest.mark.parametrize("name", ["spec.yaml", "spec.json", "SPEC.JSON"])
def test_saved_spec_loads_equal(tmp_path: Path, name: str) -> None:
    spec = Spec("é 1e-5", 8, 4, (LAYER,), MIXING, {"note": True})
    save_spec(spec, tmp_path / name)
    loaded = load_spec(tmp_path / name)
    assert loaded == spec
    assert hash(loaded) == hash(spec)
    assert loaded.as_dict()["layers"][0]["alibi"]["slopes"] == LAYER["alibi"]["slopes"]
    assert loaded.provenance["note"] is True
    assert loaded.provenance["file"] == name
    with pytest.raises(OutputExistsError):
        save_spec(spec, tmp_path / name)
    save_spec(spec, tmp_path / name, overwrite=True)


def test_saved_yaml_is_yaml_for_others(tmp_path: Path) -> None:
    spec = Spec("x", 8, 4, (LAYER,), MIXING)
    save_spec(spec, tmp_path / "spec.yaml")
    assert yaml.safe_load((tmp_path / "spec.yaml").read_text()) == spec.as_dict()


def test_standard_output(capsys: pytest.CaptureFixture[str]) -> None:
    spec = Spec("x", 8, 4, (LAYER,), MIXING)
    save_spec(spec, "-")
    assert parse_spec(parse(capsys.readouterr().out)) == spec


def test_published_content_survives_saving(published_dir: Path, tmp_path: Path) -> None:
    spec = load_spec(published_dir / "all_content_fineweb-edu_mpt-7b.yaml")
    save_spec(spec, tmp_path / "own.yaml")
    own = load_spec(tmp_path / "own.yaml")
    assert own == spec
    assert (own.rollout().profile().mass == spec.rollout().profile().mass).all()


@pytest.mark.parametrize(
    ("name", "data", "reason"),
    [
        ("a.yaml", b"", "this is no spec"),
        ("a.yaml", b"just text", "this is no spec"),
        ("a.yaml", b"[1, 2]", "this is no spec"),
        ("a.json", b"", "is not valid JSON"),
        ("a.json", b"{", "is not valid JSON"),
        ("a.json", b'{"a": 1, "a": 2}', "'a' is repeated"),
        ("a.json", b"[" * 100_000, "nested too deeply"),
        ("a.json", b"9" * 5000, "is not valid JSON"),
        ("a.yaml", b"\xff\xfe\x00", "no UTF-8 text"),
        (
            "a.json",
            b'{"posbias_spec": 1, "length": NaN, "depth": 1, "layers": [{}]}',
            "length is nan",
        ),
        (
            "a.json",
            b'{"posbias_spec": 1, "length": 4, "depth": 1, "layers": '
            b'[{"alibi": {"slopes": [1, Infinity]}}]}',
            "layers[0].alibi.slopes[1] is inf",
        ),
        (
            "a.json",
            b'{"posbias_spec": 1, "length": 4, "depth": 1, "name": "\\ud800", "layers": '
            b'[{"alibi": {"slopes": [1]}}]}',
            "name",
        ),
    ],
)
def test_refused_files(tmp_path: Path, name: str, data: bytes, reason: str) -> None:
    file = tmp_path / name
    file.write_bytes(data)
    with pytest.raises(SpecError) as caught:
        load_spec(file)
    message = str(caught.value)
    assert str(file) in message
    assert reason in message
    assert "\n" not in message


@pytest.mark.parametrize("name", [".", "missing.yaml", "nul\0.yaml"])
def test_unreadable_paths(tmp_path: Path, name: str) -> None:
    with pytest.raises(SpecError, match="cannot read the spec"):
        load_spec(tmp_path / name)


def test_byte_order_mark_and_carriage_returns(tmp_path: Path) -> None:
    text = "posbias_spec: 1\nlength: 4\ndepth: 2\nlayers:\n  - alibi: {slopes: [1]}\n"
    file = tmp_path / "bom.yaml"
    file.write_bytes(b"\xef\xbb\xbf" + text.replace("\n", "\r\n").encode())
    assert load_spec(file).depth == 2
