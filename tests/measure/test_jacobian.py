"""Mixing from local derivatives against whole Jacobians of the attention branch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from tiny_models import tiny, token_ids

from posbias.measure import measure
from posbias.measure.jacobian import _draw

N, DRAWS = 8, 3


def branch_of(model: Any, block: Any, ids: torch.Tensor) -> Any:
    """Return x -> a of one window and layer, written with the modules of the block."""
    positions = torch.arange(ids.shape[1])[None]

    def branch(x: torch.Tensor) -> torch.Tensor:
        states = x[None]
        if model.config.model_type == "gpt2":
            return block.attn(block.ln_1(states), attention_mask=None)[0][0]
        turned = model.model.rotary_emb(states, positions)
        options = {"position_embeddings": turned, "attention_mask": None}
        return block.self_attn(block.input_layernorm(states), **options)[0][0]

    return branch


@pytest.mark.parametrize("kind", ["llama", "gpt2"])
def test_share_of_the_attention_path_in_the_derivative(kind: str) -> None:
    model, ids = tiny(kind, dtype=torch.float64, attn="sdpa"), token_ids(2, N)
    measured = measure(model, ids.numpy(), influence="none", jacobian=DRAWS)
    blocks = model.transformer.h if kind == "gpt2" else model.model.layers
    streams: list[torch.Tensor] = []
    handles = [
        block.register_forward_pre_hook(
            lambda m, args, kw: streams.append(args[0] if args else kw["hidden_states"]),
            with_kwargs=True,
        )
        for block in blocks
    ]
    with torch.no_grad():
        model(input_ids=ids, use_cache=False)
    for handle in handles:
        handle.remove()
    for layer, block in enumerate(blocks):
        for w in range(2):
            x = streams[layer][w]
            # Jacobian[i, c, j, d] of a_i in x_j.
            whole = torch.autograd.functional.jacobian(branch_of(model, block, ids), x)
            shares = []
            for k in range(DRAWS):
                queries, directions = _draw(ids[w : w + 1], (layer, k), x.shape[-1])
                i, g = int(queries[0]), directions[0]
                back = torch.einsum("c,cjd->jd", g, whole[i])
                others = sum(float(back[j] @ back[j]) for j in range(N) if j != i)
                own = float((g + back[i]) @ (g + back[i]))
                shares.append(others / (others + own))
            found = measured.arrays["mixing.jacobian.windows"][w, layer]
            assert found == pytest.approx(np.mean(shares), rel=1e-6)


def test_draws_depend_on_the_window_and_not_on_its_neighbours() -> None:
    ids = token_ids(3, N)
    queries, directions = _draw(ids, (1, 2), 5)
    one_query, one_direction = _draw(ids[2:], (1, 2), 5)
    assert int(one_query[0]) == int(queries[2])
    assert torch.equal(one_direction[0], directions[2])
    assert not torch.equal(_draw(ids, (0, 2), 5)[1], directions)
    assert not torch.equal(_draw(ids, (1, 1), 5)[1], directions)


def test_draws_are_isotropic_and_reach_every_query_but_the_first() -> None:
    ids = token_ids(1, N)
    drawn = [_draw(ids, (0, k), 4) for k in range(600)]
    queries = np.array([int(q[0]) for q, _ in drawn])
    assert set(queries) == set(range(1, N))
    directions = torch.cat([g for _, g in drawn])
    covariance = directions.T @ directions / len(directions)
    assert float((covariance - torch.eye(4)).abs().max()) < 0.25


@pytest.mark.parametrize("kind", ["bloom-post", "falcon-40b", "gpt_neox", "gemma3", "granite"])
def test_blocks_of_every_build_have_a_share(kind: str) -> None:
    model, ids = tiny(kind), token_ids(2, N).numpy()
    options: dict[str, Any] = {"influence": "gradient", "jacobian": 2, "batch_size": 2}
    plain = measure(model, ids, **options)
    shares = plain.arrays["mixing.jacobian.windows"]
    assert ((shares > 0.0) & (shares < 1.0)).all()
    recomputed = measure(model, ids, checkpoint=True, **options)
    np.testing.assert_allclose(recomputed.arrays["mixing.jacobian.windows"], shares, rtol=1e-4)
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())
