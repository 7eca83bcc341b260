"""Kernels kept as summaries: the sums of the full ones, predictions close to them, less memory."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import posbias
from posbias.errors import ArtifactError, InputError
from posbias.kernels import SummaryKernel
from posbias.kernels.summary import NEAREST_LAGS, block_edges
from posbias.measure import resources
from posbias.measure.kernel_sums import SummaryKernels
from posbias.measure.options import MeasureOptions
from posbias.measure.resources import check_memory, needed_bytes
from posbias.measurement import Measurement, merge
from posbias.models.positions import Sizes

N = 160


@pytest.fixture(scope="module", params=["embedded:bloom", "embedded:llama"])
def pair(request):
    """Return one measurement with full and one with summarised kernels."""
    options = {"windows": 4, "length": N, "influence": "none"}
    full = posbias.measure(request.param, "embedded", **options)
    return full, posbias.measure(request.param, "embedded", **options, kernels="summary")


def summed_by_loops(kernel, start=0):
    """Return the sums by block and lag of a dense matrix."""
    edges = block_edges(kernel.shape[1])
    block = np.searchsorted(edges, np.arange(kernel.shape[1]), side="right") - 1
    near = np.zeros((len(edges) - 1, NEAREST_LAGS))
    far = np.zeros((len(edges) - 1, len(edges) - 1))
    for row, values in enumerate(kernel):
        i = start + row
        for j in range(i + 1):
            if i - j < NEAREST_LAGS:
                near[block[i], i - j] += values[j]
            else:
                far[block[i], block[j]] += values[j]
    return near, far


def test_summary_is_the_sum_of_the_full_kernels(pair):
    full, short = pair
    assert "kernel.attention.sum" not in short.arrays
    for layer in (0, full.layers - 1):
        near, far = summed_by_loops(full.arrays["kernel.attention.sum"][layer])
        np.testing.assert_allclose(short.arrays["summary.near.sum"][layer], near, atol=1e-12)
        np.testing.assert_allclose(short.arrays["summary.far.sum"][layer], far, atol=1e-12)
    # The coherence of what attention brings is a by-product of the full kernels.
    left_out = {name for name in full.arrays if name.startswith("kernel.")}
    left_out.add("stream.coherence.windows")
    assert not left_out & set(short.arrays)
    for name in set(full.arrays) - left_out:
        np.testing.assert_array_equal(full.arrays[name], short.arrays[name], err_msg=name)


@pytest.mark.parametrize("variant", ["residual+measured", "fixed-half"])
def test_predictions_from_summaries_are_close_and_say_what_they_are(pair, variant):
    profiles = [posbias.predict(m, variants=[variant])[variant] for m in pair]
    full, short = profiles
    distance = np.abs(np.cumsum(full.mass - short.mass)).sum() / (N - 1)
    assert 0.0 < distance < 5e-3
    assert short.origin["kernels"] == "summarised"
    assert "kernels" not in full.origin


def test_summaries_are_stored_merged_and_cut_like_full_kernels(pair, tmp_path):
    short = pair[1]
    opened = Measurement.open(short.save(tmp_path / "short"))
    kernels = opened.kernels("attention")
    assert all(isinstance(kernel, SummaryKernel) for kernel in kernels)
    assert "summarised" in opened.summary()
    assert opened.sinks().layers == short.layers
    part = opened.kernels("attention", n=70)[0]
    np.testing.assert_allclose(part.toarray(), kernels[0].toarray()[:70, :70], atol=1e-15)
    with pytest.raises(InputError, match="measured at 160 positions"):
        opened.kernels("attention", n=N + 1)


def test_parts_merge_to_the_whole():
    options = {"windows": 4, "length": 96, "batch_size": 1, "influence": "none"}
    whole = posbias.measure("embedded:bloom", "embedded", **options, kernels="summary")
    parts = [
        posbias.measure("embedded:bloom", "embedded", **options, kernels="summary", part=(k, 2))
        for k in (1, 2)
    ]
    merged = merge(parts)
    for name in ("summary.near.sum", "summary.far.sum"):
        np.testing.assert_allclose(merged.arrays[name], whole.arrays[name], rtol=1e-12, atol=1e-14)
    full = posbias.measure("embedded:bloom", "embedded", **options, part=(2, 2))
    with pytest.raises(InputError, match="is recorded in"):
        merge([parts[0], full])


@pytest.mark.parametrize("rows", [1, 30, 200])
def test_blocks_of_rows_of_any_size_give_the_same_sums(rows):
    n = 200
    kernel = np.tril(np.random.default_rng(0).random((n, n)))
    sums = SummaryKernels(2, n, device=torch.device("cpu"))
    for start in range(0, n, rows):
        stop = min(start + rows, n)
        sums.add(1, start, torch.from_numpy(kernel[start:stop, :stop].copy()))
    near, far = summed_by_loops(kernel)
    arrays = sums.arrays()
    np.testing.assert_allclose(arrays["summary.near.sum"][1], near, rtol=1e-12)
    np.testing.assert_allclose(arrays["summary.far.sum"][1], far, rtol=1e-12)
    assert not arrays["summary.near.sum"][0].any()


def test_damaged_summaries_are_refused(pair):
    short = pair[1]
    arrays = dict(short.arrays)

    def refused(**changes):
        with pytest.raises(ArtifactError) as error:
            Measurement(short.manifest, {**arrays, **changes})
        return str(error.value)

    near = arrays["summary.near.sum"].copy()
    near[0, 3] *= 0.9
    assert "rows of block 3 sum to 0.9" in refused(**{"summary.near.sum": near})
    far = arrays["summary.far.sum"].copy()
    far[1, 2, 5] = 0.25
    assert "where no query sees a key" in refused(**{"summary.far.sum": far})
    full = pair[0].arrays["kernel.attention.sum"]
    assert "not both" in refused(**{"kernel.attention.sum": full})
    del arrays["summary.far.sum"]
    assert "summary.far.sum is missing" in refused()


def test_memory_of_long_windows_is_that_of_the_summary(monkeypatch):
    sizes = Sizes(layers=80, heads=64, kv_heads=8, head_width=128)
    options = MeasureOptions(length=32768, windows=4, influence="none")
    full = needed_bytes(sizes, options)
    short = needed_bytes(
        sizes, MeasureOptions(**{**options.as_dict(), "kernels": "summary", "influence": "none"})
    )
    assert full.sums - short.sums > 8 * 80 * 32768**2 * 0.99
    monkeypatch.setattr(resources, "available_bytes", lambda device: 2 * 10**10)
    with pytest.raises(InputError, match="--kernels summary"):
        check_memory(sizes, options, torch.device("cpu"))


def test_another_word_for_the_detail_is_refused():
    with pytest.raises(InputError, match="full or summary is required"):
        MeasureOptions(kernels="some")
