"""Mixing, lengths and kernels of further estimators against loops that are written out by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from tiny_models import HEADS, tiny, token_ids

from posbias.measure import measure

N = 14
ATTENTION = ("self_attn", "self_attention", "attn", "attention")
PROJECTIONS = ("o_proj", "dense", "c_proj", "out_proj")
PARALLEL = ("falcon-7b", "gpt_neox", "phi", "stablelm-parallel", "cohere")
KINDS = ("bloom", "gpt2", "llama", "gemma3", "granite", "opt", *PARALLEL)
VALUE_KINDS = (
    *("llama", "gpt2", "bloom", "mpt", "gemma3", "olmo2", "granite", "gpt_neox", "mistral"),
    *("qwen2", "starcoder2"),
)

Array = np.ndarray[Any, Any]


def blocks_of(model: Any) -> Any:
    body = getattr(model, "transformer", getattr(model, "gpt_neox", getattr(model, "model", None)))
    body = getattr(body, "decoder", body)
    return next(getattr(body, k) for k in ("h", "layers", "blocks") if hasattr(body, k))


def attention_of(block: Any) -> Any:
    return next(getattr(block, name) for name in ATTENTION if hasattr(block, name))


def projection_of(block: Any) -> Any:
    attention = attention_of(block)
    return next(getattr(attention, name) for name in PROJECTIONS if hasattr(attention, name))


def as_array(value: Any) -> Array:
    value = value[0] if isinstance(value, tuple) else value
    return value.detach().double().clone().numpy()


def branches_by_hand(model: Any, ids: torch.Tensor) -> list[tuple[Array, Array, Array]]:
    """Return x, a and the output of every block from the model's own modules."""
    kept: list[dict[str, Array]] = []
    handles = []
    for block in blocks_of(model):
        row: dict[str, Array] = {}
        kept.append(row)
        if model.config.model_type in ("gemma2", "gemma3_text", "olmo2"):
            site = block.post_attention_layernorm
        else:  # BLOOM's attention returns the sum with its input, its projection does not.
            site = projection_of(block)
        handles += [
            block.register_forward_pre_hook(
                lambda m, args, kw, row=row: row.__setitem__(
                    "x", as_array(args[0] if args else kw["hidden_states"])
                ),
                with_kwargs=True,
            ),
            site.register_forward_hook(
                lambda m, args, out, row=row: row.__setitem__("a", as_array(out))
            ),
            block.register_forward_hook(
                lambda m, args, out, row=row: row.__setitem__("y", as_array(out))
            ),
        ]
    with torch.no_grad():
        model(input_ids=ids, use_cache=False)
    for handle in handles:
        handle.remove()
    scale = 0.22 if model.config.model_type == "granite" else 1.0
    return [(row["x"], scale * row["a"], row["y"]) for row in kept]


def values_by_hand(model: Any, block: Any, x: Array) -> Array:
    """Return the values, shape (B, H, n, d)."""
    kind, states = model.config.model_type, torch.from_numpy(x)
    attention, batch = attention_of(block), len(x)
    with torch.no_grad():
        if kind == "gpt2":
            v = attention.c_attn(block.ln_1(states)).chunk(3, dim=-1)[2]
        elif kind == "mpt":
            v = attention.Wqkv(block.norm_1(states)).chunk(3, dim=-1)[2]
        elif kind in ("bloom", "gpt_neox"):
            fused = attention.query_key_value(block.input_layernorm(states))
            fused = fused.view(batch, N, HEADS, -1)
            v = fused[..., -fused.shape[-1] // 3 :].flatten(2)
        else:
            v = attention.v_proj(states if kind == "olmo2" else block.input_layernorm(states))
    width = projection_weight(model, block).shape[1] // HEADS
    v = v.reshape(batch, N, -1, width).transpose(1, 2)
    return v.repeat_interleave(HEADS // v.shape[1], dim=1).numpy()


def projection_weight(model: Any, block: Any) -> Array:
    """Return all that is linear from the values to the stream, shape (C, H d)."""
    weight = projection_of(block).weight.detach().double().numpy()
    kind = model.config.model_type
    if kind == "gpt2":
        weight = weight.T
    if kind == "granite":
        weight = 0.22 * weight
    if kind in ("gemma3_text", "olmo2"):
        gain = block.post_attention_layernorm.weight.detach().double().numpy()
        weight = ((gain + 1.0) if kind == "gemma3_text" else gain)[:, None] * weight
    return weight


def shares_of_token(x: Array, a: Array, m: Array) -> dict[str, float]:
    x_, a_, m_ = (float(np.sqrt((v * v).sum())) for v in (x, a, m))
    return {
        "norm": a_ / (x_ + a_),
        "energy": a_**2 / (x_**2 + a_**2),
        "norm+mlp": a_ / (x_ + a_ + m_),
        "energy+mlp": a_**2 / (x_**2 + a_**2 + m_**2),
        "cosine": float(x @ a) / (x_ * a_),
    }


@pytest.mark.parametrize("kind", KINDS)
def test_mixing_and_alignment(kind: str) -> None:
    model, ids = tiny(kind, dtype=torch.float64), token_ids(3, N)
    arrays = measure(model, ids.numpy(), batch_size=2, influence="none").arrays
    names = {
        "energy": "mixing.energy.windows",
        "norm+mlp": "mixing.norm+mlp.windows",
        "energy+mlp": "mixing.energy+mlp.windows",
        "cosine": "stream.alignment.windows",
    }
    centred_names = {
        "norm": "mixing.centred.windows",
        "energy": "mixing.centred-energy.windows",
        "norm+mlp": "mixing.centred+mlp.windows",
        "energy+mlp": "mixing.centred-energy+mlp.windows",
        "cosine": "stream.centred-alignment.windows",
    }
    for layer, (x, a, y) in enumerate(branches_by_hand(model, ids)):
        m = y - x - a
        for w in range(3):
            centred = [v[w] - v[w].mean(0) for v in (x, a, m)]
            plain = [shares_of_token(x[w, j], a[w, j], m[w, j]) for j in range(1, N)]
            less = [shares_of_token(*(v[j] for v in centred)) for j in range(1, N)]
            for rows, wanted in ((plain, names), (less, centred_names)):
                for key, name in wanted.items():
                    expected = np.mean([row[key] for row in rows])
                    assert arrays[name][w, layer] == pytest.approx(expected, rel=1e-7, abs=1e-9)
        lengths = np.sqrt((x**2).sum(-1)).sum(0)
        np.testing.assert_allclose(arrays["stream.norm.sum"][layer], lengths, rtol=1e-12)


@pytest.mark.parametrize("kind", VALUE_KINDS)
def test_coherence(kind: str) -> None:
    model, ids = tiny(kind, dtype=torch.float64, attn="eager"), token_ids(2, N)
    with torch.no_grad():
        attentions = model(input_ids=ids, use_cache=False, output_attentions=True).attentions
    arrays = measure(tiny(kind, dtype=torch.float64), ids.numpy(), influence="none").arrays
    layers = zip(blocks_of(model), branches_by_hand(model, ids), attentions, strict=True)
    for layer, (block, (x, _, _), attention) in enumerate(layers):
        weight, v = projection_weight(model, block), values_by_hand(model, block, x)
        A, width = attention.double().numpy(), v.shape[-1]
        for w in range(2):
            ratios = []
            for i in range(1, N):
                parts = np.zeros((N, len(weight)))
                for j in range(i + 1):
                    for h in range(HEADS):
                        less = v[w, h, j] - v[w, h].mean(0)
                        parts[j] += A[w, h, i, j] * (weight[:, h * width : (h + 1) * width] @ less)
                ratios.append((parts.sum(0) ** 2).sum() / (parts**2).sum())
            found = arrays["stream.coherence.windows"][w, layer]
            assert found == pytest.approx(np.mean(ratios), rel=1e-6)


@pytest.mark.parametrize("kind", VALUE_KINDS)
def test_kernels_weighted_by_values(kind: str) -> None:
    model, ids = tiny(kind, dtype=torch.float64, attn="eager"), token_ids(2, N)
    with torch.no_grad():
        attentions = model(input_ids=ids, use_cache=False, output_attentions=True).attentions
    arrays = measure(tiny(kind, dtype=torch.float64), ids.numpy(), influence="none", record="all")
    layers = zip(blocks_of(model), branches_by_hand(model, ids), attentions, strict=True)
    for layer, (block, (x, _, _), attention) in enumerate(layers):
        weight, v = projection_weight(model, block), values_by_hand(model, block, x)
        A = attention.double().numpy()
        width = v.shape[-1]
        lengths, total = np.zeros((2, N)), {}
        for w in range(2):
            u = np.zeros((HEADS, N, len(weight)))
            for h in range(HEADS):
                u[h] = v[w, h] @ weight[:, h * width : (h + 1) * width].T
            less = u - u.mean(1, keepdims=True)
            sums = {"": np.zeros((N, N)), "centred-": np.zeros((N, N))}
            for i in range(N):
                for j in range(i + 1):
                    for name, vectors in (("", u), ("centred-", less)):
                        added = sum(A[w, h, i, j] * vectors[h, j] for h in range(HEADS))
                        sums[name][i, j] = added @ added
            lengths[0] += np.sqrt((u**2).sum(-1)).mean(0)
            lengths[1] += np.sqrt((less**2).sum(-1)).mean(0)
            made = {"kernel.attention-energy.sum": (A[w] ** 2).mean(0)}
            for name, energy in sums.items():
                made[f"kernel.{name}value-energy.sum"] = energy
                made[f"kernel.{name}value.sum"] = np.sqrt(energy)
            for name, matrix in made.items():
                shares = matrix / matrix.sum(-1, keepdims=True)
                total[name] = total.get(name, 0.0) + shares
        for name, expected in total.items():
            np.testing.assert_allclose(arrays.arrays[name][layer], expected, rtol=1e-5, atol=1e-7)
        # Norms and rotations are rounded to float32 even in float64 models.
        for name, expected in zip(
            ("value.norm.sum", "value.centred-norm.sum"), lengths, strict=True
        ):
            np.testing.assert_allclose(arrays.arrays[name][layer], expected, rtol=1e-5)
