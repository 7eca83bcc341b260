"""Seeing attention: nothing changes, every layer is seen once, hooks never stay."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from tiny_models import KINDS, tiny, token_ids
from torch.nn import functional

from posbias.errors import InstrumentationError
from posbias.models.architectures import architecture_of
from posbias.models.instrument import instrumented
from posbias.models.sites import sites_from_row
from posbias.models.state import forward_logits
from posbias.models.tap import AttentionTap

N = 20


class Keeper:
    """Keeps everything an observer receives."""

    def __init__(self):
        self.rows, self.streams, self.updates = [], {}, {}

    def on_stream(self, layer, stream):
        self.streams[layer] = stream.clone()

    def on_update(self, layer, update):
        self.updates[layer] = update.clone()

    def on_attention(self, rows):
        self.rows.append(replace(rows, logits=rows.logits.clone()))

    def attention(self, layer):
        """Return the full matrix (B, H, n, n) put together from its blocks."""
        parts = [rows for rows in self.rows if rows.layer == layer]
        assert [rows.start for rows in parts] == [0, *(rows.stop for rows in parts[:-1])]
        padded = [
            functional.pad(p.probabilities, (0, p.length - p.probabilities.shape[-1]))
            for p in parts
        ]
        return torch.cat(padded, dim=-2)


def sites_of(model):
    return sites_from_row(model, architecture_of(model.config))


def hooks(model):
    return sum(len(m._forward_hooks) + len(m._forward_pre_hooks) for m in model.modules())


@pytest.mark.parametrize("kind", KINDS)
def test_outputs_stay_bitwise_the_same(kind):
    model, ids = tiny(kind), token_ids(2, N)
    with torch.no_grad():
        plain = forward_logits(model, ids, last_only=False)
        with instrumented(sites_of(model), Keeper()) as tap:
            watched = forward_logits(model, ids, last_only=False)
    assert torch.equal(plain, watched)
    assert tap.captures == [1] * model.config.num_hidden_layers
    assert hooks(model) == 0


FUSED = ("llama", "gemma3", "mistral", "falcon-7b", "falcon-alibi")
EAGER = ("bloom", "mpt", "gpt_neo", "gpt_oss")


@pytest.mark.parametrize("kind", [*FUSED, *EAGER])
@pytest.mark.parametrize("block_rows", [1, 7, N])
def test_blocks_of_rows_make_the_same_matrix(kind, block_rows):
    model, ids = tiny(kind, attn="eager" if kind in EAGER else "sdpa"), token_ids(2, N)
    whole, parts = Keeper(), Keeper()
    with torch.no_grad():
        with instrumented(sites_of(model), whole, block_rows=1000):
            forward_logits(model, ids)
        with instrumented(sites_of(model), parts, block_rows=block_rows):
            forward_logits(model, ids)
    for layer in range(2):
        torch.testing.assert_close(parts.attention(layer), whole.attention(layer))


@pytest.mark.parametrize("kind", ["llama", "gemma3", "mistral", "gpt2", "cohere2", "deepseek_v3"])
def test_sdpa_capture_equals_the_models_own_eager_attention(kind):
    ids, keeper = token_ids(2, N), Keeper()
    with torch.no_grad():
        own = tiny(kind, attn="eager")(input_ids=ids, output_attentions=True).attentions
        model = tiny(kind, attn="sdpa")
        with instrumented(sites_of(model), keeper, block_rows=6):
            forward_logits(model, ids)
    for layer, attention in enumerate(own):
        torch.testing.assert_close(keeper.attention(layer), attention, atol=1e-5, rtol=0)


def test_observed_tensors_need_no_gradient_but_the_model_does():
    model, ids, keeper = tiny("llama"), token_ids(1, N), Keeper()
    with instrumented(sites_of(model), keeper):
        logits = forward_logits(model, ids)
    assert logits.requires_grad
    seen = [*keeper.streams.values(), *keeper.updates.values()]
    seen += [t for rows in keeper.rows for t in (rows.logits, rows.probabilities)]
    assert seen
    assert not any(tensor.requires_grad for tensor in seen)


def test_zeroed_queries_leave_uniform_attention_without_a_position_bias():
    model, ids, keeper = tiny("qwen2"), token_ids(2, N), Keeper()
    with torch.no_grad(), instrumented(sites_of(model), keeper, zero_queries=True):
        forward_logits(model, ids)
    uniform = torch.ones(N, N).tril() / torch.arange(1, N + 1)[:, None]
    torch.testing.assert_close(keeper.attention(0), uniform.expand(2, 12, N, N))


@pytest.mark.parametrize("attn", ["eager", "sdpa"])
def test_hooks_are_gone_after_a_failing_pass(attn):
    model = tiny("llama", attn=attn)

    def fail(module, args, output):
        raise RuntimeError("inside attention")

    handle = model.model.layers[1].self_attn.o_proj.register_forward_hook(fail)
    with pytest.raises(RuntimeError, match="inside"), instrumented(sites_of(model), Keeper()):
        forward_logits(model, token_ids())
    handle.remove()
    assert hooks(model) == 0
    assert torch.overrides._get_current_function_mode() is None


def test_a_layer_that_is_not_seen_is_refused():
    model = tiny("llama")
    skipped = model.model.layers[1]
    skipped.forward = lambda hidden_states, **kwargs: hidden_states
    with (
        pytest.raises(InstrumentationError, match="layer 2 was seen 0 times"),
        instrumented(sites_of(model), Keeper()),
    ):
        forward_logits(model, token_ids())


def test_two_passes_in_one_context_are_refused():
    model = tiny("llama")
    twice = token_ids()
    with (
        pytest.raises(InstrumentationError, match="more than once"),
        instrumented(sites_of(model), Keeper()),
    ):
        [forward_logits(model, twice) for _ in range(2)]


def test_attention_dropout_is_refused():
    model = tiny("llama", attn="sdpa", attention_dropout=0.5).train()
    with (
        pytest.raises(InstrumentationError, match=r"dropout 0\.5"),
        instrumented(sites_of(model), Keeper()),
    ):
        forward_logits(model, token_ids())


@pytest.mark.parametrize("call", ["function", "method", "torch", "keyword"])
def test_every_spelling_of_softmax_is_seen(call):
    logits = torch.randn(2, 3, 5, 5)
    spellings = {
        "function": lambda: functional.softmax(logits, dim=-1),
        "method": lambda: logits.softmax(-1),
        "torch": lambda: torch.softmax(logits, -1),
        "keyword": lambda: functional.softmax(input=logits, dim=-1, dtype=torch.float32),
    }
    seen = []
    tap = AttentionTap(1, seen.append, dtype=torch.float32)
    with tap:
        spellings[call]()
        assert not seen
        tap.enter(0, 2, 5)
        spellings[call]()
        tap.leave()
    (rows,) = seen
    torch.testing.assert_close(rows.logits, logits)
    torch.testing.assert_close(rows.probabilities, logits.exp() / logits.exp().sum(-1, True))


@pytest.mark.parametrize("keys", [1, 2, 4])
def test_grouped_keys_and_scale_of_fused_attention(keys):
    q, k, v = torch.randn(2, 4, 5, 3), torch.randn(2, keys, 5, 3), torch.randn(2, keys, 5, 3)
    seen = []
    tap = AttentionTap(1, seen.append, dtype=torch.float32, check_values=True)
    with tap:
        tap.enter(0, 2, 5)
        functional.scaled_dot_product_attention(q, k, v, is_causal=True, scale=0.3, enable_gqa=True)
        tap.leave()
    (rows,) = seen
    for head in range(4):
        group = head // (4 // keys)
        expected = q[:, head] @ k[:, group].transpose(-1, -2) * 0.3
        torch.testing.assert_close(rows.logits[:, head], expected)
    assert tap.value_errors[0] < 1e-6
    assert math.isclose(float(rows.probabilities[0, 0, 0, 0]), 1.0)
