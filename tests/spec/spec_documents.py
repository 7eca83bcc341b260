"""Documents of the package's own form for the tests."""

from __future__ import annotations

from typing import Any

HEADS = {"heads": [{"position": {"type": "nope"}}]}
MIXING = {"type": "constant", "value": 0.3}


def document(**changes: Any) -> dict[str, Any]:
    whole = {"posbias_spec": 1, "length": 4, "depth": 2, "layers": [HEADS], "mixing": MIXING}
    return {key: value for key, value in {**whole, **changes}.items() if value is not ...}
