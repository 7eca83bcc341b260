"""Several processes measure what one does."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from posbias.cli import main
from posbias.errors import InputError
from posbias.measure import MeasureOptions
from posbias.measure.checkpoint import PartialRun
from posbias.measure.sharding import Shard, current_shard, is_main_process, wait_for_all
from posbias.measurement import Measurement

COMMAND = ["measure", "embedded:llama", "embedded", "--length", "24", "--windows", "7"]
COMMAND += ["--batch-size", "2", "--quiet"]


@given(total=st.integers(1, 60), batch_size=st.integers(1, 9), count=st.integers(1, 8))
def test_shards_are_whole_batches_of_all_windows(total: int, batch_size: int, count: int) -> None:
    batches = [range(k, min(k + batch_size, total)) for k in range(0, total, batch_size)]
    if len(batches) < count:
        with pytest.raises(
            InputError, match=f"{len(batches)} batches for {count} processes or parts"
        ):
            Shard(0, count).windows(total, batch_size=batch_size)
        return
    spans = [Shard(k, count).windows(total, batch_size=batch_size) for k in range(count)]
    assert [w for span in spans for w in range(total)[span]] == list(range(total))
    assert all(span.start % batch_size == 0 and span.stop > span.start for span in spans)
    sizes = [-(-(span.stop - span.start) // batch_size) for span in spans]
    assert max(sizes) - min(sizes) <= 1


def test_one_process_is_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RANK", "WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    shard, arrays = current_shard(), {"kernel.attention.sum": np.ones((1, 2, 2))}
    assert shard == Shard(0, 1)
    assert shard.device() is None
    assert shard.combine(arrays) == arrays
    assert is_main_process()
    wait_for_all()


def test_checkpoints_of_another_number_of_processes_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "a.partial"
    folder.mkdir()
    (folder / "state-0-of-3.safetensors").write_bytes(b"")
    monkeypatch.setenv("WORLD_SIZE", "2")
    for rank in ("0", "1"):
        monkeypatch.setenv("RANK", rank)
        with pytest.raises(InputError, match="another number of processes, now it is 2"):
            PartialRun(tmp_path / "a", resume=True).__enter__()
    assert (folder / "state-0-of-3.safetensors").exists()


@pytest.mark.parametrize("parts", [2, 4])
def test_parts_merge_to_the_whole(parts: int, tmp_path: Path) -> None:
    whole = tmp_path / "whole"
    assert main([*COMMAND, "--out", str(whole)]) == 0
    names = [str(tmp_path / f"part-{k}") for k in range(1, parts + 1)]
    for k, name in enumerate(names, start=1):
        assert main([*COMMAND, "--part", f"{k}/{parts}", "--out", name]) == 0
    assert main(["merge", *reversed(names), "--out", str(tmp_path / "merged")]) == 0
    single, merged = Measurement.open(whole), Measurement.open(tmp_path / "merged")
    assert merged.manifest["windows"] == single.manifest["windows"]
    for name, array in single.arrays.items():
        if name.endswith(".windows"):
            assert np.array_equal(merged.arrays[name], array), name
        np.testing.assert_allclose(merged.arrays[name], array, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("part", ["0/2", "3/2", "1", "a/b", "1/2/3", "-1/2", "5/5"])
def test_impossible_parts(part: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*COMMAND, f"--part={part}", "--out", str(tmp_path / "a")]) == 2
    assert "part" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("part", [(1,), (1.0, 2), (True, 2), "1/2"])
def test_impossible_parts_from_python(part: Any) -> None:
    with pytest.raises(InputError, match="part is"):
        MeasureOptions(part=part)


def test_two_processes_under_accelerate_equal_one(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    assert main([*COMMAND, "--out", str(one)]) == 0
    launch = [sys.executable, "-m", "accelerate.commands.launch", "--multi_gpu"]
    # Without a GPU this starts processes that speak through gloo; --cpu would start only one.
    launch += ["--num_processes", "2", "--num_machines", "1", "--mixed_precision", "no"]
    launch += ["--dynamo_backend", "no", "--main_process_port", "0", "-m", "posbias"]
    done = subprocess.run(
        [*launch, *COMMAND, "--save-every", "1", "--out", str(two)],
        check=False,
        capture_output=True,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1", "ACCELERATE_USE_CPU": "true"},
        timeout=240,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("windows    7 of 24 tokens") == 1
    assert not (tmp_path / "two.partial").exists()
    single, shared = Measurement.open(one), Measurement.open(two)
    assert shared.manifest["run"]["processes"] == 2
    assert set(single.arrays) == set(shared.arrays)
    for name, array in single.arrays.items():
        np.testing.assert_allclose(shared.arrays[name], array, rtol=1e-12, atol=1e-12, err_msg=name)
    starts = [m.manifest["windows"]["starts"] for m in (single, shared)]
    assert starts[0] == starts[1]
