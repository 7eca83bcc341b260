"""What ``posbias figure`` can draw, and from which sources."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from posbias.cli._figure_sources import (
    FigureRequest,
    axes_for,
    estimator_for,
    labelled,
    layer_kernels,
    model_source,
    name_of,
    one_profile,
    open_source,
    refuse_options,
    rollout_of,
    title_of,
    with_legend,
)
from posbias.errors import InputError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from posbias.profile import Profile

__all__ = ["DEFAULT_LAYERS", "FIGURES", "FigureKind", "draw_figure"]

DEFAULT_LAYERS = 1000
"""Layers that the figure of infinite depth follows."""

_MOST_LAYERS = 10_000


@dataclass(frozen=True)
class FigureKind:
    """One kind of figure.

    Parameters
    ----------
    draw : callable
        From a request to a figure.
    help : str
        What it shows, in a few words.
    options : frozenset of str
        Options that it understands.
    takes_many : bool
        Whether it takes several sources.
    """

    draw: Callable[[FigureRequest], Axes | Figure]
    help: str
    options: frozenset[str]
    takes_many: bool = False


def draw_figure(kind: str, request: FigureRequest) -> Axes | Figure:
    """Draw a figure.

    Raises
    ------
    InputError
        If an option or a source makes no sense for the kind.
    """
    chosen = FIGURES[kind]
    unknown = sorted(request.given() - chosen.options)
    if unknown:
        takes = ", ".join(f"--{name}" for name in sorted(chosen.options)) or "none of these options"
        raise InputError(f"--{unknown[0]} does not apply to the figure {kind}, which takes {takes}")
    if len(request.sources) > 1 and not chosen.takes_many:
        raise InputError(
            f"the figure {kind} has one source, {len(request.sources)} were given; several are "
            f"compared by {', '.join(name for name, k in FIGURES.items() if k.takes_many)}"
        )
    if len(request.lengths) > 1 and kind != "lengths":
        raise InputError(
            f"the figure {kind} has one --length, {len(request.lengths)} were given; the figure "
            "lengths compares several"
        )
    if request.estimator is not None:
        _check_estimator(kind, request)
    return chosen.draw(request)


def _profile(request: FigureRequest) -> Figure:
    from posbias.measurement import Measurement
    from posbias.plot import profiles_figure
    from posbias.predict import predict
    from posbias.profile import ProfileSet

    source = open_source(request.sources[0])
    windows = None
    profiles: dict[str, Profile] = {}
    if isinstance(source, ProfileSet):
        refuse_options(request)
        profiles.update(source)
    else:
        options: dict[str, Any] = {"n": request.length, "query": _query(request)}
        estimator = estimator_for(request, request.sources[0])
        is_as_measured = request.query is None and request.length is None
        if isinstance(source, Measurement) and source.influence_methods and is_as_measured:
            profiles["measured"] = source.influence()
            windows = source.influence_windows() if source.windows > 1 else None
        profiles.update(predict(source, estimator=estimator, **options))
    return profiles_figure(profiles, windows=windows, title=title_of(request), width=request.width)


def _comparison(request: FigureRequest) -> Figure:
    from posbias.compare import compare, load_measured, load_predicted
    from posbias.plot import comparison_figure

    first, *others = request.sources
    measured = load_measured(first)
    predicted = load_predicted(others or [first], request.estimator)
    comparison = compare(measured, predicted)
    distances = {row.variant: row.w1 for row in comparison.rows}
    title = title_of(request)
    return comparison_figure(measured, predicted, distances, title=title, width=request.width)


def _mixing(request: FigureRequest) -> Axes:
    from posbias.measurement import Measurement
    from posbias.plot import plot_mixing

    source = model_source(request, "mixing")
    ax = axes_for(request, height=2.2)
    if isinstance(source, Measurement):
        return plot_mixing(source.mixing(), ax, spread=source.mixing_std())
    schedule = source.schedule()
    if schedule.positions is not None:
        raise InputError(
            f"{request.sources[0]} has a mixing coefficient for each position; the figure mixing "
            "needs one per layer"
        )
    return plot_mixing(schedule.values, ax)


def _content(request: FigureRequest) -> Figure:
    from posbias.measurement import Measurement
    from posbias.plot import content_figure

    source = model_source(request, "content")
    if not isinstance(source, Measurement):
        raise InputError(
            f"{request.sources[0]} is a spec; the figure content shows how well a constant plus a "
            "diagonal term describes measured logits and needs a measurement"
        )
    title = title_of(request)
    return content_figure(source.content(), source.content_fit(), title=title, width=request.width)


def _kernels(request: FigureRequest) -> Figure:
    from posbias.plot import kernels_figure

    source = model_source(request, "kernels")
    kernels = layer_kernels(request, source)
    return kernels_figure(kernels, title=title_of(request), width=request.width)


def _lags(request: FigureRequest) -> Axes:
    from posbias.plot import plot_lags
    from posbias.plot.kernels import MOST_NAMED_LINES

    kernels = layer_kernels(request, model_source(request, "lags"))
    if len({id(kernel) for kernel in kernels}) > MOST_NAMED_LINES:
        return plot_lags(kernels, axes_for(request))
    return with_legend(plot_lags, kernels, request)


def _evolution(request: FigureRequest) -> Axes:
    from posbias.measurement import Measurement
    from posbias.plot import plot_depth_profiles
    from posbias.rollout import Rollout

    source = model_source(request, "evolution")
    rollout = rollout_of(request, "evolution")
    kernels = layer_kernels(request, source)
    if isinstance(source, Measurement):
        rollout = Rollout(kernels, rollout.schedule)
    rows = rollout.depth_profiles(_query(request))
    return with_legend(plot_depth_profiles, rows, request)


def _depth(request: FigureRequest) -> Figure:
    from posbias.plot import depth_figure
    from posbias.theory import depth_curves

    curves = depth_curves(rollout_of(request, "depth"), query=_query(request))
    return depth_figure(curves, title=title_of(request), width=request.width)


def _forces(request: FigureRequest) -> Axes:
    from posbias.plot import plot_forces
    from posbias.theory import forces

    report = forces(rollout_of(request, "forces"), query=_query(request))
    return with_legend(plot_forces, report, request)


def _infinite(request: FigureRequest) -> Axes:
    from posbias.cli._schedule import parse_schedule
    from posbias.plot import plot_infinite_depth, plot_style
    from posbias.plot.style import figure_of
    from posbias.rollout import MixingSchedule, Rollout
    from posbias.spec import Spec
    from posbias.theory import InfiniteSchedule, depth_curves, infinite_depth

    source = model_source(request, "infinite")
    description: Mapping[str, Any] | None = None
    if request.schedule is not None:
        description = parse_schedule(request.schedule)
    elif isinstance(source, Spec) and (source.mixing or {}).get("type") not in (None, "custom"):
        description = source.mixing
    if description is None:
        raise InputError(
            f"{request.sources[0]} has finitely many mixing coefficients; say with --schedule how "
            "they go on for ever, such as --schedule power:0.3:1.2"
        )
    layers = DEFAULT_LAYERS if request.layers is None else request.layers
    if not 1 <= layers <= _MOST_LAYERS:
        raise InputError(f"--layers is {layers}; 1 to {_MOST_LAYERS} are required")
    kernels = rollout_of(request, "infinite", mixing="constant:0.5").kernels
    schedule = InfiniteSchedule.from_description(description)
    verdict = infinite_depth(kernels, schedule)
    cycle = [kernels[t % len(kernels)] for t in range(layers)] if len(kernels) > 1 else kernels
    followed = Rollout(cycle, MixingSchedule(schedule.values(layers)))
    curve = depth_curves(followed, query=_query(request)).residual

    def draw(_: None, ax: Axes, *, legend: bool) -> Axes:
        # The panel names the verdict, so what the source is stands above it.
        with plot_style():
            figure_of(ax).suptitle(title_of(request), fontsize=8.5, x=0.01, ha="left")
        return plot_infinite_depth(curve, verdict, ax, query=_query(request), legend=legend)

    return with_legend(draw, None, request)


def _monotone(request: FigureRequest) -> Figure:
    from posbias.plot import monotonicity_figure
    from posbias.theory import monotonicity

    source = model_source(request, "monotone")
    kernels = layer_kernels(request, source)
    found = {key: monotonicity(kernel) for key, kernel in {id(k): k for k in kernels}.items()}
    results = [found[id(kernel)] for kernel in kernels]
    return monotonicity_figure(kernels, results, title=title_of(request), width=request.width)


def _models(request: FigureRequest) -> Figure:
    from posbias.plot import relative_figure

    named = [(name_of(path), path, one_profile(path, request)) for path in request.sources]
    profiles = labelled([(name, path.name, profile) for name, path, profile in named])
    return relative_figure(profiles, title=request.title or "", width=request.width)


def _lengths(request: FigureRequest) -> Figure:
    from posbias.plot import relative_figure

    if request.lengths and len(request.sources) > 1:
        raise InputError(
            "several sources and --length were given; give one source with several --length, or "
            "several sources of different lengths"
        )
    if request.lengths:
        (path,) = request.sources
        found = [(path, one_profile(path, request, n=n)) for n in request.lengths]
    else:
        found = [(path, one_profile(path, request)) for path in request.sources]
    found.sort(key=lambda item: item[1].n)
    profiles = labelled([(f"{p.n:,} tokens", name_of(path), p) for path, p in found])
    title = request.title
    if title is None:
        names = {name_of(path) for path, _ in found}
        title = names.pop() if len(names) == 1 else ""
    return relative_figure(profiles, ordered=True, title=title, width=request.width)


FIGURES: Mapping[str, FigureKind] = {
    "profile": FigureKind(
        _profile,
        "influence by position, measured with its spread and predicted",
        frozenset({"length", "query", "estimator"}),
    ),
    "comparison": FigureKind(
        _comparison,
        "a measured profile, predictions over it, and both cumulated",
        frozenset({"estimator"}),
        takes_many=True,
    ),
    "mixing": FigureKind(
        _mixing, "the mixing coefficient of each layer with its spread", frozenset()
    ),
    "content": FigureKind(
        _content, "the content term of each head and how well it fits", frozenset()
    ),
    "kernels": FigureKind(
        _kernels, "attention of each layer as heat maps", frozenset({"length", "kernel"})
    ),
    "lags": FigureKind(
        _lags, "mean attention by lag of each layer", frozenset({"length", "kernel"})
    ),
    "evolution": FigureKind(
        _evolution,
        "the profile after growing numbers of layers",
        frozenset({"length", "query", "kernel", "estimator"}),
    ),
    "depth": FigureKind(
        _depth,
        "token 0, the query and the mean position against depth",
        frozenset({"length", "query", "estimator"}),
    ),
    "forces": FigureKind(
        _forces,
        "the profile with each of the four forces removed",
        frozenset({"length", "query", "estimator"}),
    ),
    "infinite": FigureKind(
        _infinite,
        "where the mass goes in infinitely many layers",
        frozenset({"length", "query", "schedule", "layers"}),
    ),
    "monotone": FigureKind(
        _monotone,
        "violations of stochastic monotonicity by layer, and the worst one",
        frozenset({"length", "kernel"}),
    ),
    "models": FigureKind(
        _models,
        "profiles of several models on relative positions",
        frozenset({"length", "estimator"}),
        takes_many=True,
    ),
    "lengths": FigureKind(
        _lengths,
        "profiles of several context lengths on relative positions",
        frozenset({"length", "estimator"}),
        takes_many=True,
    ),
}
"""The kinds of figures, in the order of the documentation."""


def _query(request: FigureRequest) -> int:
    return -1 if request.query is None else request.query


def _check_estimator(kind: str, request: FigureRequest) -> None:
    """Refuse an estimator where nothing is estimated."""
    given = next((path for path in request.sources if not path.is_dir()), None)
    if given is not None:
        raise InputError(
            f"--estimator applies to measurements; {given} is none, its mixing coefficients are "
            "given or unknown"
        )
    if kind in ("models", "lengths") and not request.lengths:
        raise InputError(
            f"--estimator applies to predictions; the figure {kind} shows measured influence "
            "unless --length asks for a prediction"
        )
