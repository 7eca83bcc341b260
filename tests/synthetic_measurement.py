"""Measurements made of random numbers, one window at a time, for tests of what reads them.

The numbers of a window depend on its start only, so that measurements over other sets of windows
agree where they share some. Attention is made of multiples of 2**-20: sums over windows are exact.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from posbias.measurement import Measurement
from posbias.measurement.estimator_arrays import ESTIMATOR_ARRAYS

Arrays = dict[str, NDArray[Any]]
UNIT = 2**20
LAYERS, HEADS, LENGTH = 3, 2, 8


def make(
    starts: list[list[int]] | None = None,
    *,
    alibi: bool = True,
    layer_windows: list[int | None] | None = None,
) -> Measurement:
    """Return a measurement of three layers, two heads and eight positions."""
    return Measurement(*make_parts(starts, alibi=alibi, layer_windows=layer_windows))


def make_parts(
    starts: list[list[int]] | None = None,
    *,
    alibi: bool = True,
    layer_windows: list[int | None] | None = None,
) -> tuple[dict[str, Any], Arrays]:
    """Return manifest and arrays of `make`, to be changed."""
    starts = [[0, 0], [0, 8], [0, 16], [2, 5]] if starts is None else starts
    masks = [None] * LAYERS if layer_windows is None else layer_windows
    windows = [_window(document, offset, masks) for document, offset in starts]
    arrays: Arrays = {}
    for name in windows[0]:
        stacked = np.stack([window[name] for window in windows])
        arrays[name] = stacked if name.endswith(".windows") else stacked.sum(axis=0)
    if alibi:
        arrays["position.slopes"] = np.array([[0.5, 0.25]] * LAYERS)
    return _manifest(starts, masks, "alibi" if alibi else "rotary"), arrays


def with_all_arrays(starts: list[list[int]] | None = None) -> Measurement:
    """Return a measurement with every array of the estimators, random per window."""
    manifest, arrays = make_parts(starts)
    windows = manifest["windows"]["starts"]
    for name, spec in ESTIMATOR_ARRAYS.items():
        rows = []
        for document, offset in windows:
            rng = np.random.default_rng([document, offset, len(name)])
            sizes = {"T": LAYERS, "n": LENGTH}
            shape = tuple(sizes[letter] for letter in spec.shape if letter != "D")
            row = rng.uniform(0.1, 0.9, shape)
            if len(shape) == 3:
                row = np.tril(row)
                row /= row.sum(-1, keepdims=True)
            rows.append(row)
        arrays[name] = np.stack(rows) if spec.shape[0] == "D" else np.sum(rows, axis=0)
    return Measurement(manifest, arrays)


def _window(document: int, offset: int, masks: list[int | None]) -> Arrays:
    rng = np.random.default_rng([document, offset])
    shape, lags = (LAYERS, HEADS), np.arange(LENGTH)
    attention = np.zeros((LAYERS, LENGTH, LENGTH))
    counts = np.zeros((LAYERS, LENGTH), dtype=np.int64)
    for t, mask in enumerate(masks):
        width = LENGTH if mask is None else mask
        counts[t] = np.where(lags < width, LENGTH - lags, 0)
        for i in range(LENGTH):
            first = max(0, i - width + 1)
            weights = rng.dirichlet(np.ones(i - first + 1))
            attention[t, i, first : i + 1] = rng.multinomial(UNIT, weights) / UNIT
    return {
        "mixing.norm.windows": rng.uniform(0.1, 0.6, (LAYERS, LENGTH)),
        "mixing.frobenius.windows": rng.uniform(0.1, 0.6, LAYERS),
        "kernel.attention.sum": attention,
        "content.diagonal.windows": rng.normal(1.0, 1.0, shape),
        "content.lower.windows": rng.normal(0.0, 1.0, shape),
        "content.diagonal.std.windows": rng.uniform(0.5, 1.5, shape),
        "content.lower.std.windows": rng.uniform(0.5, 1.5, shape),
        "content.explained.windows": rng.uniform(0.0, 1.0, shape),
        "logits.lag.sum": rng.integers(-9, 9, (*shape, LENGTH)) * 1.0 * (counts[:, None, :] > 0),
        "logits.lag.count": counts,
        "influence.gradient.windows": rng.exponential(1e-4, LENGTH),
        "next.probability.windows": rng.uniform(0.0, 1.0, ()),
    }


def _manifest(
    starts: list[list[int]], layer_windows: list[int | None], scheme: str
) -> dict[str, Any]:
    return {
        "format": "posbias.measurement",
        "version": 1,
        "posbias_version": "0.1.0",
        "created": "2026-01-02T03:04:05+00:00",
        "model": {
            "id": "example/tiny",
            "architecture": "bloom",
            "revision": None,
            "layers": LAYERS,
            "heads": HEADS,
            "kv_heads": HEADS,
            "position_scheme": {"type": scheme},
            "layer_windows": list(layer_windows),
            "parameters": 12345,
            "dtype": "float32",
            "attention_implementation": "sdpa",
        },
        "tokenizer": {"id": "example/tiny", "adds_bos": False},
        "text": {"source": "text.txt", "sha256": "ab" * 32, "documents": 3, "tokens": 100},
        "windows": {
            "length": LENGTH,
            "count": len(starts),
            "seed": 0,
            "starts": [list(start) for start in starts],
            "first_token_is_bos": False,
        },
        "libraries": {"torch": "2", "transformers": "5", "numpy": "2", "python": "3"},
        "command": None,
        "preflight": {"identity": {"passed": True, "value": 1e-7, "tolerance": 1e-4}},
        "influence_method": "gradient",
        "run": {"device": "cpu"},
    }
