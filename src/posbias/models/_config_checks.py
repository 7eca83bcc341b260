"""What a model's configuration tells before any weight is loaded."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from posbias.errors import UnsupportedModelError

__all__ = ["check_causal", "check_config", "length_limit"]

_REQUIRED = "a causal, decoder-only language model is required"

_LENGTH_FIELDS = ("max_position_embeddings", "n_positions", "max_seq_len")


def check_config(config: Any, name: str) -> None:
    """Refuse a model that is known not to be measurable.

    Raises
    ------
    UnsupportedModelError
        If it is sequence-to-sequence, an encoder, bidirectional, no causal language model, or
        has quantised weights.
    """
    from transformers.models.auto import modeling_auto as auto

    check_causal(config, name)
    has_own_code = "AutoModelForCausalLM" in (getattr(config, "auto_map", None) or {})
    if _kind(config) not in auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES and not has_own_code:
        raise UnsupportedModelError(
            f"{name} is a {_kind(config)} model, which transformers cannot load as a causal "
            f"language model; {_REQUIRED}"
        )


def check_causal(config: Any, name: str) -> None:
    """Refuse what no loaded object may be, whatever its class.

    Raises
    ------
    UnsupportedModelError
        If it is sequence-to-sequence, an encoder, bidirectional, or has quantised weights.
    """
    from transformers.models.auto import modeling_auto as auto

    kind = _kind(config)
    if getattr(config, "is_encoder_decoder", False):
        raise UnsupportedModelError(f"{name} is a sequence-to-sequence model ({kind}); {_REQUIRED}")
    is_masked = kind in auto.MODEL_FOR_MASKED_LM_MAPPING_NAMES
    if (is_masked and not getattr(config, "is_decoder", False)) or _is_bidirectional(config):
        raise UnsupportedModelError(
            f"{name} is an encoder ({kind}), where every token sees every other; {_REQUIRED}"
        )
    method = _quantisation(config)
    # Weights from GGUF are expanded to the wanted number format when they are loaded.
    if method not in {None, "gguf"}:
        raise UnsupportedModelError(
            f"{name} has weights quantised by {method}; plain floating point is required. Use the "
            "model it was made from, or a GGUF file, which is expanded when loaded"
        )


def length_limit(config: Any) -> int | None:
    """Return the largest number of positions, None if there is no limit (ALiBi)."""
    text = config.get_text_config() if hasattr(config, "get_text_config") else config
    if getattr(text, "alibi", False):
        return None
    for name in _LENGTH_FIELDS:
        value = getattr(text, name, None)
        if isinstance(value, int) and value > 0:
            return value
    return None


def _kind(config: Any) -> str:
    return str(getattr(config, "model_type", None) or type(config).__name__)


def _is_bidirectional(config: Any) -> bool:
    is_causal = getattr(config, "is_causal", True)
    return is_causal is False or getattr(config, "use_bidirectional_attention", False) is True


def _quantisation(config: Any) -> str | None:
    settings = getattr(config, "quantization_config", None)
    if settings is None:
        return None
    if not isinstance(settings, Mapping):
        settings = vars(settings)
    method = settings.get("quant_method", "an unnamed method")
    return str(getattr(method, "value", method))
