"""Rollouts that add energies, and energies of structured kernels, against explicit matrices."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from naive_estimators import energy_profile, random_attention

from posbias.errors import InputError
from posbias.kernels import (
    ALiBi,
    AttentionKernel,
    DenseKernel,
    EnergyKernel,
    Head,
    LagTable,
    NoPE,
    PrefixLM,
    Sink,
    SlidingWindow,
)
from posbias.kernels.testing import check_kernel
from posbias.rollout import MixingSchedule, Rollout
from posbias.theory import depth_curves, escape_bounds, forces


def make(n: int, depth: int, seed: int = 0) -> tuple[Rollout, list[np.ndarray], list[float]]:
    rng = np.random.default_rng(seed)
    matrices = [random_attention(rng, n) for _ in range(depth)]
    shares = rng.uniform(0.0, 1.0, depth).tolist()
    kernels = [DenseKernel(matrix) for matrix in matrices]
    return Rollout(kernels, MixingSchedule(shares), addition="energies"), matrices, shares


@pytest.mark.parametrize("depth", [1, 3, 25])
def test_profiles_against_explicit_matrices(depth: int) -> None:
    rollout, matrices, shares = make(9, depth)
    for query in (-1, 0, 4):
        expected = energy_profile(matrices, shares, query)
        assert np.allclose(rollout.profile(query).mass, expected, rtol=1e-12, atol=1e-15)
        assert np.allclose(rollout.profiles([query])[0], expected, rtol=1e-12, atol=1e-15)
        assert np.allclose(rollout.matrix()[query], expected, rtol=1e-12, atol=1e-15)
    through = rollout.depth_profiles()
    for t in range(depth + 1):
        expected = energy_profile(matrices[:t], shares[:t], -1) if t else np.eye(9)[-1]
        assert np.allclose(through[t], expected, rtol=1e-12, atol=1e-15)


@given(n=st.integers(1, 12), depth=st.integers(1, 6), seed=st.integers(0, 10**6))
@settings(max_examples=40, deadline=None)
def test_mass_is_one_and_causal(n: int, depth: int, seed: int) -> None:
    matrix = make(n, depth, seed)[0].matrix()
    assert np.allclose(matrix.sum(axis=1), 1.0, atol=1e-12)
    assert not np.triu(matrix, 1).any()


def test_amplitudes_are_the_default() -> None:
    _, matrices, shares = make(5, 2)
    rollout = Rollout([DenseKernel(m) for m in matrices], MixingSchedule(shares))
    assert rollout.addition == "amplitudes"
    product = np.eye(5)
    for matrix, share in zip(matrices, shares, strict=True):
        product = ((1 - share) * np.eye(5) + share * matrix) @ product
    assert np.allclose(rollout.matrix(), product, atol=1e-15)


def test_unknown_additions_are_refused() -> None:
    with pytest.raises(InputError, match=r"addition of a rollout is 'norms'.*amplitudes, energies"):
        Rollout(DenseKernel(np.eye(2)), MixingSchedule([0.5]), addition="norms")  # type: ignore[arg-type]


def test_theorems_refuse_rollouts_of_energies() -> None:
    rollout = make(4, 3)[0]
    for question in (forces, depth_curves, escape_bounds):
        with pytest.raises(InputError, match="add energies"):
            question(rollout)


def naive_energies(kernel: AttentionKernel) -> np.ndarray:
    total = np.zeros((kernel.n, kernel.n))
    for head, weight in zip(kernel.heads, kernel.weights, strict=True):
        if weight == 0.0:
            continue
        alone = AttentionKernel(
            kernel.n, [head], mask=kernel.mask, temperature=kernel.temperature
        ).toarray()
        for i in range(kernel.n):
            for j in range(kernel.n):
                total[i, j] += (weight * alone[i, j]) ** 2
    return total / total.sum(axis=1, keepdims=True)


@pytest.mark.parametrize(
    "kernel",
    [
        AttentionKernel(12, [Head(NoPE())]),
        AttentionKernel.alibi(12, [0.5, 0.1, 0.0], diagonal=[1.0, -2.0, 0.3]),
        AttentionKernel.alibi(12, [0.5, 0.1], weights=[1.0, 3.0], temperature=2.0),
        AttentionKernel.alibi(12, [0.5, 0.1], diagonal=-600.0, mask=SlidingWindow(4)),
        AttentionKernel.alibi(12, [0.5, 0.1], diagonal=250.0),
        AttentionKernel(12, [Head(ALiBi(0.2), sink=Sink(1, 2.0)), Head(NoPE(), weight=0.0)]),
        AttentionKernel(12, [Head(LagTable(np.sin(np.arange(12.0)))), Head(ALiBi(1.0))]),
        AttentionKernel(12, [Head(NoPE())], mask=PrefixLM(5)),
    ],
)
def test_energies_of_heads_against_loops(kernel: AttentionKernel) -> None:
    energies = EnergyKernel(kernel)
    assert np.allclose(energies.toarray(), naive_energies(kernel), rtol=1e-10, atol=1e-300)
    check_kernel(energies)
    assert np.allclose(energies.restrict(5).toarray(), naive_energies(kernel.restrict(5)))


def test_energies_need_heads() -> None:
    with pytest.raises(InputError, match="heads apart"):
        EnergyKernel(DenseKernel(np.eye(3)))  # type: ignore[arg-type]
