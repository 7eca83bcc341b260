"""Mixing schedules continued to infinitely many layers, with the sums that decide the limit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from posbias.errors import InputError

__all__ = ["InfiniteSchedule", "TailCertificate"]

Vector = NDArray[np.float64]
Rule = Literal["constant", "power", "exponential"]

_SMALL_MIXING = 1.0 / 64.0
_LONGEST_HEAD = 2_000_000
_STEEP = 100.0
_EXPONENTS = {
    "constant": "the exponent of a constant",
    "power": "beta of a power",
    "exponential": "rho of an exponential",
}


@dataclass(frozen=True)
class TailCertificate:
    """What the first T layers prove about an infinite schedule.

    Parameters
    ----------
    head_product : float
        prod over t <= T of 1 - delta lambda_t.
    tail_sum_upper : float
        Upper bound of sum over t > T of lambda_t.
    product_lower : float
        head_product exp(-delta S / (1 - delta lambda_{T+1})), S the bound above: the share
        that never moves is at least this.
    product : float
        The infinite product itself, zero when the sum diverges.
    """

    head_product: float
    tail_sum_upper: float
    product_lower: float
    product: float


@dataclass(frozen=True)
class InfiniteSchedule:
    """lambda_t for t = 1, 2, ...: first some explicit values, then a rule.

    Parameters
    ----------
    rule : str
        ``"constant"`` scale; ``"power"`` scale / t^beta; ``"exponential"`` scale * rho^(t-1).
    scale : float
        Factor of the rule, at least 0.
    exponent : float
        beta >= 0 of the power rule or rho in [0, 1) of the exponential rule.
    first : tuple of float
        lambda_1..lambda_s; the rule applies from t = s+1 on, with t still counted from 1.

    Raises
    ------
    InputError
        If a value leaves [0, 1] or a parameter its range.

    Examples
    --------
    >>> InfiniteSchedule.power(0.9, 2.0).sum_diverges
    False
    >>> InfiniteSchedule.power(0.3, 0.5).sum_diverges
    True
    """

    rule: Rule
    scale: float
    exponent: float = 0.0
    first: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        if self.rule not in ("constant", "power", "exponential"):
            raise InputError(
                f"unknown rule {self.rule!r} of an infinite schedule; "
                "it must be 'constant', 'power' or 'exponential'"
            )
        ranges = {"constant": (0.0, np.inf), "power": (0.0, np.inf), "exponential": (0.0, 1.0)}
        low, high = ranges[self.rule]
        if not low <= self.exponent < high:
            raise InputError(
                f"{_EXPONENTS[self.rule]} schedule is {self.exponent:g}; "
                f"it must be at least {low:g}" + (" and below 1" if high == 1.0 else "")
            )
        # Every rule is non-increasing: its first value is its largest.
        values = np.array(
            [*self.first, self.rule_values(np.array(len(self.first) + 1.0))], np.float64
        )
        bad = np.flatnonzero(~((values >= 0.0) & (values <= 1.0)))
        if bad.size:
            raise InputError(
                f"lambda of layer {bad[0] + 1} is {values[bad[0]]:g}; it must be in [0, 1], it is "
                "the share of attention in a layer"
            )

    @classmethod
    def constant(cls, value: float) -> InfiniteSchedule:
        """Return lambda_t = value."""
        return cls("constant", value)

    @classmethod
    def power(cls, lambda0: float, beta: float) -> InfiniteSchedule:
        """Return lambda_t = lambda0 / t^beta."""
        return cls("power", lambda0, beta)

    @classmethod
    def exponential(cls, lambda0: float, rho: float) -> InfiniteSchedule:
        """Return lambda_t = lambda0 rho^(t-1)."""
        return cls("exponential", lambda0, rho)

    @classmethod
    def eventually_zero(cls, values: Sequence[float]) -> InfiniteSchedule:
        """Return the given first values, then zeros."""
        return cls("constant", 0.0, first=tuple(float(v) for v in values))

    @classmethod
    def from_description(cls, description: Mapping[str, Any]) -> InfiniteSchedule:
        """Read the mixing entry of a spec; custom values are continued with zeros.

        Raises
        ------
        InputError
            If the type is unknown or a field is missing.
        """
        readers = {
            "constant": lambda d: cls.constant(d["value"]),
            "power": lambda d: cls.power(d["lambda0"], d["beta"]),
            "exponential": lambda d: cls.exponential(d["lambda0"], d["rho"]),
            "custom": lambda d: cls.eventually_zero(d["values"]),
        }
        try:
            return readers[description["type"]](description)
        except KeyError as missing:
            raise InputError(
                f"the schedule {dict(description)!r} lacks or does not know {missing}; types are "
                "constant (value), power (lambda0, beta), exponential (lambda0, rho), custom"
            ) from missing

    @property
    def sum_diverges(self) -> bool:
        """Whether sum_t lambda_t is infinite."""
        if self.scale == 0.0 or self.rule == "exponential":
            return False
        return self.rule == "constant" or self.exponent <= 1.0

    @property
    def reaches_one(self) -> bool:
        """Whether some lambda_t equals 1."""
        return bool(np.any(self.values(len(self.first) + 1) == 1.0))

    @property
    def is_eventually_one(self) -> bool:
        """Whether lambda_t = 1 for all large t."""
        flat = self.rule == "constant" or (self.rule == "power" and self.exponent == 0.0)
        return flat and self.scale == 1.0

    def values(self, depth: int) -> Vector:
        """Return lambda_1..lambda_depth, shape (depth,)."""
        result = self.rule_values(np.arange(1.0, depth + 1.0))
        count = min(depth, len(self.first))
        result[:count] = self.first[:count]
        return result

    def head_length(self) -> int:
        """Return a depth beyond which lambda_t <= 1/64, so that series in lambda_t converge.

        Raises
        ------
        InputError
            If more than two million layers are needed.
        """
        start = len(self.first)
        if self.scale == 0.0:
            return start
        if self.rule == "power" and self.exponent > 0.0:
            log_depth = np.log(max(self.scale / _SMALL_MIXING, 1.0)) / self.exponent
            # Beyond e^100 layers the number itself may not fit a float.
            depth = int(np.ceil(np.exp(min(log_depth, 100.0)) * (1.0 - 1e-12)))
        elif self.rule == "exponential":
            ratio = np.log(max(self.scale / _SMALL_MIXING, 1.0))
            depth = int(np.ceil(ratio / -np.log(self.exponent))) + 1 if self.exponent else 1
        else:
            depth = 0
        if depth > _LONGEST_HEAD:
            raise InputError(
                f"the schedule falls below 1/64 only after {depth:.3g} layers; "
                f"at most {_LONGEST_HEAD} are summed explicitly, give a faster decay"
            )
        return max(start, depth, 64)

    def tail_power_sum(self, k: int, start: int, *, step: int = 1) -> float:
        """Return the sum of lambda_t^k over t = start + step, start + 2 step, ...

        Parameters
        ----------
        k : int
            Power, at least 1.
        start : int
            At least the number of explicit first values.
        step : int
            Distance of the layers, at least 1.
        """
        from scipy.special import zeta

        if self.scale == 0.0:
            return 0.0
        if self.rule == "exponential":
            lead = float(self.rule_values(np.array(start + float(step)))) ** k
            return float(lead / (1.0 - self.exponent ** (step * k)))
        order = k * self.exponent
        if self.rule == "constant" or order <= 1.0:
            return float("inf")
        if order > _STEEP:
            # The terms fall so fast that zeta and the power of `step` may leave the range of a
            # float although their product does not; a few terms are the whole sum.
            first = start / step + 1.0
            terms = start + step * np.arange(1.0, 65.0 + np.ceil(0.5 * first))
            return float((self.rule_values(terms) ** k).sum())
        return float((self.scale / step**self.exponent) ** k * zeta(order, start / step + 1.0))

    def product(self, moved: ArrayLike) -> Vector:
        """Return prod_t (1 - lambda_t x) for every x in [0, 2), zero where the sum diverges.

        Parameters
        ----------
        moved : array_like
            x, e.g. 1 - A[i, i].
        """
        return self.thinned_product(moved, offset=0, step=1)

    def thinned_product(self, moved: ArrayLike, *, offset: int, step: int) -> Vector:
        """Return `product` over the layers t = offset + 1, offset + 1 + step, ... only.

        Raises
        ------
        InputError
            If more than two million layers must be multiplied explicitly.
        """
        x = np.asarray(moved, dtype=np.float64)
        if self.sum_diverges:
            return np.where(x == 0.0, 1.0, 0.0)
        result = np.ones(x.shape)
        head = self.head_length()
        head += (offset - head) % step
        for value in self.values(head)[offset::step]:
            result *= 1.0 - value * x
        exponent = np.zeros(x.shape)
        for k in range(1, 40):
            # t runs over offset + 1 + step s, that is from head + 1 on in steps of `step`.
            power_sum = self.tail_power_sum(k, head + 1 - step, step=step)
            exponent += power_sum * x**k / k
            if power_sum * 2.0**k < 1e-20:
                break
        return result * np.exp(-exponent)

    def certificate(self, depth: int, *, moved: float = 1.0) -> TailCertificate:
        """Certify prod_t (1 - moved lambda_t) from the first `depth` layers.

        Parameters
        ----------
        depth : int
            Number of layers looked at, at least those given explicitly.
        moved : float
            delta in [0, 1], an upper bound of 1 - A_t[i, i].

        Raises
        ------
        InputError
            If `depth` is smaller than the number of explicit values.
        """
        if depth < max(1, len(self.first)):
            raise InputError(
                f"a certificate from {depth} layers was asked for; at least the "
                f"{max(1, len(self.first))} explicit ones are required"
            )
        head = float(np.prod(1.0 - moved * self.values(depth)))
        lower = head * self.tail_product_lower(depth, moved=moved)
        return TailCertificate(head, self._tail_sum_upper(depth), lower, float(self.product(moved)))

    def tail_product_lower(self, depth: int, *, moved: float = 1.0) -> float:
        """Return a lower bound of prod over t > depth of 1 - moved lambda_t.

        Parameters
        ----------
        depth : int
            At least the number of explicit first values.
        moved : float
            In [0, 1].
        """
        following = moved * float(self.rule_values(np.array(depth + 1.0)))
        if following >= 1.0:
            return 0.0
        if moved == 0.0:
            return 1.0
        return float(np.exp(-moved * self._tail_sum_upper(depth) / (1.0 - following)))

    def _tail_sum_upper(self, depth: int) -> float:
        """Return an upper bound of the sum beyond `depth`, by the integral test for powers."""
        if self.sum_diverges:
            return float("inf")
        if self.rule == "power" and self.scale > 0.0:
            return float(self.scale * depth ** (1.0 - self.exponent) / (self.exponent - 1.0))
        return self.tail_power_sum(1, depth)

    def rule_values(self, t: Vector) -> Vector:
        """Return the rule alone at t >= 1, without the explicit first values."""
        if self.rule == "power":
            return np.asarray(self.scale * t**-self.exponent)
        if self.rule == "exponential":
            return np.asarray(self.scale * self.exponent ** (t - 1.0))
        return np.full(np.shape(t), float(self.scale))
