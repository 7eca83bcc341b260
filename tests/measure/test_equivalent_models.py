"""Models that compute the same thing in another way are measured the same."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from accelerate import disk_offload, dispatch_model
from tiny_models import HEADS, KINDS, tiny, token_ids

from posbias.errors import UnsupportedModelError
from posbias.measure import measure

N = 20
SEPARATE = ("llama", "mistral", "mixtral", "qwen2", "qwen3", "gemma", "gemma2", "gemma3", "olmo2")
SEPARATE += ("granite", "cohere", "cohere2", "stablelm", "starcoder2", "gpt_oss", "smollm3")


def assert_measured_the_same(left, right, tolerance=1e-5):
    ids = token_ids(2, N).numpy()
    first, second = measure(left, ids), measure(right, ids)
    assert set(first.arrays) == set(second.arrays)
    for name, array in first.arrays.items():
        scale = max(float(np.abs(array).max()), 1e-300)
        assert np.abs(second.arrays[name] - array).max() <= tolerance * scale, name
    return first, second


def repeat(weights, groups, width):
    """Repeat the rows of each key-value head for every query head of its group."""
    heads = weights.reshape(groups, width, *weights.shape[1:])
    return heads.repeat_interleave(HEADS // groups, dim=0).reshape(-1, *weights.shape[1:])


@pytest.mark.parametrize("kind", SEPARATE)
def test_grouped_queries_equal_repeated_keys_and_values(kind):
    grouped, full = tiny(kind), tiny(kind, num_key_value_heads=HEADS)
    state = dict(grouped.state_dict())
    width = grouped.model.layers[0].self_attn.head_dim
    for name, weights in state.items():
        is_wide_norm = kind == "olmo2" and "k_norm" in name
        if "k_proj" in name or "v_proj" in name or is_wide_norm:
            state[name] = repeat(weights, 4, width)
    full.load_state_dict(state)
    first, second = assert_measured_the_same(grouped, full)
    assert first.manifest["model"]["kv_heads"] == 4
    assert second.manifest["model"]["kv_heads"] == HEADS


def test_fused_grouped_queries_equal_repeated_keys_and_values():
    grouped, full = tiny("falcon-40b"), tiny("falcon-40b", num_kv_heads=HEADS)
    state = dict(grouped.state_dict())
    for name, weights in state.items():
        if "query_key_value" in name:
            parts = weights.view(4, HEADS // 4 + 2, 4, -1)
            queries = parts[:, :-2].reshape(HEADS, 1, 4, -1)
            shared = parts[:, -2:].repeat_interleave(HEADS // 4, dim=0)
            state[name] = torch.cat([queries, shared], 1).reshape(HEADS * 3 * 4, -1)
    full.load_state_dict(state)
    assert_measured_the_same(grouped, full)


def test_multi_query_equals_repeated_keys_and_values():
    grouped, full = tiny("falcon-7b"), tiny("falcon-7b", multi_query=False)
    state = dict(grouped.state_dict())
    for name, weights in state.items():
        if "query_key_value" in name:
            parts = weights.view(HEADS + 2, 4, -1)
            shared = parts[HEADS:].expand(HEADS, 2, 4, -1)
            state[name] = torch.cat([parts[:HEADS, None], shared], 1).reshape(HEADS * 3 * 4, -1)
    full.load_state_dict(state)
    first, _ = assert_measured_the_same(grouped, full)
    assert first.manifest["model"]["kv_heads"] == 1


def test_fused_phi3_grouped_queries_equal_repeated_keys_and_values():
    grouped, full = tiny("phi3"), tiny("phi3", num_key_value_heads=HEADS)
    state = dict(grouped.state_dict())
    for name, weights in state.items():
        if "qkv_proj" in name:
            q, k, v = weights.split([48, 16, 16])
            state[name] = torch.cat([q, repeat(k, 4, 4), repeat(v, 4, 4)])
    full.load_state_dict(state)
    assert_measured_the_same(grouped, full)


def test_every_grouped_model_is_covered():
    covered = {*SEPARATE, "falcon-40b", "falcon-7b", "phi3", "stablelm-parallel"}
    grouped = set()
    for kind in KINDS:
        config = tiny(kind).config
        heads = getattr(config, "num_key_value_heads", None) or HEADS
        fused = kind in ("falcon-40b", "falcon-7b")
        if heads != HEADS or fused:
            grouped.add(kind)
    assert grouped == covered


def block_names(model):
    base = model.base_model_prefix
    inner = getattr(model, base)
    name = "layers" if hasattr(inner, "layers") else "h" if hasattr(inner, "h") else "blocks"
    return base, name, [child for child, _ in inner.named_children()]


@pytest.mark.parametrize("kind", ["llama", "bloom", "gpt2", "gemma3", "falcon-7b", "gpt_oss"])
@pytest.mark.parametrize("checkpoint", [False, True])
def test_a_device_map_with_parts_on_disk_changes_nothing(kind, checkpoint, tmp_path):
    ids = token_ids(2, N).numpy()
    expected = measure(tiny(kind), ids, batch_size=2)
    model = tiny(kind)
    base, layers, children = block_names(model)
    places = {f"{base}.{child}": "cpu" for child in children if child != layers}
    places |= {f"{base}.{layers}.0": "cpu", f"{base}.{layers}.1": "disk", "lm_head": "cpu"}
    split = dispatch_model(model, places, main_device="cpu", offload_dir=tmp_path, force_hooks=True)
    assert any(parameter.device.type == "meta" for parameter in split.parameters())
    found = measure(split, ids, batch_size=2, checkpoint=checkpoint)
    for name, array in expected.arrays.items():
        scale = max(float(np.abs(array).max()), 1e-300)
        assert np.abs(found.arrays[name] - array).max() <= 1e-6 * scale, name


def test_a_model_that_is_on_disk_as_a_whole_is_measured(tmp_path):
    ids = token_ids(2, N).numpy()
    expected = measure(tiny("llama"), ids)
    model = disk_offload(tiny("llama"), str(tmp_path), execution_device=torch.device("cpu"))
    assert all(parameter.device.type == "meta" for parameter in model.parameters())
    found = measure(model, ids)
    assert found.manifest["run"]["device"] == "cpu"
    for name, array in expected.arrays.items():
        np.testing.assert_allclose(found.arrays[name], array, rtol=1e-6, atol=1e-9)


def test_a_model_without_its_weights_is_refused():
    with pytest.raises(UnsupportedModelError, match="not loaded"):
        measure(tiny("llama").to("meta"), token_ids(2, N).numpy())
