"""Certificates of the stream in half precision, with one massive token in every window."""

from __future__ import annotations

from types import MethodType

import pytest
import torch
from tiny_models import tiny, token_ids
from torch import nn
from transformers import AutoConfig, AutoModelForCausalLM

from posbias.errors import InstrumentationError, UnsupportedModelError
from posbias.models.preflight import check_model, locate
from posbias.models.state import measuring

HALF = [torch.bfloat16, torch.float16]
SIZES = {
    **{"vocab_size": 97, "hidden_size": 48, "intermediate_size": 64, "num_hidden_layers": 3},
    **{"num_attention_heads": 12, "num_key_value_heads": 4, "head_dim": 8, "pad_token_id": 0},
}
POST = "post_attention_layernorm"
UPDATES = {
    "exaone4": (POST, {"sliding_window": 8, "sliding_window_pattern": 2}),
    "olmo3": (POST, {"sliding_window": 8}),
    "glm4": ("post_self_attn_layernorm", {}),
    "seed_oss": ("self_attn", {}),
}


def massive(model):
    """Scale the embeddings and give token 1 one entry that is far larger than all others."""
    with torch.no_grad():
        weight = model.get_input_embeddings().weight
        weight.mul_(4)
        weight[1, 3] = 500.0
    return model


def windows():
    ids = token_ids(2, 24)
    ids[:, 0] = 1
    return ids


def unlisted(kind, dtype):
    torch.manual_seed(0)
    config = AutoConfig.for_model(kind, **SIZES, **UPDATES[kind][1])
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32).eval()
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if "norm" in name:
                weight.add_(0.2 * torch.randn_like(weight))
            else:
                weight.mul_(4)
    return massive(model).to(dtype)


@pytest.mark.parametrize("dtype", [*HALF, torch.float32])
@pytest.mark.parametrize("kind", UPDATES)
def test_the_search_finds_the_update_beside_a_massive_token(kind, dtype):
    """Errors relative to the largest entry of all tokens let a scaled attention output pass."""
    model = unlisted(kind, dtype)
    with measuring(model):
        found = locate(model, windows())
    expected, _ = UPDATES[kind]
    for site in found.layers:
        assert site.multiplier == 1.0
        assert site.update is site.block.get_submodule(expected) or (
            site.update is getattr(site.attention, "o_proj", None) and expected == "self_attn"
        )


def halved(self, hidden_states, **options):
    update, _ = self.self_attn(hidden_states=self.input_layernorm(hidden_states), **options)
    stream = hidden_states + 0.5 * update
    return stream + self.mlp(self.post_attention_layernorm(stream))


@pytest.mark.parametrize("dtype", [*HALF, torch.float32])
def test_half_of_the_update_of_a_listed_model_is_refused(dtype):
    model = massive(tiny("llama")).to(dtype)
    for layer in model.model.layers:
        layer.forward = MethodType(halved, layer)
    with measuring(model), pytest.raises(InstrumentationError, match=r"relative error 0\.5"):
        check_model(model, windows())


def test_an_update_that_rounding_swallows_is_refused():
    model = tiny("llama")
    with torch.no_grad():
        model.get_input_embeddings().weight.copy_(1000.0 + 10.0 * torch.randn(97, 48))
    with measuring(model):
        check_model(model, windows())
    model = model.to(torch.bfloat16)
    with torch.no_grad():
        for layer in model.model.layers:
            layer.self_attn.o_proj.weight.mul_(1e-3)
    with measuring(model), pytest.raises(InstrumentationError, match="Measure in float32"):
        check_model(model, windows())


class NearlyTheSame(nn.Module):
    """A module whose output differs from its input by 3 % of each entry."""

    def forward(self, hidden_states):
        sign = 1.0 - 2.0 * (torch.arange(hidden_states.shape[-1]) % 2)
        return hidden_states * (1.0 + 0.03 * sign).to(hidden_states.dtype)


def test_two_candidates_within_the_tolerance_of_bfloat16_are_refused():
    for dtype in (torch.float32, torch.bfloat16):
        model = unlisted("exaone4", dtype)
        for layer in model.model.layers:
            layer.post_attention_layernorm = NearlyTheSame()
        with measuring(model):
            if dtype == torch.float32:
                found = locate(model, windows())
                assert all(s.update is s.block.post_attention_layernorm for s in found.layers)
            else:
                with pytest.raises(UnsupportedModelError, match=r"two outputs .* try float32"):
                    locate(model, windows())
