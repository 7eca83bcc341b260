"""Invariances, absences and exact cases of the statistics behind further estimators."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tiny_models import HEADS, KINDS, tiny, token_ids
from torch import nn

from posbias.errors import InputError, UnsupportedModelError
from posbias.measure import MeasureOptions, measure, token_shares, value_kernels
from posbias.measure.checkpoint import PartialRun
from posbias.measure.stream_sums import ROUNDING
from posbias.measurement import Measurement, merge
from posbias.measurement.estimator_arrays import ESTIMATOR_ARRAYS, VALUE_KERNELS
from posbias.models.preflight import locate
from posbias.models.state import forward_logits, measuring
from posbias.models.tap import AttentionRows
from posbias.models.values import find_value_paths, why_no_mlp

N = 12
NO_MLP = ("bloom-post", "opt-350m")
NAMES = tuple(ESTIMATOR_ARRAYS)


class StopError(Exception):
    """What a test raises in the middle of a run."""


def record_all(model: Any, windows: int = 3, **settings: Any) -> Measurement:
    options = {"influence": "none", "record": "all", "jacobian": 2, **settings}
    return measure(model, token_ids(windows, N).numpy(), **options)


@pytest.mark.parametrize("kind", KINDS)
def test_values_can_be_followed_in_every_model_of_the_matrix(kind: str) -> None:
    model, ids = tiny(kind), token_ids(2, 24)
    with measuring(model), torch.no_grad():
        sites = locate(model, ids)

        def forward() -> Any:
            return forward_logits(model, ids)

        paths = find_value_paths(sites, forward)
        reason = why_no_mlp(sites, forward)
    assert len(paths) == len(sites.layers)
    assert all(path.weight().isfinite().all() for path in paths)
    assert (reason is not None) == (kind in NO_MLP)


@pytest.mark.parametrize(
    "kind", ["llama", "gemma3", "bloom", "gpt_oss", "deepseek_v3", "falcon-40b"]
)
def test_every_array_is_recorded_and_within_its_range(kind: str) -> None:
    measurement = record_all(tiny(kind))  # The schema checks ranges, triangles and row sums.
    assert set(NAMES) <= set(measurement.arrays)


def test_batches_change_nothing_but_the_rounding_of_the_model() -> None:
    model = tiny("llama", dtype=torch.float64)
    one, all_at_once = record_all(model, batch_size=1), record_all(model, batch_size=3)
    for name in NAMES:
        np.testing.assert_allclose(one.arrays[name], all_at_once.arrays[name], rtol=1e-9)


def test_parts_merge_to_the_whole() -> None:
    model = tiny("gemma3", dtype=torch.float64)
    ids = token_ids(4, N)
    options = {"influence": "none", "record": "all", "jacobian": 2, "batch_size": 2}
    whole = measure(model, ids.numpy(), **options)
    parts = [measure(model, ids.numpy(), part=(k, 2), **options) for k in (1, 2)]
    joined = merge(parts)
    for name in NAMES:
        np.testing.assert_allclose(joined.arrays[name], whole.arrays[name], rtol=1e-12)


def test_an_interrupted_run_continues_bit_by_bit(tmp_path: Path) -> None:
    model, ids = tiny("llama"), token_ids(5, N).numpy()
    options: dict[str, Any] = {"influence": "none", "record": "all", "jacobian": 1}
    options["batch_size"] = 2

    def stop(done: int, total: int) -> None:
        if done >= 4:
            raise StopError

    with pytest.raises(StopError), PartialRun(tmp_path / "out", every=2) as partial:
        measure(model, ids, partial=partial, progress=stop, **options)
    with PartialRun(tmp_path / "out", resume=True) as partial:
        resumed = measure(model, ids, partial=partial, **options)
    assert resumed.manifest["run"]["resumed_at"]
    whole = measure(model, ids, **options)
    for name in NAMES:
        assert np.array_equal(resumed.arrays[name], whole.arrays[name])


def test_the_order_of_the_heads_does_not_matter() -> None:
    model = tiny("phi3", dtype=torch.float64, num_key_value_heads=HEADS)
    before = record_all(model)
    order = torch.randperm(HEADS, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        for layer in model.model.layers:
            fused, out = layer.self_attn.qkv_proj.weight, layer.self_attn.o_proj.weight
            width = len(fused)
            rows = fused.view(3, HEADS, width // (3 * HEADS), -1)
            fused.copy_(rows[:, order].reshape(width, -1))
            columns = out.view(len(out), HEADS, -1)
            out.copy_(columns[:, order].reshape(len(out), -1))
    after = record_all(model)
    for name in NAMES:
        np.testing.assert_allclose(after.arrays[name], before.arrays[name], rtol=1e-7)


def test_the_scale_of_the_stream_does_not_matter() -> None:
    model = tiny("llama", dtype=torch.float64, rms_norm_eps=1e-30)
    before = record_all(model)
    with torch.no_grad():
        model.model.embed_tokens.weight.mul_(8.0)
        for layer in model.model.layers:
            layer.self_attn.o_proj.weight.mul_(8.0)
            layer.mlp.down_proj.weight.mul_(8.0)
    after = record_all(model)
    for name in NAMES:
        scale = 8.0 if ".norm.sum" in name or "centred-norm.sum" in name else 1.0
        np.testing.assert_allclose(
            after.arrays[name], scale * before.arrays[name], rtol=1e-5, atol=1e-9
        )


def test_values_that_are_all_the_same_leave_every_token_what_it_is() -> None:
    generator = torch.Generator().manual_seed(0)
    weight = torch.randn(10, 6, dtype=torch.float64, generator=generator)
    values = torch.randn(2, 1, 3, dtype=torch.float64, generator=generator).expand(-1, N, -1)
    products = value_kernels.HeadProducts(weight, 2, torch.float64)
    energies = products.energies(values)
    centred = products.grams(values - values.mean(1, keepdim=True) + 1e-16)
    logits = torch.zeros(1, 2, N, N)
    visible = torch.ones(N, N, dtype=torch.bool).tril()
    rows = AttentionRows(0, 0, logits, visible, N)
    for root in (False, True):
        target = torch.zeros(N, N, dtype=torch.float64)
        rounding = (ROUNDING**2 * float(energies.max()), root)
        value_kernels.add_energy_rows(rows, 0, centred, target, window=N, rounding=rounding)
        assert torch.equal(target, torch.eye(N, dtype=torch.float64))


def test_one_head_with_orthogonal_values_of_one_length_gives_back_its_attention() -> None:
    """What a key adds to a query has then the length of its attention."""
    model = tiny("gpt2", n_embd=48, n_head=1, dtype=torch.float64)
    mixed = torch.randn(48, 47, generator=torch.Generator().manual_seed(0))
    columns = torch.linalg.qr(torch.cat([torch.ones(48, 1), mixed], 1).double())[0]
    with torch.no_grad():
        model.transformer.wpe.weight.zero_()
        # Orthogonal vectors of length one and mean zero: the norm gives all the same length.
        model.transformer.wte.weight[:47] = columns[:, 1:].T
        model.transformer.h[0].ln_1.weight.fill_(1.0)
        model.transformer.h[0].ln_1.bias.zero_()
        attention = model.transformer.h[0].attn
        attention.c_attn.bias[-48:] = 0.0
        attention.c_attn.weight[:, -48:] = torch.eye(48)
        attention.c_proj.weight.copy_(torch.eye(48))
    ids = torch.arange(3, 3 + N)[None].numpy()
    measurement = measure(model, ids, influence="none", record="all")
    weights = measurement.kernels("attention")[0].toarray()
    squares = weights**2 / (weights**2).sum(-1, keepdims=True)
    expected = {
        "value-weighted": weights,
        "value-weighted-energy": squares,
        "attention-energy": squares,
    }
    for kind, kernel in expected.items():
        np.testing.assert_allclose(measurement.kernels(kind)[0].toarray(), kernel, rtol=1e-6)
    lengths = measurement.arrays["value.norm.sum"][0]
    np.testing.assert_allclose(lengths, lengths[0], rtol=1e-6)


def test_compiled_code_agrees_with_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    ids = token_ids(2, 60)
    settings: dict[str, Any] = {"influence": "none", "record": "all"}
    for attention in ("sdpa", "eager"):
        model = tiny("mistral", attn=attention)
        monkeypatch.undo()
        for module in (token_shares, value_kernels):
            monkeypatch.setattr(module, "COMPILED_FROM", 1)
        compiled = measure(model, ids.numpy(), **settings)
        for module in (token_shares, value_kernels):
            monkeypatch.setattr(module, "COMPILED_FROM", 10**12)
        plain = measure(model, ids.numpy(), **settings)
        for name in set(NAMES) & set(plain.arrays):
            np.testing.assert_allclose(
                compiled.arrays[name], plain.arrays[name], rtol=2e-4, atol=2e-6
            )


def test_the_paper_needs_nothing_of_it() -> None:
    measurement = record_all(tiny("llama"), record="paper", jacobian=0)
    assert not set(NAMES) & set(measurement.arrays)
    assert measurement.manifest["run"]["record"] == "paper"


def test_default_leaves_the_other_kernels_out() -> None:
    measurement = record_all(tiny("llama"), record="default", jacobian=0)
    kernels = {name for name in VALUE_KERNELS.values() if name in measurement.arrays}
    assert kernels == {"kernel.centred-value-energy.sum"}
    assert "mixing.jacobian.windows" not in measurement.arrays


def test_summarised_kernels_are_kept_without_a_matrix() -> None:
    measurement = record_all(tiny("llama"), record="default", kernels="summary", jacobian=0)
    assert not any(name in measurement.arrays for name in VALUE_KERNELS.values())
    assert "value.norm.sum" in measurement.arrays
    with pytest.raises(InputError, match="only summaries"):
        measurement.kernels("centred-value-weighted-energy")


@pytest.mark.parametrize("kind", NO_MLP)
def test_a_norm_on_the_stream_leaves_the_mlp_out(kind: str) -> None:
    measurement = record_all(tiny(kind))
    assert not any("+mlp" in name for name in measurement.arrays)
    with pytest.raises(InputError, match="norm on the stream"):
        measurement.mixing("energy+mlp")
    ids = token_ids(4, N).numpy()
    parts = [measure(tiny(kind), ids, batch_size=2, influence="none", part=(k, 2)) for k in (1, 2)]
    joined = merge(parts)
    with pytest.raises(InputError, match="norm on the stream"):
        joined.mixing("energy+mlp")


class Packed(nn.Module):
    """A linear module that does not show its weight."""

    def __init__(self, inner: nn.Linear) -> None:
        super().__init__()
        self.register_buffer("packed", inner.weight.detach().clone().flatten())
        self.shape = inner.weight.shape

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x @ self.packed.view(self.shape).T


def test_packed_weights_leave_the_values_out_and_say_so() -> None:
    model = tiny("llama")
    model.model.layers[1].self_attn.o_proj = Packed(model.model.layers[1].self_attn.o_proj)
    measurement = record_all(model, record="default")
    assert not any(name.startswith(("value.", "kernel.c")) for name in measurement.arrays)
    assert "layer 2" in measurement.manifest["run"]["values"]
    with pytest.raises(InputError, match="no linear module reads"):
        measurement.kernels("centred-value-weighted-energy")
    with pytest.raises(UnsupportedModelError, match="record 'all' needs"):
        record_all(model, record="all")


@pytest.mark.parametrize(
    "settings",
    [{"record": "most"}, {"jacobian": -1}, {"record": "all", "kernels": "summary"}],
)
def test_options_out_of_range_are_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(InputError):
        MeasureOptions(**settings)
