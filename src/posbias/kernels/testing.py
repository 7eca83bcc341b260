"""A test suite for any kernel, built in or of a user's own.

>>> from posbias.kernels import AttentionKernel, Head
>>> check_kernel(AttentionKernel(5, [Head(diagonal=1.0)]))
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from posbias.errors import InputError, PosbiasError
from posbias.kernels.base import Kernel
from posbias.kernels.description import kernel_from_description

__all__ = ["CHECKS", "KernelContractError", "check_kernel"]

Vector = NDArray[np.float64]
Matrix = NDArray[np.float64]


class KernelContractError(PosbiasError):
    """A kernel does not keep the contract of :class:`posbias.kernels.Kernel`."""


@dataclass(frozen=True)
class Case:
    """A kernel under test, its matrix built row by row, and test vectors.

    Parameters
    ----------
    kernel : Kernel
        The kernel.
    rows : ndarray, shape (n, n)
        Its rows.
    tolerance : float
        Largest absolute difference for vectors of unit size.
    vectors : tuple of ndarray, shape (n,)
        Probabilities (dense, spiked, of large range), and a vector of both signs.
    """

    kernel: Kernel
    rows: Matrix
    tolerance: float
    vectors: tuple[Vector, ...]


def check_kernel(kernel: Kernel, *, tolerance: float = 1e-10, seed: int = 0) -> None:
    """Check that a kernel keeps the contract of :class:`posbias.kernels.Kernel`.

    Parameters
    ----------
    kernel : Kernel
        Best one of at most a few hundred positions: cost O(n^2) and n calls of `row`.
    tolerance : float
        Largest absolute difference between a product and its naive sum over rows, for vectors
        whose absolute entries sum to at most one.
    seed : int
        Seed of the test vectors.

    Raises
    ------
    KernelContractError
        At the first broken rule; the message names the rule, the place and both values.
    """
    if not isinstance(kernel, Kernel):
        raise KernelContractError(f"{kernel!r} is no Kernel; derive from posbias.kernels.Kernel")
    n = kernel.n
    try:
        rows = np.stack([_array(kernel.row(i), (n,), f"row({i})") for i in range(n)])
        case = Case(kernel, rows, tolerance, _vectors(n, seed))
        for check in CHECKS:
            check(case)
    except KernelContractError as error:
        raise KernelContractError(f"{type(kernel).__name__}: {error}") from None


def rows_are_distributions(case: Case) -> None:
    """Check that rows are finite, non-negative and sum to one."""
    if not np.isfinite(case.rows).all():
        raise KernelContractError(f"row {_first(~np.isfinite(case.rows))} is not finite")
    if (case.rows < 0.0).any():
        raise KernelContractError(f"entry {_first(case.rows < 0.0)} is negative")
    _same(case, "the sums of the rows", case.rows.sum(axis=1), np.ones(case.kernel.n))


def products_match_rows(case: Case) -> None:
    """Check that ``rmatvec`` and ``matvec`` are the sums over the rows."""
    n = case.kernel.n
    for x in case.vectors:
        pushed = _array(case.kernel.rmatvec(x), (n,), "rmatvec")
        expected = np.zeros(n)
        for i in range(n):
            expected += x[i] * case.rows[i]
        _same(case, "p @ A", pushed, expected)
        pulled = _array(case.kernel.matvec(x), (n,), "matvec")
        _same(case, "A @ v", pulled, np.array([float(np.sum(row * x)) for row in case.rows]))


def products_keep_probability(case: Case) -> None:
    """Check that mass is kept, stays non-negative, and that constants are fixed."""
    for p in case.vectors[:-1]:
        pushed = case.kernel.rmatvec(p)
        if (pushed < -case.tolerance * 1e-3).any():
            raise KernelContractError(f"p @ A is negative at {_first(pushed < 0.0)} for p >= 0")
        _same(case, "the mass of p @ A", np.array([pushed.sum()]), np.array([p.sum()]))
    ones = np.ones(case.kernel.n)
    _same(case, "A @ 1", case.kernel.matvec(ones), ones)


def products_leave_input_alone(case: Case) -> None:
    """Check that inputs are not changed and results are new arrays, the same every time."""
    p = case.vectors[0].copy()
    for name in ("rmatvec", "matvec"):
        product = getattr(case.kernel, name)
        first = _array(product(p), (case.kernel.n,), name)
        kept = np.array(first)
        if not np.array_equal(p, case.vectors[0]):
            raise KernelContractError(f"{name} changes its argument")
        if np.shares_memory(first, p):
            raise KernelContractError(f"{name} returns its argument, not a new array")
        if first.flags.writeable:
            first[:] = np.nan
        _same(case, f"a second {name}", product(p), kept)


def stacked_products_match(case: Case) -> None:
    """Check that ``rmatmat`` is ``rmatvec`` of every row, also of none."""
    n = case.kernel.n
    stacked = np.stack(case.vectors)
    expected = np.stack([case.kernel.rmatvec(x) for x in case.vectors])
    result = _array(case.kernel.rmatmat(stacked), stacked.shape, "rmatmat")
    _same(case, "rows @ A", result, expected)
    _array(case.kernel.rmatmat(np.zeros((0, n))), (0, n), "rmatmat of no rows")


def dense_forms_match_rows(case: Case) -> None:
    """Check ``toarray``, ``diagonal`` and negative row numbers against the rows."""
    n = case.kernel.n
    _same(case, "toarray()", _array(case.kernel.toarray(), (n, n), "toarray"), case.rows)
    diagonal = _array(case.kernel.diagonal(), (n,), "diagonal")
    _same(case, "diagonal()", diagonal, np.array([case.rows[i, i] for i in range(n)]))
    _same(case, "row(-1)", case.kernel.row(-1), case.rows[n - 1])
    _same(case, "row(-n)", case.kernel.row(-n), case.rows[0])
    row = case.kernel.row(0)
    if row.flags.writeable:
        row[:] = np.nan
    _same(case, "row(0) after a change of its result", case.kernel.row(0), case.rows[0])


def causality_is_true(case: Case) -> None:
    """Check that a causal kernel has no weight above the diagonal."""
    above = np.triu(case.rows, 1) > 0.0
    if case.kernel.is_causal and above.any():
        raise KernelContractError(f"is_causal is True but entry {_first(above)} is positive")


def is_linear_operator(case: Case) -> None:
    """Check that ``shape`` and ``dtype`` are those of a SciPy linear operator."""
    n = case.kernel.n
    if case.kernel.shape != (n, n) or case.kernel.dtype != np.dtype(np.float64):
        raise KernelContractError(
            f"shape is {case.kernel.shape} and dtype {case.kernel.dtype}; ({n}, {n}) and float64 "
            "are required"
        )


def restriction_is_the_same_rule(case: Case) -> None:
    """Check that ``restrict`` gives a kernel, the leading block of a causal one."""
    kernel = case.kernel
    for size in sorted({1, (kernel.n + 1) // 2, kernel.n}):
        part = kernel.restrict(size)
        if not isinstance(part, Kernel) or part.n != size:
            raise KernelContractError(f"restrict({size}) gives {part!r}")
        block = _array(part.toarray(), (size, size), "toarray of a restriction")
        _same(case, f"row sums of restrict({size})", block.sum(axis=1), np.ones(size))
        if kernel.is_causal or size == kernel.n:
            _same(case, f"restrict({size})", block, case.rows[:size, :size])
    for wrong in (0, -1, kernel.n + 1, 1.5, True):
        _refuses(f"restrict({wrong!r})", kernel.restrict, wrong)


def wrong_input_is_refused(case: Case) -> None:
    """Check that wrong shapes, types and numbers raise `InputError`."""
    kernel, n = case.kernel, case.kernel.n
    wrong = {
        "one entry too many": np.ones(n + 1),
        "a matrix": np.ones((n, n + 1)),
        "NaN": np.full(n, np.nan),
        "infinity": np.full(n, np.inf),
        "booleans": np.ones(n, dtype=np.bool_),
        "complex numbers": np.ones(n, dtype=np.complex128),
        "text": np.full(n, "a"),
    }
    for what, x in wrong.items():
        _refuses(f"rmatvec of {what}", kernel.rmatvec, x)
        _refuses(f"matvec of {what}", kernel.matvec, x)
    for i in (n, -n - 1, 0.0, True):
        _refuses(f"row({i!r})", kernel.row, i)


def description_gives_it_back(case: Case) -> None:
    """Check that a description, if there is one, survives JSON and builds the same kernel."""
    try:
        description = case.kernel.describe()
    except InputError:
        return
    again = kernel_from_description(json.loads(json.dumps(description)), case.kernel.n)
    _same(case, "the kernel of its description", again.toarray(), case.rows)


CHECKS: tuple[Callable[[Case], None], ...] = (
    rows_are_distributions,
    products_leave_input_alone,
    products_match_rows,
    products_keep_probability,
    stacked_products_match,
    dense_forms_match_rows,
    causality_is_true,
    is_linear_operator,
    restriction_is_the_same_rule,
    wrong_input_is_refused,
    description_gives_it_back,
)
"""The rules, in the order in which `check_kernel` applies them."""


def _vectors(n: int, seed: int) -> tuple[Vector, ...]:
    """Return test vectors whose absolute entries sum to at most one."""
    rng = np.random.default_rng(seed)
    dense = rng.random(n) + 0.1
    wide = np.exp(-60.0 * rng.random(n))
    signed = rng.standard_normal(n)
    last = np.zeros(n)
    last[-1] = 1.0
    scaled = (dense / dense.sum(), wide / wide.sum(), last, signed / np.abs(signed).sum())
    return tuple(scaled)


def _array(result: object, shape: tuple[int, ...], what: str) -> NDArray[np.float64]:
    if not isinstance(result, np.ndarray) or result.dtype != np.float64 or result.shape != shape:
        given = getattr(result, "shape", type(result).__name__)
        kind = getattr(result, "dtype", "")
        raise KernelContractError(f"{what} gives {given} {kind}; a float64 array {shape} is due")
    return result


def _same(case: Case, what: str, given: NDArray[np.float64], due: NDArray[np.float64]) -> None:
    difference = np.abs(given - due)
    if not (difference <= case.tolerance).all():
        place = _first(~(difference <= case.tolerance))
        where = place[0] if len(place) == 1 else place
        raise KernelContractError(
            f"{what} is {given[place]:.12g} at {where}, where the rows give {due[place]:.12g}; "
            f"they may differ by {case.tolerance:g} at most"
        )


def _first(bad: NDArray[np.bool_]) -> tuple[int, ...]:
    return tuple(int(k) for k in np.argwhere(bad)[0])


def _refuses(what: str, method: Callable[..., object], argument: object) -> None:
    try:
        method(argument)
    except InputError:
        return
    raise KernelContractError(f"{what} is accepted; an InputError is due")
