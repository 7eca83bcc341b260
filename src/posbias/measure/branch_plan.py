"""What a measurement records beside the paper's own quantities, and why some may be absent."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from posbias.errors import UnsupportedModelError
from posbias.measure.options import MeasureOptions
from posbias.models.preflight import SHORT, CheckedModel
from posbias.models.state import forward_logits
from posbias.models.values import ValuePath, find_value_paths, why_no_mlp

__all__ = ["CENTRED_ENERGY", "FURTHER_KERNELS", "BranchPlan", "plan_branches"]

CENTRED_ENERGY = "kernel.centred-value-energy.sum"
"""The kernel that is recorded by default."""

FURTHER_KERNELS = (
    "kernel.attention-energy.sum",
    "kernel.value.sum",
    "kernel.value-energy.sum",
    "kernel.centred-value.sum",
)
"""Kernels that are recorded with ``record="all"`` too."""


@dataclass(frozen=True)
class BranchPlan:
    """What to record of the branches of each layer.

    Parameters
    ----------
    paths : tuple of ValuePath or None
        How the values of each layer reach the stream; None leaves all arrays of values out.
    with_mlp : bool
        Whether the output of a block less x and a is the update of its MLP.
    kernels : tuple of str
        Array names of the kernels to record, which take ``8 T n^2`` bytes each.
    reasons : dict of str
        Why ``values``, ``mlp`` or ``kernels`` are left out.
    """

    paths: tuple[ValuePath, ...] | None
    with_mlp: bool
    kernels: tuple[str, ...]
    reasons: dict[str, str] = field(default_factory=dict)


def plan_branches(checked: CheckedModel, ids: Tensor, options: MeasureOptions) -> BranchPlan | None:
    """Return what to record, None for the paper's own quantities only.

    Parameters
    ----------
    checked : CheckedModel
        In measuring state.
    ids : Tensor of int64, shape (D, n)
        Windows of text; the beginnings of the first two are run.
    options : MeasureOptions
        With ``record`` and ``kernels``.

    Raises
    ------
    UnsupportedModelError
        If everything is asked for and the values cannot be followed to the stream.
    """
    if options.record == "paper":
        return None
    short = ids[:2, :SHORT].contiguous()

    def forward() -> Tensor:
        return forward_logits(checked.model, short)

    reasons: dict[str, str] = {}
    paths = None
    with torch.no_grad():
        missing = why_no_mlp(checked.sites, forward)
        try:
            paths = find_value_paths(checked.sites, forward)
        except UnsupportedModelError as error:
            if options.record == "all":
                raise UnsupportedModelError(
                    f"record 'all' needs the values of every layer: {error}. Measure with record "
                    "'default', which leaves out what cannot be followed"
                ) from error
            reasons["values"] = str(error)
    if missing is not None:
        reasons["mlp"] = missing
    kernels: tuple[str, ...] = ()
    if options.kernels == "summary":
        reasons["kernels"] = "only summaries of the kernels were kept (kernels='summary')"
    elif paths is not None:
        kernels = (*(FURTHER_KERNELS if options.record == "all" else ()), CENTRED_ENERGY)
    return BranchPlan(paths, missing is None, kernels, reasons)
