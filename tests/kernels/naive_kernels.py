"""Attention matrices entry by entry from the descriptions of a spec file: the oracle."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

Description = Mapping[str, Any]


def naive_matrix(layer: Description, n: int) -> np.ndarray:
    """Return the matrix of a layer with the key ``heads``, in extended precision."""
    heads = layer["heads"]
    total = np.zeros((n, n), dtype=np.longdouble)
    weights = [head.get("weight", 1.0) for head in heads]
    for head, weight in zip(heads, weights, strict=True):
        for i in range(n):
            logits = np.full(n, -np.inf, dtype=np.longdouble)
            for j in range(n):
                if naive_visible(layer.get("mask", {"type": "causal"}), i, j):
                    logits[j] = naive_logit(head, i, j) / np.longdouble(layer["temperature"])
            scores = np.exp(logits - logits.max())
            total[i] += np.longdouble(weight) / sum(weights) * (scores / scores.sum())
    return total


def naive_visible(mask: Description, i: int, j: int) -> bool:
    kind = mask["type"]
    if kind == "causal":
        return j <= i
    if kind == "sliding_window":
        return j <= i and j >= i - mask["window"] + 1
    if kind == "window_sink":
        return j <= i and (j >= i - mask["window"] + 1 or j < mask["sinks"])
    if kind == "prefix_lm":
        return j <= i or (i < mask["prefix"] and j < mask["prefix"])
    assert kind == "full"
    return True


def naive_logit(head: Description, i: int, j: int) -> float:
    logit = naive_bias(head.get("position", {"type": "nope"}), i - j)
    if i == j:
        logit += head.get("diagonal", 0.0)
    if head.get("key") is not None:
        logit += head["key"][j]
    if head.get("sink") is not None and j < head["sink"]["count"]:
        logit += head["sink"]["logit"]
    return logit


def naive_bias(position: Description, lag: int) -> float:
    far = abs(lag)
    biases: Mapping[str, Callable[[], float]] = {
        "nope": lambda: 0.0,
        "alibi": lambda: -position["slope"] * (lag if position.get("future") == "signed" else far),
        "kerple_log": lambda: -position["r1"] * math.log(1.0 + position["r2"] * far),
        "kerple_power": lambda: -position["r1"] * far ** position["r2"],
        "t5": lambda: position["bias"][naive_bucket(position, max(lag, 0))],
        "cosine": lambda: position["amp"] * math.cos(position["theta"] * lag),
        "rope_sum": lambda: naive_rope(position, lag),
        "table": lambda: naive_entry(position["bias"][min(far, len(position["bias"]) - 1)]),
    }
    return biases[position["type"]]()


def naive_rope(position: Description, lag: int) -> float:
    half = position["dim"] // 2
    angles = [position["base"] ** (-2.0 * k / position["dim"]) * lag for k in range(half)]
    return position["amp"] / half * sum(math.cos(angle) for angle in angles)


def naive_entry(bias: float | None) -> float:
    return -math.inf if bias is None else bias


def naive_bucket(position: Description, lag: int) -> int:
    exact = position["num_buckets"] // 2
    if lag < exact:
        return lag
    share = math.log(lag / exact) / math.log(position["max_distance"] / exact)
    return min(exact + int(share * (position["num_buckets"] - exact)), position["num_buckets"] - 1)


def relative_error(given: np.ndarray, due: np.ndarray, *, least: float = 1e-250) -> float:
    """Return the largest relative error of entries above `least` in absolute value."""
    counted = np.abs(due) > least
    if not counted.any():
        return 0.0
    return float(np.max(np.abs(given - due)[counted] / np.abs(due)[counted]))


POSITIONS: Sequence[Description] = (
    {"type": "nope"},
    {"type": "alibi", "slope": 0.0},
    {"type": "alibi", "slope": 0.3},
    {"type": "alibi", "slope": 2.0, "future": "signed"},
    {"type": "alibi", "slope": -0.2},
    {"type": "alibi", "slope": 400.0},
    {"type": "kerple_log", "r1": 1.5, "r2": 0.5},
    {"type": "kerple_power", "r1": 0.5, "r2": 1.3},
    {"type": "t5", "num_buckets": 8, "max_distance": 20, "bias": [0.3, -1, 2, 0, 0, 1, -2, 0.5]},
    {"type": "cosine", "amp": 2.0, "theta": 0.7},
    {"type": "rope_sum", "amp": 1.5, "dim": 8, "base": 100.0},
    {"type": "table", "bias": [0.5, None, 1.0, -2.0]},
    {"type": "table", "bias": [0.1 * k * (-1) ** k for k in range(150)]},
    {"type": "table", "bias": [0.0, -900.0, 3.0, None, 0.5]},
)

MASKS: Sequence[Description] = (
    {"type": "causal"},
    {"type": "sliding_window", "window": 1},
    {"type": "sliding_window", "window": 2},
    {"type": "sliding_window", "window": 5},
    {"type": "sliding_window", "window": 400},
    {"type": "window_sink", "window": 1, "sinks": 2},
    {"type": "window_sink", "window": 4, "sinks": 3},
    {"type": "window_sink", "window": 6, "sinks": 0},
    {"type": "window_sink", "window": 3, "sinks": 300},
    {"type": "prefix_lm", "prefix": 0},
    {"type": "prefix_lm", "prefix": 7},
    {"type": "prefix_lm", "prefix": 300},
    {"type": "full"},
)
