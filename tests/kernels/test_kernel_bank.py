"""ALiBi heads given as arrays are the same kernel as heads given one by one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from posbias.errors import InputError
from posbias.kernels import ALiBi, AttentionKernel, Head, Mask, SlidingWindow
from posbias.kernels.testing import check_kernel

SLOPES = [0.5, 0.0, 2.0, 0.5, 0.003, 7.0]
CASES: dict[str, dict[str, Any]] = {
    "plain": {},
    "content": {"diagonal": [1.0, -2.0, 0.0, 3.0, 40.0, -250.0]},
    "weights with a zero": {"weights": [1.0, 0.0, 2.5, 1.0, 0.25, 1.0]},
    "temperature": {"diagonal": 2.0, "temperature": 0.3},
    "window": {"mask": SlidingWindow(5)},
    "extreme content": {"diagonal": [0.0, 0.0, 400.0, 0.0, 0.0, -400.0]},
}


def heads_one_by_one(
    n: int,
    slopes: list[float],
    *,
    diagonal: float | list[float] = 0.0,
    weights: list[float] | None = None,
    mask: Mask | None = None,
    temperature: float = 1.0,
) -> AttentionKernel:
    own = np.broadcast_to(diagonal, len(slopes)).tolist()
    shares = [1.0] * len(slopes) if weights is None else weights
    heads = [
        Head(ALiBi(slope), diagonal=d, weight=w)
        for slope, d, w in zip(slopes, own, shares, strict=True)
    ]
    return AttentionKernel(n, heads, mask=mask, temperature=temperature)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("n", [1, 2, 40, 300])
def test_arrays_and_heads_give_the_same_numbers_bit_by_bit(case: str, n: int) -> None:
    banked = AttentionKernel.alibi(n, SLOPES, **CASES[case])
    single = heads_one_by_one(n, SLOPES, **CASES[case])
    p = np.random.default_rng(0).random(n)
    assert np.array_equal(banked.rmatvec(p), single.rmatvec(p))
    assert np.array_equal(banked.rmatvec(p), single.rmatvec(p))  # from kept tables too
    assert np.array_equal(banked.matvec(p), single.matvec(p))
    assert np.array_equal(banked.diagonal(), single.diagonal())
    assert np.array_equal(banked.row(n - 1), single.row(n - 1))
    assert banked.describe() == single.describe()
    assert banked.heads == single.heads
    assert np.array_equal(banked.weights, single.weights)
    assert banked.restrict(1).heads == single.restrict(1).heads


def test_many_equal_heads_take_the_code_of_their_law() -> None:
    slopes = [0.25] * 9
    banked, single = AttentionKernel.alibi(30, slopes), heads_one_by_one(30, slopes)
    p = np.full(30, 1.0 / 30)
    assert np.array_equal(banked.rmatvec(p), single.rmatvec(p))


def test_a_bank_keeps_the_contract_of_a_kernel() -> None:
    check_kernel(AttentionKernel.alibi(37, SLOPES, diagonal=0.7, weights=[1, 2, 3, 4, 5, 6]))


def test_later_changes_of_the_arrays_do_not_reach_the_kernel() -> None:
    slopes = np.array([0.5, 0.25])
    kernel = AttentionKernel.alibi(8, slopes)
    before = kernel.rmatvec(np.ones(8))
    slopes[:] = 3.0
    assert kernel.heads[0] == Head(ALiBi(0.5))
    assert np.array_equal(kernel.rmatvec(np.ones(8)), before)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"weights": [1.0, -2.0]}, "the weight of a head is -2"),
        ({"weights": [0.0, 0.0]}, "the head weights are all zero"),
        ({"diagonal": [0.0, 1e13]}, "the diagonal logits reach 1e"),
        ({"diagonal": [0.0]}, "the diagonal terms has shape"),
    ],
)
def test_wrong_numbers_are_refused_as_those_of_heads_are(
    options: dict[str, Any], words: str
) -> None:
    with pytest.raises(InputError, match=words):
        AttentionKernel.alibi(4, [0.5, 0.25], **options)


def test_no_heads_are_refused() -> None:
    with pytest.raises(InputError, match="at least one head"):
        AttentionKernel.alibi(4, np.zeros(0))
