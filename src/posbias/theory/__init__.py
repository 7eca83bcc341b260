"""Order and monotonicity, the four forces, infinite depth, bounds and closed forms."""

from posbias.theory.bounds import (
    EscapeBounds,
    Lyapunov,
    diagonal_mass,
    escape_bounds,
    lyapunov,
)
from posbias.theory.closed_forms import (
    Continuum,
    Drift,
    alibi_profile,
    free_drift,
    mixture_profile,
    nope_continuum,
    nope_eigenvalues,
    nope_left_eigenvector,
    nope_moments,
    nope_profile,
    poisson_binomial,
)
from posbias.theory.criteria import Criterion, lag_margin, monotone_criterion
from posbias.theory.depth import (
    DepthCurve,
    DepthCurves,
    FiniteDepth,
    depth_curves,
    finite_depth,
)
from posbias.theory.forces import FORCES, Force, ForcesReport, Shift, forces
from posbias.theory.guarantees import OrderVerdict, compare_rollouts
from posbias.theory.infinite import GrowingContent, InfiniteDepth, infinite_depth
from posbias.theory.limit import (
    ContinuousLimit,
    absorption_matrix,
    closed_classes,
    continuous_limit,
    limit_matrix,
)
from posbias.theory.monotone import (
    MonotoneWitness,
    Monotonicity,
    is_monotone,
    monotonicity,
    row_cdfs,
)
from posbias.theory.order import StochasticOrder, mean_position, stochastic_order
from posbias.theory.schedules import InfiniteSchedule, TailCertificate
from posbias.theory.share import EndlessLayers, ShareDepth, depth_of_share
from posbias.theory.verdict import PAPER, POSBIAS, Hypothesis, Verdict

__all__ = [
    "FORCES",
    "PAPER",
    "POSBIAS",
    "ContinuousLimit",
    "Continuum",
    "Criterion",
    "DepthCurve",
    "DepthCurves",
    "Drift",
    "EndlessLayers",
    "EscapeBounds",
    "FiniteDepth",
    "Force",
    "ForcesReport",
    "GrowingContent",
    "Hypothesis",
    "InfiniteDepth",
    "InfiniteSchedule",
    "Lyapunov",
    "MonotoneWitness",
    "Monotonicity",
    "OrderVerdict",
    "ShareDepth",
    "Shift",
    "StochasticOrder",
    "TailCertificate",
    "Verdict",
    "absorption_matrix",
    "alibi_profile",
    "closed_classes",
    "compare_rollouts",
    "continuous_limit",
    "depth_curves",
    "depth_of_share",
    "diagonal_mass",
    "escape_bounds",
    "finite_depth",
    "forces",
    "free_drift",
    "infinite_depth",
    "is_monotone",
    "lag_margin",
    "limit_matrix",
    "lyapunov",
    "mean_position",
    "mixture_profile",
    "monotone_criterion",
    "monotonicity",
    "nope_continuum",
    "nope_eigenvalues",
    "nope_left_eigenvector",
    "nope_moments",
    "nope_profile",
    "poisson_binomial",
    "row_cdfs",
    "stochastic_order",
]
