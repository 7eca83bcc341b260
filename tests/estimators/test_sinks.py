"""Sinks: which keys count, and what the treatments do to kernels, against loops."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from naive_estimators import random_attention, sinks_of_layer, treated

from posbias.errors import InputError
from posbias.kernels import ALiBi, AttentionKernel, DenseKernel, Head, Kernel, MixtureKernel, Sink
from posbias.kernels.testing import check_kernel
from posbias.sinks import Sinks, detect_sinks, moved_mass, treat_sinks


def kernels(n: int) -> list[Kernel]:
    dense = DenseKernel(random_attention(np.random.default_rng(n), n))
    alibi = AttentionKernel.alibi(n, [0.5, 0.1], diagonal=0.7)
    sunk = AttentionKernel(n, [Head(ALiBi(0.3), sink=Sink(2, 3.0))])
    return [dense, alibi, sunk, MixtureKernel([dense, sunk], [0.3, 0.7])]


@pytest.mark.parametrize("treatment", ["keep", "identity", "drop"])
@pytest.mark.parametrize("positions", [[], [0], [0, 3], [5]])
def test_treatments_against_loops(treatment: str, positions: list[int]) -> None:
    for kernel in kernels(7):
        result = treat_sinks(kernel, positions, treatment)  # type: ignore[arg-type]
        expected = treated(kernel.toarray(), positions, treatment)
        assert np.allclose(result.toarray(), expected, rtol=1e-13, atol=1e-15)
        check_kernel(result)
        rows = np.random.default_rng(0).uniform(-1.0, 1.0, (4, 7))
        assert np.allclose(result.rmatmat(rows), rows @ expected, rtol=0, atol=1e-14)
        assert np.allclose(
            result.restrict(4).toarray(),
            treated(kernel.restrict(4).toarray(), [p for p in positions if p < 4], treatment),
            rtol=1e-13,
            atol=1e-15,
        )


def test_without_sinks_nothing_changes() -> None:
    for kernel in kernels(6):
        for treatment in ("keep", "identity", "drop"):
            assert treat_sinks(kernel, [], treatment) is kernel  # type: ignore[arg-type]
        assert treat_sinks(kernel, [0], "keep") is kernel


@given(
    n=st.integers(2, 9),
    seed=st.integers(0, 10**6),
    positions=st.sets(st.integers(0, 8)),
    treatment=st.sampled_from(["identity", "drop"]),
)
@settings(max_examples=60, deadline=None)
def test_treated_kernels_stay_causal_and_stochastic(
    n: int, seed: int, positions: set[int], treatment: str
) -> None:
    inside = sorted(p for p in positions if p < n)
    kernel = DenseKernel(random_attention(np.random.default_rng(seed), n))
    result = treat_sinks(kernel, inside, treatment)  # type: ignore[arg-type]
    matrix = result.toarray()
    assert result.is_causal
    assert np.allclose(matrix.sum(axis=1), 1.0, atol=1e-12)
    assert not np.triu(matrix, 1).any()
    moved = moved_mass(kernel, inside)
    for i in range(n):
        on_sinks = sum(kernel.toarray()[i, s] for s in inside) if i not in inside else 0.0
        assert moved[i] == pytest.approx(on_sinks, abs=1e-15)
        if i not in inside:
            assert not matrix[i, inside].any()


def test_identity_is_exact_where_nearly_all_mass_is_on_the_sink() -> None:
    kernel = AttentionKernel(50, [Head(ALiBi(2.0), sink=Sink(1, 200.0))])
    result = treat_sinks(kernel, [0], "drop").row(49)
    expected = [math.exp(-2.0 * (49 - j)) for j in range(1, 50)]
    assert np.allclose(result[1:], np.array(expected) / sum(expected), rtol=1e-10)


def test_a_row_with_nothing_but_sinks_stays_where_it_is() -> None:
    matrix = np.array([[1.0, 0.0, 0.0], [1.0, 0.0, 0.0], [0.4, 0.6, 0.0]])
    dropped = treat_sinks(DenseKernel(matrix), [0], "drop").toarray()
    assert dropped.tolist() == [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 1.0, 0.0]]


def test_treatments_refuse_what_they_do_not_know() -> None:
    kernel = DenseKernel(np.eye(3))
    with pytest.raises(InputError, match="the treatment of sinks is 'remove'"):
        treat_sinks(kernel, [0], "remove")  # type: ignore[arg-type]
    for position in (3, -1, True, 1.0):
        with pytest.raises(InputError, match="no key of a kernel of 3"):
            treat_sinks(kernel, [position], "identity")  # type: ignore[list-item]


def with_sink(n: int, share: float, position: int = 0) -> np.ndarray:
    """Return uniform causal attention, a share of it moved to one key."""
    matrix = np.tril(np.ones((n, n))) / np.arange(1, n + 1)[:, None]
    matrix[position + 1 :] *= 1.0 - share
    matrix[position + 1 :, position] += share
    return matrix


@pytest.mark.parametrize("window", [None, 20, 40])
@pytest.mark.parametrize("share", [0.0, 0.05, 0.12, 0.5])
@pytest.mark.parametrize("position", [0, 7, 50])
def test_detection_against_loops(window: int | None, share: float, position: int) -> None:
    attention = with_sink(64, share, position)
    if window is not None:
        lag = np.arange(64)[:, None] - np.arange(64)
        attention = np.where(lag < window, attention, 0.0)
        attention /= attention.sum(axis=1, keepdims=True)
    found = detect_sinks([DenseKernel(attention)], layer_windows=[window])
    assert list(found.positions) == sinks_of_layer(attention, window)


@given(seed=st.integers(0, 10**6), n=st.integers(1, 40))
@settings(max_examples=40, deadline=None)
def test_detection_in_random_attention_against_loops(seed: int, n: int) -> None:
    rng = np.random.default_rng(seed)
    attention = random_attention(rng, n) ** rng.uniform(0.5, 3.0)
    attention /= attention.sum(axis=1, keepdims=True)
    assert list(detect_sinks([DenseKernel(attention)]).positions) == sinks_of_layer(attention)


def test_a_sink_in_the_middle_is_found_and_one_near_the_end_is_not() -> None:
    assert detect_sinks([DenseKernel(with_sink(64, 0.4, 20))]).positions == (20,)
    assert detect_sinks([DenseKernel(with_sink(64, 0.4, 60))]).positions == ()


@pytest.mark.parametrize("slope", [0.0, 0.05, 0.5, 4.0])
def test_local_attention_is_no_sink(slope: float) -> None:
    kernel = AttentionKernel.alibi(256, [slope], diagonal=2.0)
    assert detect_sinks([kernel]).found == ()


def test_norms_are_relative_to_the_median_of_other_keys() -> None:
    attention = [DenseKernel(with_sink(32, share)) for share in (0.6, 0.0)]
    values, streams = np.ones((2, 32)), np.full((2, 32), 5.0)
    values[:, 0], streams[:, 0] = 0.25, 60.0
    found = detect_sinks(attention, value_norms=values, stream_norms=streams)
    (sink,) = found.found
    assert (sink.layer, sink.position) == (1, 0)
    assert (sink.value_norm, sink.stream_norm) == (0.25, 12.0)
    assert found.by_layer == ((0,), ())
    assert found.strength == sink.attention / 2
    assert found.lines(start_token=True) == [
        f"sinks: position 0 (BOS) receives {100 * sink.attention:.0f} % of attention on average "
        "in 1 of 2 layers, value norm 0.25x, stream norm 12x"
    ]
    assert json.loads(json.dumps(found.as_dict()))["positions"] == [0]


def test_no_sinks_are_said_so() -> None:
    none = Sinks(4)
    assert (none.lines(), none.positions, none.strength) == (["sinks: none"], (), 0.0)
    assert none.by_layer == ((), (), (), ())


def test_detection_refuses_shapes_that_do_not_fit() -> None:
    one = [DenseKernel(np.eye(3))]
    with pytest.raises(InputError, match="attention of layer 1 is"):
        detect_sinks(np.eye(3))  # type: ignore[arg-type]
    with pytest.raises(InputError, match="a causal Kernel"):
        detect_sinks([DenseKernel(np.full((2, 2), 0.5))])
    with pytest.raises(InputError, match="2 layer windows do not fit 1"):
        detect_sinks(one, layer_windows=[None, 2])
    with pytest.raises(InputError, match="layer_windows has 0 layers"):
        detect_sinks(one, layer_windows=[])
    with pytest.raises(InputError, match=r"value_norms of a layer has shape \(2,\)"):
        detect_sinks(one, value_norms=np.ones((1, 2)))
