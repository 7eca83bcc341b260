"""A linear network of attention alone, in which every number can be written down."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional
from transformers import PretrainedConfig, PreTrainedModel
from transformers.modeling_outputs import CausalLMOutput

from posbias.measure import measure
from posbias.measure.jacobian import _draw
from posbias.measurement import Measurement

N, WIDTH, LAYERS, GAIN, DRAWS = 9, 24, 3, 0.7, 4


class LinearConfig(PretrainedConfig):
    """Sizes of the network."""

    model_type = "linear_attention_only"

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.vocab_size, self.hidden_size = 24, WIDTH
        self.num_hidden_layers, self.num_attention_heads = LAYERS, 2


class Attention(nn.Module):
    """Queries are zero, so that attention is uniform; values are the states themselves."""

    def __init__(self) -> None:
        super().__init__()
        for name in ("q", "k", "v", "o"):
            setattr(self, name, nn.Linear(WIDTH, WIDTH, bias=False))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = (
            module(x).view(*x.shape[:2], 2, -1).transpose(1, 2)
            for module in (self.q, self.k, self.v)
        )
        mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.o(mixed.transpose(1, 2).flatten(2))


class Block(nn.Module):
    """x + a."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = Attention()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.attention(x)


class LinearModel(PreTrainedModel):
    """Orthonormal embeddings, blocks, a head."""

    config_class = LinearConfig

    def __init__(self, config: LinearConfig) -> None:
        super().__init__(config)
        self.embedding = nn.Embedding(config.vocab_size, WIDTH)
        self.layers = nn.ModuleList(Block() for _ in range(LAYERS))
        self.head = nn.Linear(WIDTH, config.vocab_size, bias=False)

    def get_input_embeddings(self) -> nn.Module:
        return self.embedding

    def forward(self, input_ids: torch.Tensor, use_cache: bool = False) -> CausalLMOutput:
        x = self.embedding(input_ids)
        for layer in self.layers:
            x = layer(x)
        return CausalLMOutput(logits=self.head(x))


def linear_model() -> LinearModel:
    torch.manual_seed(0)
    model = LinearModel(LinearConfig()).double().eval()
    with torch.no_grad():
        model.embedding.weight.copy_(torch.eye(WIDTH))
        for layer in model.layers:
            layer.attention.q.weight.zero_()
            layer.attention.v.weight.copy_(torch.eye(WIDTH))
            layer.attention.o.weight.copy_(GAIN * torch.eye(WIDTH, dtype=torch.float64))
    return model


IDS = torch.stack(
    [torch.randperm(24, generator=torch.Generator().manual_seed(s))[:N] for s in (1, 2)]
)
UNIFORM = np.tril(np.ones((N, N))) / np.arange(1, N + 1)[:, None]
STEP = np.eye(N) + GAIN * UNIFORM


@pytest.fixture(scope="module")
def measurement() -> Measurement:
    options: dict[str, Any] = {"influence": "none", "record": "all", "jacobian": DRAWS}
    return measure(linear_model(), IDS.numpy(), **options)


def streams(layer: int) -> np.ndarray[Any, Any]:
    """Return x of a layer in the basis of the tokens of the window, which is orthonormal."""
    return np.linalg.matrix_power(STEP, layer)


def test_no_mlp_is_an_mlp_that_adds_nothing(measurement: Measurement) -> None:
    for name in ("centred", "energy", "centred-energy"):
        with_mlp = measurement.mixing(f"{name}+mlp")
        np.testing.assert_allclose(with_mlp, measurement.mixing(name), rtol=1e-14)


def test_mixing_is_that_of_powers_of_one_matrix(measurement: Measurement) -> None:
    for layer in range(LAYERS):
        x = streams(layer)
        a = GAIN * UNIFORM @ x
        for centre, name in ((False, "energy"), (True, "centred-energy")):
            s, u = (v - v.mean(0) if centre else v for v in (x, a))
            energy, added = (s**2).sum(1)[1:], (u**2).sum(1)[1:]
            expected = (added / (energy + added)).mean()
            assert measurement.mixing(name)[layer] == pytest.approx(expected, rel=1e-10)


def test_kernels_are_the_parts_of_the_update(measurement: Measurement) -> None:
    for layer in range(LAYERS):
        lengths = np.sqrt((streams(layer) ** 2).sum(1))
        parts = UNIFORM * lengths
        for kind, matrix in (
            ("value-weighted", parts),
            ("value-weighted-energy", parts**2),
        ):
            kernel = measurement.kernels(kind)[layer].toarray()
            expected = matrix / matrix.sum(1, keepdims=True)
            np.testing.assert_allclose(kernel, expected, rtol=1e-9)
    # With orthogonal values of one length, in the first layer, these are attention itself.
    first = measurement.kernels("value-weighted")[0].toarray()
    np.testing.assert_allclose(first, UNIFORM, rtol=1e-9)


def test_derivatives_are_those_of_the_matrix_whatever_the_direction(
    measurement: Measurement,
) -> None:
    for layer in range(LAYERS):
        for window in range(2):
            shares = []
            for k in range(DRAWS):
                i = int(_draw(IDS[window : window + 1], (layer, k), WIDTH)[0][0])
                others = (STEP[i, :i] ** 2).sum()
                shares.append(others / (others + STEP[i, i] ** 2))
            found = measurement.arrays["mixing.jacobian.windows"][window, layer]
            assert found == pytest.approx(np.mean(shares), rel=1e-10)
