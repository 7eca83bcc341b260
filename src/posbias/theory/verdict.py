"""What a check of a theorem returns: the claim, its hypotheses, and what the numbers say."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

__all__ = ["PAPER", "POSBIAS", "Hypothesis", "Verdict"]

PAPER = "arXiv 2602.16837"
"""Source of the claims taken from *A Structural Theory of Position Bias in Transformers*."""

POSBIAS = "posbias"
"""Source of the claims that this package adds; the pages under docs/theory state them."""


@dataclass(frozen=True)
class Hypothesis:
    """One hypothesis of a theorem and whether it was found to hold.

    Parameters
    ----------
    name : str
        The hypothesis in words.
    holds : bool
        True only if it was checked and holds; a hypothesis that could not be checked does not.
    detail : str
        How it was checked, and the first place where it fails.
    """

    name: str
    holds: bool
    detail: str = ""


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """The outcome of one claim.

    Parameters
    ----------
    claim : str
        The statement, e.g. ``"a is earlier than b"``.
    theorem : str
        The theorem that would guarantee it, e.g. ``"T2"``; empty when none applies.
    source : str
        `PAPER` or `POSBIAS`.
    hypotheses : tuple of Hypothesis
        Everything the theorem asks for, checked.
    guaranteed : bool
        Whether every hypothesis holds.
    holds_numerically : bool or None
        Whether the claim holds for the numbers at hand; None when they were not computed.
    margin : float or None
        Slack of the claim, negative when it is violated; its unit is the claim's.
    witness : mapping
        Where the margin is attained.
    """

    claim: str
    theorem: str
    source: str
    hypotheses: tuple[Hypothesis, ...]
    guaranteed: bool
    holds_numerically: bool | None
    margin: float | None = None
    witness: Mapping[str, Any] = field(default_factory=dict)

    @property
    def failed(self) -> tuple[Hypothesis, ...]:
        """The hypotheses that do not hold or could not be checked."""
        return tuple(h for h in self.hypotheses if not h.holds)

    def summary(self) -> str:
        """Return one line: guaranteed by which theorem, or not and why, and the numeric sign."""
        numbers = {True: "holds", False: "does not hold", None: "was not computed"}
        sign = f"numerically it {numbers[self.holds_numerically]}"
        if self.margin is not None:
            sign += f" (margin {self.margin:.3g})"
        if self.guaranteed:
            return f"{self.claim}: guaranteed by {self.theorem} ({self.source}); {sign}"
        reasons = "; ".join(f"{h.name}: {h.detail}" if h.detail else h.name for h in self.failed)
        because = f" ({reasons})" if reasons else ""
        return f"{self.claim}: not guaranteed{because}; {sign}"

    def as_dict(self) -> dict[str, Any]:
        """Return the verdict as JSON-serialisable values, with its summary."""
        values = asdict(self)
        values["hypotheses"] = [asdict(h) for h in self.hypotheses]
        values["witness"] = dict(self.witness)
        return {**values, "summary": self.summary()}
