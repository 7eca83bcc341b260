"""Small cases at the edges of the theory's inputs."""

from __future__ import annotations

import json

import numpy as np
import pytest

from posbias.errors import InputError
from posbias.kernels import (
    ALiBi,
    AttentionKernel,
    DenseKernel,
    Full,
    Head,
    KerpleLog,
    LagTable,
    PrefixLM,
    WindowSink,
)
from posbias.rollout import MixingSchedule, Rollout
from posbias.theory import (
    GrowingContent,
    InfiniteSchedule,
    Verdict,
    compare_rollouts,
    infinite_depth,
    is_monotone,
    monotone_criterion,
    monotonicity,
    row_cdfs,
)
from posbias.theory.edits import scale_position
from posbias.theory.logit_order import is_content_change, is_logit_order


def test_one_position_is_monotone():
    found = monotonicity(DenseKernel([[1.0]]))
    assert (found.holds, found.violation_rate, found.combinations) == (True, 0.0, 0)


def test_a_matrix_must_be_square():
    with pytest.raises(InputError, match=r"square.*\(2, 3\)"):
        row_cdfs(np.ones((2, 3)))


def test_a_monotonicity_report_is_serialisable():
    report = monotonicity(AttentionKernel(12, (Head(ALiBi(-0.25), diagonal=3.0),)))
    text = json.loads(json.dumps(report.as_dict()))
    assert text["violation_rate"] == report.violation_rate
    assert text["verdict"]["guaranteed"] is False
    assert set(text["witness"]) == {"i", "j", "k", "cdf_i", "cdf_j"}


def test_no_criterion_and_too_long_is_not_decided():
    head = Head(KerpleLog(1.0, 1.0), key=np.zeros(9000))
    assert is_monotone(AttentionKernel(9000, (head,))) is None


@pytest.mark.parametrize("prefix", [0, 1])
def test_a_prefix_of_one_position_is_causal(prefix):
    kernel = AttentionKernel(10, (Head(diagonal=-1.0),), mask=PrefixLM(prefix))
    assert monotone_criterion(kernel).holds
    assert monotonicity(kernel).holds


def test_sinks_hidden_behind_a_table_have_no_criterion():
    kernel = AttentionKernel(10, (Head(LagTable([0.0, -1.0])),), mask=WindowSink(3, 1))
    assert monotone_criterion(kernel) is None


def test_logit_order_is_silent_where_it_does_not_apply():
    dense = DenseKernel(np.eye(4))
    alibi = AttentionKernel.alibi(4, (0.3,))
    full = AttentionKernel(4, (Head(),), mask=Full())
    sinks = AttentionKernel(4, (Head(),), mask=WindowSink(2, 1))
    table = AttentionKernel(4, (Head(LagTable([0.0, None])),))
    uneven = AttentionKernel.alibi(4, (0.3, 0.3), weights=(1.0, 2.0))
    even = AttentionKernel.alibi(4, (0.3, 0.3))
    for a, b in (
        (dense, alibi),
        (full, full),
        (alibi, sinks),
        (alibi, table),
        (uneven, even),
        (even, alibi),
    ):
        assert not is_logit_order(a, b)
    assert not is_content_change(dense, alibi)
    assert not is_content_change(even, alibi)
    assert is_content_change(alibi, AttentionKernel.alibi(4, (0.3,), diagonal=1.0))


def test_only_structured_kernels_can_be_edited():
    with pytest.raises(InputError, match="position and content apart"):
        scale_position(DenseKernel(np.eye(3)), 2.0)


def test_growing_content_over_layers_that_stop():
    kernel = AttentionKernel(4, (Head(),))
    verdict = infinite_depth(GrowingContent(kernel, 1.0), InfiniteSchedule.eventually_zero([1.0]))
    np.testing.assert_allclose(verdict.diagonal, kernel.diagonal(), rtol=1e-14)


def test_growing_content_under_a_slow_exponential():
    kernel = AttentionKernel(3, (Head(),))
    schedule = InfiniteSchedule.exponential(0.1, 0.9999)
    verdict = infinite_depth(GrowingContent(kernel, 0.25), schedule)
    t = np.arange(1.0, 600_001.0)
    expected = [np.prod(1.0 - schedule.values(t.size) * i / (t**0.25 + i)) for i in (0, 1, 2)]
    np.testing.assert_allclose(verdict.diagonal, expected, rtol=1e-11)


def test_an_explicit_beginning_longer_than_the_certificate_is_refused():
    with pytest.raises(InputError, match="3 explicit"):
        InfiniteSchedule.eventually_zero([0.1, 0.2, 0.3]).certificate(2)


def test_a_shallower_rollout_is_never_shown_to_be_earlier():
    kernel = AttentionKernel.alibi(8, (0.3,))
    other = AttentionKernel.alibi(8, (0.1,))
    flat = Rollout([kernel], MixingSchedule([0.5]))
    deep = Rollout([kernel, other], MixingSchedule([0.5, 0.5]))
    verdict = compare_rollouts(flat, deep)
    assert not verdict.guaranteed
    assert verdict.failed[0].detail == "1 more in b"


def test_a_summary_says_what_is_known():
    verdict = Verdict(
        claim="c",
        theorem="T1",
        source="posbias",
        hypotheses=(),
        guaranteed=True,
        holds_numerically=None,
    )
    assert verdict.summary() == "c: guaranteed by T1 (posbias); numerically it was not computed"
