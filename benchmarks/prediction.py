"""Benchmarks of predictions from a published spec: against dense, linear cost, memory, process."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from dense_reference import AlibiModel, DenseRollout
from timing import environment, in_fresh_process, medians, peak_bytes, seconds

from posbias.spec import load_spec

LENGTHS = (1_000, 10_000, 100_000, 1_000_000)
EXTRAPOLATED_LAYERS = 2


def run(spec_path: Path, *, runs: int, quick: bool) -> dict[str, Any]:
    """Return all results of this part as JSON values."""
    spec = load_spec(spec_path)
    model = alibi_model(spec)
    lengths = LENGTHS[:3] if quick else LENGTHS
    return {
        "spec": spec_path.name,
        "layers": spec.depth,
        "heads": int(model.slopes.shape[1]),
        "dense_256": against_dense(spec, model, n=256, runs=1 if quick else runs),
        "dense_2048": against_extrapolation(spec, model, n=2048, runs=runs),
        "linear": [linear(spec_path, n, runs=runs) for n in lengths],
        "process": whole_process(spec_path, runs=runs),
    }


def alibi_model(spec: Any) -> AlibiModel:
    """Return what the dense reference needs, from the spec's plain description."""
    layers = [spec.layers[t % len(spec.layers)]["alibi"] for t in range(spec.depth)]
    heads = len(layers[0]["slopes"])
    return AlibiModel(
        slopes=np.array([layer["slopes"] for layer in layers]),
        diagonal=np.array([np.broadcast_to(layer["diagonal"], heads) for layer in layers]),
        mixing=np.asarray(spec.schedule().values, dtype=np.float64),
    )


def against_dense(spec: Any, model: AlibiModel, *, n: int, runs: int) -> dict[str, Any]:
    """Compare times and values where the whole dense computation is feasible."""
    source, dense = _of_other_length(spec, n), DenseRollout(model, n)
    difference = np.abs(dense.profile() - source.rollout(n).profile().mass).max()
    taken = medians(
        {**_ours(source, n), "dense": dense.profile, "dense_rows": dense.row_profile}, runs=runs
    )
    return _ratios(taken, n, runs) | {"largest_difference": float(difference)}


def against_extrapolation(spec: Any, model: AlibiModel, *, n: int, runs: int) -> dict[str, Any]:
    """Compare with the dense time of a few layers times T over their number.

    Layers cost the same, as no entry is skipped; agreement is checked on those few layers.
    """
    few = EXTRAPOLATED_LAYERS
    source, dense = _of_other_length(spec, n), DenseRollout(model, n)
    short = _bottom(spec, few)
    difference = np.abs(dense.row_profile(few) - short.rollout(n).profile().mass).max()
    taken = medians(_ours(source, n), runs=runs)
    scale = spec.depth / few
    taken["dense"] = scale * seconds(lambda: dense.profile(few))
    taken["dense_rows"] = scale * seconds(lambda: dense.row_profile(few))
    return _ratios(taken, n, runs) | {
        "largest_difference": float(difference),
        "dense_layers_timed": few,
    }


def _ours(source: Any, n: int) -> dict[str, Any]:
    """Return what is timed: the profile alone, and with the kernels built from the spec."""
    rollout = source.rollout(n)
    return {"profile": rollout.profile, "built": lambda: source.rollout(n).profile()}


def linear(spec_path: Path, n: int, *, runs: int) -> dict[str, Any]:
    """Return time and memory of one profile over n positions, in a fresh process."""
    result = in_fresh_process("prediction.py", str(spec_path), str(n), str(runs))
    return result | {"ns_per_position_head_layer": 1e9 * result["seconds"] / result["work"]}


def whole_process(spec_path: Path, *, runs: int) -> dict[str, Any]:
    """Return the time of ``posbias predict``, start of the interpreter included."""
    command = [sys.executable, "-m", "posbias", "predict", str(spec_path), "--csv", "-"]

    def call() -> None:
        subprocess.run(command, check=True, capture_output=True, env=environment())

    def start() -> None:
        subprocess.run([sys.executable, "-c", "import numpy"], check=True, env=environment())

    taken = medians({"predict": call, "import_numpy": start}, runs=runs)
    return {"seconds": taken["predict"], "seconds_import_numpy": taken["import_numpy"]}


def _of_other_length(spec: Any, n: int) -> Any:
    """Return the spec with another length of its own, so that kernels are built at each call."""
    return replace(spec, length=max(n // 2, 2))


def _bottom(spec: Any, layers: int) -> Any:
    values = [float(value) for value in spec.schedule().values[:layers]]
    entries = spec.layers if len(spec.layers) == 1 else spec.layers[:layers]
    mixing = {"type": "custom", "values": values}
    return replace(spec, depth=layers, layers=entries, mixing=mixing)


def _ratios(taken: dict[str, float], n: int, runs: int) -> dict[str, Any]:
    return {
        "n": n,
        "runs": runs,
        "seconds": taken,
        "ratio": taken["dense"] / taken["profile"],
        "ratio_with_building": taken["dense"] / taken["built"],
        "ratio_to_dense_rows": taken["dense_rows"] / taken["profile"],
    }


def _build(spec: Any, n: int) -> Any:
    return _of_other_length(spec, n).rollout(n)


def _profile_once(spec_path: Path, n: int, runs: int) -> dict[str, Any]:
    """Measure in this process, which has done nothing else."""
    imported = peak_bytes()
    spec = load_spec(spec_path)
    first = seconds(lambda: _build(spec, n).profile())
    peak = peak_bytes()
    rollout = spec.rollout(n)
    taken = medians({"build": lambda: _build(spec, n), "profile": rollout.profile}, runs=runs)
    heads = len(spec.layers[0]["alibi"]["slopes"])
    return {
        "n": n,
        "seconds_first": first,
        "seconds_build": taken["build"],
        "seconds": taken["profile"],
        "runs": runs,
        "megabytes_above_import": (peak - imported) / 1e6,
        "work": n * spec.depth * heads,
        "sum": float(rollout.profile().mass.sum()),
    }


if __name__ == "__main__":
    print(json.dumps(_profile_once(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))))
