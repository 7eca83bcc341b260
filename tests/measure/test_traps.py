"""Known traps of transformers and of single architectures, one test each, named after the fault.

Where the fault is in transformers itself, the test shows it first, so that it says when a new
version has mended it.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from tiny_models import HEADS, tiny, token_ids

from posbias.errors import InputError, InstrumentationError, UnsupportedModelError
from posbias.measure import measure

N = 20
BASE_SLOPES = np.array([2.0 ** -(h + 1) for h in range(8)] + [2.0 ** -(h + 0.5) for h in range(4)])


def arrays_of(model, ids, **options):
    return measure(model, np.asarray(ids), influence="none", **options).arrays


def relative(left, right):
    return np.abs(left - right).max() / max(np.abs(right).max(), 1e-300)


def norms_of(tensor):
    return torch.linalg.vector_norm(tensor.detach().double(), dim=-1).numpy()


def watch(module, store):
    def hook(module, args, kwargs, output):
        first = output[0] if isinstance(output, tuple) else output
        store.append((args, kwargs, first.detach().clone()))

    return module.register_forward_hook(hook, with_kwargs=True)


def run(model, ids, **options):
    with torch.no_grad():
        return model(input_ids=ids, use_cache=False, **options)


def test_eager_falcon_applies_its_alibi_bias_twice():
    ids = token_ids(2, N)
    eager, sdpa = (tiny("falcon-alibi", attn=name) for name in ("eager", "sdpa"))
    assert float((run(eager, ids).logits - run(sdpa, ids).logits).abs().max()) > 0.01
    with pytest.raises(UnsupportedModelError, match="adds the position bias twice") as caught:
        measure(eager, ids.numpy())
    assert caught.value.exit_code == 3
    slopes = arrays_of(sdpa, ids)["position.slopes"]
    np.testing.assert_allclose(slopes, np.stack([BASE_SLOPES / math.sqrt(4)] * 2), rtol=1e-12)


def test_output_attentions_is_empty_under_sdpa():
    ids = token_ids(2, N)
    model = tiny("llama", attn="sdpa")
    assert not any(a is not None for a in run(model, ids, output_attentions=True).attentions or ())
    eager = run(tiny("llama", attn="eager"), ids, output_attentions=True).attentions
    kernel = arrays_of(model, ids)["kernel.attention.sum"]
    for layer, attention in enumerate(eager):
        expected = attention.double().mean(1).sum(0).numpy()
        np.testing.assert_allclose(kernel[layer], expected, atol=4e-6)


def test_blooms_attention_module_returns_the_residual_added_in():
    model, ids = tiny("bloom"), token_ids(2, N)
    seen, dense = [], []
    block = model.transformer.h[0].self_attention
    handles = [watch(block, seen), watch(block.dense, dense)]
    run(model, ids)
    for handle in handles:
        handle.remove()
    ((args, _, whole),), ((_, _, update),) = seen, dense
    x = args[1]
    torch.testing.assert_close(whole, x + update)
    a, wrong = norms_of(update), norms_of(whole)
    found = arrays_of(model, ids)["mixing.norm.windows"][:, 0]
    np.testing.assert_allclose(found, a / (a + norms_of(x)), rtol=1e-6)
    assert np.abs(found - wrong / (wrong + norms_of(x))).max() > 0.05


@pytest.mark.parametrize("kind", ["gemma2", "gemma3", "olmo2"])
def test_the_update_is_taken_after_the_post_norm(kind):
    model, ids = tiny(kind), token_ids(2, N)
    block, before, after, inputs = model.model.layers[0], [], [], []
    handles = [
        watch(block.self_attn, before),
        watch(block.post_attention_layernorm, after),
        watch(block, inputs),
    ]
    run(model, ids)
    for handle in handles:
        handle.remove()
    (args, kwargs, _) = inputs[0]
    x = norms_of(args[0] if args else kwargs["hidden_states"])
    found = arrays_of(model, ids)["mixing.norm.windows"][:, 0]
    a, wrong = norms_of(after[0][2]), norms_of(before[0][2])
    np.testing.assert_allclose(found, a / (a + x), rtol=1e-6)
    assert np.abs(found - wrong / (wrong + x)).max() > 0.05


def test_granite_multiplies_the_update_before_it_is_added():
    ids = token_ids(2, N)
    scaled = arrays_of(tiny("granite"), ids)["mixing.norm.windows"][:, 0]
    # The first layer is the same but for the factor: a / (a + x) with a five times as long.
    whole = arrays_of(tiny("granite", residual_multiplier=1.0), ids)["mixing.norm.windows"][:, 0]
    ratio = 0.22 * whole / (1.0 - whole)
    np.testing.assert_allclose(scaled, ratio / (1.0 + ratio), rtol=1e-5)


@pytest.mark.parametrize("kind", ["falcon-7b", "gptj", "gpt_neox", "phi", "cohere"])
def test_a_parallel_block_adds_attention_and_mlp_to_the_same_stream(kind):
    """Falcon adds in place, which would change x under the eyes of a hook that keeps no copy."""
    model, ids = tiny(kind, dtype=torch.float64), token_ids(2, N)
    base = model.base_model
    blocks = getattr(base, "h", None) or base.layers
    streams = []
    handle = blocks[0].register_forward_pre_hook(
        lambda module, args, kwargs: streams.append(
            (args[0] if args else kwargs["hidden_states"]).detach().clone()
        ),
        with_kwargs=True,
    )
    updates, name = [], {"gptj": "attn", "gpt_neox": "attention", "falcon-7b": "self_attention"}
    watcher = watch(getattr(blocks[0], name.get(kind, "self_attn")), updates)
    run(model, ids)
    handle.remove()
    watcher.remove()
    result = measure(model, ids.numpy(), influence="none")
    assert result.manifest["run"]["residual"] == ["parallel"] * 2
    a, x = norms_of(updates[0][2]), norms_of(streams[0])
    np.testing.assert_allclose(result.arrays["mixing.norm.windows"][:, 0], a / (a + x), rtol=1e-12)


def padded(ids, side, width=6, pad=0):
    """Return a batch as a tokenizer pads it."""
    fill, zeros = torch.full((ids.shape[0], width), pad), torch.zeros(ids.shape[0], width)
    ones = torch.ones(ids.shape)
    parts = [(fill, zeros.long()), (ids, ones.long())]
    parts = parts if side == "left" else parts[::-1]
    return {
        "input_ids": torch.cat([p[0] for p in parts], 1),
        "attention_mask": torch.cat([p[1] for p in parts], 1),
    }


@pytest.mark.parametrize("kind", ["gpt2", "gpt_neo", "bloom", "llama", "opt"])
@pytest.mark.parametrize("side", ["left", "right"])
def test_padded_batches_give_the_same_as_single_windows(kind, side):
    # BLOOM answers left padding in float64 with numbers that are not finite.
    dtype, tolerance = (torch.float64, 1e-9) if kind != "bloom" else (torch.float32, 1e-5)
    model, ids = tiny(kind, dtype=dtype), token_ids(3, N)
    batch = padded(ids, side)
    together = measure(model, batch, batch_size=3).arrays
    for window in range(3):
        alone = measure(model, ids[window : window + 1].numpy()).arrays
        for name, array in together.items():
            if name.endswith(".windows"):
                assert relative(array[window : window + 1], alone[name]) <= tolerance, name
    # And what is measured is what the model computes for the padded batch, told its positions.
    positions = (batch["attention_mask"].cumsum(-1) - 1).clamp(min=0)
    options = {} if kind in ("bloom", "opt") else {"position_ids": positions}
    mask = batch["attention_mask"]
    full = run(model, batch["input_ids"], attention_mask=mask, **options).logits
    last = full[:, -1] if side == "left" else full[:, N - 1]
    chance = torch.softmax(last.double(), -1).amax(-1).numpy()
    np.testing.assert_allclose(together["next.probability.windows"], chance, rtol=1e-5)


@pytest.mark.parametrize("kind", ["gpt2", "gpt_neo"])
def test_left_padding_shifts_the_positions_of_gpt2_unless_position_ids_are_given(kind):
    model, ids = tiny(kind, dtype=torch.float64), token_ids(2, N)
    batch, plain = padded(ids, "left"), run(model, ids).logits[:, -1]
    positions = (batch["attention_mask"].cumsum(-1) - 1).clamp(min=0)
    without = run(model, batch["input_ids"], attention_mask=batch["attention_mask"])
    told = run(
        model, batch["input_ids"], attention_mask=batch["attention_mask"], position_ids=positions
    )
    assert float((without.logits[:, -1] - plain).abs().max()) > 1e-3
    torch.testing.assert_close(told.logits[:, -1], plain, rtol=1e-5, atol=1e-5)
    measured = measure(model, batch).arrays["next.probability.windows"]
    expected = torch.softmax(plain.double(), -1).amax(-1).numpy()
    np.testing.assert_allclose(measured, expected, rtol=1e-9)


def test_pad_queries_attend_to_the_future_under_eager_so_padding_never_reaches_a_model():
    model, ids = tiny("llama", attn="eager"), token_ids(2, N)
    batch = padded(ids, "left")
    attention = run(
        model, batch["input_ids"], attention_mask=batch["attention_mask"], output_attentions=True
    ).attentions[0]
    pad_row = attention[0, 0, 0]
    assert float(pad_row[1:].sum()) > 0.5
    kernel = measure(model, batch, influence="none").arrays["kernel.attention.sum"]
    assert kernel.shape == (2, N, N)
    assert np.count_nonzero(np.triu(kernel, 1)) == 0
    with pytest.raises(InputError, match="window 0 begins or ends with the padding token 0"):
        measure(model, batch["input_ids"].numpy())


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_overflow_of_half_precision_is_an_error_that_names_the_type(dtype):
    model = tiny("gemma3", dtype=dtype)
    with torch.no_grad():
        model.model.layers[0].mlp.down_proj.weight.fill_(torch.finfo(dtype).max)
    with pytest.raises(InstrumentationError, match=str(dtype).removeprefix("torch.")) as caught:
        measure(model, token_ids(2, N).numpy())
    assert caught.value.exit_code == 3


@pytest.mark.parametrize(
    ("dtype", "length"), [(torch.float32, 32), (torch.float32, 48), (torch.bfloat16, 32)]
)
def test_huge_weights_are_an_error_that_names_the_type_outside_of_float16_too(dtype, length):
    model = tiny("llama", dtype=dtype)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(1e4)
    name = str(dtype).removeprefix("torch.")
    with pytest.raises(InstrumentationError, match=f" in {name}: ") as caught:
        measure(model, token_ids(2, length).numpy())
    assert caught.value.exit_code == 3
    assert ("Measure in float32" in str(caught.value)) == (name != "float32")


def test_a_gradient_that_vanishes_is_an_error_that_names_the_type():
    model = tiny("llama")
    with torch.no_grad():
        model.lm_head.weight.zero_()
        model.lm_head.weight[5].fill_(1e-30)
    with pytest.raises(InstrumentationError, match=r"zero everywhere in float32: .* gradient"):
        measure(model, token_ids(2, N).numpy())


def test_damaged_weights_in_float32_are_not_answered_with_measure_in_float32():
    model = tiny("llama")
    with torch.no_grad():
        model.model.layers[1].mlp.down_proj.weight[0, 0] = math.nan
    with pytest.raises(InstrumentationError, match=r"in float32: .*usual cause") as caught:
        measure(model, token_ids(2, N).numpy())
    assert "Measure in float32" not in str(caught.value)


def test_the_switch_of_gradient_checkpointing_changes_nothing_in_evaluation_mode():
    ids = token_ids(2, N).numpy()
    plain, switched = tiny("llama"), tiny("llama")
    enable = getattr(switched, "activation_checkpointing_enable", None)
    (enable or switched.gradient_checkpointing_enable)()
    is_on = [getattr(layer, "gradient_checkpointing", None) for layer in switched.model.layers]
    assert is_on == [True, True]
    expected, found = measure(plain, ids).arrays, measure(switched, ids).arrays
    assert all(layer.gradient_checkpointing for layer in switched.model.layers)
    for name, array in expected.items():
        np.testing.assert_array_equal(found[name], array)


def test_frozen_parameters_do_not_stop_the_gradient_of_the_embeddings():
    ids = token_ids(2, N).numpy()
    frozen = tiny("llama").requires_grad_(False)
    expected = measure(tiny("llama"), ids).arrays["influence.gradient.windows"]
    np.testing.assert_array_equal(
        measure(frozen, ids).arrays["influence.gradient.windows"], expected
    )
    assert not any(parameter.requires_grad for parameter in frozen.parameters())


def test_textbook_slopes_are_wrong_for_twelve_heads():
    textbook = 2.0 ** (-8.0 * (np.arange(HEADS) + 1) / HEADS)
    for kind in ("bloom", "mpt"):
        slopes = arrays_of(tiny(kind), token_ids(2, N))["position.slopes"][0]
        np.testing.assert_allclose(slopes, BASE_SLOPES, rtol=1e-12)
        assert np.abs(slopes - textbook).max() > 0.05
