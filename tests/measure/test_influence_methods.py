"""Influence methods against definitions written out by hand, one window and one token at a time."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_models import tiny, token_ids
from torch import nn

from posbias.errors import UnsupportedModelError
from posbias.measure import measure
from posbias.measure.influence import EmbeddingLeaf, gradient_rows, next_distribution
from posbias.measure.influence_passes import integrated_gradients, occlusion, replacements
from posbias.measure.options import INFLUENCE_METHODS
from posbias.models.preflight import CheckedModel
from posbias.models.sites import ModelSites
from posbias.models.state import forward_logits

LENGTH = 12
KINDS = ("bloom", "gpt2", "llama", "gemma3")
WITHOUT_EMBEDDING_NORM = ("mpt", "gpt2", "llama", "gemma3")


def other_tokens(window: list[int], prefix: int = 0) -> list[int]:
    """Return the replacements of one window, by search from half a window away."""
    text = window[prefix:]
    m = len(text)
    result = []
    for j, token in enumerate(window):
        candidates = [text[(j - prefix + m // 2 + k) % m] for k in range(m)]
        different = [c for c in candidates if c != token]
        result.append(different[0] if different else (token - 1 if token else token + 1))
    return result


@given(st.lists(st.integers(0, 3), min_size=2, max_size=9), st.integers(0, 1))
def test_replacements_are_the_first_other_tokens_from_half_a_window_on(window, prefix):
    found = replacements(torch.tensor([window]), prefix=prefix)[0].tolist()
    assert found == other_tokens(window, prefix)
    assert all(new != old for new, old in zip(found, window, strict=True))


@settings(deadline=None, max_examples=20)
@given(st.integers(2, 12), st.integers(1, 4))
def test_replacements_of_a_window_do_not_depend_on_the_batch(n, batch):
    ids = torch.randint(0, 4, (batch, n), generator=torch.Generator().manual_seed(n))
    together = replacements(ids)
    alone = torch.cat([replacements(ids[b : b + 1]) for b in range(batch)])
    assert torch.equal(together, alone)


class Linear(nn.Module):
    """A next-token model whose probabilities are an affine function of the embeddings."""

    def __init__(self, n: int) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        self.embedding = nn.Embedding(6, 3)
        self.embedding.weight.data = torch.rand(6, 3, generator=generator).double() * 0.01
        self.weight = torch.rand(n, 3, generator=generator).double()

    def forward(self, input_ids, **options):
        """Return logits whose softmax is (1/2 + f, 1/2 - f), f linear in the embeddings."""
        f = (self.embedding(input_ids) * self.weight).sum((1, 2)) + 0.1
        logits = torch.stack([(0.5 + f).log(), (0.5 - f).log()], -1)[:, None]
        return type("Output", (), {"logits": logits})()


def linear(n):
    model = Linear(n).eval()
    sites = ModelSites((), model.embedding, torch.float64, None, "")
    return model, CheckedModel(model, sites, None, None, (), {})


def test_gradient_times_input_and_integrated_gradients_are_exact_on_a_linear_model():
    n = 7
    model, checked = linear(n)
    ids = torch.tensor([[1, 2, 3, 4, 5, 0, 1], [0, 0, 1, 5, 3, 2, 2]])
    base = replacements(ids)
    leaf = EmbeddingLeaf()
    with leaf.attached(model.embedding):
        distribution = next_distribution(forward_logits(model, ids))
    rows = gradient_rows(distribution.amax(-1), leaf, ["gradient-input"])
    weight, table = model.weight, model.embedding.weight.detach()
    expected = (table[ids] * weight).sum(-1).abs()
    torch.testing.assert_close(rows["gradient-input"], expected, rtol=1e-12, atol=0.0)
    target = distribution.argmax(-1)
    for steps in (1, 5):
        integral = integrated_gradients(checked, ids, target=target, baseline=base, steps=steps)
        exact = ((table[ids] - table[base]) * weight).sum(-1)
        torch.testing.assert_close(integral.attribution, exact, rtol=1e-10, atol=1e-15)
        assert float(integral.gap.abs().max()) < 1e-14
    # One token at a time, the change of a linear function is its share exactly.
    change = occlusion(checked, ids, distribution=distribution.detach(), other=base, batch_size=3)
    torch.testing.assert_close(change, exact.abs(), rtol=1e-10, atol=1e-14)


@pytest.mark.parametrize("kind", KINDS)
def test_occlusion_is_the_change_of_the_next_token_distribution(kind):
    model, ids = tiny(kind, dtype=torch.float64), token_ids(2, LENGTH)
    rows = measure(model, ids.numpy(), influence="occlusion").arrays["influence.occlusion.windows"]
    for window, row in zip(ids.tolist(), rows, strict=True):
        before = probabilities(model, window)
        for j, token in enumerate(other_tokens(window)):
            after = probabilities(model, [*window[:j], token, *window[j + 1 :]])
            assert row[j] == pytest.approx(0.5 * np.abs(after - before).sum(), rel=1e-7, abs=1e-12)


def probabilities(model, window):
    with torch.no_grad():
        return torch.softmax(model(torch.tensor([window])).logits[0, -1].double(), -1).numpy()


@pytest.mark.parametrize("kind", KINDS)
def test_integrated_gradients_add_up_to_the_change_of_the_probability(kind):
    model, ids = tiny(kind, dtype=torch.float64), token_ids(2, LENGTH)
    arrays = measure(
        model, ids.numpy(), influence="integrated-gradients", integration_steps=40
    ).arrays
    # Softmax or norms are rounded to float32 inside some of these models.
    assert np.abs(arrays["integration.gap.windows"]).max() < 1e-5
    rough = measure(
        model, ids.numpy(), influence="integrated-gradients", integration_steps=1
    ).arrays
    assert (
        np.abs(rough["integration.gap.windows"]).max()
        > 10 * np.abs(arrays["integration.gap.windows"]).max()
    )


def test_integrated_gradients_agree_with_a_plain_sum_over_the_path():
    model, ids = tiny("llama", dtype=torch.float64), token_ids(1, 8)
    row = measure(
        model, ids.numpy(), influence="integrated-gradients", integration_steps=40
    ).arrays["influence.integrated-gradients.windows"][0]
    embed = model.get_input_embeddings()
    end = embed(ids).detach()
    start = embed(torch.tensor([other_tokens(ids[0].tolist())])).detach()
    top = int(probabilities(model, ids[0].tolist()).argmax())
    steps, total = 400, torch.zeros_like(end)
    for k in range(steps):
        point = (start + (k + 0.5) / steps * (end - start)).requires_grad_(True)
        logits = model(inputs_embeds=point).logits[0, -1]
        torch.softmax(logits, -1)[top].backward()
        total += point.grad / steps
    expected = ((end - start) * total).sum(-1).abs()[0].numpy()
    np.testing.assert_allclose(row, expected, rtol=1e-3, atol=1e-3 * expected.max())


@pytest.mark.parametrize("kind", WITHOUT_EMBEDDING_NORM)
def test_gradient_times_input_is_the_derivative_along_the_embedding(kind):
    model, ids = tiny(kind, dtype=torch.float64), token_ids(1, LENGTH)
    row = measure(model, ids.numpy(), influence="gradient-input").arrays[
        "influence.gradient-input.windows"
    ][0]
    table = model.get_input_embeddings()
    vectors = table(ids).detach()
    top = int(probabilities(model, ids[0].tolist()).argmax())

    def chance(scale, j):
        scaled = vectors.clone()
        scaled[0, j] *= scale
        handle = table.register_forward_hook(lambda module, args, output: scaled)
        try:
            with torch.no_grad():
                return float(torch.softmax(model(ids).logits[0, -1].double(), -1)[top])
        finally:
            handle.remove()

    for j in (0, LENGTH // 2, LENGTH - 1):
        slope = (chance(1 + 1e-3, j) - chance(1 - 1e-3, j)) / 2e-3
        assert row[j] == pytest.approx(abs(slope), rel=2e-2, abs=2e-3 * row.max())


@pytest.mark.parametrize("kind", WITHOUT_EMBEDDING_NORM)
def test_all_methods_at_once_equal_each_alone_in_any_batch(kind):
    model, ids = tiny(kind, dtype=torch.float64), token_ids(5, LENGTH).numpy()
    settings = {"integration_steps": 4, "checkpoint": True}
    together = measure(model, ids, influence=INFLUENCE_METHODS, batch_size=4, **settings)
    assert together.influence_methods == INFLUENCE_METHODS
    assert together.manifest["influence_method"] == "gradient"
    for method in INFLUENCE_METHODS:
        alone = measure(model, ids, influence=method, batch_size=1, integration_steps=4)
        assert alone.influence_methods == (method,)
        name = f"influence.{method}.windows"
        scale = alone.arrays[name].max()
        np.testing.assert_allclose(
            together.arrays[name], alone.arrays[name], rtol=1e-9, atol=1e-10 * scale
        )
        profile = together.influence(method)
        mean = alone.arrays[name].mean(0)
        np.testing.assert_allclose(profile.mass, mean / mean.sum(), rtol=1e-8, atol=1e-10)


def test_gradient_times_input_is_refused_where_embeddings_are_normalised_first():
    with pytest.raises(UnsupportedModelError, match="gradient-input has no meaning"):
        measure(tiny("bloom"), token_ids(2, LENGTH).numpy(), influence="gradient-input")


def test_special_tokens_replace_nothing():
    ids = torch.tensor([[1, 5, 6, 7, 8]])
    assert replacements(ids, prefix=1).tolist() == [other_tokens([1, 5, 6, 7, 8], 1)]
    assert 1 not in replacements(ids, prefix=1)[0].tolist()
