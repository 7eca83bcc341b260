"""From a measurement, a spec or a rollout to predicted influence profiles."""

from __future__ import annotations

import difflib
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from posbias.errors import InputError, SpecError, shown
from posbias.measurement import Measurement
from posbias.measurement.store import PROFILES_FILE, RUN_FOLDER, is_measurement
from posbias.profile import Profile, ProfileSet
from posbias.profile_files import read_profiles
from posbias.rollout import MixingSchedule, Rollout
from posbias.spec import Spec, load_spec
from posbias.version import __version__

__all__ = [
    "DEFAULT_ESTIMATOR",
    "VARIANTS",
    "Source",
    "load_source",
    "predict",
    "recorded_estimator",
]

VARIANTS = (
    "attention-only",
    "residual",
    "residual+content",
    "residual+lag",
    "residual+measured",
    "fixed-half",
    "uniform",
)
"""Every variant of a prediction, in the order of tables and plots."""

Source = Measurement | Spec | Rollout | str | PathLike[str]

DEFAULT_ESTIMATOR = "norm"


def predict(
    source: Source,
    *,
    variants: Sequence[str] | None = None,
    n: int | None = None,
    query: int = -1,
    estimator: str | None = None,
) -> ProfileSet:
    """Predict influence profiles by attention rollout.

    ====================  ==============================  =================================
    variant               kernel A_t                      lambda_t
    ====================  ==============================  =================================
    ``attention-only``    content-free (mask, position)   1: no residual path
    ``residual``          content-free                    measured, or that of the spec
    ``residual+content``  content-free plus d             measured, or that of the spec
    ``residual+lag``      measured mean logit by lag      measured
    ``residual+measured`` measured attention              measured
    ``fixed-half``        measured, or that of the spec   1/2: classic attention rollout
    ``uniform``           none: equal mass on positions 0..query
    ====================  ==============================  =================================

    Parameters
    ----------
    source : Measurement, Spec, Rollout or path
        A path is the directory of a measurement or the file of a spec.
    variants : sequence of str, optional
        Names from `VARIANTS`; the result has their order. By default all that a measurement
        supports at `n`, ``residual+lag`` only without ALiBi, whose bias by lag is known in closed
        form; for a spec or a rollout one profile, exactly what it says, named
        ``attention-only`` if lambda is 1 everywhere and there is no content, else
        ``residual+content`` if there is content, else ``residual``. The kernels of a bare
        rollout count as content-free.
    n : int, optional
        Context length, by default that of the source. Measured attention and logits by lag end at
        the length of the windows; other variants continue to any length, d and lambda being kept.
    query : int
        Output position whose influences are predicted, by default the last.
    estimator : {"norm", "frobenius"}, optional
        Estimator of the mixing coefficients of a measurement; by default that of the run, if
        `source` is the output directory of one, else ``"norm"``.

    Returns
    -------
    ProfileSet
        By variant. The origin of each profile has source, SHA-256, variant, estimator, n, query
        and the version of posbias.

    Raises
    ------
    InputError
        If a variant is unknown, given twice or not supported by the source, or another argument
        is out of range.
    ArtifactError, SpecError
        If a path cannot be read.

    Notes
    -----
    Cost per variant: T row-vector products, O(n T H) for structured kernels and O(n^2 T) for
    measured ones.

    Examples
    --------
    >>> from posbias.spec import Spec
    >>> layer = {"alibi": {"slopes": [0.5, 0.25]}}
    >>> spec = Spec("two heads", 8, 4, (layer,), {"type": "constant", "value": 0.3})
    >>> predict(spec)
    ProfileSet(['residual'], n=8)
    >>> predict(spec, variants=["uniform", "residual", "attention-only"])
    ProfileSet(['attention-only', 'residual', 'uniform'], n=8)
    """
    if estimator is None:
        path = source if isinstance(source, (str, PathLike)) else None
        estimator = recorded_estimator(path) or DEFAULT_ESTIMATOR
    plan = _plan(_load(source), n, estimator)
    names = plan.default if variants is None else _checked_variants(variants, plan)
    index = _checked_query(query, plan.n)
    return ProfileSet({name: _profile(plan, name, index) for name in names})


@dataclass(frozen=True)
class _Plan:
    """What a source can predict at one length.

    Attributes
    ----------
    n : int
        Number of positions.
    rollouts : mapping
        How to build the rollout of each supported variant but ``uniform``.
    missing : mapping
        What the source lacks for each other variant.
    default : tuple of str
        Variants if none are named.
    origin : mapping
        Provenance of the source.
    """

    n: int
    rollouts: Mapping[str, Callable[[], Rollout]]
    missing: Mapping[str, str]
    default: tuple[str, ...]
    origin: Mapping[str, Any] = field(default_factory=dict)


def load_source(path: str | PathLike[str]) -> Measurement | Spec:
    """Open a measurement, or the one in the output directory of a run, or read a spec.

    Raises
    ------
    ArtifactError
        If a measurement is damaged.
    SpecError
        If a file is no spec, or nothing is there.
    InputError
        If it is a model that has not been measured.
    """
    if not os.fspath(path):
        raise InputError("the name of the source is empty; a measurement or a spec is required")
    if not os.path.lexists(path):
        raise SpecError(
            f"{shown(path)} does not exist; a measurement directory or a spec is required"
        )
    if not os.path.isdir(path):
        return load_spec(Path(path))
    _refuse_model(Path(path))
    return Measurement.open(path)


def _refuse_model(folder: Path) -> None:
    config = folder / "config.json"
    if config.is_file() and not (is_measurement(folder) or is_measurement(folder / RUN_FOLDER)):
        raise InputError(
            f"{folder} is a model; measure it first (posbias measure), or predict from its "
            f"architecture with assumed coefficients: {config} and a schedule (--mixing)"
        )


def recorded_estimator(path: str | PathLike[str] | None) -> str | None:
    """Return the estimator that a run used, from the profiles in its output directory.

    None if `path` is anything else.

    Raises
    ------
    ProfileError
        If the profiles are damaged.
    """
    if path is None or not os.path.isdir(Path(path) / RUN_FOLDER):
        return None
    file = Path(path) / PROFILES_FILE
    if not file.is_file():
        return None
    found = [p.origin["estimator"] for p in read_profiles(file).values() if "estimator" in p.origin]
    return str(found[0]) if found else None


def _load(source: Source) -> Measurement | Spec | Rollout:
    if isinstance(source, (Measurement, Spec, Rollout)):
        return source
    if not isinstance(source, (str, PathLike)):
        raise InputError(
            f"cannot predict from {type(source).__name__}; a Measurement, a Spec, a Rollout or the "
            "path of a measurement or spec is required"
        )
    return load_source(source)


def _plan(source: Measurement | Spec | Rollout, n: int | None, estimator: str) -> _Plan:
    if n is not None and (isinstance(n, bool) or not isinstance(n, (int, np.integer)) or n < 2):
        raise InputError(f"n is {n!r}; a context of at least 2 positions is required")
    if isinstance(source, Measurement):
        return _plan_measurement(source, source.n if n is None else int(n), estimator)
    if estimator != DEFAULT_ESTIMATOR:
        raise InputError(
            f"estimator {estimator!r} was asked for, but the source is no measurement: its mixing "
            "coefficients are given, not estimated"
        )
    if isinstance(source, Spec):
        return _plan_spec(source, source.length if n is None else int(n))
    return _plan_rollout(source, source.n if n is None else int(n))


def _plan_measurement(source: Measurement, n: int, estimator: str) -> _Plan:
    measured = source.schedule(estimator)
    layers = source.layers
    rollouts: dict[str, Callable[[], Rollout]] = {
        "attention-only": lambda: Rollout(
            source.kernels("position", n=n), MixingSchedule.constant(layers, 1.0)
        ),
        "residual": lambda: Rollout(source.kernels("position", n=n), measured),
        "residual+content": lambda: Rollout(source.kernels("position+content", n=n), measured),
        "residual+lag": lambda: Rollout(source.kernels("lag", n=n), measured),
        "residual+measured": lambda: Rollout(source.kernels("attention", n=n), measured),
        "fixed-half": lambda: Rollout(
            source.kernels("attention", n=n), MixingSchedule.constant(layers, 0.5)
        ),
    }
    missing = {}
    if n > source.n:
        reason = f"attention at {n} positions; it was measured at {source.n}"
        missing = dict.fromkeys(("residual+measured", "fixed-half"), reason)
        missing["residual+lag"] = f"logits by lag at {n} positions; they end at {source.n}"
    if "logits.lag.sum" not in source.arrays:
        missing["residual+lag"] = "logits by lag, which were not recorded; measure again"
    kept = {name: build for name, build in rollouts.items() if name not in missing}
    hidden = set() if source.slopes() is None else {"residual+lag"}
    default = [name for name in kept if name not in hidden]
    origin = {**source.origin(), "estimator": estimator}
    return _Plan(n, kept, missing, (*default, "uniform"), origin)


def _plan_spec(source: Spec, n: int) -> _Plan:
    rollouts: dict[str, Callable[[], Rollout]] = {
        "attention-only": lambda: source.without_content().with_mixing(1.0).rollout(n),
        "residual": lambda: source.without_content().rollout(n),
        "residual+content": lambda: source.rollout(n),
        "fixed-half": lambda: source.with_mixing(0.5).rollout(n),
    }
    missing = {
        "residual+lag": "logits by lag; measure the model",
        "residual+measured": "measured attention; measure the model",
    }
    if not source.has_content:
        missing["residual+content"] = "diagonal terms, per-key logits or sinks in its heads"
        del rollouts["residual+content"]
    default = "residual"
    if source.has_content:
        default = "residual+content"
    elif source.mixing is not None and _is_attention_only(source.schedule()):
        default = "attention-only"
    provenance = source.provenance
    origin = {
        "source": provenance.get("file", source.name),
        "sha256": provenance.get("sha256"),
    }
    return _Plan(n, rollouts, missing, (default,), origin)


def _plan_rollout(source: Rollout, n: int) -> _Plan:
    if n > source.n:
        raise InputError(
            f"n is {n}, the rollout has {source.n} positions; build its kernels at {n} positions"
        )
    kernels = source.kernels if n == source.n else [k.restrict(n) for k in source.kernels]
    depth = source.depth
    rollouts: dict[str, Callable[[], Rollout]] = {
        "attention-only": lambda: Rollout(kernels, MixingSchedule.constant(depth, 1.0)),
        "residual": lambda: Rollout(kernels, source.schedule.restrict(n)),
        "fixed-half": lambda: Rollout(kernels, MixingSchedule.constant(depth, 0.5)),
    }
    reason = "kernels that tell content and position apart; use a Measurement or a Spec"
    missing = dict.fromkeys(("residual+content", "residual+lag", "residual+measured"), reason)
    default = "attention-only" if _is_attention_only(source.schedule) else "residual"
    return _Plan(n, rollouts, missing, (default,), {"source": "rollout", "sha256": None})


def _is_attention_only(schedule: MixingSchedule) -> bool:
    return bool((schedule.values == 1.0).all())


def _checked_variants(variants: Sequence[str], plan: _Plan) -> list[str]:
    """Return the variants in the order of `VARIANTS`."""
    if isinstance(variants, str) or not variants:
        raise InputError(f"variants is {variants!r}; a list of names from {VARIANTS} is required")
    for name in variants:
        if name not in VARIANTS:
            near = difflib.get_close_matches(str(name), VARIANTS, n=1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise InputError(f"variant {name!r} is unknown, there is {', '.join(VARIANTS)}{hint}")
        if name in plan.missing:
            raise InputError(f"variant {name!r} needs what the source lacks: {plan.missing[name]}")
    if len(set(variants)) < len(variants):
        raise InputError(f"variants are {list(variants)}; each may be named once")
    return sorted(variants, key=VARIANTS.index)


def _checked_query(query: int, n: int) -> int:
    if isinstance(query, bool) or not isinstance(query, (int, np.integer)):
        raise InputError(f"query is {query!r}; an integer position is required")
    if not -n <= query < n:
        raise InputError(f"query is {query}; a position in {-n}..{n - 1} is required")
    return int(query) % n


def _profile(plan: _Plan, name: str, query: int) -> Profile:
    if name == "uniform":
        mass = np.where(np.arange(plan.n) <= query, 1.0 / (query + 1), 0.0)
        profile = Profile(mass, quantity="uniform")
    else:
        profile = plan.rollouts[name]().profile(query)
    origin = {
        **plan.origin,
        "variant": name,
        "n": plan.n,
        "query": query,
        "posbias_version": __version__,
    }
    return replace(profile, name=name, origin=origin)
