"""Facts about architectures, as data: where x and a live and how positions enter.

One row per architecture. A row is a claim that is certified numerically on the loaded model
(`posbias.models.stream`) before anything is measured; architectures without a row are searched.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

__all__ = ["ARCHITECTURES", "Architecture", "architecture_of", "text_config"]

PositionType = Literal["alibi", "rotary", "learned", "none"]


@dataclass(frozen=True)
class Architecture:
    """Where one architecture keeps its residual stream and its attention update.

    Attributes
    ----------
    name : str
        Name in messages and manifests.
    model_types : tuple of str
        Values of ``config.model_type`` (of the text part) that the row covers.
    blocks : str
        Path from the causal language model to its list of blocks.
    attention : str
        Path inside a block to the module inside which the softmax runs.
    update : str
        Path inside a block to the module whose first output is the attention update.
    stream : str
        Path inside a block to the module whose first output is x; empty for the block's input.
    multiplier : str
        Attribute of the block that scales the update before it is added; empty for none.
    residual : str
        ``"sequential"``, ``"parallel"`` (the MLP reads x, not x + a), or the name of the config
        entry that says which; the latter two are certified as ``x + a + mlp``.
    position : str
        How positions enter the attention logits.
    condition : mapping
        Config entries that must hold for the row to apply.
    implementations : tuple of str
        Attention implementations of transformers that compute what the model was trained with.
    bias_rounding : str
        ``"none"``, ``"model"`` (the ALiBi bias is rounded to the dtype of the model) or
        ``"bfloat16"`` (always rounded to bfloat16).
    slope_scale : str
        ``"one"`` or ``"head"`` (textbook slopes divided by the square root of the head width).
    sinks : str
        Attribute of the attention module with the logit, per head, of a softmax entry outside
        the sequence; empty for none.
    """

    name: str
    model_types: tuple[str, ...]
    blocks: str = "model.layers"
    attention: str = "self_attn"
    update: str = "self_attn"
    stream: str = ""
    multiplier: str = ""
    residual: str = "sequential"
    position: PositionType = "rotary"
    condition: Mapping[str, Any] = field(default_factory=dict)
    implementations: tuple[str, ...] = ("sdpa", "eager")
    bias_rounding: Literal["none", "model", "bfloat16"] = "none"
    slope_scale: Literal["one", "head"] = "one"
    sinks: str = ""


_H = "transformer.h"
_POST = "post_attention_layernorm"

ARCHITECTURES: tuple[Architecture, ...] = (
    Architecture(
        "BLOOM",
        ("bloom",),
        _H,
        "self_attention",
        "self_attention.dense",
        position="alibi",
        condition={"apply_residual_connection_post_layernorm": False},
        implementations=("eager",),
        bias_rounding="model",
    ),
    Architecture(
        "BLOOM, residual after the norm",
        ("bloom",),
        _H,
        "self_attention",
        "self_attention.dense",
        stream="input_layernorm",
        position="alibi",
        condition={"apply_residual_connection_post_layernorm": True},
        implementations=("eager",),
        bias_rounding="model",
    ),
    Architecture(
        "MPT",
        ("mpt",),
        "transformer.blocks",
        "attn",
        "attn",
        position="alibi",
        implementations=("eager",),
    ),
    Architecture(
        "Falcon with ALiBi",
        ("falcon",),
        _H,
        "self_attention",
        "self_attention",
        residual="parallel_attn",
        position="alibi",
        condition={"alibi": True},
        implementations=("sdpa",),
        bias_rounding="bfloat16",
        slope_scale="head",
    ),
    Architecture(
        "Falcon",
        ("falcon",),
        _H,
        "self_attention",
        "self_attention",
        residual="parallel_attn",
        condition={"alibi": False},
    ),
    Architecture("GPT-2", ("gpt2",), _H, "attn", "attn", position="learned"),
    Architecture(
        "GPT-Neo",
        ("gpt_neo",),
        _H,
        "attn",
        "attn",
        position="learned",
        implementations=("eager",),
    ),
    Architecture("GPT-J", ("gptj",), _H, "attn", "attn", residual="parallel"),
    Architecture(
        "GPT-NeoX",
        ("gpt_neox",),
        "gpt_neox.layers",
        "attention",
        "attention",
        residual="use_parallel_residual",
    ),
    Architecture("OPT", ("opt",), "model.decoder.layers", position="learned"),
    Architecture("Llama", ("llama",)),
    Architecture("Mistral", ("mistral", "ministral")),
    Architecture("Mixtral", ("mixtral",)),
    Architecture("Qwen2", ("qwen2", "qwen2_moe")),
    Architecture("Qwen3", ("qwen3", "qwen3_moe")),
    Architecture("Gemma", ("gemma",)),
    Architecture("Gemma 2", ("gemma2",), update=_POST, implementations=("eager",)),
    Architecture("Gemma 3", ("gemma3_text",), update=_POST),
    Architecture("Phi", ("phi",), residual="parallel"),
    Architecture("Phi-3", ("phi3",)),
    Architecture("OLMo 2", ("olmo2",), update=_POST),
    Architecture("Granite", ("granite",), multiplier="residual_multiplier"),
    Architecture("Cohere", ("cohere",), residual="parallel"),
    Architecture("Cohere 2", ("cohere2",), residual="parallel"),
    Architecture("StableLM", ("stablelm",), residual="use_parallel_residual"),
    Architecture("StarCoder 2", ("starcoder2",)),
    Architecture("gpt-oss", ("gpt_oss",), implementations=("eager",), sinks="sinks"),
    Architecture("DeepSeek V3", ("deepseek_v3",)),
    Architecture("SmolLM3", ("smollm3",)),
)


def text_config(config: Any) -> Any:
    """Return the config of the text part of a model (the config itself for a plain text model)."""
    getter = getattr(config, "get_text_config", None)
    return getter() if callable(getter) else config


def architecture_of(config: Any) -> Architecture | None:
    """Return the row for a transformers config, or None when the architecture has none."""
    text = text_config(config)
    for row in ARCHITECTURES:
        if text.model_type in row.model_types and all(
            bool(getattr(text, name, None)) == wanted for name, wanted in row.condition.items()
        ):
            return row
    return None
