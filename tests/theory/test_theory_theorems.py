"""T1 to T4, T1': no violation in hundreds of random draws, and sound guarantees."""

from __future__ import annotations

import numpy as np
import pytest
from theory_naive import (
    dense_product,
    draws,
    jump_kernel,
    later_rows,
    random_jump_law,
    random_kernel,
    random_monotone_kernel,
    rollout,
    worst_rise,
)

from posbias.errors import InputError
from posbias.kernels import (
    ALiBi,
    AttentionKernel,
    DenseKernel,
    Head,
    LagTable,
    PrefixLM,
    Sink,
    SlidingWindow,
)
from posbias.rollout import MixingSchedule, Rollout
from posbias.theory import compare_rollouts
from posbias.theory.logit_order import is_logit_order

EXACT = 1e-12


def check_guaranteed(first, second, theorem: str) -> None:
    """Every row of the first stack is earlier; the verdict for the last row guarantees it."""
    assert worst_rise(dense_product(*first), dense_product(*second)) <= EXACT
    verdict = compare_rollouts(rollout(*first), rollout(*second))
    assert verdict.guaranteed, verdict.summary()
    assert verdict.holds_numerically
    assert theorem in verdict.theorem


def mixing(rng, depth: int) -> np.ndarray:
    return rng.uniform(0.05, 1.0, size=depth)


def test_t1_a_causal_layer_above_monotone_layers():
    for rng in draws(11):
        n, below, above = (int(x) for x in rng.integers((3, 0, 1), (8, 4, 3)))
        low = [random_monotone_kernel(rng, n) for _ in range(below)]
        high = [random_kernel(rng, n) for _ in range(above)]
        lam = mixing(rng, below + above + 1)
        deep = ([*low, random_kernel(rng, n), *high], lam)
        flat = ([*low, *high], np.delete(lam, below))
        check_guaranteed(deep, flat, "T1")


def test_t1_prime_shared_jumps_need_no_monotonicity():
    for rng in draws(12):
        n, depth = (int(x) for x in rng.integers((3, 1), (8, 5)))
        law = random_jump_law(rng, n)
        leave = rng.uniform(0.0, 1.0, size=(depth + 1, n))
        more = leave + (1.0 - leave) * rng.uniform(0.0, 1.0, size=leave.shape)
        lam = np.ones(depth + 1)
        fast = ([jump_kernel(law, h) for h in more], lam)
        slow = ([jump_kernel(law, h) for h in leave[1:]], lam[1:])
        check_guaranteed(fast, slow, "T1")


def test_t2_more_mixing_over_monotone_layers():
    for rng in draws(13):
        n, depth = (int(x) for x in rng.integers((3, 1), (8, 5)))
        kernels = [random_monotone_kernel(rng, n) for _ in range(depth - 1)]
        kernels.append(random_kernel(rng, n))
        lam = mixing(rng, depth)
        less = lam * rng.uniform(0.0, 1.0, size=depth)
        check_guaranteed((kernels, lam), (kernels, less), "T2")


def test_t3_ordered_rows_with_one_monotone_family():
    for rng in draws(14):
        n, depth = (int(x) for x in rng.integers((3, 1), (8, 5)))
        family = [random_monotone_kernel(rng, n) for _ in range(depth - 1)]
        family.append(random_kernel(rng, n))
        lam = mixing(rng, depth)
        if rng.random() < 0.5:
            later = [later_rows(rng, kernel) for kernel in family]
            check_guaranteed((family, lam), (later, lam), "T3")
        else:
            earlier = [earlier_rows(rng, kernel) for kernel in family]
            check_guaranteed((earlier, lam), (family, lam), "T3")


def earlier_rows(rng, a: np.ndarray) -> np.ndarray:
    tilt = np.cumsum(rng.exponential(size=len(a)))
    b = a * np.exp(-tilt * rng.uniform(0.0, 1.0))
    return b / b.sum(axis=1, keepdims=True)


def alibi(n: int, slopes, diagonal) -> AttentionKernel:
    return AttentionKernel.alibi(n, slopes, diagonal=diagonal)


def test_t4_diagonal_up_is_later():
    for rng in draws(15):
        n, depth, heads = (int(x) for x in rng.integers((3, 1, 1), (10, 4, 4)))
        slopes = rng.uniform(0.0, 1.0, size=(depth, heads))
        low = rng.normal(size=(depth, heads))
        high = low + rng.exponential(size=(depth, heads))
        lam = MixingSchedule(mixing(rng, depth))
        a, b = (
            Rollout([alibi(n, *pair) for pair in zip(slopes, d, strict=True)], lam)
            for d in (low, high)
        )
        verdict = compare_rollouts(a, b)
        assert verdict.guaranteed, verdict.summary()
        assert worst_rise(a.matrix(), b.matrix()) <= EXACT
        assert "T4" in verdict.theorem


def test_guarantees_are_sound_on_unrelated_stacks():
    """Whatever is guaranteed holds for every row reached, and much is not guaranteed."""
    guaranteed = 0
    for rng in draws(16, 600):
        n = int(rng.integers(2, 5))
        stacks = []
        pool = [random_kernel(rng, n), random_monotone_kernel(rng, n)]
        pool += [later_rows(rng, k) for k in pool]
        for _ in range(2):
            depth = int(rng.integers(1, 4))
            picks = rng.integers(0, len(pool), size=depth)
            stacks.append(([pool[p] for p in picks], rng.choice([0.0, 0.3, 0.6, 1.0], size=depth)))
        verdict = compare_rollouts(rollout(*stacks[0]), rollout(*stacks[1]))
        if verdict.guaranteed:
            guaranteed += 1
            assert worst_rise(dense_product(*stacks[0]), dense_product(*stacks[1])) <= EXACT
    assert 30 < guaranteed < 570


def test_constant_kernel_counts_attention_steps():
    """Neither schedule dominates the other layer by layer, in no order: T8 still decides."""
    kernel = DenseKernel(random_kernel(np.random.default_rng(3), 6))
    a = Rollout([kernel], MixingSchedule([0.5, 0.5]))
    b = Rollout([kernel], MixingSchedule([0.1, 0.7]))
    verdict = compare_rollouts(a, b)
    assert verdict.guaranteed
    assert "T8" in verdict.theorem
    assert worst_rise(a.matrix(), b.matrix()) <= EXACT
    assert not compare_rollouts(b, a).guaranteed


def test_inserting_above_a_layer_that_is_not_monotone_is_not_guaranteed():
    rng = np.random.default_rng(8)
    bad, top = random_kernel(rng, 6), random_kernel(rng, 6)
    verdict = compare_rollouts(rollout([bad, top], [1.0, 1.0]), rollout([bad], [1.0]))
    assert not verdict.guaranteed
    assert "monotone" in verdict.failed[0].name
    assert "not guaranteed" in verdict.summary()


def test_inserting_at_the_bottom_needs_nothing():
    rng = np.random.default_rng(9)
    bottom, upper = random_kernel(rng, 6), random_kernel(rng, 6)
    verdict = compare_rollouts(rollout([bottom, upper], [0.7, 0.7]), rollout([upper], [0.7]))
    assert verdict.guaranteed


def test_layers_that_do_nothing_are_ignored():
    rng = np.random.default_rng(10)
    kernel, other = random_monotone_kernel(rng, 5), random_kernel(rng, 5)
    a = rollout([kernel, other, kernel], [0.5, 0.0, 0.9])
    b = rollout([kernel, kernel], [0.5, 0.4])
    assert compare_rollouts(a, b).guaranteed


def test_smaller_window_and_sinks():
    schedule = MixingSchedule.constant(3, 0.6)

    def stack(**options) -> Rollout:
        sink = options.pop("sink", None)
        head = Head(ALiBi(0.1), sink=sink)
        return Rollout([AttentionKernel(24, (head,), **options)], schedule)

    wide, narrow = stack(mask=SlidingWindow(9)), stack(mask=SlidingWindow(4))
    assert compare_rollouts(wide, narrow).guaranteed
    assert compare_rollouts(stack(), wide).guaranteed
    assert compare_rollouts(stack(sink=Sink(1, 2.0)), stack()).guaranteed
    assert not compare_rollouts(narrow, wide).guaranteed


def test_long_contexts_are_decided_from_the_logits():
    n = 9000
    schedule = MixingSchedule.constant(2, 0.5)
    a, b = (Rollout([AttentionKernel.alibi(n, (m,))], schedule) for m in (0.1, 0.2))
    verdict = compare_rollouts(a, b)
    assert verdict.guaranteed
    assert verdict.holds_numerically


def test_long_contexts_that_cannot_be_decided_say_so():
    n = 9000
    table = np.zeros(n)
    table[5] = 3.0
    bad = AttentionKernel(n, (Head(LagTable(table)),))
    top = [AttentionKernel(n, (Head(ALiBi(m)),)) for m in (0.3, 0.1)]
    a, b = (Rollout([bad, k], MixingSchedule([0.5, 0.5])) for k in top)
    verdict = compare_rollouts(a, b)
    assert not verdict.guaranteed
    assert "not checked" in verdict.summary()


def test_per_position_mixing():
    rng = np.random.default_rng(12)
    kernels = [DenseKernel(random_monotone_kernel(rng, 5)), DenseKernel(random_kernel(rng, 5))]
    values = np.repeat(rng.uniform(0.2, 0.8, size=(2, 1)), 5, axis=1)
    lower = values.copy()
    lower[1] *= rng.uniform(0.2, 1.0, size=5)
    a, b = (Rollout(kernels, MixingSchedule(v)) for v in (values, lower))
    verdict = compare_rollouts(a, b)
    assert verdict.guaranteed
    assert worst_rise(a.matrix(), b.matrix()) <= EXACT


def test_bad_requests_are_refused():
    five, six = (rollout([np.eye(n)], [0.5]) for n in (5, 6))
    with pytest.raises(InputError, match="5 and 6 positions"):
        compare_rollouts(five, six)
    with pytest.raises(InputError, match="row 5"):
        compare_rollouts(five, five, row=5)


def test_a_verdict_is_serialisable():
    import json

    stack = rollout([np.eye(3)], [0.5])
    text = json.dumps(compare_rollouts(stack, stack).as_dict())
    assert json.loads(text)["order"]["direction"] == "neither"


def test_rows_ordered_by_logits_are_ordered_in_the_matrices():
    shown = 0
    for rng in draws(17):
        n = int(rng.integers(2, 12))
        heads = []
        for _ in range(2):
            slope, diagonal = float(rng.uniform(-0.2, 0.5)), float(rng.normal())
            sink = Sink(int(rng.integers(0, 3)), float(rng.normal()))
            heads.append(Head(ALiBi(slope), diagonal=diagonal, sink=sink, weight=1.5))
        first = AttentionKernel(n, heads[:1], mask=SlidingWindow(int(rng.integers(1, n + 1))))
        second = AttentionKernel(n, heads[1:], mask=SlidingWindow(int(rng.integers(1, n + 1))))
        if is_logit_order(first, second):
            shown += 1
            assert worst_rise(first.toarray(), second.toarray()) <= EXACT
    assert 10 < shown < 200


def test_kernels_that_look_ahead_beside_causal_ones():
    ahead = AttentionKernel(8, (Head(),), mask=PrefixLM(4))
    causal = AttentionKernel(8, (Head(),))
    schedule = MixingSchedule.constant(1, 0.5)
    verdict = compare_rollouts(Rollout([causal], schedule), Rollout([ahead], schedule), row=2)
    assert verdict.guaranteed
    assert worst_rise(causal.toarray(), ahead.toarray()) <= EXACT
    # A causal layer over one that looks ahead but is monotone still moves everything earlier.
    inserted = Rollout([ahead, causal], MixingSchedule([0.5, 0.5]))
    verdict = compare_rollouts(inserted, Rollout([ahead], schedule))
    assert verdict.guaranteed
    assert worst_rise(inserted.matrix(), Rollout([ahead], schedule).matrix()) <= EXACT


def test_the_first_row_never_moves():
    a, b = (rollout([random_kernel(np.random.default_rng(1), 5)], [x]) for x in (0.2, 0.9))
    verdict = compare_rollouts(a, b, row=0)
    assert verdict.guaranteed
    assert verdict.order.direction == "neither"
