"""Tails of infinite products whose factors mix two powers of the layer index."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from posbias.theory.schedules import InfiniteSchedule

__all__ = ["tail_log_product"]


def tail_log_product(
    schedule: InfiniteSchedule, odds: float, *, growth: float, start: int
) -> float:
    """Return the sum over t > start of log(1 - lambda_t S / (t^c + S)).

    Parameters
    ----------
    schedule : InfiniteSchedule
        lambda_t by its rule beyond `start`.
    odds : float
        S > 0, the odds of leaving in layer 1.
    growth : float
        c >= 0; the sum must converge.
    start : int
        Large enough that the summand varies slowly (thousands).

    Returns
    -------
    float
        By the midpoint Euler-Maclaurin formula, integral from start + 1/2 plus g' / 24; the
        neglected term is of order g / start^3. An exponential rule is summed directly.
    """
    from scipy.integrate import quad

    if schedule.scale == 0.0:
        return 0.0

    def summand(t: NDArray[np.float64] | float) -> NDArray[np.float64] | float:
        weight = odds / (np.asarray(t) ** growth + odds)
        return np.log1p(-schedule.rule_values(np.asarray(t, dtype=np.float64)) * weight)

    if schedule.rule == "exponential":
        total, block = 0.0, np.arange(start + 1.0, start + 100_001.0)
        while True:
            terms = summand(block)
            total += float(np.sum(terms))
            if float(np.abs(np.asarray(terms)[-1])) < 1e-22:
                return total
            block = block + block.size
    order = growth + (schedule.exponent if schedule.rule == "power" else 0.0)
    middle = start + 0.5
    # t = middle u^(-1/(order-1)) turns the decay t^-order into a bounded integrand on (0, 1].
    power = 1.0 / (order - 1.0)
    limit = -schedule.scale * odds * power * middle ** (1.0 - order)

    def transformed(u: float) -> float:
        log_t = np.log(middle) - power * np.log(u)
        if max(1.0, growth) * log_t > 300.0:
            return float(limit)
        t = float(np.exp(log_t))
        return float(summand(t)) * power * t / u

    integral = quad(transformed, 0.0, 1.0, epsabs=1e-16, epsrel=1e-13, limit=200)[0]
    slope = float(summand(middle + 1.0)) - float(summand(middle - 1.0))
    return float(integral) + slope / 48.0
