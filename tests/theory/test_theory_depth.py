"""T5 to T7, bounds, infinite depth, schedules and depth curves."""

from __future__ import annotations

import numpy as np
import pytest
from theory_naive import dense_product, draws, random_kernel, rollout

from posbias.errors import InputError
from posbias.kernels import (
    ALiBi,
    AttentionKernel,
    DenseKernel,
    Full,
    Head,
    PrefixLM,
    SlidingWindow,
)
from posbias.rollout import MixingSchedule, Rollout
from posbias.theory import (
    EndlessLayers,
    GrowingContent,
    InfiniteSchedule,
    absorption_matrix,
    closed_classes,
    continuous_limit,
    depth_curves,
    depth_of_share,
    diagonal_mass,
    escape_bounds,
    finite_depth,
    infinite_depth,
    limit_matrix,
    lyapunov,
)

NOPE = AttentionKernel(12, (Head(),))


def random_stack(rng):
    n, depth = (int(x) for x in rng.integers((2, 1), (8, 6)))
    shared = rng.random() < 0.4
    kernels = [random_kernel(rng, n)] * depth if shared else None
    kernels = kernels or [random_kernel(rng, n) for _ in range(depth)]
    return kernels, rng.uniform(0.0, 1.0, size=depth)


def test_t5_the_diagonal_is_exact():
    for rng in draws(21):
        kernels, lam = random_stack(rng)
        expected = np.diag(dense_product(kernels, lam))
        np.testing.assert_allclose(diagonal_mass(rollout(kernels, lam)), expected, atol=1e-14)


def test_bounds_hold():
    tight = 0
    for rng in draws(22):
        kernels, lam = random_stack(rng)
        row = int(rng.integers(1, len(kernels[0])))
        bounds = escape_bounds(rollout(kernels, lam), row=row)
        escape = 1.0 - dense_product(kernels, lam)[row, 0]
        assert bounds.exact == pytest.approx(escape, abs=1e-13)
        assert bounds.lower <= escape + 1e-13
        assert bounds.upper >= escape - 1e-13
        tight += bounds.upper - bounds.lower < 0.1
    assert tight


def test_lyapunov_bound_holds_and_is_sharp_in_depth():
    used = 0
    for rng in draws(23):
        n = int(rng.integers(2, 9))
        slope, diagonal = rng.uniform(0.0, 0.5), rng.normal()
        kernel = AttentionKernel.alibi(n, (float(slope),), diagonal=float(diagonal))
        stack = Rollout([kernel], MixingSchedule(rng.uniform(0.0, 1.0, size=6)))
        bounds = escape_bounds(stack)
        if bounds.upper_lyapunov is not None:
            used += 1
            assert bounds.upper_lyapunov >= bounds.exact - 1e-13
    assert used > 200
    pair = lyapunov(NOPE)
    np.testing.assert_allclose(pair.values, np.arange(12), atol=1e-12)
    assert (pair.kappa, pair.rate(0.3)) == (0.5, pytest.approx(0.85))


def test_no_lyapunov_pair_without_a_leading_diagonal():
    assert lyapunov(AttentionKernel(8, (Head(),), mask=SlidingWindow(2))) is None
    assert lyapunov(np.array([[1, 0, 0], [0.9, 0.1, 0], [0, 0.5, 0.5]])) is None


def expm(b: np.ndarray) -> np.ndarray:
    """Return the exponential by its Taylor series, enough for norms up to 2."""
    total = term = np.eye(len(b))
    for k in range(1, 40):
        term = term @ b / k
        total = total + term
    return total


def test_t7_the_continuous_limit_is_within_its_bounds():
    for rng in draws(24):
        kernels, lam = random_stack(rng)
        query = int(rng.integers(0, len(kernels[0])))
        limit = continuous_limit(rollout(kernels, lam), query=query)
        row = np.eye(len(kernels[0]))[query]
        for a, time in reversed(list(zip(kernels, lam, strict=True))):
            row = row @ expm(time * (a - np.eye(len(a))))
        np.testing.assert_allclose(limit.profile.mass, row, atol=1e-13)
        distance = 0.5 * np.abs(row - dense_product(kernels, lam)[query]).sum()
        assert limit.distance == pytest.approx(distance, abs=1e-13)
        assert distance <= limit.bound_le_cam + 1e-13
        assert limit.bound_le_cam <= limit.bound_squares


def test_t7_sharper_bound_for_a_shared_kernel():
    for rng in draws(25):
        kernel = DenseKernel(random_kernel(rng, 5))
        stack = Rollout([kernel], MixingSchedule(rng.uniform(0.01, 1.0, size=4)))
        limit = continuous_limit(stack)
        assert limit.distance <= limit.bound_barbour_hall + 1e-13
        assert limit.bound_barbour_hall <= limit.bound_squares


@pytest.mark.parametrize(
    ("schedule", "outcome"),
    [
        (InfiniteSchedule.constant(0.1), "collapse"),
        (InfiniteSchedule.power(0.3, 0.5), "collapse"),
        (InfiniteSchedule.power(1.0, 1.0), "collapse"),
        (InfiniteSchedule.power(0.9, 1.01), "no collapse"),
        (InfiniteSchedule.exponential(0.8, 0.6), "no collapse"),
        (InfiniteSchedule.eventually_zero([0.5, 0.9]), "no collapse"),
    ],
)
def test_schedule_families(schedule, outcome):
    verdict = infinite_depth(NOPE, schedule)
    assert verdict.outcome == outcome
    assert verdict.guaranteed
    assert verdict.sum_lambda_diverges == (outcome == "collapse")
    assert (verdict.diagonal[1:] > 0.0).all() == (outcome == "no collapse")
    assert verdict.as_dict()["outcome"] == outcome


@pytest.mark.parametrize(
    "schedule",
    [
        InfiniteSchedule.power(0.9, 2.0),
        InfiniteSchedule.power(1.0, 3.0),
        InfiniteSchedule("power", 3.0, 2.0, first=(1.0, 0.2)),
        InfiniteSchedule.exponential(0.9, 0.9),
        InfiniteSchedule.eventually_zero([0.4, 0.0, 0.7]),
    ],
)
def test_limits_agree_with_very_deep_products(schedule):
    depth = 4000
    a = random_kernel(np.random.default_rng(1), 5)
    deep = dense_product([a] * depth, schedule.values(depth))
    missing = schedule.tail_power_sum(1, depth)
    limit = limit_matrix(DenseKernel(a), schedule)
    np.testing.assert_allclose(limit, deep, atol=2.0 * missing + 1e-12)
    np.testing.assert_allclose(limit.sum(axis=1), 1.0, atol=1e-13)
    verdict = infinite_depth(DenseKernel(a), schedule)
    np.testing.assert_allclose(verdict.diagonal, np.diag(limit), atol=1e-13)


def test_kernels_in_turn():
    """Three kernels repeated for ever; the diagonal is a product over each third of the layers."""
    rng = np.random.default_rng(2)
    kernels = [random_kernel(rng, 4) for _ in range(3)]
    schedule = InfiniteSchedule.power(0.8, 2.5)
    verdict = infinite_depth([DenseKernel(a) for a in kernels], schedule)
    depth = 60_000
    moved = np.array([1.0 - np.diag(a) for a in kernels])[np.arange(depth) % 3]
    expected = np.prod(1.0 - schedule.values(depth)[:, None] * moved, axis=0)
    np.testing.assert_allclose(verdict.diagonal, expected, rtol=1e-6)
    steep = InfiniteSchedule.exponential(0.8, 0.5)
    short = infinite_depth([DenseKernel(a) for a in kernels], steep)
    moved = moved[:80] * steep.values(80)[:, None]
    np.testing.assert_allclose(short.diagonal, np.prod(1.0 - moved, axis=0), rtol=1e-13)


@pytest.mark.parametrize(
    ("rate", "schedule", "outcome"),
    [
        (1.0, InfiniteSchedule.constant(1.0), "collapse"),
        (1.5, InfiniteSchedule.constant(1.0), "no collapse"),
        (0.5, InfiniteSchedule.power(0.9, 0.4), "collapse"),
        (0.5, InfiniteSchedule.power(0.9, 0.6), "no collapse"),
        (0.0, InfiniteSchedule.exponential(0.9, 0.6), "no collapse"),
        (2.0, InfiniteSchedule.constant(0.0), "no collapse"),
    ],
)
def test_growing_content(rate, schedule, outcome):
    assert infinite_depth(GrowingContent(NOPE, rate), schedule).outcome == outcome


def test_growing_content_has_the_known_product():
    verdict = infinite_depth(GrowingContent(NOPE, 2.0), InfiniteSchedule.constant(1.0))
    root = np.pi * np.sqrt(np.arange(1.0, 12.0))
    np.testing.assert_allclose(verdict.diagonal[1:], root / np.sinh(root), rtol=1e-12)
    assert verdict.sum_lambda_diverges
    assert verdict.collapses is False


@pytest.mark.parametrize("rate", [1.05, 1.3, 6.0])
def test_growing_content_against_direct_products(rate):
    schedule = InfiniteSchedule.constant(0.7)
    verdict = infinite_depth(GrowingContent(NOPE, rate), schedule)
    t = np.arange(1.0, 2_000_001.0)
    for i in (1, 11):
        h = 0.7 * i / (t**rate + i)
        direct = float(np.prod(1.0 - h))
        missing = 0.7 * i * t[-1] ** (1.0 - rate) / (rate - 1.0)
        # The rest of the product lies between exp(-missing (1 + small)) and 1.
        assert direct * np.exp(-missing * 1.001) <= verdict.diagonal[i] * (1.0 + 1e-9)
        assert verdict.diagonal[i] <= direct * np.exp(-missing * 0.999) * (1.0 + 1e-9)


def test_an_absorbing_row_splits_the_mass():
    array = np.array([[1, 0, 0, 0], [0.5, 0.5, 0, 0], [0, 0, 1, 0], [0.25, 0.25, 0.25, 0.25]])
    verdict = infinite_depth(DenseKernel(array), InfiniteSchedule.constant(0.3))
    assert verdict.outcome == "mixed"
    assert verdict.collapses is False
    limit = limit_matrix(array, InfiniteSchedule.constant(0.3))
    np.testing.assert_allclose(limit[3], [2 / 3, 0, 1 / 3, 0], atol=1e-14)


def test_a_window_of_one_never_moves():
    still = AttentionKernel(6, (Head(),), mask=SlidingWindow(1))
    verdict = infinite_depth(still, InfiniteSchedule.constant(1.0))
    assert verdict.outcome == "no collapse"
    assert verdict.sum_lambda_diverges
    np.testing.assert_array_equal(verdict.diagonal, 1.0)


def test_a_layer_that_empties_every_row_leaves_the_question_open():
    strict = DenseKernel([[1, 0, 0], [1, 0, 0], [0.5, 0.5, 0]])
    verdict = infinite_depth(strict, InfiniteSchedule.eventually_zero([1.0]))
    assert verdict.outcome == "undecided"
    assert not verdict.guaranteed
    assert verdict.collapses is None
    assert "row 1" in verdict.summary()


def test_kernels_that_look_ahead():
    prefix = AttentionKernel(6, (Head(),), mask=PrefixLM(3))
    constant = InfiniteSchedule.constant(0.5)
    verdict = infinite_depth(prefix, constant)
    assert verdict.outcome == "no collapse"
    np.testing.assert_allclose(limit_matrix(prefix, constant)[-1, :3], 1 / 3, atol=1e-13)
    full = AttentionKernel(5, (Head(ALiBi(0.2, future="signed")),), mask=Full())
    summable = infinite_depth(full, InfiniteSchedule.power(0.5, 2.0))
    deep = dense_product([full.toarray()] * 20_000, InfiniteSchedule.power(0.5, 2.0).values(20_000))
    np.testing.assert_allclose(summable.diagonal, np.diag(deep), atol=1e-4)
    mixed = infinite_depth([prefix, AttentionKernel(6, (Head(),))], constant)
    assert mixed.outcome == "undecided"


def test_a_cycle_without_residual_has_no_limit():
    swap = np.array([[0.0, 1.0, 0.0], [1.0, 0.0, 0.0], [0.0, 0.5, 0.5]])
    with pytest.raises(InputError, match="no limit"):
        limit_matrix(swap, InfiniteSchedule.constant(1.0))
    damped = limit_matrix(swap, InfiniteSchedule.constant(0.9))
    np.testing.assert_allclose(damped[2], [0.5, 0.5, 0.0], atol=1e-13)


def test_absorption_agrees_with_high_powers():
    for rng in draws(26, 60):
        a = random_kernel(rng, 6)
        stuck = int(rng.integers(1, 6))
        a[stuck] = np.eye(6)[stuck]
        power = np.linalg.matrix_power(0.5 * np.eye(6) + 0.5 * a, 2**40)
        np.testing.assert_allclose(absorption_matrix(a), power, atol=1e-9)
        assert [c.tolist() for c in closed_classes(a)] == [[0], [stuck]]


@pytest.mark.parametrize(
    "make",
    [
        lambda: InfiniteSchedule.constant(1.5),
        lambda: InfiniteSchedule.power(2.0, 2.0),
        lambda: InfiniteSchedule.exponential(0.5, 1.0),
        lambda: InfiniteSchedule.power(0.5, -1.0),
        lambda: InfiniteSchedule.eventually_zero([0.5, float("nan")]),
        lambda: InfiniteSchedule("linear", 0.5),
        lambda: InfiniteSchedule.from_description({"type": "sigmoid"}),
        lambda: InfiniteSchedule.from_description({"type": "power", "lambda0": 0.5}),
        lambda: InfiniteSchedule.power(0.5, 2.0).certificate(0),
        lambda: InfiniteSchedule.exponential(0.9, 0.9999999).head_length(),
        lambda: infinite_depth([], InfiniteSchedule.constant(0.5)),
        lambda: GrowingContent(AttentionKernel.alibi(4, (0.1, 0.2)), 1.0),
        lambda: GrowingContent(NOPE, -1.0),
    ],
)
def test_bad_schedules_are_refused(make):
    with pytest.raises(InputError):
        make()


@pytest.mark.parametrize(
    "description",
    [
        {"type": "constant", "value": 0.2},
        {"type": "power", "lambda0": 0.5, "beta": 1.5},
        {"type": "exponential", "lambda0": 0.5, "rho": 0.9},
        {"type": "custom", "values": [0.1, 0.2, 0.3]},
    ],
)
def test_descriptions_mean_what_finite_schedules_mean(description):
    finite = MixingSchedule.from_description(description, 3)
    infinite = InfiniteSchedule.from_description(description)
    np.testing.assert_allclose(infinite.values(3), finite.values, rtol=1e-15)


def test_a_certificate_is_a_lower_bound_that_closes():
    schedule = InfiniteSchedule.power(0.5, 1.5)
    gaps = []
    for depth in (10, 100, 1000):
        found = schedule.certificate(depth, moved=0.8)
        direct = float(np.prod(1.0 - 0.8 * schedule.values(depth)))
        assert found.head_product == pytest.approx(direct, rel=1e-13)
        assert found.product_lower <= found.product <= found.head_product
        assert schedule.tail_power_sum(1, depth) <= found.tail_sum_upper
        gaps.append(found.product - found.product_lower)
    assert gaps[0] > gaps[1] > gaps[2]
    assert InfiniteSchedule.constant(0.1).certificate(5).product_lower == 0.0


def test_tail_sums_in_steps_add_up():
    for schedule in (InfiniteSchedule.power(0.7, 1.6), InfiniteSchedule.exponential(0.7, 0.95)):
        parts = sum(schedule.tail_power_sum(2, 50 + r - 2, step=3) for r in range(3))
        assert parts == pytest.approx(schedule.tail_power_sum(2, 50), rel=1e-13)


def test_depth_curves_follow_the_profiles():
    kernel = AttentionKernel.alibi(16, (0.2, 0.05), diagonal=0.3)
    stack = Rollout([kernel], MixingSchedule.power(5, 0.6, 0.5))
    curves = depth_curves(stack, query=9)
    a = kernel.toarray()
    for t in range(6):
        row = dense_product([a] * t, stack.schedule.values[:t])[9] if t else np.eye(16)[9]
        assert curves.residual.first[t] == pytest.approx(row[0], abs=1e-14)
        assert curves.residual.last[t] == pytest.approx(row[9], abs=1e-14)
        assert curves.residual.mean_position[t] == pytest.approx(np.arange(16) @ row, abs=1e-12)
        bare = np.linalg.matrix_power(a, t)[9]
        assert curves.attention_only.first[t] == pytest.approx(bare[0], abs=1e-14)
    rows = curves.to_rows()
    assert [row["depth"] for row in rows] == list(range(6))
    assert rows[5]["residual mean position"] < rows[0]["residual mean position"]


def test_finite_depth_finds_the_depth_of_a_share():
    kernel = AttentionKernel(16, (Head(),))
    stack = Rollout([kernel], MixingSchedule.constant(8, 0.25))
    found = finite_depth(stack, share=0.9)
    a = kernel.toarray()
    for depth, reached in ((found.depth_for_share - 1, False), (found.depth_for_share, True)):
        share = dense_product([a] * depth, [0.25] * depth)[-1, 0]
        assert (share >= 0.9) == reached
    assert found.tail_mixing == 0.25
    assert found.bounds.lower <= found.bounds.exact <= found.bounds.upper
    assert found.as_dict()["depth_for_share"] == found.depth_for_share


def test_finite_depth_gives_up_at_its_limit():
    still = AttentionKernel(6, (Head(),), mask=SlidingWindow(1))
    found = finite_depth(Rollout([still], MixingSchedule.constant(2, 0.5)), depth_limit=20)
    assert found.depth_for_share is None


def test_an_early_share_is_found_within_the_layers():
    stack = Rollout([AttentionKernel(4, (Head(),))], MixingSchedule.constant(30, 1.0))
    found = finite_depth(stack, share=0.5)
    assert found.depth_for_share < 30


def test_what_needs_causal_kernels_says_so():
    full = Rollout([AttentionKernel(5, (Head(),), mask=Full())], MixingSchedule.constant(2, 0.5))
    for call in (diagonal_mass, escape_bounds, finite_depth):
        with pytest.raises(InputError, match="causal"):
            call(full)
    per_position = Rollout([NOPE], MixingSchedule(np.full((2, 12), 0.5)))
    with pytest.raises(InputError, match="per position"):
        escape_bounds(per_position)
    with pytest.raises(InputError, match="row 0"):
        escape_bounds(Rollout([NOPE], MixingSchedule.constant(2, 0.5)), row=0)
    with pytest.raises(InputError, match="share"):
        finite_depth(Rollout([NOPE], MixingSchedule.constant(2, 0.5)), share=1.0)


def first_depth_naively(kernel, values, row, share):
    """Return the first depth with the share on token 0, from dense products."""
    product, a = np.eye(kernel.n), kernel.toarray()
    for depth, lam in enumerate(values, start=1):
        product = ((1.0 - lam) * np.eye(kernel.n) + lam * a) @ product
        if product[row, 0] >= share:
            return depth
    return None


@pytest.mark.parametrize(
    ("schedule", "never"),
    [
        (InfiniteSchedule.power(0.4, 1.2), True),
        (InfiniteSchedule.exponential(0.5, 0.9), True),
        (InfiniteSchedule.eventually_zero([0.5, 0.4, 0.3]), True),
        (InfiniteSchedule.constant(0.2), False),
        (InfiniteSchedule.power(0.9, 0.5), False),
        (InfiniteSchedule.power(0.4, 1.0), False),
    ],
)
def test_depth_of_a_share_follows_the_given_schedule(schedule, never):
    stack = Rollout([NOPE], MixingSchedule.constant(4, 0.3))
    endless = EndlessLayers([NOPE], schedule)
    for share in (0.05, 0.5, 0.9):
        found = finite_depth(stack, share=share, depth_limit=300, endless=endless)
        assert found.depth_for_share == first_depth_naively(NOPE, schedule.values(300), 11, share)
        assert found.continuation == "schedule"
    assert found.never == never


def test_depth_of_a_share_is_never_called_out_of_reach_when_it_is_reached_later():
    kernel = AttentionKernel.alibi(6, (0.4,))
    for beta in (1.0, 1.05, 1.5):
        schedule = InfiniteSchedule.power(0.9, beta)
        limit = limit_matrix(kernel, schedule)[5, 0]
        for share in (0.9 * limit, min(1.05 * limit, 0.999999)):
            found = depth_of_share(
                EndlessLayers([kernel], schedule), row=5, share=share, depth_limit=64
            )
            assert not (found.never and share <= limit)


def test_mixing_that_ends_at_zero_never_reaches_a_share():
    stack = Rollout([NOPE], MixingSchedule.custom([0.5, 0.0]))
    found = finite_depth(stack)
    assert (found.depth_for_share, found.never, found.continuation) == (None, True, "constant")


@pytest.mark.parametrize("beta", [1e-300, 1e-17, 1e-10, 0.01])
def test_slow_powers_collapse_without_an_overflow(beta):
    for lambda0 in (1.0, 0.9):
        assert infinite_depth(NOPE, InfiniteSchedule.power(lambda0, beta)).outcome == "collapse"
    with pytest.raises(InputError, match="only after"):
        InfiniteSchedule.power(0.9, beta).head_length()


@pytest.mark.parametrize("beta", [50.0, 400.0, 1e308])
def test_steep_powers_are_their_first_layers(beta):
    kernels = [NOPE, AttentionKernel.alibi(12, (0.2,)), NOPE] * 40
    verdict = infinite_depth(kernels, InfiniteSchedule.power(0.9, beta))
    assert verdict.outcome == "no collapse"
    second = 1.0 - 0.9 * 2.0**-beta * (1.0 - kernels[1].diagonal())
    np.testing.assert_allclose(
        verdict.diagonal, (1.0 - 0.9 * (1.0 - NOPE.diagonal())) * second, rtol=1e-12
    )


def test_depth_curves_of_many_layers_cost_few_products():
    class Counted(DenseKernel):
        products = 0

        def matvec(self, v):
            Counted.products += 1
            return super().matvec(v)

        def rmatmat(self, rows):
            raise AssertionError("rows of all depths")

    kernel = Counted(NOPE.toarray())
    curves = depth_curves(Rollout([kernel], MixingSchedule.constant(500, 0.01)))
    assert Counted.products == 2 * 3 * 500
    product, a = np.eye(12), kernel.toarray()
    for t in range(501):
        figures = [product[-1, 0], product[-1, -1], product[-1] @ np.arange(12)]
        found = [getattr(curves.residual, key)[t] for key in ("first", "last", "mean_position")]
        np.testing.assert_allclose(found, figures, rtol=1e-12)
        product = (0.99 * np.eye(12) + 0.01 * a) @ product
