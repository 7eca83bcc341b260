"""The four forces on a profile: mask depth, residual, position encoding and content."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from posbias.errors import InputError
from posbias.kernels import Kernel
from posbias.metrics import wasserstein
from posbias.profile import Profile
from posbias.rollout import MixingSchedule, Rollout
from posbias.theory.edits import (
    has_content,
    has_position,
    is_structured,
    scale_content,
    scale_position,
)
from posbias.theory.guarantees import OrderVerdict, compare_rollouts
from posbias.theory.layers import layer_kernels
from posbias.theory.order import mean_position
from posbias.theory.transitions import TransitionCache

__all__ = ["FORCES", "Force", "ForcesReport", "Shift", "forces"]

FORCES = ("depth", "residual", "position", "content")
"""The forces in the order in which they are shown."""


@dataclass(frozen=True, eq=False)
class Shift:
    """How a changed profile lies to the baseline.

    Parameters
    ----------
    profile : Profile
        The changed profile.
    direction : str
        ``"earlier"``, ``"later"``, or ``"neither"`` when the two cross or agree.
    signed_w1 : float
        Wasserstein-1 distance over n-1, negative when the mean position falls.
    mean_change : float
        Change of the mean position, in positions.
    """

    profile: Profile
    direction: str
    signed_w1: float
    mean_change: float


@dataclass(frozen=True, eq=False)
class Force:
    """One force: what strengthening it and removing it do to the profile.

    Parameters
    ----------
    name : str
        One of `FORCES`.
    note : str
        The change made, or why the force does not apply.
    strengthened : Shift or None
        After strengthening; None when the force does not apply.
    verdict : OrderVerdict or None
        Whether a theorem guarantees the direction of the strengthening.
    removed_note : str
        What removing the force means.
    removed : Shift or None
        After removal.
    """

    name: str
    note: str
    strengthened: Shift | None
    verdict: OrderVerdict | None
    removed_note: str
    removed: Shift | None

    @property
    def applies(self) -> bool:
        """Whether the force is there and its effect was computed."""
        return self.strengthened is not None

    @property
    def guarantee(self) -> str:
        """The theorem that guarantees the direction, or ``"not guaranteed"`` with the reason."""
        if self.verdict is None:
            return "not applicable"
        if self.verdict.guaranteed:
            return self.verdict.theorem
        return "not guaranteed: " + "; ".join(
            f"{h.name} ({h.detail})" if h.detail else h.name for h in self.verdict.failed
        )


@dataclass(frozen=True, eq=False)
class ForcesReport:
    """The effect of every force on one profile.

    Parameters
    ----------
    baseline : Profile
        The profile of the rollout itself.
    query : int
        Row.
    strength : float
        Relative strengthening of residual, position and content; depth gains one layer.
    effects : tuple of Force
        In the order of `FORCES`.
    """

    baseline: Profile
    query: int
    strength: float
    effects: tuple[Force, ...]

    def __getitem__(self, name: str) -> Force:
        for effect in self.effects:
            if effect.name == name:
                return effect
        raise InputError(f"there is no force {name!r}; the forces are {', '.join(FORCES)}")

    def to_rows(self) -> list[dict[str, Any]]:
        """Return one row per force for a table; figures that do not apply are None."""
        return [_row(effect) for effect in self.effects]

    def as_dict(self) -> dict[str, Any]:
        """Return the report with all profiles and verdicts as JSON-serialisable values."""
        effects = []
        for effect in self.effects:
            entry = _row(effect)
            entry["verdict"] = None if effect.verdict is None else effect.verdict.as_dict()
            for key, shift in (("strengthened", effect.strengthened), ("removed", effect.removed)):
                entry[f"{key} profile"] = None if shift is None else shift.profile.mass.tolist()
            effects.append(entry)
        return {
            "query": self.query,
            "strength": self.strength,
            "baseline": self.baseline.mass.tolist(),
            "baseline mean position": mean_position(self.baseline),
            "forces": effects,
        }


def forces(
    rollout: Rollout, *, query: int = -1, strength: float = 0.1, structured: Rollout | None = None
) -> ForcesReport:
    """Strengthen and remove each force in turn.

    * depth: one copy of the top layer is added above it; removed, the top layer stands alone.
    * residual: every lambda_t is multiplied by 1 - strength; removed, lambda_t = 1.
    * position: every position logit is multiplied by 1 + strength; removed, there is none.
    * content: diagonal, key and sink logits are multiplied by 1 + strength; removed, there are
      none. A negative diagonal grows more negative, so the expected direction may be earlier.

    Parameters
    ----------
    rollout : Rollout
        Depth and residual apply to any kernels.
    query : int
        Row; negative counts from the end.
    strength : float
        In (0, 1).
    structured : Rollout, optional
        Rollout of structured kernels to use for position and content when those of `rollout`
        are measured as a whole; its effects are relative to its own profile.

    Returns
    -------
    ForcesReport
        Cost O(T n^2) for the checks of the theorems, O(T n) per profile.

    Raises
    ------
    InputError
        If `strength` is outside (0, 1) or the row does not exist.

    Examples
    --------
    >>> from posbias.kernels import AttentionKernel
    >>> kernel = AttentionKernel.alibi(32, (0.3,), diagonal=0.5)
    >>> report = forces(Rollout([kernel], MixingSchedule.constant(6, 0.4)))
    >>> [(f.name, f.strengthened.direction, f.guarantee[:2]) for f in report.effects]
    [('depth', 'earlier', 'T1'), ('residual', 'later', 'T2'), ('position', 'later', 'T3'),
     ('content', 'later', 'T4')]
    """
    if not 0.0 < strength < 1.0:
        raise InputError(f"the strength is {strength:g}; a number between 0 and 1 is required")
    if not -rollout.n <= query < rollout.n:
        raise InputError(f"the query is {query}; a position in 0..{rollout.n - 1} is required")
    work = _Workbench(rollout, query % rollout.n)
    other = work if structured is None else _Workbench(structured, query % structured.n)
    return ForcesReport(
        baseline=work.profile,
        query=work.row,
        strength=strength,
        effects=(
            _depth_force(work),
            _residual_force(work, strength),
            _logit_force(other, "position", strength),
            _logit_force(other, "content", strength),
        ),
    )


class _Workbench:
    """A rollout with its profile and the matrices shared by all comparisons."""

    def __init__(self, rollout: Rollout, row: int) -> None:
        self.rollout, self.row = rollout, row
        self.cache = TransitionCache()
        self.profile = rollout.profile(row)

    def shift(self, changed: Rollout) -> Shift:
        """Compare the profile of a changed rollout with the baseline."""
        return _shift(self.profile, changed.profile(self.row))

    def verdict(self, changed: Rollout) -> OrderVerdict:
        """Return the guaranteed direction, or the one that the mean positions show."""
        names = ("the rollout with the force strengthened", "the rollout as given")
        earlier = compare_rollouts(
            changed, self.rollout, row=self.row, cache=self.cache, labels=names
        )
        if earlier.guaranteed and earlier.order.direction != "neither":
            return earlier
        later = compare_rollouts(
            self.rollout, changed, row=self.row, cache=self.cache, labels=names[::-1]
        )
        if later.guaranteed:
            return later
        return earlier if earlier.order.mean_first < earlier.order.mean_second else later

    def force(self, name: str, note: str, changed: Rollout, removal: tuple[str, Rollout]) -> Force:
        """Assemble one force from the strengthened and the removed rollout."""
        return Force(
            name=name,
            note=note,
            strengthened=self.shift(changed),
            verdict=self.verdict(changed),
            removed_note=removal[0],
            removed=self.shift(removal[1]),
        )


def _depth_force(work: _Workbench) -> Force:
    kernels = layer_kernels(work.rollout)
    values = np.asarray(work.rollout.schedule.values)
    deeper = Rollout((*kernels, kernels[-1]), MixingSchedule(np.concatenate([values, values[-1:]])))
    alone = Rollout([kernels[-1]], MixingSchedule(values[-1:]))
    removal = ("the top layer alone", alone)
    return work.force("depth", "one more layer like the top one, above it", deeper, removal)


def _residual_force(work: _Workbench, strength: float) -> Force:
    values = np.asarray(work.rollout.schedule.values)
    kernels = work.rollout.kernels
    weaker = Rollout(kernels, MixingSchedule((1.0 - strength) * values))
    bare = Rollout(kernels, MixingSchedule(np.ones_like(values)))
    note = f"every lambda multiplied by {1.0 - strength:g}"
    return work.force("residual", note, weaker, ("lambda = 1 in every layer", bare))


def _logit_force(work: _Workbench, name: str, strength: float) -> Force:
    kernels = work.rollout.kernels
    present, scale = {
        "position": (has_position, scale_position),
        "content": (has_content, scale_content),
    }[name]
    if not all(is_structured(kernel) for kernel in kernels):
        reason = (
            "not applicable: the kernels are measured as a whole, position and content are not "
            "known apart; pass a rollout of structured kernels"
        )
        return Force(name, reason, None, None, "", None)
    if not any(present(kernel) for kernel in kernels):
        return Force(name, f"not applicable: no layer has any {name} term", None, None, "", None)
    stronger = _mapped(work.rollout, lambda kernel: scale(kernel, 1.0 + strength))
    without = _mapped(work.rollout, lambda kernel: scale(kernel, 0.0))
    note = f"every {name} logit multiplied by {1.0 + strength:g}"
    return work.force(name, note, stronger, (f"no {name} term", without))


def _mapped(rollout: Rollout, change: Callable[[Kernel], Kernel]) -> Rollout:
    """Return the rollout with every distinct kernel changed once."""
    changed: dict[int, Kernel] = {}
    for kernel in rollout.kernels:
        if id(kernel) not in changed:
            changed[id(kernel)] = change(kernel)
    return Rollout([changed[id(kernel)] for kernel in rollout.kernels], rollout.schedule)


def _shift(baseline: Profile, changed: Profile) -> Shift:
    from posbias.theory.order import stochastic_order

    order = stochastic_order(baseline, changed)
    change = order.mean_second - order.mean_first
    distance = float(wasserstein(baseline, changed))
    return Shift(
        profile=changed,
        direction=order.direction,
        signed_w1=-distance if change < 0.0 else distance,
        mean_change=change,
    )


def _row(effect: Force) -> dict[str, Any]:
    row: dict[str, Any] = {"force": effect.name, "change": effect.note}
    for key, shift in (("strengthened", effect.strengthened), ("removed", effect.removed)):
        row[f"{key} direction"] = None if shift is None else shift.direction
        row[f"{key} signed W1"] = None if shift is None else shift.signed_w1
        row[f"{key} mean change"] = None if shift is None else shift.mean_change
    row["guarantee"] = effect.guarantee
    row["removal"] = effect.removed_note
    return row
