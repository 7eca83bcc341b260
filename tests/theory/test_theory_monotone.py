"""Monotonicity: counts against triple loops, analytic criteria against the matrices."""

from __future__ import annotations

import numpy as np
import pytest
from theory_naive import count_violations, draws, random_kernel, random_monotone_kernel

from posbias.errors import InputError
from posbias.kernels import (
    ALiBi,
    AttentionKernel,
    Causal,
    DenseKernel,
    Full,
    Head,
    KerpleLog,
    KerplePower,
    LagTable,
    MixtureKernel,
    NoPE,
    PrefixLM,
    Sink,
    SlidingWindow,
    WindowSink,
)
from posbias.theory import (
    is_monotone,
    lag_margin,
    monotone_criterion,
    monotonicity,
)


def largest_rise(array: np.ndarray) -> float:
    cdfs = np.cumsum(array, axis=1)
    return max(float((cdfs[j] - cdfs[i]).max()) for j in range(len(array)) for i in range(j + 1))


def test_counts_agree_with_triple_loops():
    for rng in draws(1):
        a = random_kernel(rng, int(rng.integers(2, 9)))
        found = monotonicity(DenseKernel(a))
        count, worst = count_violations(a, 1e-10)
        assert (found.violations, found.holds) == (count, count == 0)
        assert found.worst == pytest.approx(worst if count else 0.0, abs=1e-15)
        assert found.violation_rate == count / (len(a) * len(a) * (len(a) - 1) / 2)
        half = 0.5 * a + 0.5 * np.eye(len(a))
        assert found.residual_half_holds == (count_violations(half, 1e-10)[0] == 0)


def test_the_witness_is_a_violation():
    a = random_kernel(np.random.default_rng(5), 9)
    witness = monotonicity(DenseKernel(a)).witness
    cdfs = np.cumsum(a, axis=1)
    assert witness.i < witness.j
    rise = cdfs[witness.j, witness.k] - cdfs[witness.i, witness.k]
    assert rise == pytest.approx(largest_rise(a), abs=1e-15)


def test_running_minima_are_monotone():
    for rng in draws(2, 50):
        found = monotonicity(DenseKernel(random_monotone_kernel(rng, 10)))
        assert found.holds
        assert found.witness is None
        assert found.verdict.guaranteed


def test_lag_criterion_is_exact():
    """Random lag tables under causal and sliding masks: the criterion and the matrix agree."""
    seen = set()
    for rng in draws(3):
        n = int(rng.integers(3, 12))
        logits = np.cumsum(rng.normal(-0.3, 0.5, size=n))
        head = Head(LagTable(logits), diagonal=float(rng.normal()))
        mask = Causal() if rng.random() < 0.5 else SlidingWindow(int(rng.integers(1, n + 1)))
        kernel = AttentionKernel(n, (head,), mask=mask, temperature=float(rng.uniform(0.5, 2.0)))
        criterion = monotone_criterion(kernel)
        rise = largest_rise(kernel.toarray())
        assert criterion.decides
        if abs(rise) > 1e-13:
            assert criterion.holds == (rise <= 0.0)
        seen.add(criterion.holds)
    assert seen == {True, False}


def test_lags_never_attended_to():
    kernel = AttentionKernel(9, (Head(LagTable([0.0, None, None, 0.0, None])),))
    assert monotone_criterion(kernel).holds is False
    assert lag_margin(np.array([0.0, -np.inf, 0.0]))[0] == -np.inf
    assert lag_margin(np.array([0.0, 0.0, -np.inf]))[0] == np.inf


@pytest.mark.parametrize("diagonal", [-6.0, 0.0, 5.0])
@pytest.mark.parametrize("mask", [Causal(), SlidingWindow(4), SlidingWindow(1)])
@pytest.mark.parametrize(
    "position", [NoPE(), ALiBi(0.3), ALiBi(0.0), KerpleLog(2.0, 1.0), KerplePower(0.5, 0.7)]
)
def test_decaying_encodings_are_monotone(position, mask, diagonal):
    kernel = AttentionKernel(16, (Head(position, diagonal=diagonal),), mask=mask)
    assert monotone_criterion(kernel).holds
    assert monotonicity(kernel).violations == 0


@pytest.mark.parametrize(("offset", "monotone"), [(-1e-6, True), (1e-6, False)])
def test_rising_slope_has_its_threshold(offset, monotone):
    threshold = -np.log(-np.expm1(-0.25))
    kernel = AttentionKernel(24, (Head(ALiBi(-0.25), diagonal=threshold + offset),))
    assert monotone_criterion(kernel).holds is monotone
    assert (largest_rise(kernel.toarray()) <= 1e-13) is monotone


def test_key_criterion_is_exact():
    seen = set()
    for rng in draws(4):
        n = int(rng.integers(3, 12))
        slope = float(rng.uniform(-0.3, 0.6))
        key = rng.normal(scale=0.4, size=n)
        sink = Sink(int(rng.integers(0, 4)), float(rng.normal())) if rng.random() < 0.5 else None
        head = Head(ALiBi(slope), diagonal=float(rng.normal()), key=key, sink=sink)
        kernel = AttentionKernel(n, (head,))
        criterion = monotone_criterion(kernel)
        rise = largest_rise(kernel.toarray())
        if abs(rise) > 1e-13:
            assert criterion.holds == (rise <= 0.0)
        seen.add(criterion.holds)
    assert seen == {True, False}


def test_window_sink_criterion_is_exact():
    seen = set()
    for rng in draws(5):
        n, window, sinks = (int(x) for x in rng.integers((6, 1, 0), (16, 6, 5)))
        sink = Sink(int(rng.integers(0, sinks + 1)), float(rng.normal(scale=2.0)))
        head = Head(ALiBi(float(rng.uniform(0.0, 0.8))), diagonal=float(rng.normal()), sink=sink)
        kernel = AttentionKernel(n, (head,), mask=WindowSink(window, sinks))
        criterion = monotone_criterion(kernel)
        rise = largest_rise(kernel.toarray())
        if abs(rise) > 1e-13:
            assert criterion.holds == (rise <= 0.0)
        seen.add(criterion.holds)
    assert seen == {True, False}


@pytest.mark.parametrize(("diagonal", "monotone"), [(-0.5, False), (0.0, True), (0.5, True)])
def test_prefix_criterion(diagonal, monotone):
    kernel = AttentionKernel(20, (Head(diagonal=diagonal),), mask=PrefixLM(8))
    assert monotone_criterion(kernel).holds is monotone
    assert monotonicity(kernel).holds is monotone


def test_no_criterion_where_none_is_known():
    assert monotone_criterion(DenseKernel(np.eye(3))) is None
    full = AttentionKernel(6, (Head(ALiBi(0.2), diagonal=0.3),), mask=Full())
    assert monotone_criterion(full) is None
    kerple = AttentionKernel(6, (Head(KerpleLog(1.0, 1.0), key=np.zeros(6)),))
    assert monotone_criterion(kerple) is None
    assert is_monotone(kerple) is True


def test_mixtures_of_monotone_heads_are_monotone():
    for rng in draws(6, 60):
        slopes = rng.uniform(0.0, 1.0, size=3)
        kernel = AttentionKernel.alibi(12, slopes, diagonal=rng.normal(size=3))
        assert monotone_criterion(kernel).decides
        assert largest_rise(kernel.toarray()) <= 1e-14
    part = AttentionKernel(12, (Head(),))
    assert is_monotone(MixtureKernel([part, kernel])) is True


def test_one_bad_head_leaves_the_decision_to_the_numbers():
    heads = (Head(ALiBi(0.5), weight=20.0), Head(ALiBi(-0.1), weight=1.0, diagonal=3.0))
    kernel = AttentionKernel(10, heads)
    assert not monotone_criterion(kernel).decides
    assert monotonicity(kernel).holds == (largest_rise(kernel.toarray()) <= 1e-10)


def test_verdict_names_the_criterion():
    bad = AttentionKernel(12, (Head(ALiBi(-0.25), diagonal=3.0),))
    verdict = monotonicity(bad).verdict
    assert not verdict.guaranteed
    assert verdict.holds_numerically is False
    assert "not guaranteed" in verdict.summary()
    assert "lag" in verdict.failed[0].detail


def test_more_positions_than_the_dense_check_takes():
    long = AttentionKernel(100_000, (Head(ALiBi(0.1), diagonal=-3.0),))
    assert is_monotone(long) is True
    with pytest.raises(InputError, match="restrict"):
        monotonicity(long)
