"""Specs from the config.json of a Hugging Face model: what the architecture alone says.

The config gives depth, heads, position scheme and windows. It says nothing about the mixing, which
has to be supplied, and nothing about content. Rotary and learned positions have no closed
content-free kernel: such layers get the causal (or windowed) uniform kernel.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from posbias.errors import SpecError
from posbias.spec.slopes import alibi_slopes
from posbias.spec.spec import Spec

__all__ = ["DEFAULT_LENGTH", "is_config", "parse_config"]

DEFAULT_LENGTH = 2048
"""Positions of a model whose config states no maximum (ALiBi models)."""

_DEPTH = ("num_hidden_layers", "n_layer", "n_layers", "num_layers")
_HEADS = ("num_attention_heads", "n_head", "n_heads", "num_heads")
_LENGTH = ("max_position_embeddings", "n_positions", "max_seq_len", "seq_length")
_ALIBI = {"bloom", "mpt", "falcon"}
# Decoder-only families whose content-free kernel is uniform over the visible keys.
_UNIFORM = {
    *("cohere", "cohere2", "deepseek_v2", "deepseek_v3", "gemma", "gemma2", "gemma3_text", "glm"),
    *("glm4", "gpt2", "gpt_bigcode", "gpt_neo", "gpt_neox", "gptj", "granite", "llama", "mistral"),
    *("mixtral", "olmo", "olmo2", "opt", "persimmon", "phi", "phi3", "qwen2", "qwen2_moe", "qwen3"),
    *("qwen3_moe", "smollm3", "stablelm", "starcoder2", "falcon", "codegen", "ministral"),
}


def is_config(document: Any) -> bool:
    """Whether a parsed document has the form of a model's config."""
    return isinstance(document, Mapping) and "model_type" in document


def parse_config(document: Mapping[str, Any], name: str) -> Spec:
    """Return the spec of a model config, without mixing and content.

    Raises
    ------
    SpecError
        If the model is not a decoder-only family that is known, or a number is missing.
    """
    config = _text_config(document)
    kind = config["model_type"]
    if document.get("is_encoder_decoder") or kind not in _ALIBI | _UNIFORM:
        raise SpecError(
            f"config of model type {kind!r} is not one of the decoder-only families that posbias "
            f"knows ({', '.join(sorted(_ALIBI | _UNIFORM))}); write a spec by hand"
        )
    depth = _number(config, _DEPTH, "number of layers")
    heads = _number(config, _HEADS, "number of heads")
    length = _number(config, _LENGTH, "maximum length", DEFAULT_LENGTH)
    head = _heads(config, kind, heads)
    layers = [_layer(head, window) for window in _windows(config, kind, depth)]
    shared = layers[:1] if all(layer == layers[0] for layer in layers) else layers
    return Spec(
        name=name,
        length=length,
        depth=depth,
        layers=tuple(shared),
        provenance={"format": "config.json", "model_type": kind, "file": name},
    )


def _text_config(document: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the config of the language model inside a multimodal one, or the config itself."""
    inner = document.get("text_config")
    if isinstance(inner, Mapping):
        return {"model_type": f"{document['model_type']}_text", **inner}
    return document


def _heads(config: Mapping[str, Any], kind: str, heads: int) -> dict[str, Any]:
    attention = config.get("attn_config")
    attention = attention if isinstance(attention, Mapping) else {}
    has_alibi = {
        "bloom": True,
        "falcon": bool(config.get("alibi", False)),
        "mpt": bool(attention.get("alibi", True)),
    }.get(kind, False)
    if not has_alibi:
        return {"heads": [{"position": {"type": "nope"}}]}
    slopes = alibi_slopes(heads)
    if kind == "falcon":
        # Falcon adds its bias before it divides the logits by sqrt(head dimension).
        slopes = slopes / math.sqrt(_number(config, ("hidden_size",), "hidden size") / heads)
    return {"alibi": {"slopes": slopes.tolist()}}


def _windows(config: Mapping[str, Any], kind: str, depth: int) -> list[int | None]:
    """Return the sliding window of each layer, None where it sees everything."""
    window = config.get("sliding_window") or config.get("window_size")
    kinds = config.get("layer_types")
    if kind == "gpt_neo":
        return _gpt_neo_windows(config, depth)
    if isinstance(kinds, list):
        if len(kinds) != depth:
            raise SpecError(f"layer_types has {len(kinds)} entries for {depth} layers")
        if "sliding_attention" in kinds and window is None:
            raise SpecError("layer_types has sliding_attention, but no sliding_window is given")
        return [window if entry == "sliding_attention" else None for entry in kinds]
    if window is None or config.get("use_sliding_window") is False:
        return [None] * depth
    if kind.startswith("qwen") and not config.get("use_sliding_window"):
        return [None] * depth
    pattern = {"gemma2": 2, "gemma3_text": 6, "cohere2": 4}.get(kind)
    pattern = config.get("sliding_window_pattern", pattern)
    if pattern is None:
        first = config.get("max_window_layers", 0) if kind.startswith("qwen") else 0
        return [window if t >= first else None for t in range(depth)]
    return [window if (t + 1) % pattern else None for t in range(depth)]


def _gpt_neo_windows(config: Mapping[str, Any], depth: int) -> list[int | None]:
    blocks = config.get("attention_types") or [[["global", "local"], depth // 2]]
    kinds = [kind for pattern, times in blocks for _ in range(times) for kind in pattern]
    if len(kinds) != depth:
        raise SpecError(f"attention_types describes {len(kinds)} layers of {depth}")
    return [config.get("window_size", 256) if kind == "local" else None for kind in kinds]


def _layer(head: Mapping[str, Any], window: int | None) -> dict[str, Any]:
    mask = {"type": "causal"} if window is None else {"type": "sliding_window", "window": window}
    return {**head, "mask": mask}


def _number(
    config: Mapping[str, Any], names: tuple[str, ...], what: str, default: int | None = None
) -> int:
    for name in names:
        value = config.get(name)
        if isinstance(value, int) and not isinstance(value, bool) and value > 0:
            return value
    if default is not None:
        return default
    raise SpecError(f"the config lacks the {what}; one of {', '.join(names)} is required")
