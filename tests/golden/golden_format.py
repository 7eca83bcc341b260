"""Reads the golden format and answers each kind of case with the package.

The format (described in the file's ``meta.conventions``) writes ``pe`` and ``diag`` where a layer
description has ``position`` and ``diagonal``; its ``base`` cancels in the softmax.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from posbias.kernels import AttentionKernel, DenseKernel, Kernel, kernel_from_description
from posbias.metrics import wasserstein
from posbias.profile import Profile
from posbias.rollout import MixingSchedule, Rollout
from posbias.theory import (
    GrowingContent,
    InfiniteSchedule,
    alibi_profile,
    compare_rollouts,
    continuous_limit,
    diagonal_mass,
    escape_bounds,
    free_drift,
    infinite_depth,
    limit_matrix,
    lyapunov,
    mixture_profile,
    monotonicity,
    nope_continuum,
    nope_eigenvalues,
    nope_profile,
    poisson_binomial,
)

Case = Mapping[str, Any]
CAUSAL = {"type": "causal"}


def answer(case: Case, reference: Path) -> dict[str, Any]:
    """Return the outputs of one case, with the keys of the golden file."""
    kinds: dict[str, Callable[[Case], dict[str, Any]]] = {
        "rollout": answer_rollout,
        "monotone": answer_monotone,
        "order": answer_order,
        "bounds": answer_bounds,
        "infinite_depth": answer_infinite_depth,
        "closed_form": answer_closed_form,
        "continuum": answer_continuum,
        "drift": answer_drift,
        "exp_limit": answer_exp_limit,
        "large_n": answer_large_n,
        "published": lambda case: answer_published(case, reference),
    }
    return kinds[case["kind"]](case)


# --- conversion ---------------------------------------------------------------------------------


def layer_description(layer: Case, mask: Case) -> dict[str, Any]:
    heads = []
    for head in layer["heads"]:
        entry = {
            "weight": head.get("weight", 1.0),
            "position": position_description(head["pe"]),
            "diagonal": head.get("diag", 0.0),
        }
        entry |= {key: head[key] for key in ("key", "sink") if head.get(key) is not None}
        heads.append(entry)
    return {"heads": heads, "mask": dict(mask), "temperature": layer.get("temperature", 1.0)}


def position_description(pe: str | Case) -> dict[str, Any]:
    return {"type": pe} if isinstance(pe, str) else dict(pe)


def to_kernels(spec: Case) -> list[Kernel]:
    return [
        kernel_from_description(layer_description(layer, spec["mask"]), spec["n"])
        for layer in spec["layers"]
    ]


def head_kernel(given: Case) -> AttentionKernel:
    spec = {
        "n": given["n"],
        "mask": given.get("mask", CAUSAL),
        "layers": [{"heads": [given.get("head", {"pe": given.get("pe")})]}],
    }
    return to_kernels(spec)[0]


def given_lambdas(given: Case) -> np.ndarray:
    """Return the mixing coefficients of a case, listed or as a schedule."""
    if "lambdas" in given:
        return np.asarray(given["lambdas"], dtype=float)
    description = given.get("lambda", given.get("schedule"))
    return lambdas(description, given["T"])


def lambdas(description: Case, depth: int) -> np.ndarray:
    t = np.arange(1.0, depth + 1.0)
    values = {
        "constant": lambda d: np.full(depth, d["value"]),
        "power": lambda d: d["lambda0"] / t ** d["beta"],
        "exponential": lambda d: d["lambda0"] * d["rho"] ** (t - 1.0),
        "custom": lambda d: np.asarray(d["values"], dtype=float),
    }[description["type"]](description)
    # The format clips; the package refuses such values.
    return np.clip(values, 0.0, 1.0)


def infinite_schedule(description: Case) -> InfiniteSchedule:
    rule, scale = description["type"], description.get("lambda0", description.get("value"))
    if rule == "custom":
        return InfiniteSchedule.eventually_zero(description["values"])
    exponent = description.get("beta", description.get("rho", 0.0))
    if rule == "constant":
        return InfiniteSchedule.constant(min(scale, 1.0))
    early = lambdas(description, 100_000)
    clipped = int(np.count_nonzero(early == 1.0)) if scale > 1.0 else 0
    return InfiniteSchedule(rule, scale, exponent, first=tuple(early[:clipped]))


def to_rollout(spec: Case) -> Rollout:
    return Rollout(to_kernels(spec), MixingSchedule(lambdas(spec["lambda"], spec["T"])))


# --- rollouts -----------------------------------------------------------------------------------


def answer_rollout(case: Case) -> dict[str, Any]:
    spec = case["input"]
    rollout = to_rollout(spec)
    kernels = to_kernels(spec)
    matrix = rollout.matrix()
    lam = np.asarray(rollout.schedule.values)
    last = rollout.profile().mass
    layers = [monotonicity(kernel) for kernel in kernels]
    per_layer = kernels * len(lam) if len(kernels) == 1 else kernels
    delta = [1.0 - kernel.diagonal().min() for kernel in per_layer]
    clipped = np.maximum(matrix, 1e-12)
    return {
        "lambdas": lam.tolist(),
        "last_row": last.tolist(),
        "diag": np.diag(matrix).tolist(),
        "col0": matrix[:, 0].tolist(),
        "mean_position": float(np.arange(len(last)) @ last),
        "argmin": int(np.argmin(last)),
        "sum_lambda_delta": float(lam @ delta),
        "min_diag": float(np.diag(matrix).min()),
        "mean_row_entropy": float(-(clipped * np.log(clipped)).sum(axis=1).mean()),
        "layer_sm": [layer.holds for layer in layers],
        "layer_violation_rate": [layer.violation_rate for layer in layers],
        "P_violation_rate": monotonicity(matrix).violation_rate,
        "P": matrix.tolist(),
        "rows": {
            row: rollout.profile(int(row)).mass.tolist() for row in case["output"].get("rows", ())
        },
    }


def answer_large_n(case: Case) -> dict[str, Any]:
    given = case["input"]
    spec = {"n": given["n"], "mask": given["mask"], "layers": [{"heads": given["heads"]}]}
    mass = Rollout(to_kernels(spec), MixingSchedule(given["lambdas"])).profile().mass
    positions = np.arange(mass.size, dtype=float)
    mean = float(positions @ mass)
    cdf = np.cumsum(mass)
    return {
        "values": {str(i): float(mass[i]) for i in given["indices"]},
        "mean": mean,
        "var": float((positions - mean) ** 2 @ mass),
        "cdf": {k: float(cdf[int(k)]) for k in case["output"]["cdf"]},
    }


def answer_published(case: Case, reference: Path) -> dict[str, Any]:
    from posbias.spec import load_spec

    name = case["input"]["config"].removeprefix("config/rollout/alibi/").replace("/", "_")
    published = reference / "published"
    profile = load_spec(published / name).rollout().profile()
    answers = {"last_row": profile.mass.tolist()}
    if "w1_to_measured" not in case["output"]:
        return answers
    with (published / "bloom-176b_fineweb-edu_256_profiles.csv").open() as lines:
        rows = [line for line in csv.DictReader(lines) if line]
    # The published columns are rounded: they sum to one within 4e-5 only.
    measured = Profile.from_scores([float(row["measured"]) for row in rows])
    distance = wasserstein(profile, measured)
    return answers | {"w1_to_measured": distance, "w1_rounded": round(distance, 4)}


# --- order and monotonicity ---------------------------------------------------------------------


def answer_monotone(case: Case) -> dict[str, Any]:
    found = monotonicity(to_kernels(case["input"])[0])
    return {
        "sm": found.holds,
        "violations": found.violations,
        "combinations": found.combinations,
        "violation_rate": found.violation_rate,
        "worst": found.worst,
        "residual_half_sm": found.residual_half_holds,
    }


def answer_order(case: Case) -> dict[str, Any]:
    given = case["input"]
    verdict = compare_rollouts(
        to_rollout(given["a"]), to_rollout(given["b"]), row=given.get("row", -1)
    )
    return {
        "holds": verdict.holds_numerically,
        "max_violation": verdict.order.max_violation,
        "reverse_holds": verdict.order.reverse_holds,
        "mean_a": verdict.order.mean_first,
        "mean_b": verdict.order.mean_second,
        "guaranteed": verdict.guaranteed,
    }


def answer_bounds(case: Case) -> dict[str, Any]:
    rollout = to_rollout(case["input"]["spec"])
    answers = {}
    for row in case["input"]["rows"]:
        bounds = escape_bounds(rollout, row=row)
        answers[str(row)] = {
            "diag": bounds.diagonal,
            "L_firstcol": bounds.lower_first_column,
            "L_mean": bounds.lower_mean,
            "U_firstcol": bounds.upper_first_column,
            "U_downsteps": bounds.upper_down_steps,
            "exact": bounds.exact,
            "U_lyapunov": bounds.upper_lyapunov,
        }
    return answers


# --- infinite depth -----------------------------------------------------------------------------


def answer_infinite_depth(case: Case) -> dict[str, Any]:
    given = case["input"]
    if "delta" in given:
        return answer_certificate(given)
    if "diag_of_layer" in given:
        return answer_growing_content(given)
    schedule = infinite_schedule(given["schedule"])
    kernel = DenseKernel(np.array(given["matrix"])) if "matrix" in given else head_kernel(given)
    verdict = infinite_depth(kernel, schedule)
    limit = limit_matrix(kernel, schedule)
    answers = {
        "sum_lambda_diverges": verdict.sum_lambda_diverges,
        "collapse": verdict.collapses,
        "P_inf_diag": verdict.diagonal.tolist(),
        "P_inf_last_row": limit[-1].tolist(),
        "limit": limit.tolist(),
    }
    return answers | (answer_rate(given, kernel) if "T" in given else {})


def answer_rate(given: Case, kernel: Kernel) -> dict[str, Any]:
    depth = given["T"]
    lam = lambdas(given["schedule"], depth)
    pair = lyapunov(kernel)
    bounds = escape_bounds(Rollout([kernel], MixingSchedule(lam)))
    return {
        "kappa": pair.kappa,
        "rate": pair.rate(float(lam[-1])),
        "V": pair.values.tolist(),
        "escape_T": bounds.exact,
        "U_lyapunov_T": bounds.upper_lyapunov,
    }


def answer_certificate(given: Case) -> dict[str, Any]:
    found = infinite_schedule(given["schedule"]).certificate(given["T"], moved=given["delta"])
    return {
        "head_product": found.head_product,
        "tail_sum_upper": found.tail_sum_upper,
        "tail_product_lower": found.product_lower / found.head_product,
        "product_lower": found.product_lower,
        "exact_infinite_product": found.product,
    }


def answer_growing_content(given: Case) -> dict[str, Any]:
    match = re.match(r"\s*(?:([\d.]+)\s*\*\s*)?log\(t\)", given["diag_of_layer"])
    assert match, f"unknown growth {given['diag_of_layer']!r}"
    family = GrowingContent(head_kernel(given), float(match[1] or 1.0))
    if "lambda_" in given:
        schedule = InfiniteSchedule.constant(given["lambda_"])
    else:
        schedule = infinite_schedule(given["schedule"])
    verdict = infinite_depth(family, schedule)
    return {
        "sum_lambda_diverges": verdict.sum_lambda_diverges,
        "collapse": verdict.collapses,
        "P_inf_diag": verdict.diagonal.tolist(),
    }


# --- closed forms -------------------------------------------------------------------------------


def answer_closed_form(case: Case) -> dict[str, Any]:
    given = case["input"]
    if "head" in given:
        mass = mixture_profile(head_kernel(given), given_lambdas(given)).mass
        return {"last_row": mass.tolist(), "sum": float(mass.sum())}
    if "kernel" not in given:
        return {"weights": poisson_binomial(given_lambdas(given)).tolist()}
    n, diagonal = given["n"], given.get("diag", 0.0)
    if given["kernel"] == "alibi":
        return {
            f"T{depth}": alibi_profile(
                n,
                given["slope"],
                depth=depth,
                diagonal=diagonal,
                mixing=given.get("lambda_", 1.0),
            ).mass.tolist()
            for depth in (1, 2)
        }
    mass = nope_profile(n, given_lambdas(given), query=given.get("row", -1), diagonal=diagonal).mass
    return {
        "eigenvalues": nope_eigenvalues(n, diagonal=diagonal).tolist(),
        "last_row": mass.tolist(),
        "values": mass[given.get("indices", slice(None))].tolist(),
        "sum": float(mass.sum()),
    }


def answer_continuum(case: Case) -> dict[str, Any]:
    given = case["input"]
    mixing = given.get("lambdas", [given.get("lambda_", 1.0)] * given["T"])
    law = nope_continuum(mixing)
    n = given["n"]
    index = np.rint(np.asarray(given["x"]) * (n - 1)).astype(int)
    return {
        "density": law.density(given["x"]).tolist(),
        "atom": law.atom,
        "finite_n": ((n - 1) * nope_profile(n, mixing).mass[index]).tolist(),
    }


def answer_drift(case: Case) -> dict[str, Any]:
    given = case["input"]
    heads = given["heads"]
    drift = free_drift(
        [head["slope"] for head in heads],
        given_lambdas(given),
        diagonals=[head.get("diag", 0.0) for head in heads],
        weights=[head.get("weight", 1.0) for head in heads],
    )
    return {
        "step_mean": drift.step_mean,
        "step_var": drift.step_variance,
        "mean_displacement": drift.mean,
        "var_displacement": drift.variance,
    }


def answer_exp_limit(case: Case) -> dict[str, Any]:
    given = case["input"]
    n = given["n"]
    kernels = to_kernels({"mask": CAUSAL} | given) if "layers" in given else [head_kernel(given)]
    rollout = Rollout(kernels, MixingSchedule(given_lambdas(given)))
    limits = [continuous_limit(rollout, query=i) for i in range(n)]
    last = limits[-1]
    return {
        "expm_last_row": last.profile.mass.tolist(),
        "rollout_last_row": rollout.profile().mass.tolist(),
        "tv_max_row": max(limit.distance for limit in limits),
        "bound_sum_lambda_sq": last.bound_squares,
        "bound_lecam": last.bound_le_cam,
        "bound_barbour_hall": last.bound_barbour_hall,
        "diag": diagonal_mass(rollout).tolist(),
    }
