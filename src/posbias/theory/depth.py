"""How the influence profile changes with depth, for a rollout of finitely many layers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from posbias.errors import InputError
from posbias.rollout import MixingSchedule, Rollout
from posbias.rollout.rollout import SMALLEST
from posbias.theory.bounds import EscapeBounds, diagonal_mass, escape_bounds
from posbias.theory.layers import layer_kernels, require_causal, scalar_mixing
from posbias.theory.limit import ContinuousLimit, continuous_limit
from posbias.theory.schedules import InfiniteSchedule
from posbias.theory.share import EndlessLayers, depth_of_share

__all__ = ["DepthCurve", "DepthCurves", "FiniteDepth", "depth_curves", "finite_depth"]

Vector = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class DepthCurve:
    """Figures of the profile after 0..T layers, each of shape (T+1,).

    Parameters
    ----------
    first, last : ndarray
        Mass on token 0 and on the query's own position.
    mean_position : ndarray
        In positions 0..n-1.
    """

    first: Vector
    last: Vector
    mean_position: Vector


@dataclass(frozen=True, eq=False)
class DepthCurves:
    """A rollout against depth, attention alone (lambda = 1) beside the residual-aware one.

    Parameters
    ----------
    query : int
        Row.
    residual, attention_only : DepthCurve
        With the rollout's own mixing, and with lambda = 1 in every layer.
    """

    query: int
    residual: DepthCurve
    attention_only: DepthCurve

    def to_rows(self) -> list[dict[str, Any]]:
        """Return one row per depth for a table."""
        curves = {"residual": self.residual, "attention-only": self.attention_only}
        return [
            {
                "depth": t,
                **{
                    f"{name} {figure}": float(getattr(curve, key)[t])
                    for name, curve in curves.items()
                    for figure, key in _FIGURES.items()
                },
            }
            for t in range(self.residual.first.size)
        ]


_FIGURES = {
    "mass on token 0": "first",
    "mass on the query": "last",
    "mean position": "mean_position",
}


@dataclass(frozen=True, eq=False)
class FiniteDepth:
    """What T measured layers say about collapse onto token 0.

    Parameters
    ----------
    depth, query : int
        T and the row.
    diagonal : ndarray, shape (n,)
        P[i, i] = prod_t (1 - h_t(i)), exact (T5).
    bounds : EscapeBounds
        Bounds on the share of the query not on token 0.
    share : float
        The share of mass asked for.
    depth_for_share : int or None
        Depth at which that share of the query's mass is on token 0; None if not within
        `depth_limit` layers.
    never : bool
        Whether it is proved that no depth reaches the share.
    depth_limit : int
        Largest depth looked at.
    continuation : str
        ``"schedule"``: the search followed the endless layers that were given. ``"constant"``:
        beyond the rollout's own layers `tail_mixing` and the top kernel continued.
    tail_mixing : float
        Mean lambda of the last quarter of the layers.
    continuous : ContinuousLimit
        The continuous-time limit and its error bound (T7).
    """

    depth: int
    query: int
    diagonal: Vector
    bounds: EscapeBounds
    share: float
    depth_for_share: int | None
    never: bool
    depth_limit: int
    continuation: str
    tail_mixing: float
    continuous: ContinuousLimit

    def as_dict(self) -> dict[str, Any]:
        """Return all figures as JSON-serialisable values."""
        return {
            "depth": self.depth,
            "query": self.query,
            "diagonal": self.diagonal.tolist(),
            "bounds": self.bounds.as_dict(),
            "share": self.share,
            "depth_for_share": self.depth_for_share,
            "never": self.never,
            "depth_limit": self.depth_limit,
            "continuation": self.continuation,
            "tail_mixing": self.tail_mixing,
            "continuous": self.continuous.as_dict(),
        }


def depth_curves(rollout: Rollout, *, query: int = -1) -> DepthCurves:
    """Follow the mass on token 0, the mass on the query and the mean position with depth.

    Parameters
    ----------
    rollout : Rollout
        Any kernels and schedule.
    query : int
        Row.

    Returns
    -------
    DepthCurves
        Cost of six products ``A @ v`` per layer: each figure is a column followed upwards.

    Examples
    --------
    >>> from posbias.kernels import AttentionKernel, Head
    >>> rollout = Rollout([AttentionKernel(8, (Head(),))], MixingSchedule.constant(3, 0.5))
    >>> depth_curves(rollout).residual.first.round(4).tolist()
    [0.0, 0.0625, 0.1474, 0.2439]
    """
    attention = Rollout(rollout.kernels, MixingSchedule.constant(rollout.depth, 1.0))
    row = query % rollout.n
    return DepthCurves(row, _curve(rollout, row), _curve(attention, row))


def finite_depth(
    rollout: Rollout,
    *,
    query: int = -1,
    share: float = 0.9,
    depth_limit: int = 10_000,
    endless: EndlessLayers | None = None,
) -> FiniteDepth:
    """Say how far T layers have gone towards collapse, and how deep it would take.

    Parameters
    ----------
    rollout : Rollout
        Causal kernels, one mixing coefficient per layer.
    query : int
        Row i >= 1.
    share : float
        Share of mass on token 0, in (0, 1).
    depth_limit : int
        Largest depth looked at; T if that is more.
    endless : EndlessLayers, optional
        The layers along which the share is sought. By default those of the rollout, then its top
        kernel with the mean mixing of the last quarter.

    Returns
    -------
    FiniteDepth
        Cost of at most `depth_limit` products with a kernel.

    Raises
    ------
    InputError
        If a kernel is not causal, the schedule is per position or an argument out of range.
    """
    if not 0.0 < share < 1.0:
        raise InputError(f"the share of mass is {share:g}; it must be strictly between 0 and 1")
    require_causal(rollout, "the approach to collapse")
    mixing = scalar_mixing(rollout)
    tail = float(mixing[-max(1, mixing.size // 4) :].mean())
    bounds = escape_bounds(rollout, row=query)
    limit = max(depth_limit, rollout.depth)
    kernels = layer_kernels(rollout)
    followed = endless
    if followed is None:
        # The top kernel repeats: the cycle is made long enough to hold every layer looked at.
        repeated = (*kernels, *(kernels[-1:] * (limit - len(kernels))))
        continued = InfiniteSchedule("constant", tail, first=tuple(mixing.tolist()))
        followed = EndlessLayers(repeated, continued)
    found = depth_of_share(followed, row=bounds.row, share=share, depth_limit=limit)
    return FiniteDepth(
        depth=rollout.depth,
        query=bounds.row,
        diagonal=diagonal_mass(rollout),
        bounds=bounds,
        share=share,
        depth_for_share=found.depth,
        never=found.never,
        depth_limit=limit,
        continuation="constant" if endless is None else "schedule",
        tail_mixing=tail,
        continuous=continuous_limit(rollout, query=bounds.row),
    )


def _curve(rollout: Rollout, row: int) -> DepthCurve:
    """Follow the columns of token 0, of the query and of the positions upwards."""
    n, depth = rollout.n, rollout.depth
    kernels, values = layer_kernels(rollout), np.asarray(rollout.schedule.values)
    columns = np.stack([np.arange(n) == 0, np.arange(n) == row, np.arange(n)]).astype(np.float64)
    figures = np.empty((depth + 1, 3))
    figures[0] = columns[:, row]
    for t in range(depth):
        mixed = values[t]
        if np.any(mixed):
            product = np.stack([kernels[t].matvec(column) for column in columns])
            columns = (1.0 - mixed) * columns + mixed * product
            # Products with denormal numbers are slow.
            columns[columns < SMALLEST] = 0.0
        figures[t + 1] = columns[:, row]
    first, last, mean = figures.T.copy()
    return DepthCurve(first, last, mean)
