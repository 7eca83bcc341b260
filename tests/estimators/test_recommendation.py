"""The rule that chooses an estimator, from quantities that do not use the influence."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from synthetic_measurement import make, make_parts, with_all_arrays

from posbias.estimator import ENERGY_ROLLOUT, PAPER
from posbias.measurement import Measurement
from posbias.recommend import Quantities, decide, quantities, recommend

PLAIN = Quantities(
    layers=8, sink_layers=0, sink_strength=0.0, alignment=0.05, coherence=1.1, lacking=None
)


def test_energies_are_recommended_where_values_were_recorded() -> None:
    found = decide(PLAIN)
    assert found.estimator == ENERGY_ROLLOUT
    assert "nearly orthogonal" in found.reasons[2]
    assert found.reasons[-1].endswith("(coherence 1.1)")
    assert "no key acts as an attention sink" in found.reasons[1]
    sunk = decide(replace(PLAIN, sink_layers=6, sink_strength=0.31))
    assert sunk.estimator == ENERGY_ROLLOUT
    assert "sinks in 6 of 8 layers receive 31 % of attention" in sunk.reasons[1]


def test_the_paper_s_estimator_is_what_is_left_without_values() -> None:
    found = decide(replace(PLAIN, lacking="kernel.x; not recorded", sink_layers=2, alignment=None))
    assert found.estimator == PAPER
    assert found.reasons[0] == "energy-rollout needs kernel.x; not recorded"
    assert "counts as information" in found.reasons[1]
    assert len(found.reasons) == 2


def test_aligned_updates_are_a_reason_for_caution() -> None:
    assert "trust predictions less" in decide(replace(PLAIN, alignment=0.6)).reasons[2]


def test_amplitudes_are_recommended_where_contributions_are_coherent() -> None:
    found = decide(replace(PLAIN, coherence=6.2))
    assert str(found.estimator) == "paper,mlp=true"
    assert "amplitudes add" in found.reasons[0]
    assert decide(replace(PLAIN, coherence=None)).estimator == ENERGY_ROLLOUT


def test_quantities_are_read_from_the_measurement() -> None:
    measurement = with_all_arrays()
    found = quantities(measurement)
    cosines = measurement.arrays["stream.centred-alignment.windows"]
    by_layer = [abs(cosines[:, t].mean()) for t in range(measurement.layers)]
    assert found.alignment == pytest.approx(np.mean(by_layer))
    shares, ratios = (
        measurement.arrays[name].mean(axis=0)
        for name in ("mixing.centred-energy.windows", "stream.coherence.windows")
    )
    weighted = sum(s * r for s, r in zip(shares, ratios, strict=True)) / sum(shares)
    assert found.coherence == pytest.approx(weighted)
    assert (found.layers, found.sink_layers, found.lacking) == (measurement.layers, 0, None)
    bare = quantities(make())
    assert bare.alignment is None
    assert bare.lacking is not None
    assert "--record default" in bare.lacking


def test_the_influence_plays_no_part() -> None:
    measurement = with_all_arrays()
    arrays = dict(measurement.arrays)
    rng = np.random.default_rng(0)
    arrays["influence.gradient.windows"] = rng.exponential(
        1.0, arrays["influence.gradient.windows"].shape
    )
    other = Measurement(measurement.manifest, arrays)
    assert recommend(other).as_dict() == recommend(measurement).as_dict()
    manifest, bare = make_parts()
    manifest["influence_method"] = None
    del bare["influence.gradient.windows"]
    assert recommend(Measurement(manifest, bare)).estimator == PAPER


def test_a_recommendation_is_json() -> None:
    document = recommend(with_all_arrays()).as_dict()
    assert json.loads(json.dumps(document)) == document
    assert document["estimator"] == "energy-rollout"
