"""Models that move information between tokens outside of the attention that is seen."""

from __future__ import annotations

from itertools import permutations

import pytest
import torch
from tiny_models import tiny, token_ids

from posbias.errors import InstrumentationError
from posbias.measure import measure
from posbias.models.instrument import instrumented
from posbias.models.locality import _OwnTokenOnly, _separating_sets
from posbias.models.preflight import check_model
from posbias.models.sites import known_row, sites_from_row
from posbias.models.state import forward_logits, measuring

_FUSED = ("self_attention", "self_attention.dense", "self_attention.query_key_value")
PATHS = {
    "llama": ("model.layers.1", "self_attn", "self_attn.o_proj", "self_attn.v_proj"),
    "bloom": ("transformer.h.1", *_FUSED),
    "falcon-7b": ("transformer.h.1", *_FUSED),
}
EMBEDDINGS = {"llama": "model.embed_tokens", "bloom": "transformer.word_embeddings"}
NORMS = {"llama": "model.norm", "bloom": "transformer.ln_f", "falcon-7b": "transformer.ln_f"}
KINDS = tuple(PATHS)
APART = "tokens_meet_in_attention_only"
BROKEN = f"{APART}|block_output|stream_unbroken|causality|x \\+ a is not"


def shifted(x):
    return torch.cat([torch.zeros_like(x[:, :1]), x[:, :-1]], dim=1)


def summed(x):
    return x.cumsum(1)


def swapped(x):
    x = x.clone()
    x[:, [3, 7]] = x[:, [7, 3]]
    return x


def averaged(x):
    return (x + shifted(x)) / 2


def centred(x):
    return x - x.mean(1, keepdim=True)


def mixed_with_the_other_windows(x):
    return x - 0.1 * x.mean(0, keepdim=True)


def with_a_hundredth_of_the_last_token(x):
    return x + 0.01 * shifted(x)


CHANGES = (shifted, summed, swapped, averaged, centred, with_a_hundredth_of_the_last_token)
CASES = [("llama", change) for change in CHANGES]
CASES += [(kind, change) for kind in ("bloom", "falcon-7b") for change in (summed, swapped)]


def module_of(model, kind, place):
    block, attention, projection, values = PATHS[kind]
    inside = {"attention": attention, "projection": projection, "values": values, "mlp": "mlp"}
    if place in inside:
        return model.get_submodule(f"{block}.{inside[place]}")
    outside = {"block": block, "final norm": NORMS[kind], "head": "lm_head"}
    outside["embedding"] = EMBEDDINGS.get(kind, "transformer.word_embeddings")
    return model.get_submodule(outside[place])


def change_output(module, change):
    def hook(module, args, output):
        if isinstance(output, tuple):
            return (change(output[0]), *output[1:])
        return change(output)

    module.register_forward_hook(hook)


def change_input(module, change):
    def hook(module, args, kwargs):
        if args:
            return (change(args[0]), *args[1:]), kwargs
        return args, {**kwargs, "hidden_states": change(kwargs["hidden_states"])}

    module.register_forward_pre_hook(hook, with_kwargs=True)


def check(model, ids=None):
    with measuring(model):
        return check_model(model, token_ids(2, 30) if ids is None else ids)


@pytest.mark.parametrize("place", ["block", "attention", "mlp", "embedding", "final norm"])
@pytest.mark.parametrize(("kind", "change"), CASES)
def test_output_that_mixes_tokens_is_refused(kind, place, change):
    model = tiny(kind)
    change_output(module_of(model, kind, place), change)
    with pytest.raises(InstrumentationError, match=BROKEN) as caught:
        check(model)
    assert caught.value.exit_code == 3


@pytest.mark.parametrize("place", ["block", "attention", "projection", "mlp", "head"])
@pytest.mark.parametrize("kind", KINDS)
def test_input_that_mixes_tokens_is_refused(kind, place):
    model = tiny(kind)
    change_input(module_of(model, kind, place), shifted)
    with pytest.raises(InstrumentationError, match=BROKEN):
        check(model)


@pytest.mark.parametrize("change", [shifted, swapped])
@pytest.mark.parametrize("place", ["projection", "values"])
@pytest.mark.parametrize("kind", KINDS)
def test_parts_of_the_attention_that_mix_tokens_are_refused(kind, place, change):
    model = tiny(kind)
    change_output(module_of(model, kind, place), change)
    with pytest.raises(InstrumentationError, match=APART):
        check(model)


@pytest.mark.parametrize("projection", ["q_proj", "k_proj"])
def test_queries_and_keys_of_other_tokens_are_refused(projection):
    model = tiny("llama")
    change_output(model.model.layers[0].self_attn.get_submodule(projection), shifted)
    with pytest.raises(InstrumentationError, match="logit of a query with its own key of layer 1"):
        check(model)


@pytest.mark.parametrize("kind", ["gemma3", "mixtral", "granite", "gpt_oss", "opt-350m"])
def test_a_shifted_update_is_refused_in_every_form_of_block(kind):
    model = tiny(kind)
    blocks = model.model.decoder.layers if kind == "opt-350m" else model.model.layers
    change_output(blocks[1].self_attn, shifted)
    with pytest.raises(InstrumentationError, match="attention update of layer 2 at position"):
        check(model)


def test_the_other_windows_of_a_batch_count_as_other_tokens():
    model = tiny("llama")
    change_output(model.model.layers[0].mlp, mixed_with_the_other_windows)
    with pytest.raises(InstrumentationError, match=f"{APART}.*residual stream of layer 2"):
        check(model)


@pytest.mark.parametrize("place", ["attention", "projection"])
@pytest.mark.parametrize("kind", KINDS)
def test_attention_whose_output_is_zeroed_is_refused(kind, place):
    model = tiny(kind)
    change_output(module_of(model, kind, place), torch.zeros_like)
    # BLOOM's module returns x + a, so that zero takes the stream away.
    takes_the_stream = (kind, place) == ("bloom", "attention")
    message = r"layer 2: x \+ a is not" if takes_the_stream else "attention_reaches.*of layer 2"
    with pytest.raises(InstrumentationError, match=message):
        check(model)


def test_attention_that_is_computed_and_then_replaced_is_refused():
    model = tiny("llama", attn="eager")
    attention = model.model.layers[0].self_attn
    true = attention.forward

    def stub(hidden_states, **kwargs):
        return 0.5 * hidden_states, true(hidden_states, **kwargs)[1]

    attention.forward = stub
    with pytest.raises(InstrumentationError, match=r"attention_reaches.*update of layer 1"):
        check(model)


def test_a_layer_that_returns_more_than_its_sum_is_refused():
    for change in (lambda x: 1.5 * x, lambda x: x + 1.0):
        model = tiny("llama")
        change_output(model.model.layers[0], change)
        with pytest.raises(InstrumentationError, match="Layer 1 does not return x"):
            check(model)
        model = tiny("llama")
        change_input(model.model.layers[1], change)
        with pytest.raises(InstrumentationError, match="Layer 2 does not read what layer 1"):
            check(model)


def test_what_stays_within_a_token_is_no_fault():
    """Scaled values, updates and heads that change places are a model of their own."""
    for place, change in (("values", lambda x: 2 * x), ("attention", lambda x: 1.5 * x)):
        model = tiny("llama")
        change_output(module_of(model, "llama", place), change)
        assert all(result["passed"] for result in check(model).checks.values())
    model = tiny("llama")
    change_input(module_of(model, "llama", "projection"), lambda x: x.roll(4, -1))
    assert check(model).checks[APART]["value"] == 0.0


def test_measure_refuses_a_model_that_mixes_tokens():
    model = tiny("llama")
    change_output(model.model.layers[1], summed)
    with pytest.raises(InstrumentationError, match="block_output") as caught:
        measure(model, token_ids(2, 20).numpy())
    assert caught.value.exit_code == 3


@pytest.mark.parametrize("kind", ["llama", "bloom", "mixtral"])
def test_repeated_tokens_are_no_fault(kind):
    """Equal tokens have equal values, so that it does not matter which of them is attended to."""
    ids = torch.full((2, 30), 5)
    assert all(result["passed"] for result in check(tiny(kind), ids).checks.values())
    ids[:, 20:] = 9
    assert all(result["passed"] for result in check(tiny(kind), ids).checks.values())


@pytest.mark.parametrize("length", [2, 3, 5])
def test_short_windows_are_checked_too(length):
    assert all(r["passed"] for r in check(tiny("gemma3"), token_ids(2, length)).checks.values())
    model = tiny("llama")
    change_output(model.model.layers[0].mlp, shifted)
    with pytest.raises(InstrumentationError, match=APART):
        check(model, token_ids(2, length))


@pytest.mark.parametrize("length", [2, 3, 6, 7, 24])
def test_some_set_separates_any_two_positions(length):
    sets = _separating_sets(length)
    for first, second in permutations(range(length), 2):
        assert bool((sets[:, first] & ~sets[:, second]).any())


@pytest.mark.parametrize("attn", ["eager", "sdpa"])
@pytest.mark.parametrize("kind", ["llama", "gemma3", "deepseek_v3", "falcon-7b"])
def test_with_own_tokens_only_a_token_answers_as_if_it_were_alone(kind, attn):
    """Rotary models see no position without other tokens: one token is a window of its own."""
    model, ids = tiny(kind, attn=attn), token_ids(2, 6)

    class Nothing:
        def on_stream(self, layer, stream):
            pass

        on_update = on_stream

        def on_attention(self, rows):
            pass

    def everywhere(layer, device):
        return torch.ones(2, dtype=torch.bool, device=device)

    sites = sites_from_row(model, known_row(model))
    with torch.no_grad():
        with instrumented(sites, Nothing()) as tap, _OwnTokenOnly(tap, everywhere):
            found = forward_logits(model, ids, last_only=False)
        alone = [forward_logits(model, ids[:, i : i + 1]) for i in range(6)]
    torch.testing.assert_close(found, torch.cat(alone, dim=1), rtol=1e-5, atol=1e-5)
