"""Verdicts on infinite depth: does all mass end on token 0? (T5 and T6)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from posbias.errors import InputError
from posbias.kernels import AttentionKernel, Kernel
from posbias.theory.limit import closed_classes, limit_matrix
from posbias.theory.schedules import InfiniteSchedule
from posbias.theory.series import tail_log_product
from posbias.theory.verdict import PAPER, POSBIAS, Hypothesis, Verdict

__all__ = ["GrowingContent", "InfiniteDepth", "Outcome", "infinite_depth"]

Vector = NDArray[np.float64]
Outcome = Literal["collapse", "no collapse", "mixed", "undecided"]

_GROWING_HEAD = 20_000
_CLAIMS: dict[Outcome, str] = {
    "collapse": "all mass reaches token 0",
    "no collapse": "every row i >= 1 keeps mass away from token 0",
    "mixed": "some rows keep mass away from token 0, others leave their position for good",
    "undecided": "all mass reaches token 0",
}


@dataclass(frozen=True)
class GrowingContent:
    """A kernel whose diagonal content grows with depth: layer t adds rate * log(t) to d.

    Parameters
    ----------
    kernel : AttentionKernel
        One head, causal; its own diagonal content is that of layer 1.
    rate : float
        c >= 0 in d_t = d + c log t.

    Raises
    ------
    InputError
        If the kernel has several heads, is not causal, or the rate is negative.
    """

    kernel: AttentionKernel
    rate: float

    def __post_init__(self) -> None:
        if len(self.kernel.heads) != 1 or not self.kernel.is_causal:
            raise InputError("growing content is defined for one head under a causal mask")
        if not 0.0 <= self.rate < np.inf:
            raise InputError(f"the rate of growing content is {self.rate:g}; it must be >= 0")

    @property
    def exponent(self) -> float:
        """The odds of staying grow like t to this power."""
        return float(self.rate / self.kernel.temperature)

    def odds_of_leaving(self) -> Vector:
        """Return (1 - A[i, i]) / A[i, i] of layer 1, shape (n,)."""
        diagonal = self.kernel.diagonal()
        return np.asarray((1.0 - diagonal) / diagonal)


@dataclass(frozen=True, kw_only=True)
class InfiniteDepth(Verdict):
    """The verdict on infinitely many layers.

    Parameters
    ----------
    outcome : str
        ``"collapse"``: every row ends on token 0. ``"no collapse"``: every row i >= 1 keeps mass
        elsewhere. ``"mixed"``: some rows leave their own position for good, others keep mass.
        ``"undecided"``: no theorem applies; the hypotheses say why.
    sum_lambda_diverges : bool
        Whether sum_t lambda_t is infinite; by itself this decides nothing.
    row_diverges : tuple of bool
        Whether sum_t h_t(i) is infinite, for every row.
    diagonal : ndarray or None
        lim P[i, i] for every row, shape (n,); None when it was not computed.
    """

    outcome: Outcome
    sum_lambda_diverges: bool
    row_diverges: tuple[bool, ...]
    diagonal: Vector | None

    @property
    def collapses(self) -> bool | None:
        """Whether all rows end on token 0; None when undecided."""
        return None if self.outcome == "undecided" else self.outcome == "collapse"

    def as_dict(self) -> dict[str, Any]:
        """Return the verdict as JSON-serialisable values."""
        values = super().as_dict()
        values["diagonal"] = None if self.diagonal is None else self.diagonal.tolist()
        values["row_diverges"] = list(self.row_diverges)
        return values


def infinite_depth(
    kernels: Kernel | Sequence[Kernel] | GrowingContent, schedule: InfiniteSchedule
) -> InfiniteDepth:
    """Decide what infinitely many layers do to the influence profile.

    Parameters
    ----------
    kernels : Kernel, sequence of Kernel, or GrowingContent
        One kernel for all layers, kernels repeated in turn for ever, or content that grows.
    schedule : InfiniteSchedule
        The mixing coefficients of all layers.

    Returns
    -------
    InfiniteDepth
        By T6: with all h_t(i) = lambda_t (1 - A_t[i, i]) < 1 the mass collapses if and only if
        sum_t h_t(i) is infinite for every i >= 1. By T5, lim P[i, i] = prod_t (1 - h_t(i)).
        Cost O(n) per early layer; kernels that are not causal O(n^3).

    Examples
    --------
    >>> from posbias.kernels import AttentionKernel, Head
    >>> nope = AttentionKernel(12, (Head(),))
    >>> infinite_depth(nope, InfiniteSchedule.power(0.9, 2.0)).outcome
    'no collapse'
    >>> infinite_depth(nope, InfiniteSchedule.power(0.9, 1.0)).outcome
    'collapse'
    """
    if isinstance(kernels, GrowingContent):
        return _growing(kernels, schedule)
    cycle = (kernels,) if isinstance(kernels, Kernel) else tuple(kernels)
    if not cycle or len({k.n for k in cycle}) != 1:
        raise InputError("infinite depth needs at least one kernel, all of the same n")
    if all(kernel.is_causal for kernel in cycle):
        return _causal(cycle, schedule)
    return _general(cycle, schedule)


def _causal(cycle: tuple[Kernel, ...], schedule: InfiniteSchedule) -> InfiniteDepth:
    moved = np.stack([1.0 - kernel.diagonal() for kernel in cycle])
    moved[:, 0] = 0.0
    diverges = np.asarray((moved > 0.0).any(axis=0) & schedule.sum_diverges)
    diagonal = np.ones(moved.shape[1])
    surely = np.zeros(moved.shape[1], dtype=bool)
    # Rules do not increase, so a rule that reaches one does so in its first layers; where the sum
    # diverges every row that moves is settled already.
    count = 0 if schedule.sum_diverges else schedule.head_length() + len(cycle)
    ones = schedule.values(count) == 1.0
    for c, x in enumerate(moved):
        diagonal *= schedule.thinned_product(x, offset=c, step=len(cycle))
        surely |= (x == 1.0) & bool(ones[c :: len(cycle)].any())
    return _by_rows(schedule, diverges, surely, diagonal)


def _growing(family: GrowingContent, schedule: InfiniteSchedule) -> InfiniteDepth:
    """h_t(i) = lambda_t S_i / (t^c + S_i): of order lambda_t t^-c."""
    odds = family.odds_of_leaving()
    odds[0] = 0.0
    flat = schedule.rule == "constant"
    order = family.exponent + (0.0 if flat else schedule.exponent)
    summable = schedule.scale == 0.0 or schedule.rule == "exponential" or order > 1.0
    diverges = (odds > 0.0) & (not summable)
    head = max(len(schedule.first), _GROWING_HEAD)
    time = np.arange(1.0, head + 1.0)
    lam = schedule.values(head)
    log_product = np.zeros(odds.size)
    for i in np.flatnonzero((odds > 0.0) & ~diverges):
        stays = 1.0 - lam * odds[i] / (time**family.exponent + odds[i])
        log_product[i] = np.log(stays).sum() + tail_log_product(
            schedule, odds[i], growth=family.exponent, start=head
        )
    diagonal = np.where(diverges, 0.0, np.exp(log_product))
    return _by_rows(schedule, diverges, np.zeros(odds.size, dtype=bool), diagonal)


def _by_rows(
    schedule: InfiniteSchedule,
    diverges: NDArray[np.bool_],
    surely: NDArray[np.bool_],
    diagonal: Vector,
) -> InfiniteDepth:
    """Apply T6 row by row; `surely` marks rows that some layer empties completely."""
    rows = slice(1, None)
    stuck = ~diverges & ~surely
    stuck[0] = False
    open_rows = np.flatnonzero(~diverges[rows] & surely[rows]) + 1
    outcome: Outcome
    if diverges[rows].all():
        outcome = "collapse"
    elif not stuck.any():
        outcome = "undecided"
    else:
        outcome = "mixed" if diverges.any() or open_rows.size else "no collapse"
    divergent = Hypothesis(
        "sum_t h_t(i) diverges for every i >= 1",
        bool(diverges[rows].all()),
        _first_row(np.flatnonzero(~diverges[rows]) + 1, "it is finite in row"),
    )
    partial = Hypothesis(
        "a row with a finite sum has every h_t(i) < 1",
        bool(stuck.any()),
        _first_row(open_rows, "some layer moves all mass of row"),
    )
    needed = (divergent,) if outcome == "collapse" else (partial,)
    return InfiniteDepth(
        claim=_CLAIMS[outcome],
        theorem="T6" if outcome in ("collapse", "undecided") else "T5, T6",
        source=PAPER if outcome == "no collapse" and not schedule.sum_diverges else POSBIAS,
        hypotheses=needed,
        guaranteed=outcome != "undecided",
        holds_numerically=None if outcome == "undecided" else True,
        margin=float(diagonal[rows].min()) if outcome == "no collapse" else None,
        witness={"rows with a finite sum": int(np.count_nonzero(~diverges[rows]))},
        outcome=outcome,
        sum_lambda_diverges=schedule.sum_diverges,
        row_diverges=tuple(bool(x) for x in diverges),
        diagonal=diagonal,
    )


def _general(cycle: tuple[Kernel, ...], schedule: InfiniteSchedule) -> InfiniteDepth:
    """Kernels that look ahead: absorption of one shared chain, or undecided."""
    n = cycle[0].n
    shared = Hypothesis("all layers share one kernel", len(cycle) == 1, f"{len(cycle)} kernels")
    outcome: Outcome = "undecided"
    diagonal = None
    hypotheses: tuple[Hypothesis, ...] = (shared,)
    if shared.holds:
        array = cycle[0].toarray()
        limit = limit_matrix(cycle[0], schedule)
        diagonal = np.diag(limit).copy()
        if schedule.sum_diverges:
            classes = closed_classes(array)
            only = len(classes) == 1 and classes[0].tolist() == [0]
            outcome = "collapse" if only else _split(limit)
            detail = f"the closed classes start {[c[:4].tolist() for c in classes[:4]]}"
            found = "token 0 is the only closed class" if only else "another closed class exists"
            hypotheses += (Hypothesis(found, True, detail),)
        else:
            outcome = "collapse" if np.all(limit[1:, 0] >= 1.0 - 1e-12) else _split(limit)
            most = f"largest share of a row i >= 1 on token 0: {limit[1:, 0].max():.3g}"
            hypotheses += (Hypothesis("the limit matrix was formed", True, most),)
    return InfiniteDepth(
        claim=_CLAIMS[outcome],
        theorem="absorption of a finite Markov chain",
        source=POSBIAS,
        hypotheses=hypotheses,
        guaranteed=shared.holds,
        holds_numerically=True if shared.holds else None,
        outcome=outcome,
        sum_lambda_diverges=schedule.sum_diverges,
        row_diverges=(schedule.sum_diverges,) * n,
        diagonal=diagonal,
    )


def _split(limit: NDArray[np.float64]) -> Outcome:
    """Tell whether no row or only some rows end on token 0."""
    return "mixed" if np.any(limit[1:, 0] >= 1.0 - 1e-12) else "no collapse"


def _first_row(rows: NDArray[np.intp], text: str) -> str:
    return f"{text} {int(rows[0])}" if rows.size else ""
