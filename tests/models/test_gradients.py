"""The gradient check: every architecture passes, models with other gradients are refused."""

from __future__ import annotations

import pytest
import torch
from tiny_models import KINDS, tiny, token_ids

from posbias.errors import InstrumentationError
from posbias.measure import measure
from posbias.models.checks import Preflight
from posbias.models.gradients import check_gradient
from posbias.models.preflight import locate
from posbias.models.state import measuring


def gradient_check(model):
    ids, checks = token_ids(2, 24), Preflight()
    with measuring(model), torch.no_grad():
        check_gradient(model, locate(model, ids), ids, tokens=200, checks=checks)
    return checks.results["gradient"]


@pytest.mark.parametrize("kind", KINDS)
def test_gradients_of_every_architecture_are_those_of_differences(kind):
    found = gradient_check(tiny(kind))
    assert found["value"] is not None
    assert found["value"] < 0.02


def test_double_precision_agrees_more_closely_and_half_precision_is_left_out():
    assert gradient_check(tiny("llama", dtype=torch.float64))["value"] < 1e-3
    assert gradient_check(tiny("llama", dtype=torch.bfloat16))["value"] is None


@pytest.mark.parametrize("layers", [slice(None), slice(1, 2)], ids=["all", "one"])
def test_detached_attention_is_refused(layers):
    model = tiny("llama")
    for layer in model.model.layers[layers]:
        layer.self_attn.register_forward_hook(lambda m, a, o: (o[0].detach(), *o[1:]))
    with pytest.raises(InstrumentationError, match="check gradient failed"):
        measure(model, token_ids(2, 24).numpy())
    measure(model, token_ids(2, 24).numpy(), influence=())


def test_a_model_that_lets_no_gradient_through_is_refused_in_one_line():
    model = tiny("llama")
    with torch.inference_mode(), pytest.raises(InstrumentationError, match="has no gradient"):
        measure(model, token_ids(2, 24).numpy())
    layer = model.model.layers[0]
    layer.forward = torch.no_grad()(layer.forward)
    with pytest.raises(InstrumentationError, match="has no gradient") as caught:
        measure(model, token_ids(2, 24).numpy())
    assert "\n" not in str(caught.value)
