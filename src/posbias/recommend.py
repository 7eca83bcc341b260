"""Which estimator to trust for a measurement, by a rule that does not look at the influence."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from posbias.estimator import ENERGY_ROLLOUT, PAPER, Estimator
from posbias.measurement import Measurement
from posbias.measurement.estimates import why_not

__all__ = [
    "COHERENT",
    "NEARLY_ORTHOGONAL",
    "PAPER_MLP",
    "Quantities",
    "Recommendation",
    "decide",
    "quantities",
    "recommend",
]

NEARLY_ORTHOGONAL = 0.3
"""Mean size of the cosine of update and stream up to which their energies add, nearly."""

COHERENT = 3.5
"""Mean coherence from which contributions count as adding in amplitude, not in energy."""

PAPER_MLP = replace(PAPER, mlp=True)
"""The paper's estimator with the update of the MLP as part of a token's own share."""


@dataclass(frozen=True)
class Quantities:
    """What the rule looks at: inside the model, never the influence that is to be predicted.

    Parameters
    ----------
    layers : int
        T.
    sink_layers : int
        Layers in which some key acts as a sink.
    sink_strength : float
        Attention that sinks receive, mean over the T layers, in [0, 1].
    alignment : float or None
        Mean over layers of the size of the cosine of update and stream, both less their means over
        the tokens of the window; None if it was not recorded. 0 where they are orthogonal.
    coherence : float or None
        Mean over layers, weighted by their share of centred energy, of how much more energy the
        update has than its parts from different keys together
        (``stream.coherence.windows``): 1 where the parts are unrelated. None if not recorded.
    lacking : str or None
        What ``energy-rollout`` needs and the measurement lacks, with the reason; None if nothing.
    """

    layers: int
    sink_layers: int
    sink_strength: float
    alignment: float | None
    coherence: float | None
    lacking: str | None


@dataclass(frozen=True)
class Recommendation:
    """An estimator and why it was chosen.

    Parameters
    ----------
    estimator : Estimator
        What the rule chose.
    reasons : tuple of str
        One sentence each.
    quantities : Quantities
        What it was chosen from.
    """

    estimator: Estimator
    reasons: tuple[str, ...]
    quantities: Quantities

    def as_dict(self) -> dict[str, Any]:
        """Return estimator, reasons and quantities, JSON-serialisable."""
        return {
            "estimator": str(self.estimator),
            "reasons": list(self.reasons),
            "quantities": asdict(self.quantities),
        }


def recommend(measurement: Measurement) -> Recommendation:
    """Choose the estimator for a measurement; see `decide` for the rule.

    Cost O(T n^2), for the detection of sinks.
    """
    return decide(quantities(measurement))


def quantities(measurement: Measurement) -> Quantities:
    """Return what the rule looks at."""
    sinks = measurement.sinks()
    cosines = measurement.arrays.get("stream.centred-alignment.windows")
    return Quantities(
        layers=measurement.layers,
        sink_layers=sum(bool(positions) for positions in sinks.by_layer),
        sink_strength=sinks.strength,
        alignment=None if cosines is None else float(np.abs(cosines.mean(axis=0)).mean()),
        coherence=_coherence(measurement),
        lacking=why_not(measurement, ENERGY_ROLLOUT),
    )


def decide(found: Quantities) -> Recommendation:
    """Choose an estimator from quantities inside a model.

    The rule: ``energy-rollout`` where its arrays were recorded and attention brings unrelated
    things from different keys (coherence below `COHERENT`), else the paper's estimator, with the
    MLP where its update was recorded.

    - Coherence: energies add over paths only if what comes along them is unrelated. In trained
      models it is 1.0 to 2.1, more on text that repeats its tokens. In a rotary model at random
      initialisation, whose attention is nearly uniform, every update is the same mean over the
      context; it is 6 and more there, and amplitudes add along the paths.
    - Sinks do not change the choice: ``energy-rollout`` treats them as identity, which is the same
      as keeping them where there is none. Where only the paper's estimator is left, they are a
      reason for distrust: it counts attention to a sink as information from it.
    - Update and stream are nearly orthogonal in every model looked at (alignment 0.003 to 0.12);
      then their energies add and ``|a| / (|x| + |a|)`` overstates a small update. Above
      `NEARLY_ORTHOGONAL` neither reading is exact, which the reasons say.
    - Depth does not change the choice so far: 8 to 18 layers were looked at.

    Parameters
    ----------
    found : Quantities
        See `quantities`.

    Notes
    -----
    posbias. Evidence and failures: ``docs/methods/default.md``.
    """
    reasons = [_on_sinks(found), *_on_alignment(found)]
    if found.lacking is not None:
        first = f"energy-rollout needs {found.lacking}"
        return Recommendation(PAPER, (first, *reasons), found)
    if found.coherence is not None and found.coherence >= COHERENT:
        first = (
            f"what attention brings from different keys adds up (coherence {found.coherence:.2g}, "
            f"1 is unrelated, the limit is {COHERENT:g}): amplitudes add, not energies"
        )
        return Recommendation(PAPER_MLP, (first, *reasons), found)
    first = "values and MLP updates were recorded: contributions can be weighed by their energy"
    reasons += _on_coherence(found)
    return Recommendation(ENERGY_ROLLOUT, (first, *reasons), found)


def _coherence(measurement: Measurement) -> float | None:
    found = measurement.arrays.get("stream.coherence.windows")
    if found is None:
        return None
    weight = measurement.mixing("centred-energy")
    if not weight.any():
        return 1.0
    return float((found.mean(axis=0) * weight).sum() / weight.sum())


def _on_coherence(found: Quantities) -> list[str]:
    if found.coherence is None:
        return []
    return [
        "what attention brings from different keys is nearly unrelated "
        f"(coherence {found.coherence:.2g})"
    ]


def _on_sinks(found: Quantities) -> str:
    if not found.sink_layers:
        return "no key acts as an attention sink: treating sinks as identity changes nothing"
    share = f"{100.0 * found.sink_strength:.0f} % of attention"
    where = f"sinks in {found.sink_layers} of {found.layers} layers receive {share}"
    if found.lacking is not None:
        return f"{where}, which the paper's estimator counts as information from them"
    return f"{where}, which energy-rollout treats as attention to oneself"


def _on_alignment(found: Quantities) -> list[str]:
    if found.alignment is None:
        return []
    cosine = f"the cosine of update and stream is {found.alignment:.2g} in size on average"
    if found.alignment <= NEARLY_ORTHOGONAL:
        return [f"{cosine}: nearly orthogonal, so energies add"]
    return [f"{cosine}: neither energies nor norms add exactly, so trust predictions less"]
