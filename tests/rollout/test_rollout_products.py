"""Rollouts against the naive product of transition matrices."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from posbias.errors import InputError
from posbias.kernels import (
    ALiBi,
    AttentionKernel,
    DenseKernel,
    Full,
    Head,
    Kernel,
    KerpleLog,
    MixtureKernel,
    PrefixLM,
    SlidingWindow,
    T5Buckets,
)
from posbias.profile import Profile
from posbias.rollout import MixingSchedule, Rollout


def naive_rollout(kernels: list[Kernel], values: np.ndarray) -> list[np.ndarray]:
    """Return R_t ... R_1 for t = 0..T in extended precision."""
    n = kernels[0].n
    products = [np.eye(n, dtype=np.longdouble)]
    for t, mixing in enumerate(values):
        rows = kernels[t if len(kernels) > 1 else 0].toarray().astype(np.longdouble)
        shares = np.broadcast_to(np.asarray(mixing, dtype=np.longdouble), (n,))
        transition = np.diag(1 - shares) + shares[:, None] * rows
        products.append(transition @ products[-1])
    return products


def kernel_of(kind: int, n: int, rng: np.random.Generator) -> Kernel:
    rows = np.tril(rng.random((n, n))) + np.eye(n)
    builders = [
        lambda: AttentionKernel.alibi(n, [0.5, 0.1], diagonal=rng.normal(size=2)),
        lambda: AttentionKernel(n, [Head(ALiBi(0.2), diagonal=-3.0)], mask=SlidingWindow(3)),
        lambda: AttentionKernel(n, [Head(key=rng.normal(size=n))], mask=PrefixLM(4)),
        lambda: AttentionKernel(n, [Head(KerpleLog(2.0, 1.0))], mask=Full()),
        lambda: AttentionKernel(n, [Head(T5Buckets(4, 8, rng.normal(size=4)))]),
        lambda: DenseKernel(rows / rows.sum(axis=1, keepdims=True)),
        lambda: MixtureKernel([AttentionKernel(n, [Head()]), DenseKernel(np.eye(n))], [1, 2]),
    ]
    return builders[kind]()


@settings(max_examples=80)
@given(
    kinds=st.lists(st.integers(0, 6), min_size=1, max_size=5),
    n=st.integers(2, 12),
    is_per_position=st.booleans(),
    is_shared=st.booleans(),
    seed=st.integers(0, 2**32),
)
def test_all_forms_of_a_rollout_agree_with_the_product(
    kinds, n: int, is_per_position: bool, is_shared: bool, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    depth = len(kinds)
    kernels = [kernel_of(kind, n, rng) for kind in (kinds[:1] if is_shared else kinds)]
    values = rng.choice([0.0, 0.3, 0.9, 1.0], size=(depth, n) if is_per_position else depth)
    rollout = Rollout(kernels, MixingSchedule(values))
    due = naive_rollout(kernels, values)
    query = int(rng.integers(-n, n))
    close = {"rtol": 1e-12, "atol": 1e-300}
    np.testing.assert_allclose(rollout.profile(query).mass, due[-1][query].astype(float), **close)
    np.testing.assert_allclose(rollout.profile().mass, due[-1][-1].astype(float), **close)
    np.testing.assert_allclose(rollout.profiles(), due[-1].astype(float), **close)
    np.testing.assert_allclose(rollout.matrix(), due[-1].astype(float), **close)
    np.testing.assert_allclose(
        rollout.profiles([query, 0]), due[-1][[query, 0]].astype(float), **close
    )
    depths = np.stack([product[query] for product in due]).astype(float)
    np.testing.assert_allclose(rollout.depth_profiles(query), depths, **close)
    assert (rollout.n, rollout.depth) == (n, depth)


def test_the_first_kernel_is_the_bottom_layer() -> None:
    first = DenseKernel([[1.0, 0.0], [1.0, 0.0]])
    second = DenseKernel([[0.0, 1.0], [0.0, 1.0]])
    rollout = Rollout([first, second], MixingSchedule([1.0, 1.0]))
    np.testing.assert_array_equal(rollout.profile(0).mass, [1.0, 0.0])
    np.testing.assert_array_equal(rollout.depth_profiles(1), [[0, 1], [1, 0], [1, 0]])
    swapped = Rollout([second, first], MixingSchedule([1.0, 1.0]))
    np.testing.assert_array_equal(swapped.profile(0).mass, [0.0, 1.0])


def test_no_mixing_leaves_the_query() -> None:
    rollout = Rollout(AttentionKernel(5, [Head()]), MixingSchedule.constant(3, 0.0))
    np.testing.assert_array_equal(rollout.matrix(), np.eye(5))
    np.testing.assert_array_equal(rollout.profile(2).mass, np.eye(5)[2])


def test_uniform_attention_has_its_cesaro_power() -> None:
    n, depth = 40, 5
    rollout = Rollout([AttentionKernel(n, [Head()])], MixingSchedule.constant(depth, 1.0))
    due = np.eye(n)[-1]
    for _ in range(depth):
        due = np.array([sum(due[i] / (i + 1) for i in range(j, n)) for j in range(n)])
    np.testing.assert_allclose(rollout.profile().mass, due, rtol=1e-13)


def test_masses_too_small_to_matter_are_zero() -> None:
    rollout = Rollout([AttentionKernel.alibi(1500, [0.5])], MixingSchedule.constant(2, 0.9))
    mass = rollout.profile().mass
    assert (mass[:100] == 0.0).all()
    assert ((mass == 0.0) | (mass >= 1e-290)).all()
    assert mass.sum() == pytest.approx(1.0, abs=1e-14)


def test_profiles_say_where_they_come_from() -> None:
    rollout = Rollout([AttentionKernel(4, [Head()])], MixingSchedule.constant(2, 0.5))
    profile = rollout.profile(-2)
    assert isinstance(profile, Profile)
    assert profile.quantity == "rollout"
    assert profile.origin == {"query": 2, "n": 4, "depth": 2}
    assert rollout.profiles([]).shape == (0, 4)
    assert rollout.kernels[0].n == 4
    assert rollout.schedule.depth == 2
    assert repr(rollout) == "Rollout(n=4, depth=2, kernels=1)"


KERNEL = AttentionKernel(4, [Head()])


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: Rollout([], MixingSchedule([0.5])), "0 kernels do not fit"),
        (lambda: Rollout([KERNEL] * 2, MixingSchedule([0.5] * 3)), "2 kernels .* 3 layers"),
        (lambda: Rollout([KERNEL], [0.5]), "a MixingSchedule is required"),
        (lambda: Rollout([np.eye(4)], MixingSchedule([0.5])), "a Kernel is required"),
        (
            lambda: Rollout([KERNEL, DenseKernel(np.eye(3))], MixingSchedule([0.5, 0.5])),
            r"\[3, 4\] positions",
        ),
        (
            lambda: Rollout([KERNEL], MixingSchedule(np.full((2, 5), 0.5))),
            "5 positions, the kernels have 4",
        ),
        (lambda: Rollout([KERNEL], MixingSchedule([0.5])).profile(4), "query is 4"),
        (lambda: Rollout([KERNEL], MixingSchedule([0.5])).profile(-5), "query is -5"),
        (lambda: Rollout([KERNEL], MixingSchedule([0.5])).profile(1.0), "1.0"),
        (lambda: Rollout([KERNEL], MixingSchedule([0.5])).profile(True), "True"),
        (lambda: Rollout([KERNEL], MixingSchedule([0.5])).profiles([0, 9]), "query is 9"),
        (lambda: Rollout([KERNEL], MixingSchedule([0.5])).depth_profiles(9), "query is 9"),
    ],
)
def test_wrong_rollouts_are_named(build, message: str) -> None:
    with pytest.raises(InputError, match=message):
        build()


def test_depth_profiles_of_many_layers_need_no_products_of_rows():
    class Dense(DenseKernel):
        def rmatmat(self, rows):
            raise AssertionError("a product for every pair of layers")

    rng = np.random.default_rng(5)
    rows = np.tril(rng.random((4, 4)) + 0.1)
    rows /= rows.sum(axis=1, keepdims=True)
    values = rng.random(40)
    found = Rollout([Dense(rows)], MixingSchedule(values)).depth_profiles(-2)
    product = np.eye(4)
    for t, expected in enumerate(found):
        np.testing.assert_allclose(expected, product[2], rtol=1e-12)
        if t < 40:
            product = ((1.0 - values[t]) * np.eye(4) + values[t] * rows) @ product
