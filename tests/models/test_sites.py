"""Where x and a are: the table, the proof, and the search must agree."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from tiny_models import EXPERTS, KINDS, tiny, token_ids

from posbias.errors import InstrumentationError, UnsupportedModelError
from posbias.models.architectures import ARCHITECTURES, architecture_of
from posbias.models.sites import sites_from_row
from posbias.models.state import forward_logits
from posbias.models.stream import certify, search_sites


def located(kind, **options):
    model = tiny(kind, **options)
    row = architecture_of(model.config)
    assert row is not None
    ids = token_ids()
    return model, row, lambda: forward_logits(model, ids)


@pytest.mark.parametrize("kind", KINDS)
def test_table_row_is_certified_and_found_by_search(kind):
    model, row, forward = located(kind)
    sites = sites_from_row(model, row)
    proofs = certify(sites, forward)
    assert max(proof.error for proof in proofs) <= 1e-5
    found = search_sites(model, forward)
    for known, searched in zip(sites.layers, found.layers, strict=True):
        assert searched.block is known.block
        assert searched.multiplier == pytest.approx(known.multiplier, rel=1e-6)
        # A dropout or wrapper behind the update returns the same tensor.
        assert searched.update is known.update or kind == "gpt_neo"
        assert searched.stream is known.stream


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in EXPERTS])
def test_identity_is_exact_in_float64(kind):
    model, row, forward = located(kind, dtype=torch.float64)
    proofs = certify(sites_from_row(model, row), forward)
    assert max(proof.error for proof in proofs) <= 1e-12


@pytest.mark.parametrize(
    ("kind", "residual"),
    [
        ("falcon-alibi", "sequential"),
        ("falcon-7b", "parallel"),
        ("falcon-40b", "parallel"),
        ("gpt_neox", "parallel"),
        ("gpt_neox-sequential", "sequential"),
        ("gptj", "parallel"),
        ("phi", "parallel"),
        ("cohere", "parallel"),
        ("stablelm", "sequential"),
        ("stablelm-parallel", "parallel"),
        ("opt-350m", "sequential"),
        ("bloom", "sequential"),
    ],
)
def test_parallel_and_sequential_blocks_are_told_apart(kind, residual):
    model, row, forward = located(kind)
    assert {proof.residual for proof in certify(sites_from_row(model, row), forward)} == {residual}


@pytest.mark.parametrize(
    ("kind", "wrong"),
    [
        ("llama", {"update": "mlp"}),
        ("llama", {"update": "self_attn.v_proj"}),
        ("gemma3", {"update": "self_attn"}),
        ("olmo2", {"update": "self_attn"}),
        ("granite", {"multiplier": ""}),
        ("bloom", {"update": "self_attention"}),
        ("bloom-post", {"stream": ""}),
        ("gptj", {"update": "mlp"}),
        ("falcon-7b", {"update": "mlp"}),
    ],
)
def test_wrong_site_is_refused(kind, wrong):
    model, row, forward = located(kind)
    with pytest.raises(InstrumentationError, match="layer 1: x \\+ a"):
        certify(sites_from_row(model, replace(row, **wrong)), forward)


def test_missing_module_is_named():
    model, row, _ = located("llama")
    with pytest.raises(UnsupportedModelError, match="'nowhere'"):
        sites_from_row(model, replace(row, update="nowhere"))


def test_search_refuses_attention_without_a_residual():
    model, _, forward = located("llama")
    model.model.layers[1].self_attn.register_forward_hook(
        lambda module, args, output: (torch.tanh(output[0]) * output[0].norm(), *output[1:])
    )
    # The hook replaces the update itself, so the stream is still x + (what the module returns).
    assert search_sites(model, forward).update_path == "self_attn"
    model.model.layers[1].forward = lambda hidden_states, **kwargs: torch.tanh(hidden_states)
    with pytest.raises(UnsupportedModelError, match="layer 2"):
        search_sites(model, forward)


def test_every_hook_is_removed_after_a_failing_pass():
    model, row, _ = located("llama")

    def explode():
        raise RuntimeError("stop")

    with pytest.raises(RuntimeError, match="stop"):
        certify(sites_from_row(model, row), explode)
    assert all(
        not module._forward_hooks and not module._forward_pre_hooks for module in model.modules()
    )


def test_rows_are_complete_and_unique():
    keys = [(t, tuple(row.condition.items())) for row in ARCHITECTURES for t in row.model_types]
    assert len(keys) == len(set(keys))
    assert all(row.update and row.attention and row.blocks for row in ARCHITECTURES)
    assert all(set(row.implementations) <= {"sdpa", "eager"} for row in ARCHITECTURES)
