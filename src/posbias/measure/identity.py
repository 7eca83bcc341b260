"""What the numbers of a run depend on, so that a run is only continued as itself."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import numpy as np
import torch
import transformers
from torch import Tensor, nn

from posbias.measure.manifest import Origin
from posbias.measure.options import MeasureOptions
from posbias.measure.windows import TokenWindows
from posbias.version import __version__

__all__ = ["run_identity", "weights_fingerprint"]

_SAMPLES = 64

_INTEGERS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}

# Where a model comes from is in its id, and what it is in its weights.
_PLACES = ("device", "_name_or_path", "transformers_version")


def run_identity(
    model: nn.Module, windows: TokenWindows, *, origin: Origin, options: MeasureOptions
) -> dict[str, Any]:
    """Return model, text, options and versions as nested JSON values.

    Call it with the number of threads that the run has.
    """
    config: Any = model.config
    settings = {k: v for k, v in options.as_dict().items() if k not in _PLACES}
    return {
        "model": {
            "id": origin.model_id,
            "revision": origin.revision,
            "config": {k: v for k, v in _plain(config.to_dict()).items() if k not in _PLACES},
            "weights": weights_fingerprint(model),
        },
        "text": {"source": origin.text_source, "sha256": origin.text_sha256},
        "tokens": {"tokenizer": origin.tokenizer_id, "sha256": windows.sha256},
        "options": settings | {"threads": torch.get_num_threads()},
        "device": next(model.parameters()).device.type,
        "versions": {
            "posbias": __version__,
            "torch": torch.__version__,
            "transformers": transformers.__version__,
            "numpy": np.__version__,
        },
    }


def weights_fingerprint(model: nn.Module) -> str:
    """Return a hash of the names, shapes, types and values of all weights.

    Every byte enters a sum of integers per tensor, which no order of summation changes; a sample
    of the values enters as it is. One pass over the weights where they are. A change of a weight
    changes it; it is no protection against forgery.
    """
    digest = hashlib.sha256()
    for name, tensor in sorted(model.state_dict().items()):
        digest.update(f"{name} {tuple(tensor.shape)} {tensor.dtype} ".encode())
        if tensor.numel():
            digest.update(_summary(tensor))
    return digest.hexdigest()


def _summary(tensor: Tensor) -> bytes:
    flat = tensor.detach().reshape(-1)
    words = flat if flat.dtype is torch.bool else flat.view(_INTEGERS[flat.element_size()])
    total = int(words.sum(dtype=torch.int64))
    sample = words[:: max(words.numel() // _SAMPLES, 1)].cpu().contiguous().numpy()
    return str(total).encode() + bytes(sample.tobytes())


def _plain(value: dict[str, Any]) -> dict[str, Any]:
    plain: dict[str, Any] = json.loads(json.dumps(value, default=str))
    return plain
