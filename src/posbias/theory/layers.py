"""What the theorems ask about the layers of a rollout."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from posbias.errors import InputError
from posbias.kernels import Kernel
from posbias.rollout import Rollout

__all__ = [
    "is_causal",
    "layer_kernels",
    "layer_pairs",
    "require_causal",
    "require_shared_mixing",
    "scalar_mixing",
    "shared_kernel",
]


def layer_kernels(rollout: Rollout) -> tuple[Kernel, ...]:
    """Return the kernel of every layer, bottom first, length T.

    Raises
    ------
    InputError
        If the layers add energies: the theorems speak about amplitudes.
    """
    if rollout.addition != "amplitudes":
        raise InputError(
            f"the layers of this rollout add {rollout.addition}; the theorems speak about rollouts "
            "that add amplitudes"
        )
    kernels = tuple(rollout.kernels)
    return kernels * rollout.depth if len(kernels) == 1 else kernels


def scalar_mixing(rollout: Rollout) -> NDArray[np.float64]:
    """Return lambda_t of every layer, shape (T,).

    Raises
    ------
    InputError
        If the schedule gives one coefficient per position.
    """
    require_shared_mixing(rollout)
    return np.asarray(rollout.schedule.values, dtype=np.float64)


def layer_pairs(rollout: Rollout) -> Iterator[tuple[Kernel, float]]:
    """Yield kernel and mixing coefficient of every layer, bottom first."""
    mixing = scalar_mixing(rollout)
    yield from zip(layer_kernels(rollout), (float(x) for x in mixing), strict=True)


def shared_kernel(rollout: Rollout) -> Kernel | None:
    """Return the kernel that all layers share as one object, or None."""
    kernels = layer_kernels(rollout)
    return kernels[0] if kernels and all(k is kernels[0] for k in kernels) else None


def is_causal(rollout: Rollout) -> bool:
    """Whether no layer attends to later positions."""
    return all(kernel.is_causal for kernel in rollout.kernels)


def require_causal(rollout: Rollout, what: str) -> None:
    """Raise `InputError` unless every kernel is causal."""
    if not is_causal(rollout):
        raise InputError(f"{what} needs causal kernels; a layer here attends to later positions")


def require_shared_mixing(rollout: Rollout) -> None:
    """Raise `InputError` if the schedule gives one coefficient per position."""
    if rollout.schedule.is_per_position:
        raise InputError(
            "one mixing coefficient per layer is required, the schedule has one per position; "
            "average it over positions first"
        )
