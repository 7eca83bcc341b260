"""From a measurement, a spec or a rollout to predicted influence profiles."""

from __future__ import annotations

import difflib
import os
from collections.abc import Sequence
from dataclasses import replace
from os import PathLike
from pathlib import Path

import numpy as np

from posbias.errors import InputError, SpecError, shown
from posbias.estimator import Estimator
from posbias.measurement import Measurement
from posbias.measurement.store import PROFILES_FILE, RUN_FOLDER, is_measurement
from posbias.plan import DEFAULT_ESTIMATOR, VARIANTS, Plan, plan_predictions
from posbias.profile import Profile, ProfileSet
from posbias.profile_files import read_profiles
from posbias.rollout import Rollout
from posbias.spec import Spec, load_spec
from posbias.version import __version__

__all__ = [
    "DEFAULT_ESTIMATOR",
    "VARIANTS",
    "Source",
    "load_source",
    "predict",
    "recorded_estimator",
    "refuse_model",
]

Source = Measurement | Spec | Rollout | str | PathLike[str]
"""What a prediction can start from."""


def predict(
    source: Source,
    *,
    variants: Sequence[str] | None = None,
    n: int | None = None,
    query: int = -1,
    estimator: str | Estimator | None = None,
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
    ``energy-rollout``    energies of weighted values     measured shares of energy
    ``paper+mlp``         measured attention              measured, with the MLP's update
    ``paper``             measured attention              measured, as in the paper
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
    estimator : str or Estimator, optional
        How kernels and mixing are estimated from a measurement, see `posbias.estimator`. By
        default that of the run, if `source` is the output directory of one, else ``auto``: the
        variants from ``attention-only`` to ``residual+measured`` under the paper's estimator and,
        if what it needs was recorded, ``energy-rollout`` beside them; `posbias.recommend` says
        which of the two to look at. Any other estimator holds for all these variants, its kernel,
        sinks and addition for ``residual+measured`` (and its addition for the kernels of the
        others), and the paper's ``residual+measured`` is beside them as ``paper``.

    Returns
    -------
    ProfileSet
        By variant. The origin of each profile has source, SHA-256, variant, n, query and the
        version of posbias; of a measurement also ``estimator``, the one behind this profile,
        ``estimator_choice``, what was asked for, ``recommended`` for the recommended one, and
        ``sinks``, what a treatment of sinks moved.

    Raises
    ------
    InputError
        If a variant is unknown, given twice or not supported by the source, another argument is
        out of range, or the measurement lacks what the estimator needs.
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
    plan = plan_predictions(_load(source), n=n, estimator=estimator)
    names = plan.default if variants is None else _checked_variants(variants, plan)
    index = _checked_query(query, plan.n)
    return ProfileSet({name: _profile(plan, name, index) for name in names})


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
    refuse_model(Path(path))
    return Measurement.open(path)


def refuse_model(folder: Path) -> None:
    """Refuse the folder of a model that stands where a measurement is required.

    Raises
    ------
    InputError
        With what to do instead; nothing is raised for any other folder.
    """
    config = folder / "config.json"
    if config.is_file() and not (is_measurement(folder) or is_measurement(folder / RUN_FOLDER)):
        raise InputError(
            f"{folder} is a model; measure it first (posbias measure), or predict from its "
            f"architecture with assumed coefficients: {config} and a schedule (--mixing)"
        )


def recorded_estimator(path: str | PathLike[str] | None) -> str | None:
    """Return the choice of estimator of a run, from the profiles in its output directory.

    ``auto`` or the text of an estimator; None if `path` is anything else.

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
    for profile in read_profiles(file).values():
        for key in ("estimator_choice", "estimator"):
            if key in profile.origin:
                return str(profile.origin[key])
    return None


def _load(source: Source) -> Measurement | Spec | Rollout:
    if isinstance(source, (Measurement, Spec, Rollout)):
        return source
    if not isinstance(source, (str, PathLike)):
        raise InputError(
            f"cannot predict from {type(source).__name__}; a Measurement, a Spec, a Rollout or the "
            "path of a measurement or spec is required"
        )
    return load_source(source)


def _checked_variants(variants: Sequence[str], plan: Plan) -> list[str]:
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


def _profile(plan: Plan, name: str, query: int) -> Profile:
    if name == "uniform":
        mass = np.where(np.arange(plan.n) <= query, 1.0 / (query + 1), 0.0)
        profile = Profile(mass, quantity="uniform")
    else:
        profile = plan.rollout(name).profile(query)
    origin = {**plan.origin_of(name), "query": query, "posbias_version": __version__}
    return replace(profile, name=name, origin=origin)
