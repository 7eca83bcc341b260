"""Accuracy where simple code loses it: spikes, long sequences, extreme logits."""

from __future__ import annotations

import math

import numpy as np
import pytest
from naive_kernels import relative_error

from posbias.kernels import (
    ALiBi,
    AttentionKernel,
    Full,
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
from posbias.kernels._toeplitz import ToeplitzPlan


def last(n: int) -> np.ndarray:
    return (np.arange(n) == n - 1).astype(np.float64)


def extended_product(kernel: AttentionKernel, p: np.ndarray, columns: list[int]) -> np.ndarray:
    """Return some entries of ``p @ A`` for one causal head, in extended precision, O(n) each."""
    n, (head,) = kernel.n, kernel.heads
    logits = head.position.lag_logits(n).astype(np.longdouble)
    keys = np.zeros(n, dtype=np.longdouble)
    if head.key is not None:
        keys += head.key
    window = getattr(kernel.mask, "window", n)
    weights = np.exp(logits)
    mass = np.empty(n, dtype=np.longdouble)
    if head.key is None:
        sums = np.concatenate([[0.0], np.cumsum(weights[1:])])
        mass[:] = sums[np.minimum(np.arange(n), window - 1)]
    else:
        for i in range(n):
            low = max(0, i - window + 1)
            mass[i] = np.sum(weights[1 : i - low + 1][::-1] * np.exp(keys[low:i]))
    own = np.exp(np.longdouble(head.diagonal) + keys) * weights[0]
    rows = p / (own + mass)
    due = []
    for j in columns:
        high = min(n, j + window)
        others = np.sum(rows[j + 1 : high] * weights[1 : high - j]) * np.exp(keys[j])
        due.append(others + rows[j] * own[j])
    return np.array(due)


STRUCTURED = {
    "alibi": (ALiBi(0.01), {"diagonal": -3.0}, None),
    "alibi steep": (ALiBi(5.0), {"diagonal": 2.0}, None),
    "alibi flat": (ALiBi(1e-9), {}, None),
    "alibi rising": (ALiBi(-0.01), {"diagonal": 3.0}, None),
    "window": (ALiBi(0.02), {"diagonal": 0.5}, SlidingWindow(100)),
    "window rising": (ALiBi(-0.02), {}, SlidingWindow(100)),
    "window wider than n": (NoPE(), {}, SlidingWindow(10**9)),
    "t5": (T5Buckets(32, 128, np.linspace(-1, 1, 32)), {"diagonal": 1.0}, None),
    "kerple log": (KerpleLog(2.0, 0.5), {"diagonal": -1.0}, None),
    "kerple power": (KerplePower(0.5, 0.5), {}, None),
    "kerple power, window": (KerplePower(0.1, 0.9), {}, SlidingWindow(700)),
    "rope": (RopeSum(6.0, 32, 1e4), {}, None),
    "table": (LagTable(np.sin(np.arange(1500.0)) * 3), {}, None),
}


@pytest.mark.parametrize("name", STRUCTURED)
def test_three_layers_from_a_spike_keep_relative_accuracy(name: str, recurrences: str) -> None:
    position, options, mask = STRUCTURED[name]
    n = 3000
    kernel = AttentionKernel(n, [Head(position, **options)], mask=mask)
    p = due = last(n)
    columns = [0, 1, 2, 500, 1499, 2400, 2871, 2872, 2900, 2997, 2998, 2999]
    for _ in range(3):
        p, before = 0.4 * p + 0.6 * kernel.rmatvec(p), p
        due = 0.4 * before[columns] + 0.6 * extended_product(kernel, before, columns)
        assert relative_error(p[columns], due) < 1e-12
    assert recurrences in ("compiled", "numpy")


@pytest.mark.parametrize("scale", [3.0, 1000.0])
@pytest.mark.parametrize("mask", [None, SlidingWindow(50)])
def test_key_logits_keep_relative_accuracy(mask, scale: float, recurrences: str) -> None:
    n = 400
    key = np.random.default_rng(0).uniform(-scale, scale, n)
    kernel = AttentionKernel(n, [Head(ALiBi(0.05), key=key, diagonal=1.0)], mask=mask)
    p = np.full(n, 1.0 / n)
    given = kernel.rmatvec(p)
    assert relative_error(given, extended_product(kernel, p, list(range(n)))) < 1e-11
    assert given.sum() == pytest.approx(1.0, abs=1e-13)
    assert recurrences in ("compiled", "numpy")


@pytest.mark.parametrize("diagonal", [-900.0, -40.0, 40.0, 900.0])
@pytest.mark.parametrize(
    "position", [NoPE(), ALiBi(0.5), KerpleLog(1.0, 1.0), LagTable([0.0, 1.0])]
)
@pytest.mark.parametrize("mask", [None, SlidingWindow(3), WindowSink(3, 2)])
def test_row_zero_of_a_causal_kernel_is_token_zero(position, mask, diagonal: float) -> None:
    kernel = AttentionKernel(30, [Head(position, diagonal=diagonal)], mask=mask)
    assert kernel.row(0)[0] == 1.0
    assert kernel.diagonal()[0] == 1.0
    np.testing.assert_array_equal(kernel.rmatvec(np.eye(30)[0]), np.eye(30)[0])
    expected = 1.0 if diagonal > 0 else 0.0
    np.testing.assert_allclose(kernel.diagonal()[1:], expected, atol=1e-15)


def test_window_of_one_is_the_identity() -> None:
    kernel = AttentionKernel.alibi(50, [0.3, -2.0, 0.0], diagonal=-40.0, mask=SlidingWindow(1))
    p = np.random.default_rng(0).random(50)
    np.testing.assert_allclose(kernel.rmatvec(p), p, rtol=1e-15)
    np.testing.assert_allclose(kernel.toarray(), np.eye(50), rtol=1e-15)


def test_long_alibi_row_follows_its_closed_form(recurrences: str) -> None:
    n, m, d = 200_000, 0.002, -1.0
    kernel = AttentionKernel.alibi(n, [m], diagonal=d)
    row = kernel.rmatvec(last(n))
    lags = np.arange(n - 1, -1, -1, dtype=np.longdouble)
    due = np.exp(-np.longdouble(m) * lags)
    due[-1] = np.exp(np.longdouble(d))
    due /= due.sum()
    assert relative_error(row, due) < 1e-13
    assert recurrences in ("compiled", "numpy")


def test_long_sinks_follow_their_closed_form(recurrences: str) -> None:
    n, m, s, g = 100_000, 0.001, 4, 3.0
    kernel = AttentionKernel(n, [Head(ALiBi(m), sink=Sink(s, g))])
    p = kernel.rmatvec(last(n))
    weights = np.exp(-np.longdouble(m) * np.arange(n - 1, -1, -1, dtype=np.longdouble))
    weights[:s] *= np.exp(np.longdouble(g))
    assert relative_error(p, weights / weights.sum()) < 1e-12
    # Mass moved over tens of thousands of positions with constant factors: errors must not add up.
    second = kernel.rmatvec(p)
    columns = [0, 3, 4, 20_000, 60_000, 99_000, n - 1]
    assert relative_error(second[columns], _sink_columns(m, g, s, p, columns)) < 1e-12
    assert recurrences in ("compiled", "numpy")


def _sink_columns(m: float, g: float, s: int, p: np.ndarray, columns: list[int]) -> np.ndarray:
    n = p.size
    lags = np.arange(n, dtype=np.longdouble)
    powers = np.exp(-np.longdouble(m) * lags)
    mass = np.cumsum(powers)
    extra = np.expm1(np.longdouble(g))
    for j in range(s):
        mass[j:] += extra * powers[: n - j]
    rows = p / mass
    boost = [np.exp(np.longdouble(g)) if j < s else 1.0 for j in columns]
    sums = [np.sum(rows[j:] * powers[: n - j]) for j in columns]
    return np.array(boost) * np.array(sums)


def test_signed_alibi_without_a_mask_has_equal_rows(recurrences: str) -> None:
    kernel = AttentionKernel(500, [Head(ALiBi(0.2, "signed"))], mask=Full())
    row = kernel.row(0)
    for i in (1, 250, 499):
        assert relative_error(kernel.row(i), row, least=1e-30) < 1e-12
    assert relative_error(kernel.rmatvec(np.full(500, 1 / 500)), row) < 1e-12
    assert recurrences in ("compiled", "numpy")


def test_prefix_rows_are_uniform_over_the_prefix() -> None:
    kernel = AttentionKernel(1000, [Head()], mask=PrefixLM(300))
    np.testing.assert_allclose(kernel.row(0)[:300], 1 / 300, rtol=1e-13)
    p = np.zeros(1000)
    p[:300] = 1 / 300
    np.testing.assert_allclose(kernel.rmatvec(p), p, rtol=1e-12)


@pytest.mark.parametrize("n", [1, 2, 127, 128, 129, 1000, 1025])
@pytest.mark.parametrize("kind", ["flat", "log", "steep", "holes", "wild", "window"])
def test_block_products_cover_every_pair_once(kind: str, n: int) -> None:
    lags = np.arange(n, dtype=np.float64)
    rng = np.random.default_rng(n)
    logits = {
        "flat": np.zeros(n),
        "log": -2.0 * np.log1p(lags),
        "steep": -3.0 * lags,
        "holes": np.where(rng.random(n) < 0.4, -np.inf, 0.5),
        "wild": rng.normal(size=n) * 20.0,
        "window": np.where((lags > 10) & (lags < n / 2), 0.0, -np.inf),
    }[kind]
    x, scale, outer = rng.random(n), rng.normal(size=n) * 50.0, rng.normal(size=n)
    given = ToeplitzPlan(logits).apply(x, scale, outer)
    due = np.zeros(n, dtype=np.longdouble)
    for lag in range(1, n):
        terms = logits[lag] + scale[lag:].astype(np.longdouble) + outer[: n - lag]
        due[: n - lag] += x[lag:] * np.exp(terms)
    assert relative_error(given, due) < 1e-11
    log_given = ToeplitzPlan(logits).log_apply(scale)
    ones = np.array(
        [math.fsum(np.exp(logits[1 : n - j] + scale[j + 1 :]).tolist()) for j in range(n)]
    )
    assert relative_error(np.exp(log_given), ones) < 1e-10


def test_block_products_stay_accurate_when_too_many_tiles_are_left() -> None:
    n = 40_000
    logits = np.random.default_rng(0).normal(size=n) * 2.0
    plan = ToeplitzPlan(logits)
    x = np.zeros(n)
    x[[100, 20_000, n - 1]] = [1.0, 1e-3, 0.5]
    given = plan.apply(x, np.zeros(n), np.zeros(n))
    due = np.zeros(n)
    for i in (100, 20_000, n - 1):
        due[:i] += x[i] * np.exp(logits[i:0:-1])
    assert relative_error(given, due) < 1e-8
