"""What ``posbias figure`` was asked for, and how its sources are opened and named."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from posbias.errors import InputError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from posbias.kernels import Kernel
    from posbias.measurement import Measurement
    from posbias.profile import Profile, ProfileSet
    from posbias.rollout import Rollout
    from posbias.spec import Spec

    Opened = Measurement | Spec | ProfileSet

__all__ = [
    "FigureRequest",
    "axes_for",
    "estimator_for",
    "labelled",
    "layer_kernels",
    "model_source",
    "name_of",
    "one_profile",
    "open_source",
    "refuse_options",
    "rollout_of",
    "title_of",
    "with_legend",
]

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class FigureRequest:
    """A figure as it was asked for; None is an option that was not given.

    Parameters
    ----------
    sources : tuple of Path
        At least one.
    lengths : tuple of int
        Context lengths.
    query, layers : int
        Position whose profile is drawn; layers that infinite depth follows.
    kernel, schedule, estimator, title : str
        As on the command line.
    width : float
        Width in inches.
    """

    sources: tuple[Path, ...]
    width: float
    lengths: tuple[int, ...] = ()
    query: int | None = None
    kernel: str | None = None
    schedule: str | None = None
    layers: int | None = None
    estimator: str | None = None
    title: str | None = None

    @property
    def length(self) -> int | None:
        """The only context length, None if there is none."""
        return self.lengths[0] if self.lengths else None

    def given(self) -> set[str]:
        """Return the names of the options that were given, without dashes."""
        values = {
            "length": self.lengths,
            "query": self.query,
            "kernel": self.kernel,
            "schedule": self.schedule,
            "layers": self.layers,
            "estimator": self.estimator,
        }
        return {name for name, value in values.items() if value is not None and value != ()}


def open_source(path: Path) -> Opened:
    """Open a measurement, a spec or profiles.

    Raises
    ------
    InputError
        If it is something else.
    """
    from posbias.load import load
    from posbias.measurement import Measurement
    from posbias.profile import ProfileSet
    from posbias.spec import Spec

    source = load(path)
    if not isinstance(source, (Measurement, Spec, ProfileSet)):
        raise InputError(
            f"{path} holds a comparison; the profiles that were compared are drawn from the "
            "measurement or the file of profiles"
        )
    return source


def model_source(request: FigureRequest, kind: str) -> Measurement | Spec:
    """Open the only source, which must be more than profiles."""
    from posbias.profile import ProfileSet

    source = open_source(request.sources[0])
    if isinstance(source, ProfileSet):
        raise InputError(
            f"{request.sources[0]} holds profiles only; the figure {kind} needs a measurement or a "
            "spec"
        )
    return source


def refuse_options(request: FigureRequest) -> None:
    """Refuse options that say how profiles are computed, for profiles read from a file."""
    for name in sorted(request.given()):
        raise InputError(
            f"{request.sources[0]} holds profiles as they are; --{name} applies to measurements "
            "and specs"
        )


def estimator_for(request: FigureRequest, path: Path) -> str | None:
    """Return the estimator that was asked for, else that of the run, else None."""
    from posbias.predict import recorded_estimator

    return request.estimator or recorded_estimator(path)


def layer_kernels(request: FigureRequest, source: Measurement | Spec) -> list[Kernel]:
    """Return the kernel of every layer, the measured attention unless another was asked for."""
    from posbias.measurement import Measurement

    if isinstance(source, Measurement):
        kind: Any = request.kernel or "attention"
        return source.kernels(kind, n=request.length)
    if request.kernel is not None:
        raise InputError(
            f"{request.sources[0]} is a spec, whose kernels are what it says; --kernel chooses "
            "among those of a measurement"
        )
    kernels: list[Kernel] = list(source.kernels(request.length))
    return kernels if len(kernels) == source.depth else kernels * source.depth


def rollout_of(request: FigureRequest, kind: str, *, mixing: str | None = None) -> Rollout:
    """Return the rollout with position bias and content that the only source describes."""
    from posbias.cli._sources import load_rollout

    model_source(request, kind)
    path = request.sources[0]
    return load_rollout(path, mixing=mixing, n=request.length, estimator=request.estimator)


def one_profile(path: Path, request: FigureRequest, n: int | None = None) -> Profile:
    """Return the measured influence of a source, or the prediction from a spec.

    With a length, also that of a measurement is a prediction: ``residual+content``.
    """
    from posbias.compare import load_measured
    from posbias.measurement import Measurement
    from posbias.predict import predict
    from posbias.profile import ProfileSet

    source, length = open_source(path), n or request.length
    if isinstance(source, ProfileSet):
        refuse_options(request)
        return load_measured(path)
    if isinstance(source, Measurement):
        if length is None:
            return source.influence()
        estimator = estimator_for(request, path)
        (profile,) = predict(
            source, variants=["residual+content"], n=length, estimator=estimator
        ).values()
        return profile
    (profile,) = predict(source, n=length).values()
    return profile


def labelled(found: Sequence[tuple[str, str, Profile]]) -> dict[str, Profile]:
    """Return profiles by name; names that several share get the second word appended.

    Raises
    ------
    InputError
        If two still have one name.
    """
    uses = Counter(name for name, _, _ in found)
    profiles: dict[str, Profile] = {}
    for name, extra, profile in found:
        label = name if uses[name] == 1 else f"{name} ({extra})"
        if label in profiles:
            raise InputError(f"two sources would both be named {label}; rename one of them")
        profiles[label] = profile
    return profiles


def name_of(path: Path) -> str:
    """Return the short name of the model of a source, or of the file of profiles."""
    from posbias.measurement import Measurement
    from posbias.spec import Spec

    source = open_source(path)
    if isinstance(source, Measurement):
        return Path(source.manifest["model"]["id"]).name
    return source.name if isinstance(source, Spec) else path.stem


def title_of(request: FigureRequest) -> str:
    """Return the title that was asked for, else what the first source is, folded to the width."""
    from posbias.measurement import Measurement
    from posbias.spec import Spec

    title = request.title
    if title is None:
        path = request.sources[0]
        source, name = open_source(path), name_of(path)
        if isinstance(source, Measurement):
            title = f"{name} · {source.windows} windows of {source.n} tokens"
        else:
            n = (request.length or source.length) if isinstance(source, Spec) else source.n
            title = f"{name} · {n} positions"
    # A character is about 0.062 inches wide, the margin beside the axes 0.55.
    return textwrap.fill(title, int((request.width - 0.55) / 0.062))


def axes_for(request: FigureRequest, *, height: float = 3.0) -> Axes:
    """Return the axes of a new figure of the width that was asked for, with its title."""
    from posbias.plot.style import new_figure, plot_style

    figure = new_figure(request.width, height)
    with plot_style():
        ax = figure.add_subplot()
        ax.set_title(title_of(request))
    return ax


def with_legend(draw: Callable[..., Axes], data: T, request: FigureRequest) -> Axes:
    """Draw on new axes, the legend below them."""
    from posbias.plot._axes import legend_below
    from posbias.plot.style import figure_of

    ax = draw(data, axes_for(request), legend=False)
    legend_below(figure_of(ax), ax)
    return ax
