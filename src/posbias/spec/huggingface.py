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
from posbias.spec._document import shown
from posbias.spec.slopes import alibi_slopes
from posbias.spec.spec import MAX_DEPTH, MAX_HEADS, MAX_LENGTH, Spec

__all__ = ["DEFAULT_LENGTH", "is_config", "parse_config"]

DEFAULT_LENGTH = 2048
"""Positions of a model whose config states no maximum (ALiBi models)."""

_DEPTH = ("num_hidden_layers", "n_layer", "n_layers", "num_layers")
_HEADS = ("num_attention_heads", "n_head", "n_heads", "num_heads")
_LENGTH = ("max_position_embeddings", "n_positions", "max_seq_len", "seq_length")
_ALIBI = {"bloom", "mpt", "falcon"}
# Decoder-only families whose content-free kernel is uniform over the visible keys.
_UNIFORM = {
    *("codegen", "cohere", "cohere2", "deepseek_v2", "deepseek_v3", "gemma", "gemma2"),
    *("gemma3_text", "glm", "glm4", "gpt2", "gpt_bigcode", "gpt_neo", "gpt_neox", "gptj"),
    *("granite", "llama", "ministral", "mistral", "mixtral", "olmo", "olmo2", "opt", "persimmon"),
    *("phi", "phi3", "qwen2", "qwen2_moe", "qwen3", "qwen3_moe", "smollm3", "stablelm"),
    "starcoder2",
}
# What the models take where the config does not have the key; null means no window.
_DEFAULT_WINDOW = {
    **dict.fromkeys(("cohere2", "gemma2", "gemma3_text", "ministral", "mistral"), 4096),
    **dict.fromkeys(("qwen2", "qwen2_moe", "qwen3", "qwen3_moe"), 4096),
}
_WINDOW_ON_REQUEST = {"qwen2", "qwen2_moe", "qwen3", "qwen3_moe", "smollm3"}
_WINDOW_PATTERN = {"cohere2": 4, "gemma2": 2, "gemma3_text": 6}
_MAX_WINDOW_LAYERS = 28
_NEO_WINDOW = 256


def is_config(document: Any) -> bool:
    """Whether a parsed document has the form of a model's config."""
    return isinstance(document, Mapping) and "model_type" in document


def parse_config(document: Mapping[str, Any], name: str) -> Spec:
    """Return the spec of a model config, without mixing and content.

    Raises
    ------
    SpecError
        If the model is not a decoder-only family that is known, or a value is missing or wrong.
    """
    config = _text_config(document)
    kind = config["model_type"]
    is_known = isinstance(kind, str) and kind in _ALIBI | _UNIFORM
    if not is_known or document.get("is_encoder_decoder"):
        raise SpecError(
            f"config of model type {shown(kind)} is not one of the decoder-only families that "
            f"posbias knows ({', '.join(sorted(_ALIBI | _UNIFORM))}); write a spec by hand"
        )
    if config.get("use_bidirectional_attention"):
        raise SpecError("use_bidirectional_attention is set: the model is an encoder, not causal")
    depth = _number(config, _DEPTH, "number of layers", most=MAX_DEPTH)
    heads = _number(config, _HEADS, "number of heads", most=MAX_HEADS)
    length = DEFAULT_LENGTH
    if any(config.get(key) is not None for key in _LENGTH):
        length = _number(config, _LENGTH, "maximum length", most=MAX_LENGTH)
    head = _heads(config, kind, heads)
    layers = [_layer(head, window) for window in _windows(config, kind, depth)]
    is_shared = all(layer == layers[0] for layer in layers)
    return Spec(
        name=name,
        length=length,
        depth=depth,
        layers=tuple(layers[:1] if is_shared else layers),
        provenance={"format": "config.json", "model_type": kind, "file": name},
    )


def _text_config(document: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the config of the language model inside a multimodal one, or the config itself."""
    inner = document.get("text_config")
    if isinstance(inner, Mapping):
        return {"model_type": f"{document['model_type']}_text", **inner}
    return document


def _heads(config: Mapping[str, Any], kind: str, heads: int) -> dict[str, Any]:
    """Return the heads of every layer, as an entry without mask."""
    attention = config.get("attn_config")
    attention = attention if isinstance(attention, Mapping) else {}
    has_alibi = {
        "bloom": True,
        "falcon": _flag(config, "alibi", default=False),
        "mpt": _flag(attention, "alibi", default=True),
    }.get(kind, False)
    if not has_alibi:
        return {"heads": [{"position": {"type": "nope"}}]}
    slopes = alibi_slopes(heads)
    if kind == "falcon":
        # Falcon adds its bias before it divides the logits by sqrt(head dimension).
        width = _number(config, ("hidden_size",), "hidden size", most=2**24)
        if width % heads:
            raise SpecError(f"hidden_size {width} is not a multiple of {heads} heads")
        slopes = slopes / math.sqrt(width // heads)
    return {"alibi": {"slopes": slopes.tolist()}}


def _windows(config: Mapping[str, Any], kind: str, depth: int) -> list[int | None]:
    """Return the sliding window of each layer, None where it sees everything."""
    if kind == "gpt_neo":
        return _gpt_neo_windows(config, depth)
    window = _window(config, kind)
    kinds = config.get("layer_types")
    if kinds is not None:
        return _listed_windows(kinds, window, depth)
    if window is None:
        return [None] * depth
    if kind == "smollm3":
        return _smollm3_windows(config, window, depth)
    return [window if _has_window(config, kind, t) else None for t in range(depth)]


def _has_window(config: Mapping[str, Any], kind: str, t: int) -> bool:
    """Whether layer t = 0..T-1 has the window, by the rule of the family."""
    first = _number(
        config, ("max_window_layers",), "", most=MAX_DEPTH, least=0, default=_MAX_WINDOW_LAYERS
    )
    if kind in ("qwen2", "qwen3"):
        return t >= first
    if kind == "qwen2_moe":
        return t % 2 == 0 and t < first
    if kind not in _WINDOW_PATTERN:
        return True
    pattern = _WINDOW_PATTERN[kind]
    if kind != "gemma2":
        pattern = _number(config, ("sliding_window_pattern",), "", most=MAX_DEPTH, default=pattern)
    return (t + 1) % pattern != 0


def _window(config: Mapping[str, Any], kind: str) -> int | None:
    """Return the window that the model uses in some or all layers."""
    if kind in _WINDOW_ON_REQUEST and not _flag(config, "use_sliding_window", default=False):
        return None
    if config.get("sliding_window", _DEFAULT_WINDOW.get(kind)) is None:
        return None
    return _number(
        config, ("sliding_window",), "window", most=MAX_LENGTH, default=_DEFAULT_WINDOW.get(kind)
    )


def _listed_windows(kinds: Any, window: int | None, depth: int) -> list[int | None]:
    known = ("full_attention", "sliding_attention")
    if not isinstance(kinds, list) or any(entry not in known for entry in kinds):
        raise SpecError(
            f"layer_types is {shown(kinds)}; a list of {' and '.join(known)} is required, other "
            "kinds of layers have no known kernel"
        )
    if len(kinds) != depth:
        raise SpecError(f"layer_types has {len(kinds)} entries for {depth} layers")
    if "sliding_attention" in kinds and window is None:
        raise SpecError("layer_types has sliding_attention, but no sliding_window is in use")
    return [window if entry == "sliding_attention" else None for entry in kinds]


def _smollm3_windows(config: Mapping[str, Any], window: int, depth: int) -> list[int | None]:
    """Return windows of the layers without rotary positions, as SmolLM3 has them."""
    interval = _number(config, ("no_rope_layer_interval",), "", most=MAX_DEPTH, default=4)
    rope = config.get("no_rope_layers")
    if rope is None:
        rope = [int((t + 1) % interval != 0) for t in range(depth)]
    if not isinstance(rope, list) or len(rope) != depth or any(x not in (0, 1) for x in rope):
        raise SpecError(f"no_rope_layers is {shown(rope)}; {depth} entries 0 or 1 are required")
    return [None if has_rope else window for has_rope in rope]


def _gpt_neo_windows(config: Mapping[str, Any], depth: int) -> list[int | None]:
    blocks = config.get("attention_types")
    blocks = [[["global", "local"], 12]] if blocks is None else blocks
    window = _number(config, ("window_size",), "", most=MAX_LENGTH, default=_NEO_WINDOW)
    windows: list[int | None] = []
    for block in blocks if isinstance(blocks, list) else [blocks]:
        try:
            pattern, times = block
            repeated = _number({"times": times}, ("times",), "", most=depth)
            is_good = isinstance(pattern, list) and set(pattern) <= {"global", "local"}
        except (TypeError, ValueError):
            is_good = False
        if not is_good or len(windows) + repeated * len(pattern) > depth:
            raise SpecError(
                f"attention_types is {shown(blocks)}; pairs of a list of global and local and a "
                f"number of times, {depth} layers in total, are required"
            )
        windows += [window if kind == "local" else None for kind in pattern] * repeated
    if len(windows) != depth:
        raise SpecError(f"attention_types describes {len(windows)} layers of {depth}")
    return windows


def _layer(head: Mapping[str, Any], window: int | None) -> dict[str, Any]:
    mask = {"type": "causal"} if window is None else {"type": "sliding_window", "window": window}
    return {**head, "mask": mask}


def _flag(config: Mapping[str, Any], name: str, *, default: bool) -> bool:
    value = config.get(name)
    if value is None:
        return default
    if not isinstance(value, bool):
        raise SpecError(f"{name} is {shown(value)}; true or false is required")
    return value


def _number(
    config: Mapping[str, Any],
    names: tuple[str, ...],
    what: str,
    *,
    most: int,
    least: int = 1,
    default: int | None = None,
) -> int:
    """Return the first number that is given under one of the names."""
    for name in names:
        value = config.get(name)
        if value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            raise SpecError(
                f"{name} is {shown(value)}; a whole number from {least} to {most} is required"
            )
        return value
    if default is not None:
        return default
    raise SpecError(f"the config lacks the {what}; one of {', '.join(names)} is required")
