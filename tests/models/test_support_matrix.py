"""All architectures under eager and sdpa, with independent oracles for what is captured."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest
import torch
from support_matrix import IMPLEMENTATIONS, LENGTH, examine, measured_pairs
from tiny_models import KINDS, tiny, token_ids
from torch.nn import functional

from posbias.models.instrument import instrumented
from posbias.models.sites import known_row, sites_from_row
from posbias.models.state import forward_logits

PAIRS = measured_pairs()
WINDOWS = {
    "gpt_neo": (None, 8),
    "mistral": (8, 8),
    "mixtral": (8, 8),
    "starcoder2": (8, 8),
    "gemma2": (8, None),
    "gemma3": (8, None),
    "gpt_oss": (8, None),
    "cohere2": (8, 8, 8, None),
}


class Matrices:
    """Puts the captured probabilities together, one matrix (B, H, n, n) per layer."""

    def __init__(self):
        self.layers = {}

    def on_stream(self, layer, stream):
        pass

    def on_update(self, layer, update):
        pass

    def on_attention(self, rows):
        p = functional.pad(rows.probabilities, (0, rows.length - rows.probabilities.shape[-1]))
        before = self.layers.get(rows.layer)
        self.layers[rows.layer] = p if before is None else torch.cat([before, p], dim=-2)


def captured(kind, implementation, **options):
    model, seen = tiny(kind, attn=implementation, **options), Matrices()
    with torch.no_grad(), instrumented(sites_from_row(model, known_row(model)), seen, block_rows=7):
        forward_logits(model, token_ids(2, LENGTH))
    return seen.layers


def test_what_is_expected_to_run_does_and_nothing_else():
    ran = {(k, i) for k in KINDS for i in IMPLEMENTATIONS if examine(k, i).status == "measured"}
    assert ran == set(PAIRS)
    assert {kind for kind, _ in ran} == set(KINDS)
    refused = [(k, i) for k in KINDS for i in IMPLEMENTATIONS if examine(k, i).status == "refused"]
    assert refused == [("falcon-alibi", "eager")]


@pytest.mark.parametrize(("kind", "implementation"), PAIRS)
def test_every_check_passes(kind, implementation):
    checks = examine(kind, implementation).checks
    assert all(check["passed"] for check in checks.values())
    assert checks["stream_identity"]["value"] <= 1e-5
    assert checks["position_scheme"]["value"] <= 1e-6
    assert checks["outputs_unchanged"]["value"] == 0.0


@pytest.mark.parametrize(("kind", "implementation"), PAIRS)
def test_support_of_a_row_is_exactly_its_window(kind, implementation):
    i, j = torch.arange(LENGTH)[:, None], torch.arange(LENGTH)[None, :]
    for layer, p in captured(kind, implementation).items():
        windows = WINDOWS.get(kind)
        width = LENGTH if windows is None or windows[layer] is None else windows[layer]
        expected = (i - width + 1 <= j) & (j <= i)
        # Random weights make no probability vanish inside the window.
        assert torch.equal(p > 0, expected.expand_as(p))


@pytest.mark.parametrize(("kind", "implementation"), PAIRS)
def test_probabilities_are_those_of_the_eager_model(kind, implementation):
    if kind == "falcon-alibi":
        return check_falcon_by_hand(implementation)
    model = tiny(kind, attn="eager")
    with torch.no_grad():
        own = model(input_ids=token_ids(2, LENGTH), use_cache=False, output_attentions=True)
    for layer, p in captured(kind, implementation).items():
        error = (p - own.attentions[layer][..., :LENGTH]).abs().max()
        assert float(error) <= 2e-6, layer
    return None


def check_falcon_by_hand(implementation):
    """Its eager attention is wrong in transformers, so the first layer is computed here."""
    model = tiny("falcon-alibi", attn=implementation)
    ids, heads, width = token_ids(2, LENGTH), 12, 4
    block = model.transformer.h[0]
    with torch.no_grad():
        x = model.transformer.word_embeddings(ids)
        fused = block.self_attention.query_key_value(block.input_layernorm(x))
        q, k, _ = fused.view(2, LENGTH, heads, 3, width).permute(3, 0, 2, 1, 4)
    slopes = [2.0 ** -(h + 1) for h in range(8)] + [2.0 ** -(h + 0.5) for h in range(4)]
    bias = torch.tensor(slopes).bfloat16()[:, None] * torch.arange(LENGTH).bfloat16()
    logits = (q @ k.transpose(-1, -2) + bias[:, None, :].float()) / width**0.5
    mask = torch.ones(LENGTH, LENGTH, dtype=torch.bool).tril()
    p = torch.softmax(logits.masked_fill(~mask, -torch.inf), -1)
    assert float((captured("falcon-alibi", implementation)[0] - p).abs().max()) <= 2e-6


def test_the_table_in_the_docs_is_up_to_date():
    docs = Path(__file__).resolve().parents[2] / "docs"
    spec = importlib.util.spec_from_file_location("generate_support", docs / "_generate_support.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert (docs / "support.md").read_text(encoding="utf-8") == module.generate(), (
        "run python docs/_generate_support.py"
    )
