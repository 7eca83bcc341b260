"""Memory and time of a run: what is estimated, reported and refused."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny_models import HEADS, tiny, token_ids

from posbias.errors import InputError
from posbias.measure import MeasureOptions, measure, resources
from posbias.models.positions import Sizes

CPU = torch.device("cpu")


def test_the_kernels_dominate_long_windows() -> None:
    sizes = Sizes(layers=18, heads=4, kv_heads=1, head_width=8)
    for record, count in (("paper", 1), ("default", 2), ("all", 6)):
        options = MeasureOptions(length=4096, windows=1, batch_size=1, record=record)
        need = resources.needed_bytes(sizes, options)
        kernels = count * 8 * 18 * 4096**2
        assert kernels < need.sums < 1.01 * kernels
    assert need.total == need.sums + need.capture


def test_the_sums_are_those_of_the_accumulator() -> None:
    model, windows, length = tiny("llama"), 5, 16
    arrays = measure(model, token_ids(windows, length).numpy(), batch_size=1).arrays
    sizes = Sizes(layers=2, heads=HEADS, kv_heads=4, head_width=4)
    need = resources.needed_bytes(sizes, MeasureOptions(length=length, windows=windows))
    assert need.sums == pytest.approx(sum(array.nbytes for array in arrays.values()), rel=0.1)


def test_a_run_that_cannot_fit_is_refused_before_it_starts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(resources, "available_bytes", lambda device: 3_000)
    batches: list[int] = []
    with pytest.raises(InputError, match=r"windows of 16 tokens need .* cpu has 0 MB free"):
        measure(
            tiny("llama"), token_ids(4, 16).numpy(), progress=lambda done, _: batches.append(done)
        )
    assert batches == []


def test_nothing_is_refused_where_the_system_does_not_say(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resources, "available_bytes", lambda device: None)
    assert measure(tiny("llama"), token_ids(2, 16).numpy()).windows == 2


def test_the_memory_of_this_machine_is_known() -> None:
    free = resources.available_bytes(CPU)
    assert free is not None
    assert free > 2**20
    assert resources.available_bytes(torch.device("meta")) is None


@pytest.mark.parametrize(("limit", "left"), [("max", None), ("1000", 450), ("100", 0)])
def test_limits_of_a_container(limit: str, left: int | None, tmp_path: Path) -> None:
    (tmp_path / "memory.max").write_text(limit + "\n")
    (tmp_path / "memory.current").write_text("600\n")
    (tmp_path / "memory.stat").write_text("anon 5\ninactive_file 50\n")
    assert resources._group_bytes(tmp_path) == left


def test_no_container(tmp_path: Path) -> None:
    assert resources._group_bytes(tmp_path) is None


def test_a_long_run_is_announced(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(resources, "time", Clock(step=10.0))
    with caplog.at_level(logging.INFO, logger="posbias"):
        measure(tiny("llama"), token_ids(20, 12).numpy(), influence="none")
    # One forward pass took ten seconds by that clock.
    assert "20 windows of 12 tokens: about 4 min" in caplog.text
    assert "beside the model" in caplog.text


def test_a_short_run_is_not(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger="posbias"):
        measure(tiny("llama"), token_ids(20, 12).numpy(), influence="none")
    assert caplog.text == ""


class Clock:
    """Advances by one step whenever it is read."""

    def __init__(self, step: float) -> None:
        self._now, self._step = 0.0, step

    def perf_counter(self) -> float:
        self._now += self._step
        return self._now


@pytest.mark.parametrize(
    ("options", "passes"),
    [
        ({"influence": "none"}, 1.25),
        ({"influence": "gradient"}, 3.25),
        ({"influence": "gradient", "checkpoint": True}, 4.25),
        ({"influence": "occlusion", "length": 40}, 41.25),
        ({"influence": "integrated-gradients", "integration_steps": 8}, 25.25),
    ],
)
def test_costs_in_forward_passes(options: dict[str, Any], passes: float) -> None:
    assert resources._passes(MeasureOptions(**options)) == passes


@pytest.mark.parametrize(
    ("seconds", "words"), [(45, "45 s"), (600, "10 min"), (9000, "2.5 h"), (None, "tokens: 1 MB")]
)
def test_words(seconds: float | None, words: str) -> None:
    need = resources.Need(sums=600_000, capture=400_000)
    assert words in resources.describe_need(need, seconds, MeasureOptions())
