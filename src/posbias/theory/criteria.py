"""Analytic criteria for stochastic monotonicity of structured attention kernels.

All are exact ("if and only if") for one head and sufficient for a mixture of heads, because a
mixture of monotone kernels is monotone while the converse fails. Source: posbias; the page
docs/theory/monotone.md derives them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from posbias.kernels import (
    ALiBi,
    AttentionKernel,
    Causal,
    Head,
    Kernel,
    MixtureKernel,
    NoPE,
    PrefixLM,
    SlidingWindow,
    WindowSink,
)

__all__ = ["Criterion", "lag_margin", "monotone_criterion"]

ROUNDING = 1e-12
"""Relative slack in comparisons of sums of exponentials."""

Vector = NDArray[np.float64]


@dataclass(frozen=True)
class Criterion:
    """The outcome of an analytic criterion.

    Parameters
    ----------
    name : str
        The criterion in symbols.
    holds : bool
        Whether it is met.
    decides : bool
        Whether it settles the question: exact, or sufficient and met.
    margin : float
        Smallest slack in log weights, negative when it fails.
    detail : str
        Where the slack is smallest.
    """

    name: str
    holds: bool
    decides: bool
    margin: float
    detail: str


def monotone_criterion(kernel: Kernel) -> Criterion | None:
    """Return the analytic criterion that applies to a kernel, or None if there is none.

    Parameters
    ----------
    kernel : Kernel
        A structured kernel or a mixture of them; others have no analytic criterion.

    Returns
    -------
    Criterion or None
        Cost O(H n).
    """
    if isinstance(kernel, MixtureKernel):
        return _all_of(monotone_criterion(part) for part in kernel.kernels)
    if not isinstance(kernel, AttentionKernel):
        return None
    return _all_of(_head_criterion(kernel, head) for head in kernel.heads)


def lag_margin(logits: Vector) -> tuple[float, int]:
    """Return the slack of the criterion for a kernel that depends on the lag only.

    Parameters
    ----------
    logits : ndarray, shape (m,)
        log w_l of the lags 0..m-1, the diagonal content included in the first; -inf for lags
        that are never attended to.

    Returns
    -------
    margin : float
        Smallest log(W_l / W_{l-1}) - log(w_{l+1} / w_l) over l = 1..m-2, with W_l the partial
        sums; the kernel is monotone if and only if it is not negative. Infinite when no weight
        can rise.
    lag : int
        The l at which it is attained.
    """
    if logits.size < 3:
        return np.inf, 1
    below = np.logaddexp.accumulate(logits)[:-2]
    here, above = logits[1:-1], logits[2:]
    with np.errstate(invalid="ignore"):
        # log1p keeps the slack of large lags, where W_l and W_{l-1} agree to many digits.
        slack = np.logaddexp(0.0, here - below) - (above - here)
    slack[np.isneginf(here)] = -np.inf
    slack[np.isneginf(above)] = np.inf
    lag = int(np.argmin(slack))
    return float(slack[lag]), lag + 1


def _all_of(parts: Iterable[Criterion | None]) -> Criterion | None:
    """Combine the criteria of the parts of a mixture."""
    criteria: list[Criterion] = []
    for part in parts:
        if part is None:
            return None
        criteria.append(part)
    worst = min(criteria, key=lambda c: c.margin)
    if len(criteria) == 1:
        return worst
    holds = all(c.holds and c.decides for c in criteria)
    return Criterion(
        name=f"every head is monotone: {worst.name}",
        holds=holds,
        decides=holds,
        margin=worst.margin,
        detail=worst.detail,
    )


def _head_criterion(kernel: AttentionKernel, head: Head) -> Criterion | None:
    """Pick the criterion for one head under the kernel's mask."""
    mask, n = kernel.mask, kernel.n
    diagonal = head.diagonal / kernel.temperature
    keys = _key_logits(head, n, kernel.temperature)
    if isinstance(mask, PrefixLM):
        plain = isinstance(head.position, NoPE) and keys is None
        return _prefix_criterion(diagonal, mask.prefix, n) if plain else None
    if keys is None and isinstance(mask, Causal | SlidingWindow):
        reach = n if isinstance(mask, Causal) else min(n, mask.window)
        return _lag_criterion(kernel, head, reach)
    slope = _slope(head, kernel.temperature)
    if slope is None:
        return None
    if isinstance(mask, Causal):
        return _key_criterion(diagonal, slope, keys, n)
    if isinstance(mask, WindowSink) and slope >= 0.0 and _is_sink_only(head, mask.sinks):
        # Rows after the first that lose a key are ordered for every slope >= 0; the rows before
        # see every earlier key.
        sinks = np.zeros(n) if keys is None else keys
        return _key_criterion(diagonal, slope, sinks, min(n, mask.sinks + mask.window))
    return None


def _lag_criterion(kernel: AttentionKernel, head: Head, reach: int) -> Criterion:
    logits = np.asarray(head.position.lag_logits(kernel.n), dtype=np.float64)[:reach]
    logits = logits / kernel.temperature
    logits[0] += head.diagonal / kernel.temperature
    margin, lag = lag_margin(logits)
    return Criterion(
        name="w[l+1]/w[l] <= W[l]/W[l-1] for every lag l >= 1",
        holds=margin >= -ROUNDING,
        decides=True,
        margin=margin,
        detail=f"smallest slack {margin:.4g} in log weight at lag {lag}",
    )


def _key_criterion(diagonal: float, slope: float, keys: Vector | None, n: int) -> Criterion:
    """Exponential lag weights times key weights: the rows cut one fixed measure.

    Only the diagonal disturbs the order: key[i+1] - key[i] + m >= log(1 - exp(-d)), i = 1..n-2.
    """
    name = "key[i+1] - key[i] + m >= log(1 - exp(-d)) for every i >= 1"
    if diagonal <= 0.0 or keys is None or n < 3:
        detail = "d <= 0" if diagonal <= 0.0 else "no key term differs"
        return Criterion(name, True, True, np.inf, detail)
    rise = np.diff(keys[1:n]) + slope
    margin = float(rise.min()) - float(np.log(-np.expm1(-diagonal)))
    i = int(np.argmin(rise)) + 1
    return Criterion(name, margin >= -ROUNDING, True, margin, f"smallest slack {margin:.4g} at {i}")


def _prefix_criterion(diagonal: float, prefix: int, n: int) -> Criterion:
    """Uniform attention under a prefix mask: monotone if and only if d >= 0."""
    if min(prefix, n) < 2:
        return Criterion("a prefix of one position is causal", True, True, np.inf, "no position")
    return Criterion("d >= 0 under a prefix mask", diagonal >= 0.0, True, diagonal, f"d={diagonal}")


def _slope(head: Head, temperature: float) -> float | None:
    """Return the slope of a head whose lag weights are exponential, else None."""
    if isinstance(head.position, NoPE):
        return 0.0
    return head.position.slope / temperature if isinstance(head.position, ALiBi) else None


def _key_logits(head: Head, n: int, temperature: float) -> Vector | None:
    """Return the per-key logits with the sinks added, shape (n,), or None if there are none."""
    keys = head.key_logits(n)
    return None if keys is None else keys / temperature


def _is_sink_only(head: Head, sinks: int) -> bool:
    """Whether no key term reaches past the sinks that the mask keeps visible."""
    return head.key is None and (head.sink is None or head.sink.count <= sinks)
