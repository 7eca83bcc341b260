"""A measurement does not depend on how it runs and leaves the model as it came."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from tiny_models import tiny, token_ids
from transformers import (
    AutoConfig,
    AutoModelForSeq2SeqLM,
    BertConfig,
    BertLMHeadModel,
    Gemma3Config,
    Gemma3ForConditionalGeneration,
)

from posbias.errors import InputError, InstrumentationError, ModelError, UnsupportedModelError
from posbias.measure import MeasureOptions, measure
from posbias.measure.accumulators import Accumulator
from posbias.models.state import forward_logits

MUST = ("bloom", "mpt", "falcon-alibi", "gpt2", "llama", "gemma3")


def hooks_of(model):
    return [
        (module, len(module._forward_hooks), len(module._forward_pre_hooks))
        for module in model.modules()
    ]


def relative(left, right):
    scale = max(np.abs(left).max(), 1e-300)
    return np.abs(left - right).max() / scale


@pytest.mark.parametrize("kind", MUST)
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-10), (torch.float32, 1e-5)])
def test_batch_size_does_not_matter(kind, dtype, tolerance):
    model, ids = tiny(kind, dtype=dtype), token_ids(5, 20).numpy()
    single, several = (measure(model, ids, batch_size=size).arrays for size in (1, 4))
    assert set(single) == set(several)
    for name in single:
        assert relative(single[name], several[name]) <= tolerance, name


@pytest.mark.parametrize("kind", MUST)
def test_checkpointing_counts_nothing_twice(kind):
    model, ids = tiny(kind, dtype=torch.float64), token_ids(3, 20).numpy()
    plain, recomputed = (measure(model, ids, checkpoint=flag).arrays for flag in (False, True))
    for name in plain:
        np.testing.assert_allclose(recomputed[name], plain[name], rtol=1e-12, atol=1e-14)
    assert not any("forward" in vars(module) for module in model.modules())


@pytest.mark.parametrize("kind", MUST)
def test_model_is_left_as_it_came(kind):
    model, ids = tiny(kind), token_ids(2, 20)
    model.train()
    model.lm_head.eval()
    frozen = next(model.parameters())
    frozen.requires_grad_(False)
    enable = getattr(model, "activation_checkpointing_enable", None)
    (enable or model.gradient_checkpointing_enable)()
    model.config.use_cache = True
    before = {
        "training": [module.training for module in model.modules()],
        "grad": [parameter.requires_grad for parameter in model.parameters()],
        "hooks": hooks_of(model),
        "implementation": model.config._attn_implementation,
        "weights": {name: value.clone() for name, value in model.state_dict().items()},
        "threads": torch.get_num_threads(),
    }
    result = measure(model, ids.numpy())
    assert [module.training for module in model.modules()] == before["training"]
    assert [parameter.requires_grad for parameter in model.parameters()] == before["grad"]
    assert hooks_of(model) == before["hooks"]
    assert model.config._attn_implementation == before["implementation"]
    assert model.config.use_cache is True
    assert torch.get_num_threads() == before["threads"]
    assert all(parameter.grad is None for parameter in model.parameters())
    assert all(torch.equal(v, before["weights"][k]) for k, v in model.state_dict().items())
    evaluated = measure(tiny(kind), ids.numpy())
    for name, array in evaluated.arrays.items():
        np.testing.assert_array_equal(result.arrays[name], array)


@pytest.mark.parametrize("when", ["stream", "update", "attention"])
def test_hooks_are_gone_after_an_exception(monkeypatch, when):
    model, ids = tiny("llama"), token_ids(2, 20)
    before = hooks_of(model)
    logits = forward_logits(model, ids)

    def fail(self, *args):
        raise RuntimeError(when)

    monkeypatch.setattr(Accumulator, f"on_{when}", fail)
    with pytest.raises(
        InstrumentationError, match=f"stops with RuntimeError when it is run: {when}"
    ):
        measure(model, ids.numpy(), checkpoint=True)
    assert hooks_of(model) == before
    assert not any("forward" in vars(module) for module in model.modules())
    assert torch.equal(forward_logits(model, ids), logits)
    assert torch.overrides._get_current_function_mode() is None


@pytest.mark.parametrize("kind", ["gpt2", "llama", "gemma3", "mistral", "cohere2", "opt"])
def test_eager_and_sdpa_measure_the_same(kind):
    ids = token_ids(2, 20).numpy()
    eager = measure(tiny(kind, attn="eager"), ids)
    sdpa = measure(tiny(kind, attn="sdpa"), ids)
    assert eager.manifest["model"]["attention_implementation"] == "eager"
    assert sdpa.manifest["model"]["attention_implementation"] == "sdpa"
    for name in eager.arrays:
        assert relative(eager.arrays[name], sdpa.arrays[name]) <= 1e-4, name


def test_influence_can_be_left_out():
    model, ids = tiny("llama"), token_ids(2, 20).numpy()
    without = measure(model, ids, influence="none")
    assert without.manifest["influence_method"] is None
    assert "influence.gradient.windows" not in without.arrays
    with_it = measure(model, ids)
    for name in without.arrays:
        assert relative(with_it.arrays[name], without.arrays[name]) <= 1e-5


def test_progress_counts_windows():
    seen = []
    measure(
        tiny("gpt2"), token_ids(5, 12).numpy(), batch_size=2, progress=lambda *c: seen.append(c)
    )
    assert seen == [(2, 5), (4, 5), (5, 5)]


def test_manifest_says_what_was_measured():
    result = measure(tiny("falcon-alibi"), token_ids(2, 12).numpy(), command=["posbias", "measure"])
    model = result.manifest["model"]
    assert (model["layers"], model["heads"], model["kv_heads"]) == (2, 12, 12)
    assert model["position_scheme"]["type"] == "alibi"
    assert model["position_scheme"]["bias_rounding"] == "bfloat16"
    assert model["layer_windows"] == [None, None]
    assert result.manifest["command"] == ["posbias", "measure"]
    checks = result.manifest["preflight"]
    assert all(check["passed"] for check in checks.values())
    assert {"stream_identity", "causality", "position_scheme", "outputs_unchanged"} <= set(checks)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"length": 1}, "length is 1"),
        ({"windows": 0}, "windows is 0"),
        ({"batch_size": 0}, "batch_size"),
        ({"batch_size": True}, "batch_size"),
        ({"seed": -1}, "seed"),
        ({"threads": 0}, "threads"),
        ({"influence": "magic"}, "occlusion or none is required"),
        ({"influence": ("gradient", "none")}, "none only by itself"),
        ({"influence": ("gradient", "gradient")}, "named once"),
        ({"influence": 3}, "a method or a list of methods"),
        ({"integration_steps": 0}, "integration_steps"),
    ],
)
def test_options_out_of_range_are_refused(settings, message):
    with pytest.raises(InputError, match=message):
        MeasureOptions(**settings)


def test_unknown_and_doubled_options_are_refused():
    model, ids = tiny("gpt2"), token_ids().numpy()
    with pytest.raises(InputError, match="unknown option 'batchsize'"):
        measure(model, ids, batchsize=3)
    with pytest.raises(InputError, match="one of both"):
        measure(model, ids, options=MeasureOptions(), seed=3)


def test_what_does_not_fit_is_refused():
    model, ids = tiny("gpt2"), token_ids().numpy()
    with pytest.raises(ModelError, match="float64 was asked for"):
        measure(model, ids, dtype="float64")
    with pytest.raises(ModelError, match="model is int"):
        measure(3, ids)
    with pytest.raises(InputError, match="needs a tokenizer"):
        measure(model, ["a text"])
    with pytest.raises(InputError, match="outside the vocabulary"):
        measure(model, ids + 1000)


def test_overflow_names_the_type_and_layer():
    model = tiny("llama", dtype=torch.bfloat16)
    with torch.no_grad():
        model.model.layers[1].self_attn.o_proj.weight.fill_(float("inf"))
    with pytest.raises(InstrumentationError, match="bfloat16"):
        measure(model, token_ids().numpy())


def test_text_part_of_a_multimodal_model_is_measured():
    vision = {
        "hidden_size": 16,
        "intermediate_size": 16,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "image_size": 28,
        "patch_size": 14,
    }
    text = tiny("gemma3")
    config = Gemma3Config(
        text_config=text.config.to_dict(), vision_config=vision, mm_tokens_per_image=4
    )
    model = Gemma3ForConditionalGeneration(config).eval()
    model.model.language_model.load_state_dict(text.model.state_dict())
    model.lm_head.load_state_dict(text.lm_head.state_dict())
    ids = token_ids(2, 20).numpy()
    together, alone = measure(model, ids), measure(text, ids)
    assert together.manifest["run"]["located_by"] == "table"
    for name in alone.arrays:
        assert relative(alone.arrays[name], together.arrays[name]) <= 1e-6


def test_text_is_cut_into_windows_in_its_order():
    result = measure("embedded:bloom", "embedded", length=32, windows=5, seed=3)
    starts = result.manifest["windows"]["starts"]
    assert starts == sorted(starts)
    assert result.manifest["model"]["id"] == "embedded:bloom"
    assert result.manifest["model"]["position_scheme"]["type"] == "alibi"
    assert result.arrays["mixing.norm.windows"].shape == (5, 8, 32)
    again = measure("embedded:bloom", "embedded", length=32, windows=5, seed=3, batch_size=1)
    for name in result.arrays:
        assert relative(result.arrays[name], again.arrays[name]) <= 1e-5


def test_loaded_encoders_are_refused_by_their_configuration():
    small = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    encoder = BertLMHeadModel(BertConfig(vocab_size=97, intermediate_size=16, **small)).eval()
    with pytest.raises(UnsupportedModelError, match=r"is an encoder \(bert\)") as caught:
        measure(encoder, token_ids().numpy())
    assert caught.value.exit_code == 3
    both = AutoConfig.for_model("t5", vocab_size=97, d_model=16, d_ff=16, num_layers=1, num_heads=2)
    with pytest.raises(UnsupportedModelError, match="sequence-to-sequence"):
        measure(AutoModelForSeq2SeqLM.from_config(both).eval(), token_ids().numpy())
    decoder = BertConfig(vocab_size=97, intermediate_size=16, is_decoder=True, **small)
    result = measure(BertLMHeadModel(decoder).eval(), token_ids().numpy())
    assert result.manifest["run"]["located_by"] == "search"


@pytest.mark.parametrize(("name", "prefix"), [("embedded:llama", 1), ("embedded:bloom", 0)])
def test_manifest_says_what_begins_a_window_and_whether_it_spans_documents(name, prefix):
    for pack in (False, True):
        result = measure(name, "embedded", length=8, windows=2, influence="none", pack=pack)
        windows = result.manifest["windows"]
        assert (windows["prefix"], windows["packed"]) == (prefix, pack)
        assert windows["first_token_is_bos"] is bool(prefix)


def test_a_tensor_of_token_ids_is_taken_like_an_array():
    model, ids = tiny("llama"), token_ids(2, 12)
    ours, theirs = measure(model, ids), measure(model, ids.numpy())
    for name, array in theirs.arrays.items():
        np.testing.assert_array_equal(ours.arrays[name], array)
    for wrong in (ids.float(), ids.to(torch.bfloat16)):
        with pytest.raises(InputError, match=f"type {wrong.dtype}; token ids"):
            measure(model, wrong)


def test_a_model_in_training_mode_is_measured_without_dropout_and_stays_in_it():
    model, ids = tiny("gpt2", attn_pdrop=0.5, resid_pdrop=0.5), token_ids(2, 12)
    evaluated = measure(model, ids).arrays
    model.train()
    trained = measure(model, ids).arrays
    assert model.training
    for name, array in evaluated.items():
        np.testing.assert_array_equal(trained[name], array)
