"""The architecture spec: what a prediction needs to know about a model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from posbias.errors import InputError, SpecError
from posbias.kernels import AttentionKernel, kernel_from_description
from posbias.rollout import MixingSchedule, Rollout

__all__ = ["FORMAT_VERSION", "Layer", "Mixing", "Spec"]

FORMAT_VERSION = 1

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
        n, the number of positions that predictions use by default; at least 2.
    depth : int
        T, the number of layers; at least 1.
    layers : tuple of mappings
        Layer descriptions (see `posbias.kernels.kernel_from_description`), bottom first: one that
        all layers share, or T.
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
    Construction checks every layer at `length`, O(T H) for structured heads.

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
        _require_count(self.length, "length", 2)
        _require_count(self.depth, "depth", 1)
        if len(self.layers) not in (1, self.depth):
            raise SpecError(
                f"layers has {len(self.layers)} entries for depth {self.depth}; one that all "
                "layers share or one per layer is required"
            )
        if self.mixing is not None:
            self.schedule()
        _ = self._kernels

    @property
    def has_content(self) -> bool:
        """Whether any head has a diagonal term, per-key logits or a sink logit."""
        return any(
            head.diagonal != 0.0 or head.key is not None or head.sink is not None
            for kernel in self._kernels
            for head in kernel.heads
        )

    def kernels(self, n: int | None = None) -> list[AttentionKernel]:
        """Return the kernels over n positions (default: `length`), one or T, bottom first.

        Raises
        ------
        SpecError
            If per-key logits fix another length.
        """
        if n is None or n == self.length:
            return list(self._kernels)
        return _build_kernels(self.layers, n)

    def schedule(self) -> MixingSchedule:
        """Return the mixing schedule over `depth` layers.

        Raises
        ------
        SpecError
            If the spec has none or it is out of range.
        """
        if self.mixing is None:
            raise SpecError(
                f"spec {self.name!r} has no mixing: a config says nothing about lambda. Give one, "
                "for example spec.with_mixing(0.3) or --mixing constant:0.3"
            )
        try:
            return MixingSchedule.from_description(self.mixing, self.depth)
        except InputError as error:
            raise SpecError(f"mixing: {error}") from error

    def rollout(self, n: int | None = None) -> Rollout:
        """Return the rollout over n positions (default: `length`).

        Raises
        ------
        SpecError
            If the spec has no mixing, or per-key logits fix another length.
        """
        return Rollout(self.kernels(n), self.schedule())

    def with_mixing(self, mixing: Mixing) -> Spec:
        """Return the spec with another mixing: a description, a schedule, a number or T numbers.

        Raises
        ------
        SpecError
            If a coefficient is outside [0, 1] or their number is not `depth`.
        """
        return replace(self, mixing=_describe_mixing(mixing))

    def without_content(self) -> Spec:
        """Return the spec without diagonal terms, per-key logits and sink logits."""
        bare = []
        for kernel in self._kernels:
            entry = dict(kernel.describe())
            entry.pop("alibi", None)
            entry["heads"] = [
                {"weight": head.weight, "position": dict(head.position.describe())}
                for head in kernel.heads
            ]
            bare.append(entry)
        return replace(self, layers=tuple(bare))

    def as_dict(self) -> dict[str, Any]:
        """Return the document of a spec file; `posbias.spec.parse_spec` is the inverse."""
        document: dict[str, Any] = {
            "posbias_spec": FORMAT_VERSION,
            "name": self.name,
            "length": self.length,
            "depth": self.depth,
            "layers": [_plain(layer) for layer in self.layers],
        }
        if self.mixing is not None:
            document["mixing"] = _plain(self.mixing)
        if self.provenance:
            document["provenance"] = _plain(self.provenance)
        return document

    @cached_property
    def _kernels(self) -> list[AttentionKernel]:
        return _build_kernels(self.layers, self.length)


def _build_kernels(layers: Sequence[Layer], n: int) -> list[AttentionKernel]:
    kernels = []
    for index, layer in enumerate(layers):
        try:
            kernels.append(kernel_from_description(layer, n))
        except InputError as error:
            raise SpecError(f"layers[{index}]: {error}") from error
    return kernels


def _describe_mixing(mixing: Mixing) -> Mapping[str, Any]:
    if isinstance(mixing, MixingSchedule):
        return mixing.describe()
    if isinstance(mixing, Mapping):
        return mixing
    if isinstance(mixing, (int, float)):
        return {"type": "constant", "value": float(mixing)}
    return {"type": "custom", "values": np.asarray(mixing).tolist()}


def _require_count(value: int, what: str, least: int) -> None:
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < least:
        raise SpecError(f"{what} is {value!r}; a whole number of at least {least} is required")


def _plain(value: Any) -> Any:
    """Return nested mappings, sequences and NumPy numbers as plain JSON values."""
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, np.ndarray)):
        return [_plain(item) for item in value]
    return value.item() if isinstance(value, np.generic) else value
