"""Tiny randomly initialised models of every supported architecture."""

from __future__ import annotations

from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM
from transformers.utils import logging

# Tiny models gain nothing from threads, and the tests run beside each other.
torch.set_num_threads(1)

VOCABULARY = 97
HEADS = 12
_W = {"hidden_size": 48, "num_hidden_layers": 2, "num_attention_heads": HEADS}
_L = {**_W, "intermediate_size": 64, "num_key_value_heads": 4, "max_position_embeddings": 64}
_FALCON = {**_W, "bias": False, "alibi": False, "new_decoder_architecture": False}
_NEOX = {**_W, "intermediate_size": 64, "max_position_embeddings": 64}
_OPT = {**_W, "ffn_dim": 64, "max_position_embeddings": 64, "word_embed_proj_dim": 48}
_GEMMA = {**_L, "head_dim": 8, "sliding_window": 8, "query_pre_attn_scalar": 16}
_BLOOM = {"hidden_size": 48, "n_layer": 2, "n_head": HEADS}

CONFIGS: dict[str, tuple[str, dict[str, Any]]] = {
    "bloom": ("bloom", _BLOOM),
    "bloom-post": ("bloom", {**_BLOOM, "apply_residual_connection_post_layernorm": True}),
    "mpt": ("mpt", {"d_model": 48, "n_layers": 2, "n_heads": HEADS, "max_seq_len": 64}),
    "falcon-alibi": (
        "falcon",
        {**_FALCON, "alibi": True, "parallel_attn": False, "multi_query": False, "bias": True},
    ),
    "falcon-7b": ("falcon", {**_FALCON, "parallel_attn": True, "multi_query": True}),
    "falcon-40b": ("falcon", {**_FALCON, "new_decoder_architecture": True, "num_kv_heads": 4}),
    "gpt2": ("gpt2", {"n_embd": 48, "n_layer": 2, "n_head": HEADS, "n_positions": 64}),
    "gpt_neo": (
        "gpt_neo",
        {
            "hidden_size": 48,
            "num_layers": 2,
            "num_heads": HEADS,
            "attention_types": [[["global", "local"], 1]],
            "window_size": 8,
            "max_position_embeddings": 64,
            "intermediate_size": 64,
        },
    ),
    "gpt_neox": ("gpt_neox", {**_NEOX, "use_parallel_residual": True}),
    "gpt_neox-sequential": ("gpt_neox", {**_NEOX, "use_parallel_residual": False}),
    "gptj": (
        "gptj",
        {"n_embd": 48, "n_layer": 2, "n_head": HEADS, "n_positions": 64, "rotary_dim": 4},
    ),
    "opt": ("opt", _OPT),
    "opt-350m": ("opt", {**_OPT, "word_embed_proj_dim": 24, "do_layer_norm_before": False}),
    "llama": ("llama", _L),
    "mistral": ("mistral", {**_L, "sliding_window": 8}),
    "mixtral": ("mixtral", {**_L, "num_local_experts": 4, "sliding_window": 8}),
    "qwen2": ("qwen2", _L),
    "qwen3": ("qwen3", {**_L, "head_dim": 4}),
    "gemma": ("gemma", {**_L, "head_dim": 8}),
    "gemma2": ("gemma2", _GEMMA),
    "gemma3": (
        "gemma3_text",
        {**_GEMMA, "layer_types": ["sliding_attention", "full_attention"]},
    ),
    "phi": ("phi", {**_L, "num_key_value_heads": HEADS}),
    "phi3": ("phi3", _L),
    "olmo2": ("olmo2", _L),
    "granite": ("granite", {**_L, "residual_multiplier": 0.22, "attention_multiplier": 0.1}),
    "cohere": ("cohere", _L),
    "cohere2": ("cohere2", {**_L, "num_hidden_layers": 4, "sliding_window": 8}),
    "stablelm": ("stablelm", _L),
    "stablelm-parallel": ("stablelm", {**_L, "use_parallel_residual": True}),
    "starcoder2": ("starcoder2", {**_L, "sliding_window": 8}),
    "gpt_oss": (
        "gpt_oss",
        {
            **_L,
            "head_dim": 4,
            "num_local_experts": 4,
            "sliding_window": 8,
            "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0},
        },
    ),
    "deepseek_v3": (
        "deepseek_v3",
        {
            **_L,
            "num_key_value_heads": HEADS,
            "q_lora_rank": 16,
            "kv_lora_rank": 16,
            "qk_rope_head_dim": 4,
            "qk_nope_head_dim": 4,
            "v_head_dim": 8,
            "n_routed_experts": 4,
            "n_group": 1,
            "topk_group": 1,
            "num_experts_per_tok": 2,
            "moe_intermediate_size": 32,
            "first_k_dense_replace": 1,
        },
    ),
    "smollm3": ("smollm3", {**_L, "num_hidden_layers": 4}),
}
KINDS = tuple(CONFIGS)
EXPERTS = ("mixtral", "gpt_oss", "deepseek_v3")
"""Mixture-of-experts models, which do not run in float64."""


def tiny(
    kind: str,
    dtype: torch.dtype = torch.float32,
    attn: str | None = None,
    seed: int = 0,
    **changes: Any,
) -> Any:
    """Return a model in evaluation mode with every parameter moved off its initial value."""
    model_type, settings = CONFIGS[kind]
    special = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
    config = AutoConfig.for_model(
        model_type, **{"vocab_size": VOCABULARY, **settings, **special, **changes}
    )
    logging.set_verbosity_error()
    torch.manual_seed(seed)
    options = {} if attn is None else {"attn_implementation": attn}
    model = AutoModelForCausalLM.from_config(config, dtype=dtype, **options)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.15)
    return model.eval()


def token_ids(windows: int = 2, length: int = 20, seed: int = 1) -> torch.Tensor:
    """Return random token ids, none of them special, shape (windows, length)."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(3, VOCABULARY, (windows, length), generator=generator)
