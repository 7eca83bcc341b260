"""Both implementations of the recurrences, for every test that asks for them."""

from __future__ import annotations

import pytest

from posbias.kernels import _scan

NEVER = 2**62


@pytest.fixture(params=[0, NEVER], ids=["compiled", "numpy"])
def recurrences(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Run everything in compiled code, or everything in NumPy."""
    monkeypatch.setattr(_scan, "COMPILED_FROM", request.param)
    return "numpy" if request.param else "compiled"
