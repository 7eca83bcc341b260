"""Is one rollout guaranteed to be earlier than another? Theorems T1 to T4, hypotheses checked."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from posbias.errors import InputError
from posbias.kernels import AttentionKernel
from posbias.rollout import Rollout
from posbias.theory.closed_forms import poisson_binomial
from posbias.theory.layers import is_causal
from posbias.theory.logit_order import is_content_change, same_kernel
from posbias.theory.order import ORDER_TOLERANCE, StochasticOrder, stochastic_order
from posbias.theory.transitions import EXACT, TransitionCache, Transitions
from posbias.theory.verdict import POSBIAS, Hypothesis, Verdict

__all__ = ["OrderVerdict", "compare_rollouts"]

Matrix = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class OrderVerdict(Verdict):
    """Whether one rollout is earlier than another: the numbers and the guarantee.

    Parameters
    ----------
    row : int
        Query whose profiles were compared.
    order : StochasticOrder
        The numbers, both directions.
    """

    row: int
    order: StochasticOrder

    def as_dict(self) -> dict[str, Any]:
        """Return the verdict as JSON-serialisable values."""
        return {**super().as_dict(), "order": self.order.as_dict()}


def compare_rollouts(
    a: Rollout,
    b: Rollout,
    *,
    row: int = -1,
    tolerance: float = ORDER_TOLERANCE,
    cache: TransitionCache | None = None,
    labels: tuple[str, str] = ("a", "b"),
) -> OrderVerdict:
    """Check the claim "the profile of a is earlier than the profile of b".

    The guarantee is derived from the layers alone. Two ways lead to it:

    * *shared jumps* (T1'): all layers of both rollouts are causal and share the off-diagonal
      law, and every layer of b has its own layer of a, in order, with h_t(i) at least as large;
      for one shared kernel it is enough that the number of attention steps is stochastically
      larger (T8).
    * *monotone layers* (T1 to T4): the layers of b are matched, in order, with layers of a that
      are earlier row by row, the other layers of a are causal insertions, and every matched
      layer below the topmost change is monotone in a or in b. The layers are then exchanged one
      by one, each when the layers below it are monotone.

    Parameters
    ----------
    a, b : Rollout
        Two rollouts of the same n.
    row : int
        Query; negative counts from the end.
    tolerance : float
        Numeric violations up to this size count as rounding.
    cache : TransitionCache, optional
        What is known about kernels, kept between calls on rollouts that share some.
    labels : pair of str
        What the texts of the verdict call the two rollouts.

    Returns
    -------
    OrderVerdict
        Cost O(T n^2), at worst O(T^2 n^2) for rollouts that differ in depth.

    Raises
    ------
    InputError
        If the rollouts have different n or the row does not exist.

    Examples
    --------
    >>> from posbias.kernels import AttentionKernel
    >>> from posbias.rollout import MixingSchedule
    >>> kernel = AttentionKernel.alibi(32, (0.3,))
    >>> deep = Rollout([kernel], MixingSchedule.constant(7, 0.4))
    >>> flat = Rollout([kernel], MixingSchedule.constant(6, 0.4))
    >>> verdict = compare_rollouts(deep, flat)
    >>> verdict.guaranteed, verdict.holds_numerically
    (True, True)
    """
    if a.n != b.n or not -a.n <= row < a.n:
        raise InputError(
            f"rollouts over {a.n} and {b.n} positions, row {row}: equal lengths and a row among "
            "them are required"
        )
    query = row % a.n
    order = stochastic_order(a.profile(query), b.profile(query), tolerance=tolerance)
    size = query + 1 if is_causal(a) and is_causal(b) else a.n
    first, second = (Transitions(x, size, cache=cache) for x in (a, b))
    changes = _changes(first, second)
    tries = (_shared_kernel_route, _shared_jump_route, _monotone_route)
    found, suffix = _first_success(tries, first, second)
    hypotheses = tuple(_labelled(hypothesis, labels) for hypothesis in found)
    return OrderVerdict(
        claim=f"{labels[0]} is earlier than {labels[1]}",
        theorem=f"{changes}{suffix}",
        source=POSBIAS,
        hypotheses=hypotheses,
        guaranteed=all(h.holds for h in hypotheses),
        holds_numerically=order.holds,
        margin=order.margin,
        witness={"position": order.witness},
        row=query,
        order=order,
    )


def _labelled(hypothesis: Hypothesis, labels: tuple[str, str]) -> Hypothesis:
    """Fill the names of the rollouts into the texts."""
    name, detail = (
        text.format(a=labels[0], b=labels[1]) for text in (hypothesis.name, hypothesis.detail)
    )
    return replace(hypothesis, name=name, detail=detail)


Hypotheses = tuple[Hypothesis, ...]
Route = Callable[[Transitions, Transitions], tuple[Hypotheses, str]]


def _first_success(
    routes: tuple[Route, ...], a: Transitions, b: Transitions
) -> tuple[Hypotheses, str]:
    """Return the first route whose hypotheses all hold, else the last one."""
    result: tuple[Hypotheses, str] = ((), "")
    for route in routes:
        result = route(a, b)
        if all(h.holds for h in result[0]):
            return result
    return result


def _changes(a: Transitions, b: Transitions) -> str:
    """Name the theorems that speak about what differs between a and b."""
    if a.depth != b.depth:
        return "T1"
    names = []
    if not np.array_equal(a.mixing, b.mixing):
        names.append("T2")
    changed = [t for t in range(a.depth) if _has_changed(a, b, t)]
    if changed:
        content = all(is_content_change(a.kernels[t], b.kernels[t]) for t in changed)
        names.append("T4" if content else "T3")
    return ", ".join(names) or "identity"


def _has_changed(a: Transitions, b: Transitions, t: int) -> bool:
    """Whether layer t has another kernel in b; structured ones are compared by description."""
    x, y = a.kernels[t], b.kernels[t]
    if isinstance(x, AttentionKernel) and isinstance(y, AttentionKernel):
        return not same_kernel(x, y)
    return not a.has_kernel(t, b, t)


def _shared_kernel_route(a: Transitions, b: Transitions) -> tuple[Hypotheses, str]:
    """T8: one causal kernel in all layers of both; compare the numbers of attention steps."""
    suffix = " by T8 (one shared kernel)"
    causal = Hypothesis("all layers are causal", a.is_causal and b.is_causal)
    shared = _shares_kernel(a, b)
    even = all((m == m[:, :1]).all() for m in (a.mixing, b.mixing))
    scalar = Hypothesis("one mixing coefficient per layer", even)
    if not (causal.holds and shared.holds and scalar.holds):
        return (causal, shared, scalar), suffix
    more, less = (np.cumsum(poisson_binomial(x.mixing[:, 0])) for x in (a, b))
    size = max(more.size, less.size)
    more, less = (np.pad(x, (0, size - x.size), constant_values=1.0) for x in (more, less))
    gap = float((less - more).min())
    steps = Hypothesis(
        "{a} takes stochastically more attention steps", gap >= -EXACT, f"smallest slack {gap:.3g}"
    )
    return (causal, shared, scalar, steps), suffix


def _shared_jump_route(a: Transitions, b: Transitions) -> tuple[Hypotheses, str]:
    """T1': one off-diagonal law everywhere; embed the h of b in those of a, in order."""
    suffix = " under T1' (shared off-diagonal law)"
    causal = Hypothesis("all layers are causal", a.is_causal and b.is_causal)
    if not causal.holds:
        return (causal,), suffix
    shared = _shares_jumps(a, b)
    if not shared.holds:
        return (causal, shared), suffix
    unmatched = [b.leaving(s) for s in range(b.depth)]
    unmatched = [h for h in unmatched if (h > 0.0).any()]
    for t in reversed(range(a.depth)):
        if unmatched and (a.leaving(t) >= unmatched[-1] - EXACT).all():
            unmatched.pop()
    name = "every layer of {b} has a layer of {a}, in order, with h at least as large"
    moves = Hypothesis(name, not unmatched, f"{len(unmatched)} layers of {{b}} have none")
    return (causal, shared, moves), suffix


def _shares_kernel(a: Transitions, b: Transitions) -> Hypothesis:
    """Compare every moving layer of a and b with the first moving one."""
    name = "one kernel is shared by all layers"
    moving = _moving_layers(a, b)
    for x, t in moving[1:]:
        if not x.has_kernel(t, *moving[0]):
            return Hypothesis(name, False, f"layer {t + 1} of {'{a}' if x is a else '{b}'} differs")
    return Hypothesis(name, True)


def _shares_jumps(a: Transitions, b: Transitions) -> Hypothesis:
    """Compare the off-diagonal laws; rows that never move in a layer take any law there."""
    name = "all layers share the off-diagonal law"
    if not (a.fits and b.fits):
        return Hypothesis(name, False, "not checked: matrices of this length do not fit")
    known: Matrix | None = None
    seen: set[int] = set()
    moving = _moving_layers(a, b)
    # The last row settles most negative answers without the matrices.
    last = [x.jump_row(t) for x, t in (moving[0], moving[-1])] if moving else []
    if last and np.any(np.abs(last[0] - last[1]) > EXACT):
        return Hypothesis(name, False, "the first layer of {a} and the last of {b} differ")
    for x, t in moving:
        if id(x.kernels[t]) in seen:
            continue
        seen.add(id(x.kernels[t]))
        law = x.jump_law(t)
        if known is not None and np.any(np.abs(law - known) > EXACT):
            return Hypothesis(name, False, f"layer {t + 1} of {'{a}' if x is a else '{b}'} differs")
        known = law if known is None else np.where(np.isnan(known), law, known)
    return Hypothesis(name, True)


def _moving_layers(a: Transitions, b: Transitions) -> list[tuple[Transitions, int]]:
    return [(x, t) for x in (a, b) for t in range(x.depth) if not x.is_identity(t)]


def _monotone_route(a: Transitions, b: Transitions) -> tuple[Hypotheses, str]:
    """T1 to T4: match layers, check row orders and monotonicity below the topmost change."""
    layers_a = [t for t in range(a.depth) if not a.is_identity(t)]
    layers_b = [s for s in range(b.depth) if not b.is_identity(s)]
    while layers_a and layers_b and a.is_equal(layers_a[-1], b, layers_b[-1]):
        layers_a.pop()
        layers_b.pop()
    extra = len(layers_a) - len(layers_b)
    room = Hypothesis(
        "{a} has at least as many layers that move",
        extra >= 0,
        f"{-extra} more in {{b}}" * (extra < 0),
    )
    if not room.holds:
        return (room,), ""
    return (room, *_Matching(a, b, layers_a, layers_b).find()), ""


class _Matching:
    """Search for an order-preserving matching of the layers of b with layers of a.

    Unmatched layers of a are insertions. The topmost slot needs only its row order; every lower
    matched slot must also be monotone on one side.
    """

    def __init__(
        self, a: Transitions, b: Transitions, layers_a: list[int], layers_b: list[int]
    ) -> None:
        self.a, self.b = a, b
        self.layers_a, self.layers_b = layers_a, layers_b

    def find(self) -> Hypotheses:
        """Return the hypotheses on insertions, row order and monotonicity for the best matching.

        A matching that inserts layers which look ahead is no matching, but it tells what fails.
        """
        strictly = self._reaches(self._is_ordered)
        ordered = strictly or self._reaches(self._is_ordered, any_insertion=True)
        complete = strictly and self._reaches(self._is_good)
        causal = Hypothesis(
            "inserted layers are causal",
            strictly or not self._insertable_ahead(),
            "" if strictly else self._insertable_ahead(),
        )
        order = Hypothesis(
            "every matched layer is earlier in {a}, row by row",
            ordered,
            "" if ordered else self._first_unordered(),
        )
        if not strictly:
            return tuple(h for h in (causal, order) if h.detail or h.holds)
        monotone = Hypothesis(
            "every layer below the topmost change is monotone in {a} or in {b}",
            complete,
            "" if complete else self._first_not_monotone(),
        )
        return causal, order, monotone

    def _insertable_ahead(self) -> str:
        """Name the layers that may have to be inserted and look ahead, if there are any."""
        if len(self.layers_a) == len(self.layers_b):
            return ""
        ahead = [t + 1 for t in self.layers_a if not self.a.kernels[t].is_causal]
        if not ahead:
            return ""
        many = f"layers {', '.join(map(str, ahead[:4]))}{', ...' if len(ahead) > 4 else ''}"
        which = (
            f"{many} of {{a}} attend" if len(ahead) > 1 else f"layer {ahead[0]} of {{a}} attends"
        )
        return f"{which} to later positions"

    def _reaches(self, allowed: Callable[[int, int], bool], *, any_insertion: bool = False) -> bool:
        """Whether all of b can be matched, over the band of possible insertions."""
        x_top, y_top = len(self.layers_a), len(self.layers_b)
        extra = x_top - y_top
        seen: set[tuple[int, int]] = set()
        open_ends = [(0, 0)]
        while open_ends:
            x, y = open_ends.pop()
            if (x, y) == (x_top, y_top):
                return True
            if (x, y) in seen:
                continue
            seen.add((x, y))
            if x < y + extra and (any_insertion or self.a.kernels[self.layers_a[x]].is_causal):
                open_ends.append((x + 1, y))
            # Tried first: layers that did not change match at no cost.
            if y < y_top and x < x_top and allowed(x, y):
                open_ends.append((x + 1, y + 1))
        return False

    def _is_ordered(self, x: int, y: int) -> bool:
        return self.a.is_row_order(self.layers_a[x], self.b, self.layers_b[y])

    def _is_good(self, x: int, y: int) -> bool:
        t, s = self.layers_a[x], self.layers_b[y]
        is_top = x == len(self.layers_a) - 1
        return self._is_ordered(x, y) and (is_top or self.a.is_monotone(t) or self.b.is_monotone(s))

    def _first_unordered(self) -> str:
        if not (self.a.fits and self.b.fits):
            return "not checked: the matrices of this length do not fit; restrict n"
        if len(self.layers_a) != len(self.layers_b):
            return "no layers of {a} can be matched with those of {b}"
        bad = next(x for x in range(len(self.layers_a)) if not self._is_ordered(x, x))
        return f"layer {self.layers_a[bad] + 1} is not"

    def _first_not_monotone(self) -> str:
        bad = next((s for s in self.layers_b if not self.b.is_monotone(s)), None)
        return "a layer of {a} is not" if bad is None else f"layer {bad + 1} of {{b}} is not"
