"""The depth at which token 0 holds a given share of a row, along endless layers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from posbias.errors import InputError
from posbias.kernels import Kernel
from posbias.theory.schedules import InfiniteSchedule

__all__ = ["EndlessLayers", "ShareDepth", "depth_of_share"]

Vector = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class EndlessLayers:
    """Infinitely many layers: causal kernels repeated in turn, and a schedule.

    Parameters
    ----------
    kernels : sequence of Kernel
        Bottom first, all of the same n.
    schedule : InfiniteSchedule
        lambda_t for t = 1, 2, ...
    """

    kernels: Sequence[Kernel]
    schedule: InfiniteSchedule

    def __post_init__(self) -> None:
        distinct = {id(kernel): kernel for kernel in self.kernels}
        if not distinct or not all(kernel.is_causal for kernel in distinct.values()):
            raise InputError("endless layers need at least one kernel, and causal ones only")


@dataclass(frozen=True)
class ShareDepth:
    """Where the mass on token 0 first reaches a share.

    Parameters
    ----------
    depth : int or None
        Number of layers; None if not within those looked at.
    never : bool
        Whether it is proved that no depth reaches the share.
    looked_at : int
        Number of layers looked at.
    """

    depth: int | None
    never: bool
    looked_at: int


def depth_of_share(
    layers: EndlessLayers, *, row: int, share: float, depth_limit: int
) -> ShareDepth:
    """Search the depth at which ``P[row, 0]`` is at least `share`.

    With e the mass of the row not on token 0, a further layer leaves at least (1 - h(row)) e of
    it, since row `row` of R_t keeps 1 - h_t(row) in place. So the share is out of reach for good
    once e prod (1 - h_t(row)) over the layers to come exceeds 1 - share.

    Parameters
    ----------
    layers : EndlessLayers
        Kernels and schedule.
    row : int
        Query, 1..n-1.
    share : float
        In (0, 1).
    depth_limit : int
        Largest depth looked at.

    Returns
    -------
    ShareDepth
        Cost of at most `depth_limit` products with a kernel.
    """
    kernels, schedule = layers.kernels, layers.schedule
    values = schedule.values(depth_limit)
    distinct = {id(kernel): kernel for kernel in kernels}
    moved = max(1.0 - float(kernel.diagonal()[row]) for kernel in distinct.values())
    column = np.zeros(kernels[0].n)
    column[0] = 1.0
    check = max(1, len(schedule.first))
    for depth in range(1, depth_limit + 1):
        lam = float(values[depth - 1])
        if lam > 0.0:
            kernel = kernels[(depth - 1) % len(kernels)]
            column = (1.0 - lam) * column + lam * kernel.matvec(column)
        if column[row] >= share:
            return ShareDepth(depth, False, depth)
        if depth in (check, depth_limit) and depth >= len(schedule.first):
            check *= 2
            stays = schedule.tail_product_lower(depth, moved=moved)
            if (1.0 - float(column[row])) * stays > 1.0 - share:
                return ShareDepth(None, True, depth)
    return ShareDepth(None, False, depth_limit)
