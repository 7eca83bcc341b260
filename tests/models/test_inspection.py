"""What inspection says about every architecture, against what is known of each."""

from __future__ import annotations

import math

import pytest
from tiny_models import HEADS, KINDS, tiny, token_ids

from posbias.models.inspection import describe_layers, read_constants
from posbias.models.preflight import check_model
from posbias.models.state import measuring

PARALLEL = ("falcon-7b", "falcon-40b", "gpt_neox", "gptj", "phi", "cohere", "cohere2")
UPDATES = {
    "bloom": "self_attention.dense",
    "bloom-post": "self_attention.dense",
    "mpt": "attn",
    "falcon-alibi": "self_attention",
    "falcon-7b": "self_attention",
    "falcon-40b": "self_attention",
    "gpt2": "attn",
    "gpt_neo": "attn",
    "gptj": "attn",
    "gpt_neox": "attention",
    "gpt_neox-sequential": "attention",
    "gemma2": "post_attention_layernorm",
    "gemma3": "post_attention_layernorm",
    "olmo2": "post_attention_layernorm",
}
NORMS = {
    "gemma2": ("pre", "post"),
    "gemma3": ("pre", "post"),
    "olmo2": ("post",),
    "opt-350m": ("sum",),
}
KV_HEADS = {"falcon-7b": 1}
FULL = ("bloom", "bloom-post", "mpt", "falcon-alibi", "gpt2", "gpt_neo", "gpt_neox", "gptj")
FULL += ("gpt_neox-sequential", "opt", "opt-350m", "phi", "deepseek_v3")


def layers_of(kind):
    model, ids = tiny(kind), token_ids(2, 30)
    with measuring(model):
        return describe_layers(check_model(model, ids), ids)


@pytest.mark.parametrize("kind", KINDS)
def test_layers_are_described(kind):
    layers = layers_of(kind)
    parallel = kind in PARALLEL or kind == "stablelm-parallel"
    for number, layer in enumerate(layers, start=1):
        assert layer.layer == number
        assert layer.update == UPDATES.get(kind, "self_attn")
        assert layer.stream == ("input_layernorm" if kind == "bloom-post" else "block input")
        assert layer.norms == NORMS.get(kind, ("pre",))
        assert layer.residual == ("parallel" if parallel else "sequential")
        assert layer.multiplier == (0.22 if kind == "granite" else 1.0)
        assert layer.heads == HEADS
        assert layer.kv_heads == (HEADS if kind in FULL else KV_HEADS.get(kind, 4))
        assert (layer.sinks is not None) == (kind == "gpt_oss")
    positions = [layer.position for layer in layers]
    if kind in ("smollm3", "cohere2"):
        assert positions == ["rotary"] * 3 + ["none"]


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("llama", {}),
        ("granite", {"attention_multiplier": 0.1, "residual_multiplier": 0.22}),
        ("gemma2", {"query_pre_attn_scalar": 16, "attn_logit_softcapping": 50.0}),
        ("cohere", {"logit_scale": 0.0625}),
    ],
)
def test_multipliers_and_caps_of_the_config_are_named(kind, expected):
    found = read_constants(tiny(kind).config)
    assert {name: found[name] for name in expected} == expected
    assert bool(found) == bool(expected)


def test_the_scale_of_mpt_is_in_a_part_of_its_config():
    config = tiny("mpt").config
    config.attn_config.softmax_scale = 0.5
    assert read_constants(config)["softmax_scale"] == 0.5


@pytest.mark.parametrize("kind", ["bloom", "mpt", "falcon-alibi"])
def test_slopes_are_the_effective_ones(kind):
    # Twelve heads: 2^-1 .. 2^-8 for the first eight, then 2^-0.5, 2^-1.5, ... for the others.
    scale = 1.0 / math.sqrt(4) if kind == "falcon-alibi" else 1.0
    low, high = layers_of(kind)[0].slopes
    assert low == pytest.approx(2.0**-8 * scale)
    assert high == pytest.approx(2.0**-0.5 * scale)
