"""Timing and memory: medians of runs that alternate, the machine, and peaks of fresh processes."""

from __future__ import annotations

import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

from posbias import __version__

HERE = Path(__file__).resolve().parent
SOURCE = HERE.parent / "src"

LIBRARIES = ("posbias", "numpy", "scipy", "numba", "torch", "transformers", "safetensors")


def seconds(call: Callable[[], Any]) -> float:
    """Return the wall time of one call."""
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def medians(calls: Mapping[str, Callable[[], Any]], *, runs: int) -> dict[str, float]:
    """Return the median seconds of each call; the calls alternate, after one unmeasured round.

    What slows the machine for a while slows all of them, so that ratios stay comparable.
    """
    taken: dict[str, list[float]] = {name: [] for name in calls}
    for call in calls.values():
        call()
    for _ in range(runs):
        for name, call in calls.items():
            taken[name].append(seconds(call))
    return {name: statistics.median(values) for name, values in taken.items()}


def in_fresh_process(script: str, *arguments: str) -> dict[str, Any]:
    """Run a script of this folder in a new interpreter and return the JSON that it prints."""
    command = [sys.executable, str(HERE / script), *arguments]
    done = subprocess.run(command, check=False, capture_output=True, text=True, env=environment())
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)} failed: {done.stderr.strip()[-2000:]}")
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


def environment() -> dict[str, str]:
    """Return the environment for processes that import the package from this checkout."""
    paths = [str(SOURCE), os.environ.get("PYTHONPATH", "")]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}


def peak_bytes() -> int:
    """Return the largest resident size of this process since it began or since `reset_peak`."""
    return _status("VmHWM")


def resident_bytes() -> int:
    """Return the resident size of this process now."""
    return _status("VmRSS")


def reset_peak() -> None:
    """Let `peak_bytes` begin anew (Linux)."""
    Path("/proc/self/clear_refs").write_text("5")


def machine() -> dict[str, Any]:
    """Return what the numbers were taken on."""
    return {
        "processor": _processor(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_gb": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9, 1),
        "system": platform.platform(terse=True),
        "python": platform.python_version(),
        "libraries": {name: _version(name) for name in LIBRARIES},
    }


def _status(key: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(key + ":"):
            return int(line.split()[1]) * 1024
    raise RuntimeError(f"/proc/self/status has no {key}")


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()


def _version(name: str) -> str | None:
    if name == "posbias":
        return __version__
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None
