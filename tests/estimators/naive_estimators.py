"""Rollouts, sink treatments and sink detection, written with loops from their definitions."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


def random_attention(rng: np.random.Generator, n: int) -> Array:
    """Return a causal row-stochastic matrix."""
    matrix = np.zeros((n, n))
    for i in range(n):
        matrix[i, : i + 1] = rng.dirichlet(np.ones(i + 1))
    return matrix


def energy_profile(kernels: list[Array], shares: list[float], query: int) -> Array:
    """Row of the product of all transitions of energy, its square root, divided by its sum."""
    n = len(kernels[0])
    product = np.eye(n)
    for kernel, share in zip(kernels, shares, strict=True):
        product = ((1.0 - share) * np.eye(n) + share * kernel) @ product
    roots = np.sqrt(product[query])
    return np.asarray(roots / roots.sum())


def treated(kernel: Array, sinks: list[int], treatment: str) -> Array:
    """Return the kernel with its attention to sinks treated."""
    n = len(kernel)
    result = kernel.copy()
    for i in range(n):
        if i in sinks or treatment == "keep":
            continue
        moved = sum(kernel[i, s] for s in sinks)
        for s in sinks:
            result[i, s] = 0.0
        if treatment == "identity":
            result[i, i] += moved
        elif result[i].sum() == 0.0:
            result[i, i] = 1.0
        else:
            result[i] /= result[i].sum()
    return result


def sinks_of_layer(attention: Array, window: int | None = None) -> list[int]:
    """Return the keys that distant queries attend to at 0.1 and four times the uniform share."""
    n = len(attention)
    reach = n if window is None else min(n, window)
    found = []
    for j in range(n):
        received, uniform = [], []
        for i in range(j, n):
            if max(1, reach // 8) <= i - j < reach:
                received.append(attention[i, j])
                uniform.append(1.0 / min(i + 1, reach))
        if len(received) < max(1, reach // 4):
            continue
        mean = sum(received) / len(received)
        if mean >= 0.1 and mean >= 4.0 * sum(uniform) / len(uniform):
            found.append(j)
    return found
