"""The compiled and the NumPy recurrences, and life without numba."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from posbias.kernels import (
    ALiBi,
    AttentionKernel,
    Head,
    SlidingWindow,
    WindowSink,
    _numba_scan,
    _numpy_scan,
    _scan,
)


@pytest.mark.parametrize("n", [1, 2, 10, 333])
def test_both_affine_scans_are_the_loop(n: int) -> None:
    rng = np.random.default_rng(n)
    keep = rng.random((n, 3)) ** rng.choice([0.01, 1.0, 50.0], (n, 3))
    keep[rng.random((n, 3)) < 0.2] = 0.0
    x = rng.random((n, 3)) * np.exp(-50 * rng.random((n, 3)))
    forward, backward = x.copy(), x.copy()
    for k in range(1, n):
        forward[k] += keep[k] * forward[k - 1]
    for k in range(n - 2, -1, -1):
        backward[k] += keep[k + 1] * backward[k + 1]
    for module in (_numba_scan, _numpy_scan):
        np.testing.assert_allclose(module.affine_scan(keep, 1 - keep, x, False), forward, 1e-13)
        np.testing.assert_allclose(module.affine_scan(keep, 1 - keep, x, True), backward, 1e-13)


@pytest.mark.parametrize("n", [1, 2, 10, 333])
def test_both_log_scans_are_the_running_sum(n: int) -> None:
    rng = np.random.default_rng(n)
    decay = -rng.random((n, 2)) * 0.1
    decay[rng.random((n, 2)) < 0.05] = -np.inf
    logits = rng.normal(size=(n, 2)) * 20.0
    due = np.empty((n, 2))
    for c in range(2):
        total = np.longdouble(0.0)
        for k in range(n):
            moved = total * np.exp(np.longdouble(decay[k, c]))
            own = np.exp(np.longdouble(logits[k, c]))
            due[k, c] = float(moved / own)
            total = moved + own
    for module in (_numba_scan, _numpy_scan):
        ratio = np.exp(module.log_ratio_scan(decay, logits))
        np.testing.assert_allclose(ratio[1:], due[1:], rtol=1e-12)
        assert (ratio[0] == 0.0).all()


def test_a_constant_running_sum_keeps_all_digits() -> None:
    n, m = 50_000, 0.001
    decay, logits = np.full((n, 1), -m), np.zeros((n, 1))
    due = np.log(np.exp(-np.longdouble(m)) / -np.expm1(-np.longdouble(m)))
    for module in (_numba_scan, _numpy_scan):
        ratio = module.log_ratio_scan(decay, logits)
        assert abs(float(ratio[-1, 0]) - due) < 1e-14


def without_numba(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the import of numba fail, as in an environment that lacks it."""
    monkeypatch.setitem(sys.modules, "numba", None)
    monkeypatch.delitem(sys.modules, "posbias.kernels._numba_scan")
    monkeypatch.delattr("posbias.kernels._numba_scan", raising=False)
    _scan._load.cache_clear()
    monkeypatch.setattr(_scan, "COMPILED_FROM", 0)


@pytest.mark.parametrize(
    "kernel",
    [
        AttentionKernel.alibi(5000, [2.0, 0.3, 0.01, 0.0], diagonal=[0.0, 3.0, -3.0, 1.0]),
        AttentionKernel.alibi(5000, [0.3, -0.01], diagonal=1.0, mask=SlidingWindow(300)),
        AttentionKernel(
            5000,
            [Head(ALiBi(0.01), key=np.random.default_rng(0).normal(size=5000) * 50)],
            mask=WindowSink(100, 4),
        ),
    ],
    ids=["alibi", "window", "keys"],
)
def test_results_without_numba_are_the_same(
    kernel: AttentionKernel, monkeypatch: pytest.MonkeyPatch
) -> None:
    p = np.random.default_rng(1).random(kernel.n)
    monkeypatch.setattr(_scan, "COMPILED_FROM", 0)
    compiled = [kernel.rmatvec(p), kernel.matvec(p), kernel.diagonal()]
    assert _scan.compiled(1) is not None
    without_numba(monkeypatch)
    try:
        assert _scan.compiled(10**9) is None
        fresh = AttentionKernel(kernel.n, kernel.heads, mask=kernel.mask)
        for given, due in zip(
            [fresh.rmatvec(p), fresh.matvec(p), fresh.diagonal()], compiled, strict=True
        ):
            np.testing.assert_allclose(given, due, rtol=1e-12)
    finally:
        _scan._load.cache_clear()


def test_small_problems_load_no_numba_and_no_scipy() -> None:
    program = """
import sys
import numpy as np
from posbias.kernels import AttentionKernel
from posbias.rollout import MixingSchedule, Rollout
kernel = AttentionKernel.alibi(256, 2.0 ** -np.arange(1, 113), diagonal=0.5)
Rollout([kernel], MixingSchedule.constant(3, 0.5)).profile()
print(sorted({"numba", "scipy", "torch", "matplotlib"} & set(sys.modules)))
"""
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert done.stdout.strip() == "[]", done.stderr


def test_mass_beyond_the_range_of_numbers_is_zero(recurrences: str) -> None:
    kernel = AttentionKernel.alibi(6000, [1.0, 0.5, 0.2])
    p = np.zeros(6000)
    p[-1] = 1.0
    pushed = kernel.rmatvec(p)
    assert (pushed[:2000] == 0.0).all()
    assert (pushed[3000:] > 0.0).all()
    assert pushed.sum() == pytest.approx(1.0, abs=1e-14)
    assert recurrences in ("compiled", "numpy")
