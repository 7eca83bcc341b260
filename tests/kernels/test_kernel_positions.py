"""Position biases and masks: values, bounds, immutability."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from naive_kernels import MASKS, POSITIONS, naive_bias, naive_bucket, naive_visible

from posbias.errors import InputError
from posbias.kernels import (
    ALiBi,
    Cosine,
    Head,
    KerpleLog,
    KerplePower,
    LagTable,
    NoPE,
    PrefixLM,
    RopeSum,
    Sink,
    SlidingWindow,
    T5Buckets,
    WindowSink,
)
from posbias.kernels.masks import MASKS as MASK_TYPES
from posbias.kernels.positions import POSITIONS as POSITION_TYPES


def build(kinds, description):
    return kinds[description["type"]](**{k: v for k, v in description.items() if k != "type"})


@pytest.mark.parametrize("description", POSITIONS, ids=lambda p: p["type"])
def test_biases_follow_their_formulas(description) -> None:
    position = build(POSITION_TYPES, description)
    n = 200
    past = [naive_bias(description, lag) for lag in range(n)]
    future = [naive_bias(description, -lag) for lag in range(n)]
    np.testing.assert_allclose(position.lag_logits(n), past, rtol=1e-13, atol=1e-13)
    np.testing.assert_allclose(position.future_logits(n), future, rtol=1e-13, atol=1e-13)
    assert position.largest(n) == pytest.approx(np.abs(np.array(past)[np.isfinite(past)]).max())
    assert position == build(POSITION_TYPES, position.describe())
    assert hash(position) == hash(build(POSITION_TYPES, position.describe()))


@pytest.mark.parametrize("buckets", [2, 4, 16, 32, 48])
@pytest.mark.parametrize("distance", [30, 128, 256, 2000])
def test_t5_buckets_are_those_of_the_reference(buckets: int, distance: int) -> None:
    position = T5Buckets(buckets, distance, np.zeros(buckets))
    description = {"num_buckets": buckets, "max_distance": distance}
    due = [naive_bucket(description, lag) for lag in range(3000)]
    np.testing.assert_array_equal(position.buckets(3000), due)


@pytest.mark.parametrize("description", MASKS, ids=lambda m: "-".join(map(str, m.values())))
@pytest.mark.parametrize("n", [1, 2, 9])
def test_masks_and_their_bands_show_the_same_pairs(description, n: int) -> None:
    mask = build(MASK_TYPES, description)
    due = np.array([[naive_visible(description, i, j) for j in range(n)] for i in range(n)])
    np.testing.assert_array_equal(np.stack([mask.visible(i, n) for i in range(n)]), due)
    covered = np.eye(n, dtype=int)
    for band in mask.bands(n):
        for i in range(n):
            for j in range(band.keys):
                is_side = j > i if band.future else j < i
                covered[i, j] += is_side and band.first <= abs(i - j) <= band.last
    np.testing.assert_array_equal(covered, due.astype(int))
    assert mask.is_causal(n) == (not np.triu(due, 1).any())
    assert mask == build(MASK_TYPES, mask.describe())


@pytest.mark.parametrize(
    ("build_one", "message"),
    [
        (lambda: ALiBi(np.nan), "nan"),
        (lambda: ALiBi(True), "True"),
        (lambda: ALiBi("0.5"), "'0.5'"),
        (lambda: ALiBi(1j), "1j"),
        (lambda: ALiBi(0.5, "both"), "'both'"),
        (lambda: KerpleLog(-1.0, 1.0), "-1"),
        (lambda: KerpleLog(1.0, np.inf), "inf"),
        (lambda: KerplePower(1.0, 0.0), "0"),
        (lambda: KerplePower(1.0, 300.0).lag_logits(100), "overflows"),
        (lambda: T5Buckets(1, 10, [0.0]), "1"),
        (lambda: T5Buckets(8, 4, np.zeros(8)), "4"),
        (lambda: T5Buckets(8, 20, np.zeros(7)), r"\(7,\)"),
        (lambda: T5Buckets(8, 20, [np.nan] * 8), "nan"),
        (lambda: Cosine(np.inf, 1.0), "inf"),
        (lambda: RopeSum(1.0, 7, 10.0), "7"),
        (lambda: RopeSum(1.0, 8, 0.0), "0"),
        (lambda: LagTable([]), "no finite entry"),
        (lambda: LagTable([None]), "no finite entry"),
        (lambda: LagTable([0.0, np.inf]), "inf"),
        (lambda: LagTable([0.0, "a"]), r"\[1\] is .a.; a real number"),
        (lambda: LagTable([[0.0]]), "shape"),
        (lambda: SlidingWindow(0), "0"),
        (lambda: SlidingWindow(2.0), "2.0"),
        (lambda: WindowSink(1, -1), "-1"),
        (lambda: PrefixLM(True), "True"),
        (lambda: Sink(-1, 0.0), "-1"),
        (lambda: Sink(1, np.nan), "nan"),
        (lambda: Head("alibi"), "'alibi'"),
        (lambda: Head(weight=-1.0), "-1"),
        (lambda: Head(diagonal=np.inf), "inf"),
        (lambda: Head(key=[0.0, np.inf]), r"\[1\] is inf"),
        (lambda: Head(key=np.zeros((2, 2))), "shape"),
        (lambda: Head(key=[1j]), r"\[0\] is 1j; a real number"),
        (lambda: Head(key=[[1.0], [1.0, 2.0]]), "rectangular"),
        (lambda: Head(sink=(1, 2.0)), r"\(1, 2.0\)"),
    ],
)
def test_wrong_values_are_named(build_one, message: str) -> None:
    with pytest.raises(InputError, match=message):
        build_one()


def test_values_are_immutable() -> None:
    table, key = np.zeros(3), np.zeros(4)
    position, head = LagTable(table), Head(key=key)
    table[0] = key[0] = 5.0
    assert position.bias[0] == 0.0
    assert head.key is not None
    assert head.key[0] == 0.0
    with pytest.raises(ValueError, match="read-only"):
        head.key[0] = 1.0
    with pytest.raises(dataclasses.FrozenInstanceError):
        head.weight = 2.0  # type: ignore[misc]


def test_heads_compare_by_value() -> None:
    one = Head(ALiBi(0.5), diagonal=1.0, key=[1.0, 2.0], sink=Sink(1, 2.0))
    same = Head(ALiBi(0.5), diagonal=1.0, key=np.array([1.0, 2.0]), sink=Sink(1, 2.0))
    assert one == same
    assert hash(one) == hash(same)
    assert one != dataclasses.replace(one, diagonal=0.0)
    assert one != Head(ALiBi(0.5), diagonal=1.0)
    assert one != "head"
    assert Head().position == NoPE()
    assert LagTable([0.0]) != LagTable([1.0])
