"""The four forces: directions, sizes, guarantees, and what is said where they do not apply."""

from __future__ import annotations

import json

import numpy as np
import pytest
from theory_naive import dense_product, random_kernel

from posbias.errors import InputError
from posbias.kernels import (
    ALiBi,
    AttentionKernel,
    Cosine,
    DenseKernel,
    Head,
    KerpleLog,
    LagTable,
    MixtureKernel,
    RopeSum,
    Sink,
    T5Buckets,
)
from posbias.rollout import MixingSchedule, Rollout
from posbias.theory import FORCES, forces


def alibi_stack(diagonal: float = 0.5) -> Rollout:
    kernel = AttentionKernel.alibi(24, (0.3, 0.05), diagonal=diagonal)
    return Rollout([kernel], MixingSchedule.constant(4, 0.4))


def test_directions_and_theorems_of_alibi_with_content():
    report = forces(alibi_stack())
    found = {f.name: (f.strengthened.direction, f.guarantee[:2]) for f in report.effects}
    assert found == {
        "depth": ("earlier", "T1"),
        "residual": ("later", "T2"),
        "position": ("later", "T3"),
        "content": ("later", "T4"),
    }
    assert tuple(found) == FORCES


def test_negative_content_grows_earlier():
    force = forces(alibi_stack(-0.5))["content"]
    assert force.strengthened.direction == "earlier"
    assert force.guarantee == "T4"


def test_sizes_against_dense_products():
    report = forces(alibi_stack(), query=17, strength=0.25)
    n, lam = 24, np.full(4, 0.4)
    positions = np.arange(n)

    def matrix(slope_factor: float = 1.0, content_factor: float = 1.0) -> np.ndarray:
        lag = positions[:, None] - positions
        total = np.zeros((n, n))
        for m in (0.3, 0.05):
            logits = -m * slope_factor * lag + 0.5 * content_factor * (lag == 0)
            scores = np.where(lag >= 0, np.exp(np.minimum(logits, 5.0)), 0.0)
            total += 0.5 * scores / scores.sum(axis=1, keepdims=True)
        return total

    a = matrix()
    base = dense_product([a] * 4, lam)[17]
    expected = {
        "depth": (dense_product([a] * 5, np.full(5, 0.4)), dense_product([a], [0.4])),
        "residual": (dense_product([a] * 4, 0.75 * lam), dense_product([a] * 4, np.ones(4))),
        "position": (
            dense_product([matrix(1.25)] * 4, lam),
            dense_product([matrix(0.0)] * 4, lam),
        ),
        "content": (
            dense_product([matrix(1.0, 1.25)] * 4, lam),
            dense_product([matrix(1.0, 0.0)] * 4, lam),
        ),
    }
    for name, pair in expected.items():
        for shift, changed in zip(
            (report[name].strengthened, report[name].removed), pair, strict=True
        ):
            row = changed[17]
            np.testing.assert_allclose(shift.profile.mass, row, atol=1e-13)
            change = positions @ (row - base)
            w1 = np.abs(np.cumsum(row - base)).sum() / (n - 1)
            assert shift.mean_change == pytest.approx(change, abs=1e-11)
            assert shift.signed_w1 == pytest.approx(np.sign(change) * w1, abs=1e-13)


def test_measured_kernels_have_no_separate_position_and_content():
    rng = np.random.default_rng(4)
    kernels = [DenseKernel(random_kernel(rng, 8)) for _ in range(3)]
    measured = Rollout(kernels, MixingSchedule.constant(3, 0.3))
    report = forces(measured)
    assert report["depth"].applies
    assert not report["position"].applies
    assert "measured as a whole" in report["content"].note
    assert report["content"].guarantee == "not applicable"
    with_parts = forces(measured, structured=alibi_stack())
    assert with_parts["position"].applies
    assert with_parts["position"].guarantee == "T3"


def test_absent_forces_are_named():
    stack = Rollout([AttentionKernel(8, (Head(),))], MixingSchedule.constant(2, 0.5))
    report = forces(stack)
    assert "no layer has any position term" in report["position"].note
    assert "no layer has any content term" in report["content"].note


def test_no_guarantee_where_hypotheses_fail():
    rng = np.random.default_rng(6)
    kernels = [DenseKernel(random_kernel(rng, 8)) for _ in range(3)]
    report = forces(Rollout(kernels, MixingSchedule([0.2, 0.5, 0.9])))
    depth = report["depth"]
    assert depth.guarantee.startswith("not guaranteed")
    assert depth.verdict.order.mean_first <= depth.verdict.order.mean_second


@pytest.mark.parametrize(
    "position",
    [
        KerpleLog(1.0, 0.5),
        T5Buckets(8, 16, [0.0, -0.1, -0.3, -0.5, -0.6, -0.8, -1.0, -1.1]),
        Cosine(0.3, 0.4),
        RopeSum(0.5, 8, 100.0),
        LagTable([0.0, None, -1.0, -2.0]),
    ],
)
def test_every_encoding_can_be_scaled_and_removed(position):
    kernel = AttentionKernel(12, (Head(position, diagonal=0.2, sink=Sink(1, 0.5)),))
    mixture = MixtureKernel([kernel, AttentionKernel(12, (Head(ALiBi(0.1)),))])
    report = forces(Rollout([mixture], MixingSchedule.constant(2, 0.5)))
    for name in ("position", "content"):
        force = report[name]
        assert force.removed.profile.mass.sum() == pytest.approx(1.0, abs=1e-12)
        assert force.strengthened.signed_w1 != 0.0
        assert np.sign(force.strengthened.mean_change) == np.sign(force.strengthened.signed_w1)


def test_the_report_is_a_table_and_json():
    report = forces(alibi_stack())
    rows = report.to_rows()
    assert [row["force"] for row in rows] == list(FORCES)
    assert len({tuple(row) for row in rows}) == 1
    text = json.loads(json.dumps(report.as_dict()))
    assert text["forces"][1]["verdict"]["guaranteed"] is True
    assert len(text["forces"][0]["strengthened profile"]) == 24


def test_bad_requests_are_refused():
    for arguments in ({"strength": 0.0}, {"strength": 1.0}, {"query": 24}):
        with pytest.raises(InputError, match=r"strength|query"):
            forces(alibi_stack(), **arguments)
    with pytest.raises(InputError, match="no force"):
        forces(alibi_stack())["gravity"]
