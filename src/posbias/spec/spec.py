"""The architecture spec: what a prediction needs to know about a model."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from functools import cached_property
from numbers import Real
from typing import Any

import numpy as np

from posbias.errors import InputError, SpecError
from posbias.kernels import AttentionKernel, Head, kernel_from_description
from posbias.rollout import MixingSchedule, Rollout
from posbias.spec._document import one_line, plain, shown

__all__ = [
    "FORMAT_VERSION",
    "MAX_DEPTH",
    "MAX_HEADS",
    "MAX_LENGTH",
    "MAX_LOGIT",
    "Layer",
    "Mixing",
    "Spec",
]

FORMAT_VERSION = 1

MAX_LENGTH = 2**24
"""Positions that a spec may have; more is taken for a slip of the pen."""

MAX_DEPTH = 2**20
"""Layers that a spec may have."""

MAX_LOGIT = 1e8
"""Size of a logit divided by the temperature beyond which a softmax in float64 loses its digits."""

MAX_HEADS = 2**16
"""Heads that a layer of a config may have."""

Layer = Mapping[str, Any]
Mixing = Mapping[str, Any] | MixingSchedule | float | Sequence[float]


@dataclass(frozen=True, eq=False)
class Spec:
    """Depth, attention and mixing of a model, without weights or text.

    Parameters
    ----------
    name : str
        A label.
    length : int
        n, the number of positions that predictions use by default; 2 to `MAX_LENGTH`.
    depth : int
        T, the number of layers; 1 to `MAX_DEPTH`.
    layers : sequence of mappings
        Layer descriptions (see `posbias.kernels.kernel_from_description`), bottom first: one that
        all layers share, or T. Kept as plain JSON values; arrays become lists.
    mixing : mapping or None
        Description of the mixing schedule (see `MixingSchedule.from_description`). None where it is
        not known, as in a model's config; give one with `with_mixing`.
    provenance : mapping
        Where the spec comes from, JSON-serialisable.

    Raises
    ------
    SpecError
        If a number is out of range or a layer or the mixing cannot be built.

    Notes
    -----
    Construction checks every layer at `length`, O(T H) for structured heads. Two specs are equal
    if all but their provenance is.

    Examples
    --------
    >>> layer = {"alibi": {"slopes": [0.5, 0.25]}}
    >>> spec = Spec("two heads", 8, 4, (layer,), {"type": "constant", "value": 0.3})
    >>> spec.rollout().profile().n
    8
    """

    name: str
    length: int
    depth: int
    layers: tuple[Layer, ...]
    mixing: Mapping[str, Any] | None = None
    provenance: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not isinstance(self.name, str):
            raise SpecError(f"name is {shown(self.name)}; text is required")
        length = _count(self.length, "length", 2, MAX_LENGTH)
        depth = _count(self.depth, "depth", 1, MAX_DEPTH)
        layers = plain(self.layers, "layers")
        if not isinstance(layers, list) or not layers:
            raise SpecError(f"layers is {shown(layers)}; a list of at least one layer is required")
        if len(layers) not in (1, depth):
            raise SpecError(
                f"layers has {len(layers)} entries for depth {depth}; one that all layers share "
                "or one per layer is required"
            )
        for what, value in (("length", length), ("depth", depth), ("layers", tuple(layers))):
            object.__setattr__(self, what, value)
        plain(self.name, "name")
        self._set("provenance", _provenance(self.provenance))
        self._set_mixing(self.mixing)
        _ = self._kernels

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Spec):
            return NotImplemented
        return self._identity == other._identity

    def __hash__(self) -> int:
        return hash(self._identity)

    @property
    def has_content(self) -> bool:
        """Whether any head has a diagonal term, per-key logits or a sink logit."""
        return any(_layer_has_content(layer) for layer in self.layers)

    def kernels(self, n: int | None = None) -> list[AttentionKernel]:
        """Return the kernels over n positions (default: `length`), one or T, bottom first.

        Equal layers share one kernel.

        Raises
        ------
        SpecError
            If `n` is out of range or per-key logits fix another length.
        """
        if n is None or n == self.length:
            return list(self._kernels)
        return self._build_kernels(_count(n, "n", 2, MAX_LENGTH))

    def schedule(self) -> MixingSchedule:
        """Return the mixing schedule over `depth` layers.

        Raises
        ------
        SpecError
            If the spec has none.
        """
        if self.mixing is None:
            raise SpecError(
                f"spec {self.name!r} has no mixing, which a model's config does not know either. "
                "Give one, for example spec.with_mixing(0.3) or --mixing constant:0.3"
            )
        return _build_schedule(self.mixing, self.depth)

    def rollout(self, n: int | None = None) -> Rollout:
        """Return the rollout over n positions (default: `length`).

        Raises
        ------
        SpecError
            If the spec has no mixing, or per-key logits or per-position mixing fix another length.
        """
        schedule = self.schedule()
        kernels = self.kernels(n)
        if schedule.positions not in (None, kernels[0].n):
            raise SpecError(
                f"the mixing of spec {self.name!r} is given for {schedule.positions} positions; a "
                f"prediction at {kernels[0].n} needs another one"
            )
        return Rollout(kernels, schedule)

    def with_mixing(self, mixing: Mixing) -> Spec:
        """Return the spec with another mixing: a description, a schedule, a number or T numbers.

        Raises
        ------
        SpecError
            If a coefficient is outside [0, 1] or their number is not `depth`.
        """
        changed = copy(self)
        changed._set_mixing(_describe_mixing(mixing, self.depth))
        return changed

    def with_provenance(self, provenance: Mapping[str, Any]) -> Spec:
        """Return the spec with another provenance.

        Raises
        ------
        SpecError
            If it is not JSON-serialisable.
        """
        changed = copy(self)
        changed._set("provenance", _provenance(provenance))
        return changed

    def without_content(self) -> Spec:
        """Return the spec without diagonal terms, per-key logits and sink logits.

        Layers that differ in content alone become one that all share.
        """
        bare = [_without_content(layer) for layer in self.layers]
        is_shared = all(layer == bare[0] for layer in bare)
        return replace(self, layers=tuple(bare[:1] if is_shared else bare))

    def as_dict(self) -> dict[str, Any]:
        """Return the document of a spec file; `posbias.spec.parse_spec` is the inverse."""
        document: dict[str, Any] = {
            "posbias_spec": FORMAT_VERSION,
            "name": self.name,
            "length": self.length,
            "depth": self.depth,
            "layers": plain(self.layers, "layers"),
        }
        if self.mixing is not None:
            document["mixing"] = plain(self.mixing, "mixing")
        if self.provenance:
            document["provenance"] = _provenance(self.provenance)
        return document

    @cached_property
    def _kernels(self) -> list[AttentionKernel]:
        # In __dict__ once built, so copies with other mixing or provenance do not build again.
        return self._build_kernels(self.length)

    def _build_kernels(self, n: int) -> list[AttentionKernel]:
        built: dict[int, AttentionKernel] = {}
        for index in sorted(set(self._first_equal)):
            layer = self.layers[index]
            try:
                built[index] = kernel_from_description(layer, n)
                _check_logits(layer, built[index])
            except InputError as error:
                raise SpecError(one_line(f"layers[{index}]: {error}")) from error
        return [built[index] for index in self._first_equal]

    @cached_property
    def _first_equal(self) -> list[int]:
        """For each layer the index of the first that equals it."""
        seen: dict[str, int] = {}
        texts = (json.dumps(layer, sort_keys=True) for layer in self.layers)
        return [seen.setdefault(text, index) for index, text in enumerate(texts)]

    @property
    def _identity(self) -> str:
        document = self.as_dict()
        document.pop("provenance", None)
        return json.dumps(document, sort_keys=True)

    def _set(self, what: str, value: Any) -> None:
        object.__setattr__(self, what, value)

    def _set_mixing(self, mixing: Mapping[str, Any] | None) -> None:
        """Check and keep a description of the mixing."""
        if mixing is not None:
            mixing = plain(mixing, "mixing")
            positions = _build_schedule(mixing, self.depth).positions
            if positions not in (None, self.length):
                raise SpecError(
                    f"mixing has coefficients for {positions} positions; length is {self.length}"
                )
        self._set("mixing", mixing)


def _check_logits(layer: Layer, kernel: AttentionKernel) -> None:
    with np.errstate(over="ignore"):
        if "alibi" in layer:
            bank = layer["alibi"]
            peak = max(map(abs, bank["slopes"])) * (kernel.n - 1)
            peak += np.abs(bank.get("diagonal", 0.0)).max()
        else:
            peak = max(_peak(head, kernel.n) for head in kernel.heads)
        peak = np.float64(peak) / kernel.temperature
    if not peak <= MAX_LOGIT:
        raise InputError(
            f"logits reach {peak:.3g} at {kernel.n} positions; at most {MAX_LOGIT:g} is "
            "required (slopes, content and the like, divided by the temperature)"
        )


def _peak(head: Head, n: int) -> float:
    """Return a bound of the size of the logits of a head."""
    lags = head.position.lag_logits(n)
    parts = [lags[np.isfinite(lags)], np.array([head.diagonal])]
    if head.key is not None:
        parts.append(head.key)
    if head.sink is not None:
        parts.append(np.array([head.sink.logit]))
    return float(sum(np.abs(part).max(initial=0.0) for part in parts))


def _build_schedule(mixing: Mapping[str, Any], depth: int) -> MixingSchedule:
    try:
        with np.errstate(all="ignore"):  # what overflows is out of range, and refused as such
            return MixingSchedule.from_description(mixing, depth)
    except InputError as error:
        raise SpecError(one_line(f"mixing: {error}")) from error


def _describe_mixing(mixing: Mixing, depth: int) -> Mapping[str, Any]:
    if isinstance(mixing, Mapping):
        return mixing
    if isinstance(mixing, Real) and not isinstance(mixing, bool):
        return {"type": "constant", "value": float(mixing)}
    if not isinstance(mixing, MixingSchedule):
        return {"type": "custom", "values": plain(mixing, "mixing")}
    if mixing.depth != depth:
        raise SpecError(f"mixing has {mixing.depth} layers; the spec has {depth}")
    return mixing.describe()


def _layer_has_content(layer: Layer) -> bool:
    if "alibi" in layer:
        return bool(np.any(layer["alibi"].get("diagonal", 0.0)))
    return any(
        head.get("diagonal", 0.0) != 0.0
        or head.get("key") is not None
        or head.get("sink") is not None
        for head in layer["heads"]
    )


def _without_content(layer: Layer) -> dict[str, Any]:
    bare = dict(layer)
    if "alibi" in bare:
        bank = bare["alibi"]
        bare["alibi"] = {key: value for key, value in bank.items() if key != "diagonal"}
    else:
        bare["heads"] = [
            {key: head[key] for key in ("weight", "position") if key in head}
            for head in bare["heads"]
        ]
    return bare


def _provenance(value: Any) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise SpecError(f"provenance is {shown(value)}; a mapping is required")
    copied: dict[str, Any] = plain(value, "provenance", booleans=True)
    return copied


def _count(value: Any, what: str, least: int, most: int) -> int:
    is_whole = isinstance(value, (int, np.integer)) and not isinstance(value, bool)
    if not is_whole or not least <= value <= most:
        raise SpecError(
            f"{what} is {shown(value)}; a whole number from {least} to {most} is required"
        )
    return int(value)
