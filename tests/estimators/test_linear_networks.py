"""Rollouts against linear attention-only networks whose derivatives are known.

Token i starts at x_0[i]; layer t adds ``sum_h sum_j A_h[i, j] x_t[j] W_h``. The influence of token
j on token i is the Frobenius norm of the derivative of x_T[i] in x_0[j].
"""

from __future__ import annotations

import numpy as np
from naive_estimators import random_attention
from numpy.typing import NDArray
from scipy.stats import ortho_group

from posbias.kernels import DenseKernel
from posbias.rollout import MixingSchedule, Rollout
from posbias.sinks import treat_sinks

Array = NDArray[np.float64]
N, WIDTH = 6, 12


def derivatives(steps: list[list[tuple[Array, Array]]], tokenwise: list[Array] | None) -> Array:
    """Return d x_T[i] / d x_0[j], shape (n, n, d, d).

    Parameters
    ----------
    steps : per layer, its heads (A_h, W_h)
    tokenwise : per layer a map of each token, shape (n, d, d), applied after the addition
    """
    n, width = len(steps[0][0][0]), len(steps[0][0][1])
    paths = np.zeros((n, n, width, width))
    for i in range(n):
        paths[i, i] = np.eye(width)
    for t, heads in enumerate(steps):
        following = paths.copy()
        for attention, weight in heads:
            for i in range(n):
                for k in range(i + 1):
                    following[i] += attention[i, k] * paths[k] @ weight
        if tokenwise is not None:
            for i in range(n):
                following[i] = following[i] @ tokenwise[t][i]
        paths = following
    return paths


def influence(paths: Array) -> Array:
    """Return the size of each derivative, rows divided by their sums."""
    sizes = np.sqrt((paths**2).sum(axis=(2, 3)))
    return np.asarray(sizes / sizes.sum(axis=1, keepdims=True))


def mean_heads(heads: list[Array]) -> DenseKernel:
    return DenseKernel(np.mean(heads, axis=0))


def test_amplitudes_are_exact_for_identity_values() -> None:
    # Every path from j to i carries the same vector with a positive weight: amplitudes add.
    rng = np.random.default_rng(0)
    attention = [[random_attention(rng, N) for _ in range(2)] for _ in range(4)]
    gains = [0.3, 1.5, 0.1, 0.8]
    steps = [
        [(matrix, gain / 2.0 * np.eye(WIDTH)) for matrix in heads]
        for heads, gain in zip(attention, gains, strict=True)
    ]
    rollout = Rollout(
        [mean_heads(heads) for heads in attention],
        MixingSchedule([gain / (1.0 + gain) for gain in gains]),
    )
    assert np.allclose(rollout.matrix(), influence(derivatives(steps, None)), rtol=1e-12)


def test_amplitudes_in_orthogonal_token_subspaces_are_the_parts_of_the_stream() -> None:
    # Token j starts along axis j: what it contributes to token i is coordinate j of x_T[i].
    rng = np.random.default_rng(1)
    attention = [random_attention(rng, N) for _ in range(3)]
    stream = np.eye(N)
    for matrix in attention:
        stream = stream + 0.7 * matrix @ stream
    rollout = Rollout([DenseKernel(m) for m in attention], MixingSchedule([0.7 / 1.7] * 3))
    parts = stream / stream.sum(axis=1, keepdims=True)
    assert np.allclose(rollout.matrix(), parts, rtol=1e-12)


def test_the_norm_mixing_is_exact_for_streams_in_one_direction_and_low_for_orthogonal_ones() -> (
    None
):
    matrix = random_attention(np.random.default_rng(2), N)
    for stream, is_exact in ((np.ones((N, 1)), True), (np.eye(N), False)):
        update = 0.5 * matrix @ stream
        norms = [np.linalg.norm(v, axis=1) for v in (stream, update)]
        shares = norms[1] / (norms[0] + norms[1])
        if is_exact:
            assert np.allclose(shares, 0.5 / 1.5)
        else:
            assert (shares[1:] < 0.5 / 1.5).all()


def test_dropping_a_sink_is_exact_where_its_value_is_zero() -> None:
    # The update lacks what the sink takes, so the measured mixing is small already.
    rng = np.random.default_rng(3)
    sink_share, gain, layers = 0.6, 0.9, 3
    kernels, product = [], np.eye(N)
    for _ in range(layers):
        others = np.zeros((N, N))
        others[1:, 1:] = random_attention(rng, N - 1)
        attention = (1.0 - sink_share) * others
        attention[:, 0] += np.where(np.arange(N) == 0, 1.0, sink_share)
        kernels.append(treat_sinks(DenseKernel(attention), [0], "drop"))
        # The sink itself receives no update either.
        product = (np.eye(N) + gain * (1.0 - sink_share) * others) @ product
    mixed = gain * (1.0 - sink_share)
    rollout = Rollout(kernels, MixingSchedule([mixed / (1.0 + mixed)] * layers))
    truth = product / product.sum(axis=1, keepdims=True)
    assert np.allclose(rollout.matrix()[1:], truth[1:], rtol=1e-12)


def energy_network(
    rng: np.random.Generator, layers: int, heads: int, share: float
) -> tuple[list[list[Array]], Rollout]:
    """Return attention whose updates have one energy at every token, and its energy rollout."""
    attention, kernels = [], []
    gain = np.sqrt(share / (1.0 - share))
    for _ in range(layers):
        plain = np.stack([random_attention(rng, N) for _ in range(heads)])
        energies = (plain**2).sum(axis=0)
        rows = energies.sum(axis=1)
        attention.append(list(gain * plain / np.sqrt(rows)[None, :, None]))
        kernels.append(DenseKernel(energies / rows[:, None]))
    return attention, Rollout(kernels, MixingSchedule([share] * layers), addition="energies")


def test_energies_are_exact_in_expectation_for_independent_maps() -> None:
    # Heads have independent orthogonal value maps, and every token its own orthogonal map after
    # each layer, as token-wise parts do: distinct paths are uncorrelated, their energies add.
    rng = np.random.default_rng(4)
    layers, heads, share = 3, 2, 0.4
    attention, rollout = energy_network(rng, layers, heads, share)
    draws = []
    for seed in range(250):
        maps = ortho_group.rvs(WIDTH, size=layers * (heads + N), random_state=seed)
        maps = maps.reshape(layers, heads + N, WIDTH, WIDTH)
        steps = [list(zip(attention[t], maps[t, :heads], strict=True)) for t in range(layers)]
        paths = derivatives(steps, [maps[t, heads:] for t in range(layers)])
        draws.append((paths**2).sum(axis=(2, 3)) / WIDTH)
    mean = np.mean(draws, axis=0)
    error = np.std(draws, axis=0) / np.sqrt(len(draws))
    grown = (1.0 - share) ** -layers
    expected = np.eye(N)
    for kernel in rollout.kernels:
        expected = ((1.0 - share) * np.eye(N) + share * kernel.toarray()) @ expected
    assert (np.abs(mean - grown * expected) <= 5.0 * error + 1e-12).all()
    sizes = np.sqrt(mean)
    sizes /= sizes.sum(axis=1, keepdims=True)
    assert np.allclose(rollout.matrix(), sizes, rtol=0.05, atol=1e-9)
    amplitudes = Rollout(rollout.kernels, rollout.schedule).matrix()
    assert np.abs(amplitudes - sizes).sum() > 10 * np.abs(rollout.matrix() - sizes).sum()


def test_paths_through_the_same_maps_carry_more_energy_than_the_rollout_says() -> None:
    # Without maps of the tokens, paths of the same heads through different tokens are coherent.
    rng = np.random.default_rng(5)
    layers, share = 2, 0.5
    attention, rollout = energy_network(rng, layers, 1, share)
    one, two = (heads[0] for heads in attention)
    # By the sequence of heads: none, the first, the second, both; the last one has several paths.
    energy = np.eye(N) + one**2 + two**2 + (two @ one) ** 2
    maps = ortho_group.rvs(WIDTH, size=400, random_state=0).reshape(200, 2, WIDTH, WIDTH)
    draws = [
        (derivatives([[(one, a)], [(two, b)]], None) ** 2).sum(axis=(2, 3)) / WIDTH for a, b in maps
    ]
    error = np.std(draws, axis=0) / np.sqrt(len(draws))
    assert (np.abs(np.mean(draws, axis=0) - energy) <= 5.0 * error + 1e-12).all()
    says = np.eye(N)
    for kernel in rollout.kernels:
        says = ((1.0 - share) * np.eye(N) + share * kernel.toarray()) @ says
    says *= (1.0 - share) ** -layers
    assert (energy >= says - 1e-12).all()
    assert (energy[-1] / says[-1]).max() > 1.1
