"""Load a causal language model and its tokenizer, or say in one line why not."""

from __future__ import annotations

import importlib.util
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from posbias.errors import ModelError
from posbias.models._config_checks import check_config, length_limit
from posbias.models._quiet import quiet_loading
from posbias.models._sources import DEFAULT_MODEL, ModelSource, embedded_models, resolve_source
from posbias.models.hub import cached_commit, explain_hub_error, is_hub_reachable, one_line

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

_TOKENIZER_FILES = ("tokenizer*", "*.model", "*vocab*", "*.tiktoken", "merges.txt")


@dataclass(frozen=True, eq=False)
class LoadedModel:
    """A model ready to be measured.

    Parameters
    ----------
    model : PreTrainedModel
        In eval mode, on one device.
    tokenizer : PreTrainedTokenizerBase
        The tokenizer it was trained with.
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
    dtype: str | torch.dtype | None = "float32",
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
        One of `DTYPES`. Weights are converted to it, whatever they are stored in. None takes a
        given object in the format that it has.
    device : str, optional
        A torch device; by default ``"cuda"`` if there is one, else ``"cpu"``.
    revision : str, optional
        Branch, tag or commit of a hub model.
    gguf_file : str, optional
        The file to load from a folder, package or hub model in GGUF.
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
    if not isinstance(model, str | os.PathLike):
        fixed = {
            "revision": revision,
            "gguf_file": gguf_file,
            "attn_implementation": attn_implementation,
        }
        return _check_object(model, dtype, device, fixed)
    source = resolve_source(model, gguf_file=gguf_file)
    if source.gguf_file is not None:
        _require("gguf", "accelerate", "sentencepiece", extra="gguf")
    if revision is not None and source.kind != "hub":
        raise ModelError(
            f"revision {revision!r} was given for {source.id}; only hub models have one"
        )
    number_format, where = _torch_dtype(dtype), _torch_device(device)
    options: dict[str, Any] = {"trust_remote_code": trust_remote_code}
    if source.gguf_file is not None:
        options["gguf_file"] = source.gguf_file
    with quiet_loading():
        if source.kind == "hub":
            options |= {"revision": revision, "local_files_only": not is_hub_reachable()}
        config = _load_config(source, options)
        check_config(config, source.id)
        commit = None
        if source.kind == "hub":
            commit = cached_commit(source.id, source.gguf_file or "config.json", revision)
            # All files from one commit, even if the branch moves meanwhile.
            options["revision"] = commit or revision
        tokenizer = _load_tokenizer(source, options)
        if attn_implementation is not None:
            options["attn_implementation"] = attn_implementation
        network = _load_weights(source, {**options, "config": config, "dtype": number_format})
    _move(network, where, source.id)
    network.eval()
    return LoadedModel(network, tokenizer, source.id, commit, source.kind)


def maximum_length(model: Any) -> int | None:
    """Return the largest number of positions of a model, None if it has no limit (ALiBi).

    Parameters
    ----------
    model : LoadedModel, PreTrainedModel or PreTrainedConfig
    """
    inner: Any = model.model if isinstance(model, LoadedModel) else model
    return length_limit(getattr(inner, "config", inner))


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


def _check_object(given: Any, dtype: Any, device: Any, fixed: Mapping[str, object]) -> LoadedModel:
    """Check a model and tokenizer that were loaded elsewhere; nothing about them is changed."""
    loaded = given if isinstance(given, LoadedModel) else _from_pair(given)
    model: Any = loaded.model
    check_config(model.config, loaded.id)
    for option, value in fixed.items():
        if value is not None:
            raise ModelError(
                f"{option} {value!r} was given, but the model is loaded already; give it there"
            )
    if dtype is not None and model.dtype != _torch_dtype(dtype):
        raise ModelError(
            f"the given model is in {str(model.dtype).removeprefix('torch.')}, {dtype} was asked "
            "for. Ask for the format it has, or convert it: model.to(dtype)"
        )
    wanted = model.device if device is None else _torch_device(device)
    if wanted.type != model.device.type or wanted.index not in {None, model.device.index}:
        raise ModelError(
            f"the given model is on {model.device}, {device} was asked for. Ask for the device it "
            "is on, or move it: model.to(device)"
        )
    if model.training:
        raise ModelError("the given model is in training mode, with dropout; call model.eval()")
    return loaded


def _from_pair(given: Any) -> LoadedModel:
    from transformers import PreTrainedModel

    if not isinstance(given, tuple) or len(given) != 2:
        raise ModelError(
            f"model is a {type(given).__name__}; a name, a path, or a pair (model, tokenizer) of "
            "loaded objects is required"
        )
    model, tokenizer = given
    if not isinstance(model, PreTrainedModel) or not callable(tokenizer):
        raise ModelError(
            f"model is a pair of {type(model).__name__} and {type(tokenizer).__name__}; a "
            "transformers model and its tokenizer are required"
        )
    name = getattr(model.config, "_name_or_path", "") or type(model).__name__
    commit = getattr(model.config, "_commit_hash", None)
    pair: tuple[Any, Any] = (model, tokenizer)
    return LoadedModel(*pair, name, commit, "object")


def _load_config(source: ModelSource, options: Mapping[str, Any]) -> Any:
    from transformers import AutoConfig

    try:
        return AutoConfig.from_pretrained(source.location, **options)
    except Exception as error:
        if source.kind == "hub":
            is_online = not options["local_files_only"]
            raise explain_hub_error(
                source.id, options["revision"], error, is_online=is_online
            ) from error
        raise ModelError(
            f"the configuration of {source.id} cannot be read: {one_line(error)}"
        ) from error


def _load_tokenizer(source: ModelSource, options: Mapping[str, Any]) -> Any:
    from transformers import AutoTokenizer

    mend = "Save one beside the weights: tokenizer.save_pretrained(folder)"
    if source.kind in {"directory", "embedded"}:
        folder = Path(source.location)
        if not any(True for pattern in _TOKENIZER_FILES for _ in folder.glob(pattern)):
            raise ModelError(f"model {source.id} has no tokenizer: none is in the folder. {mend}")
    try:
        tokenizer = AutoTokenizer.from_pretrained(source.location, **options)
    except Exception as error:
        raise ModelError(
            f"model {source.id} has no tokenizer that can be loaded: {one_line(error)}. {mend}"
        ) from error
    # Without vocabulary files some classes build an empty tokenizer instead of failing.
    if not tokenizer("a b", add_special_tokens=False)["input_ids"]:
        raise ModelError(
            f"model {source.id} has no usable tokenizer: it makes no token of 'a b'. {mend}"
        )
    return tokenizer


def _load_weights(source: ModelSource, options: Mapping[str, Any]) -> Any:
    from transformers import AutoModelForCausalLM

    try:
        loaded: Any = AutoModelForCausalLM.from_pretrained(
            source.location, output_loading_info=True, ignore_mismatched_sizes=True, **options
        )
    except Exception as error:
        wanted = options.get("attn_implementation")
        if wanted is not None and re.search("attention implementation|attn_impl", str(error)):
            raise ModelError(
                f"transformers does not run {source.id} with attention implementation {wanted!r} "
                f"({one_line(error)}); leave it out, or ask for 'eager' or 'sdpa'"
            ) from error
        raise ModelError(
            f"the weights of {source.id} cannot be loaded: {one_line(error)}. If a file is cut "
            "off or damaged, download or save the model again"
        ) from error
    network, report = loaded
    lost = sorted(report["missing_keys"])
    if lost:
        raise ModelError(
            f"the weights of {source.id} are incomplete: {len(lost)} tensors are missing and would "
            f"be random, {lost[0]} for one. The file may be damaged or of another "
            "architecture; download or save the model again"
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
        raise ModelError(f"{name} cannot be moved to {device}: {one_line(error)}") from error
