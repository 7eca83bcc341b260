"""Statistics of attention rows: compiled and torch agree, threads and blocks do not matter."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from posbias.measure import row_sums
from posbias.measure.row_sums import ROW_SUMS, add_row_sums
from posbias.models.tap import AttentionRows

N, START, HEADS, ROWS = 150, 20, 3, 130


def block(scale: float = 4.0, dtype: torch.dtype = torch.float32) -> AttentionRows:
    """Return rows 20..149 of two windows; what the mask hides holds large numbers."""
    torch.manual_seed(0)
    logits = torch.randn(2, HEADS, ROWS, N, dtype=dtype) * scale
    visible = torch.arange(N) <= torch.arange(START, START + ROWS)[:, None]
    logits.masked_fill_(~visible, 1e6)
    return AttentionRows(0, START, logits, visible, N)


def bias_of(rows: int) -> torch.Tensor | None:
    return torch.randn(HEADS, rows, N, dtype=torch.float64) if rows else None


def within(window: int | None) -> AttentionRows:
    given = block()
    lags = torch.arange(START, START + ROWS)[:, None] - torch.arange(N)
    visible = given.visible & (lags < (window or N))
    return AttentionRows(0, START, given.logits, visible, N)


@pytest.mark.parametrize("bias_rows", [0, 1, ROWS])
@pytest.mark.parametrize("window", [None, 1, 2, 40])
@pytest.mark.parametrize("threads", [1, 2])
def test_compiled_rows_are_those_of_torch(bias_rows, window, threads, monkeypatch):
    rows, bias = within(window), bias_of(bias_rows)
    results = []
    before = torch.get_num_threads()
    for least in (2**62, 0):
        monkeypatch.setattr(row_sums, "COMPILED_FROM", least)
        torch.set_num_threads(threads)
        try:
            lags = torch.ones(HEADS, N, dtype=torch.float64)
            part = add_row_sums(rows, 1, bias, lags, window=window)
        finally:
            torch.set_num_threads(before)
        results.append((part.mean.double(), part.sums, lags))
    assert row_sums._compiled() is not None
    (mean, sums, lags), (other_mean, other_sums, other_lags) = results
    torch.testing.assert_close(other_mean, mean, atol=3e-7, rtol=3e-6)
    torch.testing.assert_close(other_lags, lags, atol=1e-9, rtol=1e-12)
    for name, ours, theirs in zip(ROW_SUMS, other_sums, sums, strict=True):
        torch.testing.assert_close(ours, theirs, atol=3e-5, rtol=3e-6, msg=name)


def test_compiled_probabilities_are_a_softmax_to_single_precision(monkeypatch):
    monkeypatch.setattr(row_sums, "COMPILED_FROM", 0)
    rows = block(scale=20.0)
    lags = torch.zeros(HEADS, N, dtype=torch.float64)
    mean = add_row_sums(rows, 0, None, lags, window=None).mean
    exact = torch.softmax(rows.logits[0].double().masked_fill(~rows.visible, -math.inf), -1)
    torch.testing.assert_close(mean, exact.mean(0), atol=1e-30, rtol=1e-5)
    torch.testing.assert_close(
        mean.sum(-1), torch.ones(ROWS, dtype=torch.float64), rtol=0, atol=1e-12
    )


def test_threads_do_not_change_a_bit(monkeypatch):
    monkeypatch.setattr(row_sums, "COMPILED_FROM", 0)
    rows, before, seen = block(), torch.get_num_threads(), []
    for threads in (1, 2, 3):
        torch.set_num_threads(threads)
        try:
            lags = torch.zeros(HEADS, N, dtype=torch.float64)
            part = add_row_sums(rows, 0, None, lags, window=None)
        finally:
            torch.set_num_threads(before)
        seen.append([part.mean.numpy(), part.sums.numpy(), lags.numpy()])
    for other in seen[1:]:
        for ours, theirs in zip(other, seen[0], strict=True):
            assert np.array_equal(ours, theirs)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_logits_that_are_no_numbers_reach_the_sums(bad, monkeypatch):
    """The sums are what a measurement checks; probabilities made of such logits look plausible."""
    monkeypatch.setattr(row_sums, "COMPILED_FROM", 0)
    rows = block()
    rows.logits[0, 1, 30, 7] = bad
    lags = torch.zeros(HEADS, N, dtype=torch.float64)
    sums = add_row_sums(rows, 0, None, lags, window=None).sums
    assert not torch.isfinite(sums[ROW_SUMS.index("lower"), 1])


def test_probabilities_of_the_model_itself_are_used_as_they_are(monkeypatch):
    monkeypatch.setattr(row_sums, "COMPILED_FROM", 0)
    rows = block()
    own = torch.zeros_like(rows.logits)
    own[..., 0] = 1.0
    given = AttentionRows(0, START, rows.logits, rows.visible, N, own)
    lags = torch.zeros(HEADS, N, dtype=torch.float64)
    part = add_row_sums(given, 0, None, lags, window=None)
    assert torch.equal(part.mean, own[0, 0])
    assert torch.equal(part.sums[-1], torch.full((HEADS,), float(ROWS), dtype=torch.float64))
