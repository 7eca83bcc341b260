"""Positions and masks of a user's own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numba
import numpy as np
import pytest
from naive_kernels import relative_error

from posbias.errors import InputError
from posbias.kernels import ALiBi, AttentionKernel, Full, Head, Mask, NoPE, Position, T5Buckets
from posbias.kernels import _numba_scan as compiled_scan
from posbias.kernels.masks import Band
from posbias.kernels.testing import check_kernel


@dataclass(frozen=True)
class Sandwich(Position):
    """The bias of the Sandwich encoding, cosines of decreasing frequency."""

    dim: int
    type_name: ClassVar[str] = "sandwich"

    def lag_logits(self, n: int) -> np.ndarray:
        rates = 10000.0 ** (-np.arange(1, self.dim // 2 + 1) / self.dim)
        return np.cos(np.outer(np.arange(n), rates)).sum(axis=1)


@dataclass(frozen=True)
class Ring(Mask):
    """The query itself and the keys 3 to 6 positions away on either side, the first 9 ahead."""

    type_name: ClassVar[str] = "ring"

    def bands(self, n: int) -> tuple[Band, ...]:
        bands = (Band(False, 3, min(6, n - 1), n), Band(True, 3, min(6, n - 1), min(n, 9)))
        return bands if n > 3 else ()

    def visible(self, i: int, n: int) -> np.ndarray:
        far = i - np.arange(n)
        past = (far >= 3) & (far <= 6)
        ahead = (far <= -3) & (far >= -6) & (np.arange(n) < 9)
        return past | ahead | (far == 0)


@pytest.mark.parametrize("n", [1, 3, 20])
def test_a_position_of_ones_own_needs_only_its_logits(n: int) -> None:
    kernel = AttentionKernel(n, [Head(Sandwich(8), diagonal=1.0)], mask=Full())
    assert kernel.heads[0].position.describe() == {"type": "sandwich", "dim": 8}
    rows = np.exp(np.stack([Sandwich(8).lag_logits(n)[np.abs(i - np.arange(n))] for i in range(n)]))
    rows[np.arange(n), np.arange(n)] *= np.e
    rows /= rows.sum(axis=1, keepdims=True)
    assert relative_error(kernel.toarray(), rows) < 1e-13
    p = np.random.default_rng(0).random(n)
    assert relative_error(kernel.rmatvec(p), p @ rows) < 1e-13


@pytest.mark.parametrize(
    "position", [NoPE(), ALiBi(0.3), ALiBi(-9.0), T5Buckets(4, 9, [0, 1, 2, 3])]
)
@pytest.mark.parametrize("n", [1, 3, 4, 7, 30])
def test_a_mask_of_ones_own_needs_only_its_bands(position: Position, n: int) -> None:
    kernel = AttentionKernel(n, [Head(position, key=np.arange(n) % 3)], mask=Ring())
    visible = np.stack([Ring().visible(i, n) for i in range(n)])
    np.testing.assert_array_equal(kernel.toarray() > 0.0, visible)
    rows = np.stack([kernel.row(i) for i in range(n)])
    p = np.random.default_rng(0).random(n)
    assert relative_error(kernel.rmatvec(p), p @ rows) < 1e-12
    assert relative_error(kernel.matvec(p), rows @ p) < 1e-12


def test_kernels_of_such_parts_keep_the_contract() -> None:
    kernels = [
        AttentionKernel(12, [Head(Sandwich(8))]),
        AttentionKernel(12, [Head(ALiBi(0.3))], mask=Ring()),
    ]
    for kernel in kernels:
        check_kernel(kernel)
        with pytest.raises(InputError, match=r"do not know (Sandwich|Ring)"):
            kernel.describe()


def test_code_is_compiled_also_where_no_cache_can_be_written(monkeypatch) -> None:
    plain = numba.njit

    def without_cache(*args, **options):
        if options.get("cache"):
            raise RuntimeError("cannot cache function: no locator available")
        return plain(*args, **options)

    monkeypatch.setattr(compiled_scan, "njit", without_cache)
    double = compiled_scan._compile(lambda x: 2.0 * x)
    assert double(1.5) == 3.0
    assert double.signatures
