"""Measured numbers against oracles that are written out by hand, without the code under test."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from tiny_models import HEADS, KINDS, tiny, token_ids

from posbias.measure import measure

N = 20
DIAGONAL = np.eye(N, dtype=bool)
EAGER_ONLY = ("falcon-alibi",)  # its eager code is wrong, so output_attentions is no oracle


def textbook_slopes(heads: int) -> np.ndarray:
    """Return ALiBi slopes by the recursion of the ALiBi paper's own code."""

    def power_of_two(count):
        return [2.0 ** (-8.0 * (h + 1) / count) for h in range(count)]

    closest = 2 ** int(math.log2(heads))
    extra = power_of_two(2 * closest)[0::2][: heads - closest]
    return np.array(power_of_two(closest) + extra)


def streams_by_hand(model, ids):
    """Return lists of x and a per layer from the model's own modules, by architecture."""
    kind = model.config.model_type
    xs, updates, handles = [], [], []
    if kind in ("bloom", "falcon", "gpt2", "gpt_neo", "gptj"):
        blocks = model.transformer.h
    elif kind == "mpt":
        blocks = model.transformer.blocks
    elif kind == "gpt_neox":
        blocks = model.gpt_neox.layers
    elif kind == "opt":
        blocks = model.model.decoder.layers
    else:
        blocks = model.model.layers

    def keep(store):
        def hook(module, args, output):
            value = output[0] if isinstance(output, tuple) else output
            store.append(value.detach().double().clone().numpy())

        return hook

    def keep_input(module, args, kwargs):
        value = args[0] if args else kwargs["hidden_states"]
        xs.append(value.detach().double().clone().numpy())

    def keep_bloom(module, args, kwargs):
        xs.append(args[1].detach().double().clone().numpy())

    for block in blocks:
        if kind == "bloom":
            handles.append(
                block.self_attention.register_forward_pre_hook(keep_bloom, with_kwargs=True)
            )
            site = block.self_attention.dense
        else:
            handles.append(block.register_forward_pre_hook(keep_input, with_kwargs=True))
            if kind in ("gemma2", "gemma3_text", "olmo2"):
                site = block.post_attention_layernorm
            else:
                site = next(
                    getattr(block, name)
                    for name in ("self_attn", "self_attention", "attn", "attention")
                    if hasattr(block, name)
                )
        handles.append(site.register_forward_hook(keep(updates)))
    with torch.no_grad():
        model(input_ids=ids, use_cache=False)
    for handle in handles:
        handle.remove()
    scale = getattr(model.config, "residual_multiplier", 1.0) if kind == "granite" else 1.0
    return xs, [scale * a for a in updates]


@pytest.mark.parametrize("kind", KINDS)
def test_mixing_is_the_share_of_the_norms(kind):
    model, ids = tiny(kind), token_ids(3, N)
    result = measure(model, ids.numpy(), batch_size=3, influence="none")
    xs, updates = streams_by_hand(model, ids)
    norm = result.arrays["mixing.norm.windows"]
    frobenius = result.arrays["mixing.frobenius.windows"]
    for layer, (x, a) in enumerate(zip(xs, updates, strict=True)):
        length = lambda v: np.sqrt((v**2).sum(-1))  # noqa: E731
        whole = lambda v: np.sqrt((v**2).sum((1, 2)))  # noqa: E731
        np.testing.assert_allclose(norm[:, layer], length(a) / (length(x) + length(a)), rtol=1e-6)
        np.testing.assert_allclose(frobenius[:, layer], whole(a) / (whole(x) + whole(a)), rtol=1e-6)


@pytest.mark.parametrize("kind", [k for k in KINDS if k not in EAGER_ONLY])
def test_kernel_is_the_mean_of_the_models_own_attentions(kind):
    model, ids = tiny(kind, attn="eager"), token_ids(3, N)
    with torch.no_grad():
        attentions = model(input_ids=ids, use_cache=False, output_attentions=True).attentions
    result = measure(tiny(kind), ids.numpy(), influence="none")
    kernel = result.arrays["kernel.attention.sum"]
    for layer, attention in enumerate(attentions):
        mean = attention[..., :N].double().numpy().mean(1)
        mean = mean / mean.sum(-1, keepdims=True) if kind == "gpt_oss" else mean
        np.testing.assert_allclose(kernel[layer], mean.sum(0), atol=2e-5)
    if kind == "gpt_oss":
        lost = np.stack([1 - a[..., :N].double().numpy().sum(-1).mean(-1) for a in attentions], 1)
        np.testing.assert_allclose(result.arrays["attention.null.windows"], lost, atol=1e-6)


def queries_and_keys(model, layer, hidden):
    """Return q, k of shape (B, H, n, d) and the factor, for the ALiBi families and GPT-2."""
    kind = model.config.model_type
    batch = hidden.shape[0]
    block = (model.transformer.blocks if kind == "mpt" else model.transformer.h)[layer]
    if kind in ("bloom", "falcon"):
        fused = block.self_attention.query_key_value(block.input_layernorm(hidden))
        fused = fused.view(batch, N, HEADS, 3, -1)
        q, k = fused[:, :, :, 0].transpose(1, 2), fused[:, :, :, 1].transpose(1, 2)
    elif kind == "mpt":
        q, k, _ = block.attn.Wqkv(block.norm_1(hidden)).chunk(3, dim=-1)
        q, k = (t.view(batch, N, HEADS, -1).transpose(1, 2) for t in (q, k))
    else:
        q, k, _ = block.attn.c_attn(block.ln_1(hidden)).chunk(3, dim=-1)
        q, k = (t.view(batch, N, HEADS, -1).transpose(1, 2) for t in (q, k))
    return q, k, 1.0 / math.sqrt(q.shape[-1])


@pytest.mark.parametrize("kind", ["bloom", "mpt", "falcon-alibi", "gpt2"])
def test_content_is_the_scaled_product_without_position_bias(kind):
    model, ids = tiny(kind, dtype=torch.float64), token_ids(3, N)
    arrays = measure(model, ids.numpy(), influence="none").arrays
    xs, _ = streams_by_hand(model, ids)
    lower = np.tril(np.ones((N, N), dtype=bool), -1)
    for layer, x in enumerate(xs):
        with torch.no_grad():
            q, k, factor = queries_and_keys(model, layer, torch.from_numpy(x))
        logits = (q @ k.transpose(-1, -2) * factor).numpy()
        own, earlier = logits[..., DIAGONAL], logits[..., lower]
        expected = {
            "content.diagonal.windows": own.mean(-1),
            "content.lower.windows": earlier.mean(-1),
            "content.diagonal.std.windows": own.std(-1),
            "content.lower.std.windows": earlier.std(-1),
            "content.first.windows": logits[..., 1:, 0].mean(-1),
        }
        for name, value in expected.items():
            # BLOOM and MPT hold slopes and biases in float32 even in a float64 model.
            np.testing.assert_allclose(arrays[name][:, layer], value, rtol=1e-6, atol=1e-6)
        everything = np.concatenate([own, earlier], -1)
        fitted = np.concatenate(
            [
                np.broadcast_to(own.mean(-1, keepdims=True), own.shape),
                np.broadcast_to(earlier.mean(-1, keepdims=True), earlier.shape),
            ],
            -1,
        )
        np.testing.assert_allclose(
            arrays["content.explained.windows"][:, layer],
            fitted.var(-1) / everything.var(-1),
            rtol=1e-5,
            atol=1e-7,
        )
        by_lag = np.stack(
            [logits.sum(0)[..., np.eye(N, k=-lag) > 0].sum(-1) for lag in range(N)], 1
        )
        np.testing.assert_allclose(arrays["logits.lag.sum"][layer], by_lag, rtol=1e-6, atol=1e-4)


@pytest.mark.parametrize("kind", ["llama", "gemma3", "gemma2", "mistral"])
def test_content_diagonal_matches_the_models_probabilities(kind):
    """Logits differ from log probabilities by a constant per row, which pair differences cancel."""
    model, ids = tiny(kind, attn="eager"), token_ids(2, N)
    with torch.no_grad():
        attentions = model(input_ids=ids, use_cache=False, output_attentions=True).attentions
    arrays = measure(model, ids.numpy(), influence="none").arrays
    # Row 1 sees keys 0 and 1 only: content(1, 1) - content(1, 0) is a difference of logs.
    ids2 = ids[:, :2]
    small = measure(model, ids2.numpy(), influence="none").arrays
    with torch.no_grad():
        pairs = model(input_ids=ids2, use_cache=False, output_attentions=True).attentions
    for layer, attention in enumerate(pairs):
        logs = attention.double().log().numpy()
        gap = logs[:, :, 1, 1] - logs[:, :, 1, 0]
        lower = small["content.lower.windows"][:, layer]
        own = small["content.diagonal.windows"][:, layer]
        # Two diagonal entries are averaged; the mean of both is 2 * own - content(0, 0).
        by_lag = small["logits.lag.sum"][layer]
        np.testing.assert_allclose(by_lag[:, 1], lower.sum(0), rtol=1e-6, atol=1e-6)
        first = 2 * own - (gap + lower)
        assert np.isfinite(first).all()
        np.testing.assert_allclose(by_lag[:, 0], (first + gap + lower).sum(0), rtol=1e-5, atol=1e-5)
    own = np.stack([a.double().numpy()[..., DIAGONAL].mean(-1) for a in attentions], 1)
    np.testing.assert_allclose(arrays["attention.diagonal.windows"], own, atol=1e-6)
    first = np.stack([a.double().numpy()[..., 1:, 0].mean(-1) for a in attentions], 1)
    np.testing.assert_allclose(arrays["attention.first.windows"], first, atol=1e-6)


def embedded(model, vectors, offset):
    """Return the next-token probability with the input embeddings replaced by `vectors`."""
    handle = model.get_input_embeddings().register_forward_hook(
        lambda module, args, output: vectors
    )
    try:
        logits = model(input_ids=offset, use_cache=False).logits[:, -1]
    finally:
        handle.remove()
    return torch.softmax(logits.double(), -1)


@pytest.mark.parametrize("kind", ["bloom", "mpt", "falcon-alibi", "gpt2", "llama", "gemma3"])
def test_influence_is_the_gradient_of_the_top_probability(kind):
    model, ids = tiny(kind, dtype=torch.float64), token_ids(2, 16)
    arrays = measure(model, ids.numpy(), batch_size=2).arrays
    for window in range(2):
        one = ids[window : window + 1]
        vectors = model.get_input_embeddings()(one).detach()
        leaf = vectors.clone().requires_grad_(True)
        probabilities = embedded(model, leaf * 1.0, one)[0]
        top = int(probabilities.argmax())
        probabilities[top].backward()
        norms = leaf.grad[0].norm(dim=-1).numpy()
        model.zero_grad()
        np.testing.assert_allclose(arrays["influence.gradient.windows"][window], norms, rtol=1e-8)
        assert arrays["next.probability.windows"][window] == pytest.approx(
            float(probabilities[top].detach()), rel=1e-10
        )
        # Finite differences along the gradient itself: its length is the derivative there.
        for position in (0, 7, 15):
            direction = torch.zeros_like(vectors)
            direction[0, position] = leaf.grad[0, position] / leaf.grad[0, position].norm()
            step = 1e-3 if kind == "gemma3" else 1e-4
            with torch.no_grad():
                up = embedded(model, vectors + step * direction, one)[0, top]
                down = embedded(model, vectors - step * direction, one)[0, top]
            # Softmax or norms are rounded to float32 in some models, which differences amplify.
            assert float(up - down) / (2 * step) == pytest.approx(
                norms[position], rel=1e-2, abs=1e-3 * norms.max()
            )


@pytest.mark.parametrize("kind", ["bloom", "mpt", "falcon-alibi", "gpt2", "llama", "gemma3"])
def test_no_attention_output_means_no_mixing(kind):
    model = tiny(kind)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if any(part in name for part in ("attn.c_proj", "o_proj", "attn.out_proj", "n.dense.")):
                parameter.zero_()
    result = measure(model, token_ids(2, N).numpy(), influence="none")
    assert np.count_nonzero(result.arrays["mixing.norm.windows"]) == 0
    assert np.count_nonzero(result.arrays["mixing.frobenius.windows"]) == 0


@pytest.mark.parametrize("heads", [4, 12, 112])
@pytest.mark.parametrize("kind", ["bloom", "mpt", "falcon-alibi"])
def test_without_queries_the_kernel_is_alibi(kind, heads):
    width = {"bloom": "hidden_size", "mpt": "d_model", "falcon-alibi": "hidden_size"}[kind]
    count = {"bloom": "n_head", "mpt": "n_heads", "falcon-alibi": "num_attention_heads"}[kind]
    model = tiny(kind, **{width: 2 * heads, count: heads})
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "query_key_value" in name:
                parameter.view(heads, 3, 2, -1)[:, :2].zero_()
            if "Wqkv" in name:
                parameter.view(3, 2 * heads, -1)[:2].zero_()
    arrays = measure(model, token_ids(2, N).numpy(), influence="none").arrays
    slopes = textbook_slopes(heads) / (math.sqrt(2) if kind == "falcon-alibi" else 1.0)
    np.testing.assert_allclose(arrays["position.slopes"], np.stack([slopes] * 2), rtol=1e-12)
    lag = np.arange(N)[:, None] - np.arange(N)[None, :]
    # Falcon rounds its slopes and bias to bfloat16, eight bits.
    applied = slopes
    if kind == "falcon-alibi":
        rounded = torch.tensor(textbook_slopes(heads)).float().bfloat16()
        bias = (rounded[:, None] * torch.arange(N)).float().double().numpy() / math.sqrt(2)
        logits = np.broadcast_to(bias[:, None, :], (heads, N, N))
    else:
        logits = -applied[:, None, None] * lag
    weights = np.where(lag >= 0, np.exp(logits - logits.max(-1, keepdims=True)), 0.0)
    kernel = (weights / weights.sum(-1, keepdims=True)).mean(0)
    for layer in range(2):
        measured = arrays["kernel.attention.sum"][layer] / 2
        np.testing.assert_allclose(measured, kernel, atol=1e-6)
    np.testing.assert_allclose(arrays["content.diagonal.windows"], 0.0, atol=1e-5)
    np.testing.assert_allclose(arrays["content.lower.windows"], 0.0, atol=1e-5)
