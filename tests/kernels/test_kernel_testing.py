"""The contract suite finds broken kernels."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from posbias.errors import PosbiasError
from posbias.kernels import DenseKernel
from posbias.kernels.testing import KernelContractError, check_kernel

ROWS = np.array([[1.0, 0.0, 0.0], [0.25, 0.75, 0.0], [0.5, 0.25, 0.25]])


def broken(**methods: Any) -> DenseKernel:
    """Return a dense kernel with some methods replaced."""
    return type("Broken", (DenseKernel,), methods)(ROWS)


def _changing(self: DenseKernel, p: np.ndarray) -> np.ndarray:
    result = DenseKernel.rmatvec(self, p)
    p[0] += 1.0
    return result


BROKEN = {
    "is not finite": broken(row=lambda self, i: np.full(3, np.nan)),
    "is negative": broken(row=lambda self, i: np.array([1.5, -0.5, 0.0])),
    "sums of the rows": broken(row=lambda self, i: np.array([0.5, 0.0, 0.0])),
    r"row\(0\) gives \(2,\)": broken(row=lambda self, i: np.ones(2)),
    "float32": broken(row=lambda self, i: ROWS[i].astype(np.float32)),
    "p @ A is": broken(rmatvec=lambda self, p: p @ ROWS[::-1]),
    "A @ v is": broken(matvec=lambda self, v: ROWS.T @ v),
    "rmatvec gives list": broken(rmatvec=lambda self, p: [0.0]),
    "changes its argument": broken(rmatvec=_changing),
    "rows @ A is": broken(rmatmat=lambda self, p: np.zeros(np.shape(p))),
    "toarray": broken(toarray=lambda self: ROWS.T.copy()),
    r"diagonal\(\) is": broken(diagonal=lambda self: np.ones(3)),
    "is_causal is True": type("Broken", (DenseKernel,), {"is_causal": property(lambda self: True)})(
        np.full((2, 2), 0.5)
    ),
    "shape is": type("Broken", (DenseKernel,), {"shape": property(lambda self: (3,))})(ROWS),
    r"restrict\(1\) gives": broken(restrict=lambda self, n: self),
    "is accepted; an InputError is due": broken(
        rmatvec=lambda self, p: np.asarray(p, dtype=float)[:3] @ ROWS
    ),
    "the kernel of its description": broken(
        describe=lambda self: {"heads": [{"position": {"type": "nope"}}]}
    ),
}


@pytest.mark.parametrize("message", BROKEN)
def test_broken_rules_are_named(message: str) -> None:
    with pytest.raises(KernelContractError, match=message):
        check_kernel(BROKEN[message])


def test_returning_the_argument_is_found() -> None:
    kernel = type("Same", (DenseKernel,), {"rmatvec": lambda self, p: p})(np.eye(3))
    with pytest.raises(KernelContractError, match="returns its argument"):
        check_kernel(kernel)


def test_other_objects_are_no_kernels() -> None:
    with pytest.raises(KernelContractError, match="is no Kernel"):
        check_kernel(np.eye(2))  # type: ignore[arg-type]
    assert issubclass(KernelContractError, PosbiasError)


def test_a_sound_kernel_passes() -> None:
    assert check_kernel(broken()) is None


def test_a_failure_names_the_class_and_plain_numbers():
    class Doubled(DenseKernel):
        def matvec(self, v):
            return 2.0 * super().matvec(v)

    with pytest.raises(KernelContractError) as caught:
        check_kernel(Doubled(np.array([[1.0, 0.0], [0.5, 0.5]])))
    message = str(caught.value)
    assert message.startswith("Doubled: ")
    assert "where the rows give " in message
    assert "np.float64" not in message
