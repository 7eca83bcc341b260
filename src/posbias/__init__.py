"""Predict, measure and explain position bias of causal Transformer language models.

The three verbs are functions of this package; each starts from what an earlier one made:

``posbias.measure(model, text)``
    Mixing coefficients, attention kernels and gradient influence of a model: a `Measurement`.
``posbias.predict(source)``
    Influence profiles from a measurement or an architecture spec: a `ProfileSet`.
``posbias.compare(measured, predicted)``
    Distances and shapes: a `Comparison`.

``posbias.load(path)`` opens again what they wrote, and specs.

Everything but `measure` works without PyTorch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

# The verbs share their names with the modules that hold them. Importing the modules here binds
# the names once to the functions; a later import of a submodule finds it loaded and rebinds
# nothing.
from posbias.compare import compare
from posbias.load import load
from posbias.measure import measure
from posbias.predict import predict
from posbias.version import __version__

if TYPE_CHECKING:
    from posbias.compare import Comparison
    from posbias.measurement import Measurement, merge
    from posbias.profile import Profile, ProfileSet
    from posbias.rollout import MixingSchedule, Rollout
    from posbias.spec import Spec, load_spec

__all__ = [
    "Comparison",
    "Measurement",
    "MixingSchedule",
    "Profile",
    "ProfileSet",
    "Rollout",
    "Spec",
    "__version__",
    "compare",
    "load",
    "load_spec",
    "measure",
    "merge",
    "predict",
]

_HOMES = {
    "Comparison": "posbias.compare",
    "Measurement": "posbias.measurement",
    "merge": "posbias.measurement",
    "Profile": "posbias.profile",
    "ProfileSet": "posbias.profile",
    "MixingSchedule": "posbias.rollout",
    "Rollout": "posbias.rollout",
    "Spec": "posbias.spec",
    "load_spec": "posbias.spec",
}


def __getattr__(name: str) -> Any:
    """Load a public type from its home on first use."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
