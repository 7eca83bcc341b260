"""Load a causal language model and its tokenizer, or say in one line why not."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from posbias.errors import ModelError, UnsupportedModelError
from posbias.models._quiet import quiet_loading
from posbias.models._sources import DEFAULT_MODEL, ModelSource, embedded_models, resolve_source

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

__all__ = [
    "DEFAULT_MODEL",
    "DTYPES",
    "LoadedModel",
    "embedded_models",
    "load_model",
    "maximum_length",
]

DTYPES = ("float32", "bfloat16", "float16", "float64")
"""Number formats in which a model can be loaded."""

_LENGTH_FIELDS = ("max_position_embeddings", "n_positions", "max_seq_len")
_HUB_TIMEOUT_S = 5.0


@dataclass(frozen=True, eq=False)
class LoadedModel:
    """A model ready to be measured.

    Parameters
    ----------
    model : PreTrainedModel
        In eval mode, on one device.
    tokenizer : PreTrainedTokenizerBase
    id : str
        The model as it was named.
    revision : str or None
        Commit of a model from the hub.
    source_kind : str
        ``"hub"``, ``"directory"``, ``"gguf"``, ``"embedded"`` or ``"object"``.
    """

    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    id: str
    revision: str | None
    source_kind: str


def load_model(
    model: str | os.PathLike[str] | tuple[Any, Any] | LoadedModel = DEFAULT_MODEL,
    *,
    dtype: str | torch.dtype = "float32",
    device: str | torch.device | None = None,
    revision: str | None = None,
    gguf_file: str | None = None,
    attn_implementation: str | None = None,
    trust_remote_code: bool = False,
) -> LoadedModel:
    """Load a causal language model with its tokenizer.

    Parameters
    ----------
    model : str, path, (model, tokenizer) or LoadedModel
        ``"embedded:bloom"``, ``"embedded:llama"``; a folder with ``config.json``; a ``.gguf``
        file or a folder with one; ``"package:NAME"``, an installed Python package with a GGUF
        file; or a hub id. A pair of model and tokenizer objects is checked and used as it is.
    dtype : str
        One of `DTYPES`. Weights are converted to it, whatever they are stored in.
    device : str, optional
        A torch device; by default ``"cuda"`` if there is one, else ``"cpu"``.
    revision : str, optional
        Branch, tag or commit of a hub model.
    gguf_file : str, optional
        The file to load from a folder or hub model in GGUF.
    attn_implementation : str, optional
        ``"sdpa"``, ``"eager"``...; by default what transformers takes for the model.
    trust_remote_code : bool
        Allow code that comes with the model to run.

    Returns
    -------
    LoadedModel

    Raises
    ------
    ModelError
        If the model or its tokenizer is not found, damaged or incomplete, if a library is
        missing, or an option does not fit.
    UnsupportedModelError
        If it is not a causal language model with weights in plain floating point.
    """
    _require("torch", "transformers", extra="models")
    wanted = _torch_dtype(dtype)
    if isinstance(model, LoadedModel | tuple) or not isinstance(model, str | os.PathLike):
        named_only = {"revision": revision, "gguf_file": gguf_file, "attn": attn_implementation}
        return _check_objects(model, wanted, device, named_only)
    source = resolve_source(model, gguf_file=gguf_file)
    if source.gguf_file is not None:
        _require("gguf", "accelerate", "sentencepiece", extra="gguf")
    if revision is not None and source.kind != "hub":
        raise ModelError(
            f"revision {revision!r} was given for {source.id}; only hub models have one"
        )
    where = _torch_device(device)
    options: dict[str, Any] = {"trust_remote_code": trust_remote_code}
    with quiet_loading():
        if source.kind == "hub":
            options |= {"revision": revision, "local_files_only": not _is_hub_reachable()}
        if source.gguf_file is not None:
            options["gguf_file"] = source.gguf_file
        config = _load_config(source, options)
        _check_config(config, source.id)
        tokenizer = _load_tokenizer(source, options)
        if attn_implementation is not None:
            options["attn_implementation"] = attn_implementation
        network = _load_weights(source, {**options, "config": config, "dtype": wanted})
    _move(network, where, source.id)
    commit = getattr(config, "_commit_hash", None)
    network.eval()
    return LoadedModel(network, tokenizer, source.id, commit, source.kind)


def maximum_length(model: Any) -> int | None:
    """Return the largest number of positions of a model, None if it has no limit (ALiBi).

    Parameters
    ----------
    model : LoadedModel, PreTrainedModel or PreTrainedConfig
    """
    inner = model.model if isinstance(model, LoadedModel) else model
    config = getattr(inner, "config", inner)
    config = config.get_text_config() if hasattr(config, "get_text_config") else config
    if getattr(config, "alibi", False):
        return None
    for name in _LENGTH_FIELDS:
        value = getattr(config, name, None)
        if isinstance(value, int) and value > 0:
            return value
    return None


def _require(*libraries: str, extra: str) -> None:
    missing = [name for name in libraries if importlib.util.find_spec(name) is None]
    if missing:
        raise ModelError(
            f"loading this model needs {', '.join(missing)}, not installed here. "
            f"Install what is missing: pip install 'posbias[{extra}]'"
        )


def _torch_dtype(dtype: Any) -> Any:
    import torch

    name = str(dtype).removeprefix("torch.")
    if name not in DTYPES:
        raise ModelError(f"dtype is {name!r}; one of {', '.join(DTYPES)} is required")
    return getattr(torch, name)


def _torch_device(device: Any) -> Any:
    import torch

    if device is None:
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        return torch.device(device)
    except (RuntimeError, TypeError) as error:
        raise ModelError(
            f"device is {device!r}, which torch does not know; cpu, cuda or cuda:INDEX is required"
        ) from error


def _check_objects(
    given: Any, dtype: Any, device: Any, named_only: Mapping[str, object]
) -> LoadedModel:
    """Check a model and tokenizer that were loaded elsewhere; nothing about them is changed."""
    from transformers import PreTrainedModel

    if isinstance(given, LoadedModel):
        loaded = given
    elif not isinstance(given, tuple) or len(given) != 2:
        raise ModelError(
            f"model is {type(given).__name__}; a name, a path, or a pair (model, tokenizer) of "
            "loaded objects is required"
        )
    else:
        model, tokenizer = given
        if not isinstance(model, PreTrainedModel) or not callable(tokenizer):
            raise ModelError(
                f"model is a pair of {type(model).__name__} and {type(tokenizer).__name__}; a "
                "transformers model and its tokenizer are required"
            )
        config = model.config
        name = getattr(config, "_name_or_path", "") or type(model).__name__
        loaded = LoadedModel(
            model, tokenizer, name, getattr(config, "_commit_hash", None), "object"
        )
    _check_config(loaded.model.config, loaded.id)
    for option, value in named_only.items():
        if value is not None:
            raise ModelError(f"{option} is {value!r}, but the model is loaded already")
    if loaded.model.dtype != dtype:
        raise ModelError(
            f"the given model is {loaded.model.dtype}, {dtype} was asked for. Pass "
            "dtype=model.dtype, or convert the model: model.to(dtype)"
        )
    if device is not None and loaded.model.device.type != _torch_device(device).type:
        raise ModelError(
            f"the given model is on {loaded.model.device}, {device} was asked for. "
            "Move it yourself: model.to(device)"
        )
    if loaded.model.training:
        raise ModelError("the given model is in training mode, with dropout; call model.eval()")
    return loaded


def _is_hub_reachable() -> bool:
    """Ask the hub once: its client retries each file for half a minute before it gives up."""
    from huggingface_hub import constants, utils

    hub_utils: Any = utils
    try:
        hub_utils.get_session().head(constants.ENDPOINT, timeout=_HUB_TIMEOUT_S)
    except Exception:  # Offline mode, no network, proxy refusal: of many kinds, all the same here.
        return False
    return True


def _load_config(source: ModelSource, options: Mapping[str, Any]) -> Any:
    from transformers import AutoConfig

    try:
        return AutoConfig.from_pretrained(source.location, **options)
    except Exception as error:
        if source.kind == "hub":
            raise _not_on_hub(source, options, error) from error
        raise ModelError(
            f"the configuration of {source.id} cannot be read: {_reason(error)}"
        ) from error


def _not_on_hub(source: ModelSource, options: Mapping[str, Any], error: Exception) -> ModelError:
    from huggingface_hub import constants, errors

    causes = (error, error.__cause__, error.__context__)

    def caused_by(kind: type[Exception]) -> bool:
        return any(isinstance(cause, kind) for cause in causes)

    tried = f"cannot find model {source.id}: no such folder or file here"
    if options["local_files_only"]:
        return ModelError(
            f"{tried}, not in the cache {constants.HF_HUB_CACHE}, and {constants.ENDPOINT} cannot "
            f"be reached. Check the name or the connection, or try {DEFAULT_MODEL}"
        )
    if caused_by(errors.GatedRepoError):
        return ModelError(
            f"model {source.id} is gated: accept its terms at {constants.ENDPOINT}/{source.id} "
            "and log in with: hf auth login"
        )
    if caused_by(errors.RepositoryNotFoundError):
        return ModelError(
            f"{tried}, and {constants.ENDPOINT} has no such model, or it is private. Check the "
            "name, or log in with: hf auth login"
        )
    if caused_by(errors.RevisionNotFoundError):
        return ModelError(
            f"model {source.id} has no revision {options['revision']!r}; a branch, tag or commit "
            f"of {constants.ENDPOINT}/{source.id} is required"
        )
    return ModelError(f"the configuration of {source.id} cannot be read: {_reason(error)}")


def _check_config(config: Any, name: str) -> None:
    """Refuse what is known from the configuration not to be measurable."""
    from transformers.models.auto import modeling_auto as auto

    kind = getattr(config, "model_type", None) or type(config).__name__
    if getattr(config, "is_encoder_decoder", False):
        raise UnsupportedModelError(
            f"{name} is a sequence-to-sequence model ({kind}); a causal, decoder-only language "
            "model is required"
        )
    is_masked = kind in auto.MODEL_FOR_MASKED_LM_MAPPING_NAMES
    if is_masked and not getattr(config, "is_decoder", False):
        raise UnsupportedModelError(
            f"{name} is an encoder ({kind}), where every token sees every other; a causal, "
            "decoder-only language model is required"
        )
    has_own_code = "AutoModelForCausalLM" in (getattr(config, "auto_map", None) or {})
    if kind not in auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES and not has_own_code:
        raise UnsupportedModelError(
            f"{name} is a {kind} model, which transformers cannot load as a causal language model"
        )
    method = _quantisation(config)
    if method not in {None, "gguf"}:
        raise UnsupportedModelError(
            f"{name} has weights quantised by {method}; plain floating point is required. Use the "
            "model it was made from, or a GGUF file, which is expanded when loaded"
        )


def _quantisation(config: Any) -> str | None:
    settings = getattr(config, "quantization_config", None)
    if settings is None:
        return None
    if not isinstance(settings, Mapping):
        settings = vars(settings)
    method = settings.get("quant_method", "an unnamed method")
    return str(getattr(method, "value", method))


def _load_tokenizer(source: ModelSource, options: Mapping[str, Any]) -> Any:
    from transformers import AutoTokenizer

    try:
        tokenizer = AutoTokenizer.from_pretrained(source.location, **options)
    except Exception as error:
        raise ModelError(
            f"model {source.id} has no tokenizer that can be loaded: {_reason(error)}. Save one "
            "beside the weights: tokenizer.save_pretrained(folder)"
        ) from error
    if len(tokenizer) < 2 or not tokenizer("a b", add_special_tokens=False)["input_ids"]:
        raise ModelError(
            f"model {source.id} has no tokenizer: an empty one was built from the configuration. "
            "Save one beside the weights: tokenizer.save_pretrained(folder)"
        )
    return tokenizer


def _load_weights(source: ModelSource, options: Mapping[str, Any]) -> Any:
    from transformers import AutoModelForCausalLM

    try:
        loaded: Any = AutoModelForCausalLM.from_pretrained(
            source.location, output_loading_info=True, ignore_mismatched_sizes=True, **options
        )
    except MemoryError:
        raise
    except Exception as error:
        raise ModelError(
            f"the weights of {source.id} cannot be loaded: {_reason(error)}"
        ) from error
    network, report = loaded
    lost = sorted(report["missing_keys"])
    if lost:
        raise ModelError(
            f"the weights of {source.id} are incomplete: {len(lost)} tensors are missing and would "
            f"be random, {lost[0]} for one. The file may be damaged or of another architecture"
        )
    for key, stored, required in sorted(report["mismatched_keys"]):
        raise ModelError(
            f"the weights of {source.id} do not fit its configuration: {key} has shape "
            f"{tuple(stored)}, {tuple(required)} is required"
        )
    return network


def _move(network: Any, device: Any, name: str) -> None:
    try:
        network.to(device)
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        raise ModelError(f"{name} cannot be moved to device {device}: {_reason(error)}") from error


def _reason(error: BaseException) -> str:
    """Return the message of another library's error as one line."""
    text = " ".join(str(error).split()).rstrip(".")
    short = text if len(text) <= 300 else text[:297] + "..."
    return f"{type(error).__name__}: {short}" if short else type(error).__name__
