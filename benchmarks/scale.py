"""What a large measurement would cost: arithmetic from measured ratios and stated assumptions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from posbias.kernels.summary import NEAREST_LAGS, block_edges


@dataclass(frozen=True)
class Model:
    """Sizes of a Transformer."""

    name: str
    parameters: float
    layers: int
    width: int
    bytes_per_parameter: int = 2

    def forward_flops(self, n: int) -> float:
        """Return the operations of one pass over n tokens: weights, and causal attention."""
        return n * (2.0 * self.parameters + 2.0 * self.layers * n * self.width)


@dataclass(frozen=True)
class Cluster:
    """Machines and how well they are used."""

    name: str
    devices: int
    devices_per_model: int
    flops: float
    utilisation: float
    memory_gb: float

    @property
    def processes(self) -> int:
        """Copies of the model that work at once."""
        return self.devices // self.devices_per_model


MODEL = Model("70B parameters, 80 layers, width 8192, bfloat16", 70e9, 80, 8192)
CLUSTER = Cluster("8 nodes of 8 GPUs with 80 GB and 990 TFLOP/s (bfloat16)", 64, 4, 990e12, 0.4, 80)
WINDOWS, LENGTH = 10_000, 8_192


def estimate(case: dict[str, Any]) -> dict[str, float]:
    """Return the cost of the stated measurement, from the ratios of one measured case."""
    times = case["seconds"]
    ratio = times["measure_gradient"] / times["forward"]
    forward = MODEL.forward_flops(LENGTH) / (CLUSTER.flops * CLUSTER.utilisation)
    window = forward * ratio
    blocks = block_edges(LENGTH).size - 1
    return {
        "ratio": ratio,
        "forward_seconds": forward,
        "window_seconds": window,
        "hours": window * WINDOWS / CLUSTER.processes / 3600,
        "device_hours": window * WINDOWS / 3600 * CLUSTER.devices_per_model,
        "kernels_gb": 8 * MODEL.layers * LENGTH**2 / 1e9,
        "summaries_gb": 8 * MODEL.layers * blocks * (blocks + NEAREST_LAGS) / 1e9,
        "weights_gb": MODEL.parameters * MODEL.bytes_per_parameter / 1e9,
    }


def section(cases: list[dict[str, Any]]) -> str:
    """Return the section of the page, based on the longest windows that were timed."""
    timed = [case for case in cases if "seconds" in case]
    case = max(timed, key=lambda c: (c["n"], c["seconds"]["forward"]))
    cost = estimate(case)
    return "\n".join(
        [
            "## Simulated scale\n",
            f"Computed, not run: {WINDOWS:,} windows of {LENGTH:,} tokens through a model of "
            f"{MODEL.name}, with gradient influence, on {CLUSTER.name}.\n",
            "| quantity | value | from |",
            "|---|---|---|",
            f"| forward pass of one window | {cost['forward_seconds']:.1f} s | "
            f"{MODEL.forward_flops(LENGTH):.2e} operations at {CLUSTER.utilisation:.0%} of the "
            "peak of one GPU |",
            f"| measurement / forward pass | {cost['ratio']:.2f} | measured above: "
            f"{case['model']}, n = {case['n']} |",
            f"| one window | {cost['window_seconds']:.1f} s | product of both |",
            f"| processes | {CLUSTER.processes} | {CLUSTER.devices_per_model} GPUs each: the "
            f"weights take {cost['weights_gb']:.0f} GB |",
            f"| kernel sums of a process | {cost['kernels_gb']:.0f} GB | 8 T n² bytes; "
            f"{cost['summaries_gb']:.2f} GB with `--kernels summary` |",
            f"| **duration** | **{cost['hours']:.1f} h** | {cost['device_hours']:,.0f} GPU hours |",
            "",
            "Assumptions: a model split with a `device_map` works on one of its GPUs at a time; "
            "the ratio of measurement to forward pass, taken on a CPU in float32, holds on a GPU "
            "too; reading the text, loading the model and adding the sums of the processes once at "
            "the end take no time that matters.\n",
        ]
    )
