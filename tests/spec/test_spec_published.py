"""Published configs: their numbers, their shapes, and every way in which they can be wrong."""

from __future__ import annotations

import csv
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from posbias.errors import SpecError
from posbias.spec import Spec, load_spec


def read_columns(file: Path) -> dict[str, list[float]]:
    with file.open(newline="") as stream:
        rows = list(csv.DictReader(stream))
    return {name: [float(row[name]) for row in rows] for name in rows[0]}


def naive_row(document: dict[str, Any]) -> np.ndarray:
    """Return the last row of the rollout of a published config, matrix by matrix."""
    n, depth = document["sequence_length"], document["num_layers"]
    attention, content = document["attention_config"], document.get("content_config", {})
    schedule = document["lambda_schedule_config"]
    heads = attention["num_heads"]
    window = document["mask_config"].get("window_size")
    kind = document["mask_config"]["mask_type"]

    def at(table: list[list[float]], t: int, h: int) -> float:
        row = table[t if len(table) > 1 else 0]
        return row[h if len(row) > 1 else 0]

    row = np.zeros(n)
    row[-1] = 1.0
    for t in reversed(range(depth)):
        lam = {
            "constant": lambda t: schedule["lambda_const"],
            "power_decay": lambda t: schedule["lambda_0"] / (t + 1) ** schedule["beta"],
            "custom": lambda t: schedule["lambdas_custom"][t],
        }[schedule["schedule_type"]](t)
        mean, total = np.zeros((n, n)), 0.0
        for h in range(heads):
            logits = np.full((n, n), -np.inf)
            for i in range(n):
                for j in range(n):
                    hidden = j > i if kind != "full" else False
                    if kind == "sliding_window" and i - j >= window:
                        hidden = True
                    if not hidden:
                        logits[i, j] = -at(attention["alibi_slopes"], t, h) * (i - j)
                        logits[i, j] += at(content.get("base_scores", [[0.0]]), t, h)
                        if i == j:
                            logits[i, j] += at(content.get("diagonal_scores", [[0.0]]), t, h)
            logits /= attention.get("softmax_temperature", 1.0)
            scores = np.exp(logits - logits.max(axis=1, keepdims=True))
            weight = at(attention.get("head_weights") or [[1.0]], t, h)
            mean += weight * scores / scores.sum(axis=1, keepdims=True)
            total += weight
        row = (1 - lam) * row + lam * (row @ (mean / total))
    return row


@pytest.mark.parametrize(
    ("config", "column"),
    [
        ("no_content_bloom-noresidual.yaml", "no_residual"),
        ("no_content_bloom.yaml", "residual"),
        ("all_content_fineweb-edu_bloom.yaml", "residual_content"),
    ],
)
def test_published_curves(published_dir: Path, config: str, column: str) -> None:
    curve = read_columns(published_dir / "bloom-176b_fineweb-edu_256_profiles.csv")[column]
    mass = load_spec(published_dir / config).rollout().profile().mass
    assert np.abs(mass - curve).max() < 3e-7


@pytest.mark.parametrize(
    ("config", "shape"),
    [
        ("no_content_mpt-30b.yaml", (48, 64, 1)),
        ("no_content_mpt-7b.yaml", (32, 32, 1)),
        ("mean_content_fineweb-edu_bloom.yaml", (70, 112, 1)),
        ("all_content_fineweb-edu_mpt-7b.yaml", (32, 32, 32)),
    ],
)
def test_shapes_of_published_files(
    published_dir: Path, config: str, shape: tuple[int, int, int]
) -> None:
    spec = load_spec(published_dir / config)
    assert (spec.length, spec.depth) == (256, shape[0])
    assert len(spec.layers) == shape[2]
    assert all(len(kernel.heads) == shape[1] for kernel in spec.kernels())
    assert spec.provenance["file"] == config
    assert len(spec.provenance["sha256"]) == 64


def test_tabs_of_a_published_file(published_dir: Path) -> None:
    assert b"\t" in (published_dir / "no_content_mpt-30b.yaml").read_bytes()


def test_mean_content_holds_for_all_heads(published_dir: Path) -> None:
    file = published_dir / "mean_content_fineweb-edu_bloom.yaml"
    scores = yaml.safe_load(file.read_text())["content_config"]["diagonal_scores"]
    assert [len(row) for row in scores] == [1]
    (kernel,) = load_spec(file).kernels()
    assert [head.diagonal for head in kernel.heads] == scores[0] * 112


SMALL: dict[str, Any] = {
    "sequence_length": 7,
    "num_layers": 3,
    "mask_config": {"mask_type": "causal", "window_size": None},
    "attention_config": {
        "num_heads": 2,
        "alibi_slopes": [[0.5, 0.25]],
        "head_weights": None,
        "softmax_temperature": 1.0,
    },
    "content_config": {"diagonal_scores": [[0.1, -0.2], [0.3, 0.0], [1.0, 2.0]]},
    "lambda_schedule_config": {"schedule_type": "custom", "lambdas_custom": [0.5, 0.2, 0.9]},
    "save_dir": "out",
}


def changed(**changes: Any) -> dict[str, Any]:
    """Return the small config with ``section__key=value`` set."""
    document = deepcopy(SMALL)
    for place, value in changes.items():
        *sections, key = place.split("__")
        target = document
        for section in sections:
            target = target[section]
        target[key] = value
    return document


def load(document: Any, folder: Path) -> Spec:
    file = folder / "config.yaml"
    file.write_text(yaml.safe_dump(document))
    return load_spec(file)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"mask_config": {"mask_type": "sliding_window", "window_size": 3}},
        {"mask_config": {"mask_type": "full", "window_size": None}},
        {"attention_config__softmax_temperature": 2},
        {"attention_config__head_weights": [[1.0, 3.0]]},
        {"attention_config__head_weights": [[1.0, 3.0], [0.0, 1.0], [2.0, 2.0]]},
        {"attention_config__alibi_slopes": [[0.5], [1.0], [0.0]]},
        {"content_config__base_scores": [[5.0, -7.0]]},
        {"content_config__diagonal_scores": [[1]]},
        {"content_config": {}},
        {
            "lambda_schedule_config": {
                "schedule_type": "power_decay",
                "lambda_0": 0.9,
                "beta": 0.7,
            }
        },
        {"lambda_schedule_config": {"schedule_type": "constant", "lambda_const": 1}},
    ],
    ids=str,
)
def test_small_configs_match_matrices(tmp_path: Path, changes: dict[str, Any]) -> None:
    document = changed(**changes)
    mass = load(document, tmp_path).rollout().profile().mass
    np.testing.assert_allclose(mass, naive_row(document), rtol=0, atol=1e-13)


@pytest.mark.parametrize(
    ("changes", "place"),
    [
        ({"sequence_length": 1}, "sequence_length is 1"),
        ({"sequence_length": "256"}, "sequence_length is '256'"),
        ({"sequence_length": 10**12}, "sequence_length"),
        ({"num_layers": True}, "num_layers is True"),
        ({"num_layers": 4}, "diagonal_scores has shape (3, 2)"),
        ({"sequence_lenght": 3}, "did you mean 'sequence_length'?"),
        ({"mask_config": None}, "mask_config is None"),
        ({"mask_config__mask_type": "casual"}, "mask_config.mask_type is 'casual'"),
        ({"mask_config__mask_type": ["causal"]}, "mask_config.mask_type"),
        ({"mask_config__mask_type": "sliding_window"}, "mask_config.window_size is None"),
        ({"mask_config__window": 3}, "did you mean 'window_size'?"),
        ({"attention_config__num_heads": 0}, "attention_config.num_heads is 0"),
        ({"attention_config__num_heads": 10**9}, "attention_config.num_heads"),
        ({"attention_config__num_heads": 3}, "attention_config.alibi_slopes has shape (1, 2)"),
        ({"attention_config__alibi_slopes": None}, "attention_config.alibi_slopes"),
        ({"attention_config__alibi_slopes": [0.5, 0.25]}, "alibi_slopes has shape (2,)"),
        ({"attention_config__alibi_slopes": [[0.5, 0.1], [0.5]]}, "alibi_slopes is not a rect"),
        ({"attention_config__alibi_slopes": [[0.5, "a"]]}, "alibi_slopes"),
        ({"attention_config__alibi_slopes": [["0.5", "0.25"]]}, "alibi_slopes"),
        ({"attention_config__alibi_slopes": [[0.5, True]]}, "alibi_slopes[0][1] is true"),
        ({"attention_config__alibi_slopes": [[0.5, None]]}, "alibi_slopes"),
        ({"attention_config__alibi_slopes": [[0.5, float("nan")]]}, "alibi_slopes[0][1] is nan"),
        ({"attention_config__alibi_slopes": [[0.5, 10**400]]}, "alibi_slopes[0][1]"),
        ({"attention_config__alibi_slopes": {}}, "alibi_slopes"),
        ({"attention_config__head_weights": [[1.0, -1.0]]}, "head_weights[0][1] is -1"),
        ({"attention_config__head_weights": [[0.0, 0.0]]}, "head_weights are all 0"),
        ({"attention_config__softmax_temperature": 0}, "softmax_temperature is 0"),
        ({"attention_config__softmax_temperature": "1"}, "softmax_temperature is '1'"),
        ({"attention_config__softmax_temperature": 10**400}, "softmax_temperature"),
        ({"content_config__diagonal_scores": [[float("inf"), 0.0]]}, "diagonal_scores[0][0]"),
        ({"content_config__base_scores": [[1.0, 2.0], [0.0, 0.0]]}, "base_scores has shape (2,"),
        ({"lambda_schedule_config": {}}, "schedule_type is None"),
        ({"lambda_schedule_config__schedule_type": []}, "schedule_type is []"),
        ({"lambda_schedule_config__schedule_type": "constant"}, "'lambda_const'"),
        ({"lambda_schedule_config__lambdas_custom": [0.5, 1.5, 0.1]}, "lambdas_custom"),
        ({"lambda_schedule_config__lambdas_custom": [0.5, 0.5]}, "3 are required"),
        ({"lambda_schedule_config__lambdas_custom": [0.5, 0.5, None]}, "lambdas_custom"),
        ({"lambda_schedule_config__lambdas_custom": [0.5, 0.5, True]}, "lambdas_custom[2]"),
        (
            {
                "lambda_schedule_config": {
                    "schedule_type": "power_decay",
                    "lambda_0": 0.5,
                    "beta": -1000,
                }
            },
            "lambda_0, beta",
        ),
    ],
    ids=str,
)
def test_wrong_configs(tmp_path: Path, changes: dict[str, Any], place: str) -> None:
    with pytest.raises(SpecError) as caught:
        load(changed(**changes), tmp_path)
    message = str(caught.value)
    assert "\n" not in message
    assert len(message) < 800
    assert message.startswith(str(tmp_path / "config.yaml"))
    assert place in message


@pytest.mark.parametrize("key", ["sequence_length", "num_layers", "attention_config"])
def test_missing_sections(tmp_path: Path, key: str) -> None:
    document = deepcopy(SMALL)
    del document[key]
    with pytest.raises(SpecError, match=f"lacks the key '{key}'"):
        load(document, tmp_path)
