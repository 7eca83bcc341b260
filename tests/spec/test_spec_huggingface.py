"""Configs of Hugging Face models."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from posbias.errors import SpecError
from posbias.spec import Spec, load_spec
from posbias.spec.huggingface import parse_config


def windows(spec: Spec) -> list[int | None]:
    found = [layer["mask"].get("window") for layer in spec.layers]
    return found * spec.depth if len(found) == 1 else found


def llama(**changes: Any) -> dict[str, Any]:
    return {
        "model_type": "llama",
        "num_hidden_layers": 4,
        "num_attention_heads": 2,
        "max_position_embeddings": 64,
        **changes,
    }


@pytest.mark.parametrize("heads", [12, 112])
def test_bloom(tmp_path: Path, heads: int) -> None:
    folder = tmp_path / "bloom-tiny"
    folder.mkdir()
    config = {"model_type": "bloom", "n_layer": 3, "n_head": heads, "hidden_size": 4 * heads}
    (folder / "config.json").write_text(json.dumps(config))
    spec = load_spec(folder / "config.json")
    assert (spec.name, spec.depth, spec.length, spec.mixing) == ("bloom-tiny", 3, 2048, None)
    slopes = spec.layers[0]["alibi"]["slopes"]
    assert len(slopes) == heads
    power = 8 if heads == 12 else 64
    assert slopes[: power : power - 1] == [2 ** (-8 / power), 2**-8]
    assert slopes[power] == 2 ** (-4 / power)
    with pytest.raises(SpecError, match=r"with_mixing.*--mixing"):
        spec.rollout()
    assert spec.with_mixing(0.3).rollout(16).profile().n == 16
    assert spec.provenance["format"] == "config.json"


def test_falcon() -> None:
    config = {"model_type": "falcon", "num_hidden_layers": 2, "num_attention_heads": 8}
    rotary = parse_config({**config, "alibi": False, "hidden_size": 512}, "x")
    assert rotary.layers == (
        {"heads": [{"position": {"type": "nope"}}], "mask": {"type": "causal"}},
    )
    biased = parse_config({**config, "alibi": True, "hidden_size": 512}, "x")
    expected = [2.0**-k / math.sqrt(64) for k in range(1, 9)]
    np.testing.assert_allclose(biased.layers[0]["alibi"]["slopes"], expected, rtol=1e-15)
    with pytest.raises(SpecError, match="lacks the hidden size"):
        parse_config({**config, "alibi": True}, "x")


def test_mpt() -> None:
    config = {"model_type": "mpt", "n_layers": 2, "n_heads": 4, "max_seq_len": 128}
    spec = parse_config({**config, "attn_config": {"alibi": True, "alibi_bias_max": 16}}, "x")
    assert spec.length == 128
    assert spec.layers[0]["alibi"]["slopes"] == [2.0 ** (-2 * k) for k in range(1, 5)]
    learned = parse_config({**config, "attn_config": {"alibi": False}}, "x")
    assert "alibi" not in learned.layers[0]


def test_llama_is_uniform() -> None:
    spec = parse_config(llama(), "x")
    assert (spec.length, spec.depth, len(spec.layers)) == (64, 4, 1)
    np.testing.assert_allclose(spec.kernels()[0].row(3)[:4], 0.25)


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({"model_type": "llama", "sliding_window": None}, [None] * 4),
        ({"model_type": "mistral", "sliding_window": 8}, [8] * 4),
        ({"model_type": "mistral", "sliding_window": None}, [None] * 4),
        ({"model_type": "mistral"}, [4096] * 4),
        ({"model_type": "mixtral"}, [None] * 4),
        ({"model_type": "phi3", "sliding_window": 5}, [5] * 4),
        ({"model_type": "gemma2", "sliding_window": 5}, [5, None, 5, None]),
        ({"model_type": "cohere2", "sliding_window": 5}, [5, 5, 5, None]),
        (
            {"model_type": "gemma3_text", "sliding_window": 5, "sliding_window_pattern": 2},
            [5, None, 5, None],
        ),
        ({"model_type": "qwen2", "sliding_window": 5}, [None] * 4),
        ({"model_type": "qwen2", "sliding_window": 5, "use_sliding_window": False}, [None] * 4),
        (
            {
                "model_type": "qwen2",
                "sliding_window": 5,
                "use_sliding_window": True,
                "max_window_layers": 3,
            },
            [None, None, None, 5],
        ),
        (
            {"model_type": "qwen2", "sliding_window": 5, "use_sliding_window": True},
            [None] * 4,
        ),
        (
            {"model_type": "qwen2_moe", "sliding_window": 5, "use_sliding_window": True},
            [5, None, 5, None],
        ),
        (
            {"model_type": "qwen3_moe", "sliding_window": 5, "use_sliding_window": True},
            [5] * 4,
        ),
        ({"model_type": "smollm3", "sliding_window": 5}, [None] * 4),
        (
            {"model_type": "smollm3", "sliding_window": 5, "use_sliding_window": True},
            [None, None, None, 5],
        ),
        (
            {
                "model_type": "smollm3",
                "sliding_window": 5,
                "use_sliding_window": True,
                "no_rope_layers": [1, 0, 1, 0],
            },
            [None, 5, None, 5],
        ),
        (
            {
                "model_type": "gemma2",
                "sliding_window": 5,
                "layer_types": ["full_attention"] * 3 + ["sliding_attention"],
            },
            [None, None, None, 5],
        ),
        (
            {"model_type": "gpt_neo", "attention_types": [[["global", "local"], 2]]},
            [None, 256, None, 256],
        ),
        (
            {
                "model_type": "gpt_neo",
                "attention_types": [[["local"], 1], [["global"], 3]],
                "window_size": 7,
            },
            [7, None, None, None],
        ),
    ],
    ids=str,
)
def test_windows(config: dict[str, Any], expected: list[int | None]) -> None:
    assert windows(parse_config(llama(**config), "x")) == expected


def test_gemma3_inside_a_multimodal_config() -> None:
    kinds = ["sliding_attention"] * 3 + ["full_attention"]
    text = llama(sliding_window=6, layer_types=kinds)
    del text["model_type"]
    spec = parse_config({"model_type": "gemma3", "vision_config": {}, "text_config": text}, "x")
    assert windows(spec) == [6, 6, 6, None]
    assert spec.provenance["model_type"] == "gemma3_text"
    inner = parse_config({"model_type": "llava", "text_config": llama()}, "x")
    assert inner.provenance["model_type"] == "llama"


@pytest.mark.parametrize(
    "name",
    ["bloom", "cohere2", "deepseek_v3", "falcon", "gemma2", "gemma3_text", "gpt2", "gpt_neo",
     "gpt_neox", "llama", "ministral", "mistral", "mixtral", "mpt", "opt", "phi3", "qwen2",
     "qwen2_moe", "qwen3", "smollm3", "stablelm", "starcoder2"],
)  # fmt: skip
def test_defaults_agree_with_transformers(name: str) -> None:
    transformers = pytest.importorskip("transformers")
    config = transformers.AutoConfig.for_model(name)
    document = json.loads(config.to_json_string(use_diff=False))
    spec = parse_config({**document, "model_type": name}, name)
    assert spec.depth == config.num_hidden_layers
    kinds = getattr(config, "layer_types", None)
    window = getattr(config, "sliding_window", None)
    if name == "gpt_neo":
        expected = [config.window_size if k == "local" else None for k in config.attention_layers]
    elif kinds is not None:
        expected = [window if kind == "sliding_attention" else None for kind in kinds]
    else:
        expected = [window] * spec.depth
    assert windows(spec) == expected
    document.pop("layer_types", None)
    assert windows(parse_config({**document, "model_type": name}, name)) == expected


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ({"model_type": "bert"}, "'bert' is not one of the decoder-only families"),
        ({"model_type": "t5", "is_encoder_decoder": True}, "'t5' is not one of"),
        (llama(is_encoder_decoder=True), "is not one of"),
        (llama(model_type="gemma3_text", use_bidirectional_attention=True), "not causal"),
        ({"model_type": None}, "model type None"),
        ({"model_type": ["llama"]}, "model type ['llama']"),
        (llama(num_hidden_layers=None), "lacks the number of layers"),
        (llama(num_hidden_layers="4"), "num_hidden_layers is '4'"),
        (llama(num_hidden_layers=0), "num_hidden_layers is 0"),
        (llama(num_attention_heads=2.0), "num_attention_heads is 2.0"),
        (llama(max_position_embeddings="64"), "max_position_embeddings is '64'"),
        (llama(max_position_embeddings=1), "length is 1"),
        (llama(model_type="mistral", sliding_window="8"), "sliding_window is '8'"),
        (llama(model_type="mistral", sliding_window=0), "sliding_window is 0"),
        (llama(model_type="mistral", sliding_window=True), "sliding_window is True"),
        (llama(layer_types=["full_attention"] * 3), "layer_types has 3 entries for 4"),
        (llama(layer_types=["linear_attention"] * 4), "layer_types is ['linear_attention'"),
        (llama(layer_types=["sliding_attention"] * 4), "no sliding_window"),
        (llama(layer_types="full"), "layer_types is 'full'"),
        (llama(model_type="qwen2", use_sliding_window="yes"), "use_sliding_window is 'yes'"),
        (llama(model_type="gemma3_text", sliding_window_pattern=0), "sliding_window_pattern is 0"),
        (llama(model_type="gpt_neo", attention_types=3), "attention_types is 3"),
        (llama(model_type="gpt_neo", attention_types=[3]), "attention_types is [3]"),
        (llama(model_type="gpt_neo", attention_types=[[["far"], 4]]), "attention_types is"),
        (llama(model_type="gpt_neo", attention_types=[[["local"], 3]]), "describes 3 layers"),
        (llama(model_type="gpt_neo", attention_types=[[["local"], 10**30]]), "attention_types"),
        (llama(model_type="gpt_neo", attention_types=[[[["local"]], 4]]), "attention_types is"),
        (llama(model_type="falcon", alibi=True, hidden_size=65), "not a multiple"),
        (llama(model_type="falcon", alibi="yes"), "alibi is 'yes'"),
    ],
    ids=str,
)
def test_refused(document: dict[str, Any], message: str) -> None:
    with pytest.raises(SpecError) as caught:
        parse_config(document, "x")
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


KEYS = [
    "num_hidden_layers", "num_attention_heads", "hidden_size", "max_position_embeddings", "alibi",
    "sliding_window", "use_sliding_window", "layer_types", "sliding_window_pattern",
    "max_window_layers", "no_rope_layers", "no_rope_layer_interval", "attention_types",
    "window_size", "attn_config", "text_config", "is_encoder_decoder",
]  # fmt: skip
anything = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-2, 9)
    | st.floats()
    | st.sampled_from(["", "local", "global", "full_attention", "sliding_attention", 10**400]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from([*KEYS, "model_type"]), inner, max_size=3)
    ),
    max_leaves=8,
)


@settings(max_examples=100)
@given(
    st.sampled_from(["llama", "bloom", "falcon", "mpt", "gpt_neo", "qwen2", "smollm3", "gemma2"]),
    st.dictionaries(st.sampled_from(KEYS), anything, max_size=4),
)
def test_any_config(kind: str, changes: dict[str, Any]) -> None:
    try:
        outcome: Spec | str = parse_config(llama(**{**changes, "model_type": kind}), "x")
    except SpecError as error:
        outcome = str(error)
    if isinstance(outcome, Spec):
        assert len(outcome.layers) in (1, outcome.depth)
    else:
        assert "\n" not in outcome
