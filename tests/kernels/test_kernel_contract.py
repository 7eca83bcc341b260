"""The contract suite over every kernel of the package."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from naive_kernels import MASKS, POSITIONS
from scipy.sparse.linalg import aslinearoperator

from posbias.kernels import (
    ALiBi,
    AttentionKernel,
    DenseKernel,
    Head,
    Kernel,
    KerpleLog,
    LagTable,
    MixtureKernel,
    PrefixLM,
    Sink,
    SlidingWindow,
    T5Buckets,
    WindowSink,
    kernel_from_description,
)
from posbias.kernels.testing import check_kernel

pytestmark = pytest.mark.usefixtures("recurrences")


class FirstAndSelf(Kernel):
    """A kernel of a user's own."""

    def row(self, i):
        return 0.5 * (np.arange(self.n) == self._index(i)) + 0.5 * (np.arange(self.n) == 0)

    def rmatvec(self, p):
        return 0.5 * self._vector(p) + 0.5 * np.sum(p) * (np.arange(self.n) == 0)

    def matvec(self, v):
        return 0.5 * self._vector(v) + 0.5 * v[0]

    def restrict(self, n):
        return FirstAndSelf(self._restricted(n))


def _random_rows(n: int, *, causal: bool) -> DenseKernel:
    rows = np.random.default_rng(n).random((n, n)) + 0.01
    rows = np.tril(rows) if causal else rows
    return DenseKernel(rows / rows.sum(axis=1, keepdims=True))


def _rich(n: int) -> AttentionKernel:
    key = np.random.default_rng(n).normal(size=n) * 3.0
    heads = [
        Head(ALiBi(0.2), weight=2.0, diagonal=1.0, key=key),
        Head(ALiBi(0.2), weight=0.5, diagonal=-2.0, key=key),
        Head(T5Buckets(4, 9, [0.0, 1.0, 2.0, -1.0]), sink=Sink(2, 3.0)),
        Head(KerpleLog(1.0, 2.0), key=key),
        Head(LagTable([0.0, None, 1.0]), weight=0.0),
    ]
    return AttentionKernel(n, heads, mask=WindowSink(5, 2), temperature=0.7)


KERNELS: dict[str, Callable[[int], Kernel]] = {
    "alibi bank": lambda n: AttentionKernel.alibi(n, [0.5, 0.1, 0.0], diagonal=[1.0, -40.0, 40.0]),
    "alibi window": lambda n: AttentionKernel.alibi(n, [0.5, 0.1], mask=SlidingWindow(4)),
    "heads of one law": lambda n: AttentionKernel(n, [Head(diagonal=d) for d in range(7)]),
    "rich": _rich,
    "dense causal": lambda n: _random_rows(n, causal=True),
    "dense full": lambda n: _random_rows(n, causal=False),
    "mixture": lambda n: MixtureKernel(
        [_rich(n), _random_rows(n, causal=False), AttentionKernel(n, [Head()])], [1.0, 0.0, 2.0]
    ),
    "prefix": lambda n: AttentionKernel(n, [Head(key=np.arange(n))], mask=PrefixLM(3)),
    "user's own": FirstAndSelf,
}


@pytest.mark.parametrize("n", [1, 2, 3, 20])
@pytest.mark.parametrize("name", KERNELS)
def test_kernels_keep_the_contract(name: str, n: int) -> None:
    kernel = KERNELS[name](n)
    check_kernel(kernel, tolerance=1e-13)
    assert kernel.n == n


@pytest.mark.parametrize("mask", MASKS, ids=lambda m: "-".join(map(str, m.values())))
def test_every_position_and_mask_keeps_the_contract(mask) -> None:
    for position in POSITIONS:
        if position["type"] == "table" and position["bias"][0] is None:
            continue
        layer = {"heads": [{"position": position, "diagonal": 0.5}], "mask": mask}
        kernel = kernel_from_description(layer, 13)
        check_kernel(kernel, tolerance=1e-13)
        assert kernel.shape == (13, 13)


def test_kernels_are_linear_operators_for_scipy() -> None:
    kernel = _rich(9)
    operator = aslinearoperator(kernel)
    v = np.arange(9.0)
    np.testing.assert_allclose(operator @ v, kernel.toarray() @ v, rtol=1e-13)
    np.testing.assert_allclose(operator.rmatvec(v), v @ kernel.toarray(), rtol=1e-13)
