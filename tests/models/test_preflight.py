"""Checks before a measurement: every architecture passes, broken models are refused."""

from __future__ import annotations

from copy import deepcopy

import pytest
import torch
from tiny_models import KINDS, tiny, token_ids
from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForCausalLM,
    AutoModelForSeq2SeqLM,
    BertConfig,
    BertLMHeadModel,
    CTRLConfig,
    OpenAIGPTConfig,
    XGLMConfig,
)
from transformers.models.bloom import modeling_bloom
from transformers.models.llama import modeling_llama

from posbias.errors import InputError, InstrumentationError, PosbiasError, UnsupportedModelError
from posbias.measure import measure
from posbias.models.preflight import check_model
from posbias.models.state import is_out_of_memory, measuring

SLIDING = {
    "gpt_neo": (None, 8),
    "mistral": (8, 8),
    "mixtral": (8, 8),
    "starcoder2": (8, 8),
    "gemma2": (8, None),
    "gemma3": (8, None),
    "gpt_oss": (8, None),
    "cohere2": (8, 8, 8, None),
}
LEARNED = ("gpt2", "gpt_neo", "opt", "opt-350m")
ALIBI = ("bloom", "bloom-post", "mpt", "falcon-alibi")


def check(model, ids=None):
    with measuring(model):
        return check_model(model, token_ids(2, 30) if ids is None else ids)


@pytest.mark.parametrize("kind", KINDS)
def test_every_architecture_passes(kind):
    checked = check(tiny(kind))
    assert all(result["passed"] for result in checked.checks.values())
    assert checked.checks["position_scheme"]["value"] <= 1e-6
    layers = checked.sizes.layers
    assert checked.scheme.windows == SLIDING.get(kind, (None,) * layers)
    kind_of_positions = "alibi" if kind in ALIBI else "learned" if kind in LEARNED else "rotary"
    assert checked.scheme.type == kind_of_positions


@pytest.mark.parametrize("kind", ["bloom", "mpt", "falcon-alibi", "gpt2", "llama", "gemma3"])
def test_bfloat16_passes_with_its_own_rounding(kind):
    checked = check(tiny(kind, dtype=torch.bfloat16))
    assert checked.checks["position_scheme"]["value"] <= 1e-6
    assert checked.checks["stream_identity"]["value"] == 0.0
    assert 0.0 < checked.checks["block_output"]["value"] < 5e-2


@pytest.mark.parametrize(("kind", "nope"), [("smollm3", [3]), ("cohere2", [3]), ("llama", None)])
def test_layers_without_position_encoding_are_named(kind, nope):
    assert check(tiny(kind)).scheme.describe().get("nope_layers") == nope


@pytest.mark.parametrize(
    ("kind", "kv"), [("llama", 4), ("falcon-7b", 1), ("falcon-40b", 4), ("falcon-alibi", 12)]
)
def test_key_value_heads_are_counted(kind, kv):
    assert check(tiny(kind)).sizes.kv_heads == kv


def test_unknown_architecture_is_searched(monkeypatch):
    monkeypatch.setattr("posbias.models.preflight.known_row", lambda model: None)
    for kind in ("bloom", "mpt", "llama", "gemma3", "granite", "gptj", "gpt2"):
        checked = check(tiny(kind))
        assert checked.sites.row is None
        expected = "alibi" if kind in ALIBI else "learned" if kind in LEARNED else "rotary"
        assert checked.scheme.type == expected


def test_falcon_with_alibi_is_refused_in_eager():
    with pytest.raises(UnsupportedModelError, match="adds the position bias twice"):
        check(tiny("falcon-alibi", attn="eager"))


def test_future_leak_is_refused(monkeypatch):
    model = tiny("llama", attn="eager")
    monkeypatch.setattr(modeling_llama, "create_causal_mask", lambda **options: None)
    with pytest.raises(InstrumentationError, match="causality"):
        check(model)


def test_attention_to_the_future_that_no_logit_shows_is_refused(monkeypatch):
    """A leak with zero values leaves the logits alone; the probabilities give it away."""
    model = tiny("llama", attn="eager")
    with torch.no_grad():
        for layer in model.model.layers:
            layer.self_attn.v_proj.weight.zero_()
    monkeypatch.setattr(modeling_llama, "create_causal_mask", lambda **options: None)
    with pytest.raises(InstrumentationError, match="nothing_above_diagonal"):
        check(model)


def test_stub_attention_is_refused():
    model = tiny("llama")
    model.model.layers[1].self_attn.forward = lambda hidden_states, **kwargs: (hidden_states, None)
    with pytest.raises(InstrumentationError, match="no softmax attention runs in layer 2"):
        check(model)


def test_probabilities_that_do_not_weigh_the_values_are_refused():
    model = tiny("llama", attn="eager")

    def decoy(hidden_states, **kwargs):
        n = hidden_states.shape[1]
        mask = torch.full((n, n), float("-inf")).triu(1)
        logits = torch.zeros(hidden_states.shape[0], 12, n, n) + mask
        torch.softmax(logits, dim=-1)
        return hidden_states * 0.5, None

    model.model.layers[0].self_attn.forward = decoy
    with pytest.raises(InstrumentationError, match="layer 1 does not apply"):
        check(model)


def test_other_slopes_than_the_architectures_are_refused(monkeypatch):
    monkeypatch.setattr(
        modeling_bloom, "_get_alibi_slopes", lambda heads, device: torch.full((heads,), 0.3)
    )
    with pytest.raises(InstrumentationError, match="position_scheme"):
        check(tiny("bloom"))


def test_eager_and_sdpa_must_agree(monkeypatch):
    model = tiny("llama", attn="sdpa")
    true = modeling_llama.eager_attention_forward

    def wrong(module, query, key, value, mask, scaling, **options):
        return true(module, query, key, value, mask, scaling=2 * scaling, **options)

    monkeypatch.setattr(modeling_llama, "eager_attention_forward", wrong)
    with pytest.raises(InstrumentationError, match="eager_equals_sdpa"):
        check(model)
    assert model.config._attn_implementation == "sdpa"


def test_mask_that_differs_from_the_config_is_refused():
    model = tiny("gemma3")
    model.config.sliding_window = 1000
    with torch.no_grad():
        checked = check(model)
    assert checked.scheme.windows == (1000, None)
    model = tiny("mistral")
    model.model.config = deepcopy(model.config)
    model.model.config.sliding_window = 5
    with pytest.raises(InstrumentationError, match="the mask of layer 1"):
        check(model)


@pytest.mark.parametrize("kind", ["llama", "gpt2", "mpt"])
def test_too_many_positions_are_refused(kind):
    with pytest.raises(InputError, match="65 positions, the model has 64"):
        check(tiny(kind), token_ids(2, 65))


def test_encoders_and_headless_models_are_refused():
    small = {"vocab_size": 97, "num_hidden_layers": 2, "num_attention_heads": 2}
    bert = BertConfig(hidden_size=16, intermediate_size=16, **small)
    with pytest.raises(PosbiasError, match="causality") as caught:
        check(BertLMHeadModel(bert).eval())
    assert caught.value.exit_code == 3
    t5 = AutoConfig.for_model("t5", vocab_size=97, d_model=16, d_ff=16, num_layers=1, num_heads=2)
    with pytest.raises(UnsupportedModelError, match="encoder-decoder"):
        check(AutoModelForSeq2SeqLM.from_config(t5).eval())
    with pytest.raises(UnsupportedModelError, match="output head"):
        check(AutoModel.from_config(tiny("llama").config).eval())


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_numbers_that_are_not_finite_name_the_type(dtype):
    model = tiny("llama", dtype=dtype)
    with torch.no_grad():
        model.model.layers[0].mlp.down_proj.weight.fill_(float("nan"))
    with pytest.raises(InstrumentationError, match=str(dtype).removeprefix("torch.")):
        check(model)


def small(config, dtype=torch.float32):
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(config, dtype=dtype)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.15)
    return model.eval()


def test_what_the_code_of_a_model_raises_is_one_line():
    """XGLM fills its mask with a number that float64 cannot hand to float32."""
    sizes = {"num_layers": 2, "attention_heads": 4, "ffn_dim": 32, "max_position_embeddings": 64}
    config = XGLMConfig(vocab_size=97, d_model=16, **sizes)
    assert check(small(config)).scheme.type == "learned"
    with pytest.raises(InstrumentationError, match="XGLMForCausalLM stops with RuntimeError") as c:
        check(small(config, torch.float64))
    assert c.value.exit_code == 3
    assert "\n" not in str(c.value)


@pytest.mark.parametrize(
    "error",
    [torch.OutOfMemoryError("CUDA out of memory"), MemoryError(), RuntimeError("out of memory")],
    ids=["cuda", "system", "allocator"],
)
def test_memory_that_runs_out_during_the_checks_stays_what_it_is(error):
    model = tiny("llama")

    def fail(module, args, output):
        raise error

    model.model.layers[1].register_forward_hook(fail)
    with pytest.raises(type(error)) as caught:
        check(model)
    assert is_out_of_memory(caught.value)


def test_a_mask_of_a_number_that_is_not_the_lowest_is_named():
    config = OpenAIGPTConfig(vocab_size=97, n_embd=16, n_layer=2, n_head=4, n_positions=64)
    with pytest.raises(InstrumentationError, match=r"not hidden from query 0, its logit is -10000"):
        check(small(config))


def test_embeddings_that_are_scaled_in_place_have_a_gradient():
    sizes = {"n_embd": 16, "n_layer": 2, "n_head": 4, "n_positions": 64, "dff": 32}
    result = measure(small(CTRLConfig(vocab_size=97, **sizes)), token_ids(2, 20).numpy())
    assert (result.influence().mass > 0).all()


def test_a_check_that_a_model_leaves_no_room_for_is_recorded_as_such():
    nothing = {"passed": True, "value": None, "tolerance": None}
    model = tiny("bloom")
    assert check(model).checks["eager_equals_sdpa"] == nothing
    manifest = measure(model, token_ids(2, 20).numpy()).manifest
    assert manifest["preflight"]["eager_equals_sdpa"] == nothing
    assert check(tiny("llama", num_hidden_layers=1)).checks["stream_unbroken"] == nothing


def test_state_is_restored_after_a_failure():
    model = tiny("llama").train()
    model.model.layers[1].self_attn.forward = lambda hidden_states, **kwargs: (hidden_states, None)
    with pytest.raises(InstrumentationError):
        check(model)
    assert all(module.training for module in model.modules())
    assert all(parameter.requires_grad for parameter in model.parameters())


def test_other_heads_than_the_config_names_are_refused():
    model = tiny("llama", num_hidden_layers=2)
    model.config.num_attention_heads = 6
    with pytest.raises(UnsupportedModelError, match="layer 1 has 12 heads, the config names 6"):
        check(model)
