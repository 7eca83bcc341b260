"""The measurement of one model on one text, with everything that predictions need."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from os import PathLike
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from posbias.errors import ArtifactError, InputError
from posbias.kernels import Kernel
from posbias.measurement import store
from posbias.measurement._arrays import check_array, check_names, check_pairs, readonly
from posbias.measurement._kernels import (
    KERNEL_KINDS,
    KernelKind,
    attention_kernels,
    content_free_kernels,
    lag_kernels,
    sinks_of,
    summary_kernels,
)
from posbias.measurement._manifest import check_manifest, plain_copy
from posbias.measurement._mixing import mixing_values, over_layers, why_absent
from posbias.measurement._summary import summarise, summarise_html
from posbias.measurement.content import ContentFit, fit_content
from posbias.measurement.estimator_arrays import MEASURED_KERNELS
from posbias.measurement.influence import scale_rows, standard_error
from posbias.measurement.schema import Dimensions, in_order, influence_array
from posbias.profile import Profile
from posbias.rollout import MixingSchedule
from posbias.sinks import Sinks

if TYPE_CHECKING:
    import pandas
    import xarray

__all__ = ["KERNEL_KINDS", "KernelKind", "Measurement"]

Array = NDArray[np.float64]


class Measurement:
    """A measurement: a manifest and the arrays of `posbias.measurement.schema`.

    Immutable. The arrays are held read-only and are not copied: do not change them afterwards.

    Parameters
    ----------
    manifest : mapping
        Every key of `posbias.measurement.schema.MANIFEST`, nested.
    arrays : mapping of str to ndarray
        Arrays of `posbias.measurement.schema.ARRAYS`, in exactly the type stated there.

    Raises
    ------
    ArtifactError
        If a key or array is missing, unknown, of another type or shape, out of its range, not
        finite, or inconsistent with the rest. One to two passes over all values.
    """

    def __init__(self, manifest: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> None:
        plain = plain_copy(manifest)
        dimensions = check_manifest(plain)
        check_names(arrays, plain)
        for name, array in arrays.items():
            if not isinstance(array, np.ndarray):
                kind_given = type(array).__name__
                raise ArtifactError(f"array {name} is a {kind_given}; a NumPy array is required")
            check_array(name, array, dimensions, plain["model"]["layer_windows"])
        check_pairs(arrays, dimensions)
        held = {name: readonly(arrays[name]) for name in in_order(arrays)}
        self._set(plain, MappingProxyType(held), dimensions)

    def _set(
        self,
        manifest: dict[str, Any],
        arrays: Mapping[str, NDArray[Any]],
        dimensions: Dimensions,
        origin: tuple[Path, str] | None = None,
    ) -> None:
        self._manifest = manifest
        self._arrays = arrays
        self._dimensions = dimensions
        self._path = origin[0] if origin is not None else None
        self._sha256 = origin[1] if origin is not None else None

    @classmethod
    def open(cls, path: str | PathLike[str]) -> Measurement:
        """Open a stored measurement; see `posbias.measurement.store.read`.

        Manifest, SHA-256 and the layout of all arrays are checked now, values when an array is
        first used: opening costs one pass over the file and no memory.

        Raises
        ------
        ArtifactError
            If it is missing, truncated, edited, or of another version.
        """
        stored = store.read(path)
        measurement = cls.__new__(cls)
        measurement._set(
            stored.manifest, stored.arrays, stored.dimensions, (stored.path, stored.sha256)
        )
        return measurement

    def save(self, path: str | PathLike[str], overwrite: bool = False) -> Path:
        """Write a directory with manifest.json and arrays.safetensors, all or nothing.

        Raises
        ------
        OutputExistsError
            If `path` exists and `overwrite` is false, or if it holds anything but a measurement.
        """
        return store.write(path, self._manifest, self._arrays, overwrite=overwrite)

    @property
    def manifest(self) -> dict[str, Any]:
        """A copy of the manifest, as in `posbias.measurement.schema.MANIFEST`."""
        return deepcopy(self._manifest)

    @property
    def arrays(self) -> Mapping[str, NDArray[Any]]:
        """Read-only arrays by name."""
        return self._arrays

    @property
    def path(self) -> Path | None:
        """The directory it was opened from, None if it was made in memory."""
        return self._path

    @property
    def sha256(self) -> str | None:
        """SHA-256 of the stored arrays, None if it was made in memory."""
        return self._sha256

    @property
    def n(self) -> int:
        """Positions per window."""
        return self._dimensions.positions

    @property
    def layers(self) -> int:
        """Number of layers T."""
        return self._dimensions.layers

    @property
    def heads(self) -> int:
        """Number of query heads H per layer."""
        return self._dimensions.heads

    @property
    def windows(self) -> int:
        """Number of windows of text D."""
        return self._dimensions.windows

    @property
    def layer_windows(self) -> tuple[int | None, ...]:
        """Sliding window of each layer, None for full causal attention."""
        return tuple(self._manifest["model"]["layer_windows"])

    @property
    def has_summarised_kernels(self) -> bool:
        """Whether measured attention was kept by block and lag only, not in full."""
        return "summary.near.sum" in self._arrays

    @property
    def influence_methods(self) -> tuple[str, ...]:
        """Methods of measured influence that were recorded, the manifest's first."""
        first = self._manifest["influence_method"]
        names = [name.split(".")[1] for name in self._arrays if name.startswith("influence.")]
        return tuple(sorted(names, key=lambda name: (name != first, name)))

    def mixing(self, estimator: str = "norm") -> Array:
        """Return lambda per layer, shape (T,): the mean over windows, and tokens for ``norm``.

        Parameters
        ----------
        estimator : str
            ``norm`` is the paper's token-wise |a| / (|x| + |a|); ``frobenius`` the matrix form of
            each window. Where they were recorded also ``centred``, ``energy``,
            ``centred-energy``, each with ``+mlp`` too, ``norm+mlp`` and ``jacobian``, see
            `posbias.measurement.estimator_arrays`.

        Raises
        ------
        InputError
            If the estimator is unknown or was not recorded.
        """
        mean: Array = over_layers(np.mean, self._mixing_values(estimator))
        return mean

    def mixing_std(self, estimator: str = "norm") -> Array:
        """Return the standard deviation of the same values (divisor: count), shape (T,)."""
        spread: Array = over_layers(np.std, self._mixing_values(estimator))
        return spread

    @property
    def mixing_estimators(self) -> tuple[str, ...]:
        """Estimators of the mixing coefficient that were recorded."""
        return tuple(name.split(".")[1] for name in self._arrays if name.startswith("mixing."))

    def mixing_per_position(self) -> Array:
        """Return lambda per layer and position, shape (T, n): the mean over windows."""
        mean: Array = self._mixing_values("norm").mean(axis=0)
        return mean

    def schedule(self, estimator: str = "norm") -> MixingSchedule:
        """Return the measured mixing coefficients as the schedule of a rollout."""
        return MixingSchedule.custom(self.mixing(estimator))

    def content(self) -> Array:
        """Return the content term d, shape (T, H), in logits.

        Mean over windows of (mean of the diagonal - mean of the strictly lower triangle).
        """
        mean: Array = self._content_windows().mean(axis=0)
        return mean

    def content_std(self) -> Array:
        """Return the standard deviation of d over windows (divisor: count), shape (T, H)."""
        spread: Array = self._content_windows().std(axis=0)
        return spread

    def content_fit(self) -> ContentFit:
        """Return how well *constant + diagonal term* describes the measured logits.

        Raises
        ------
        InputError
            If the spread of the logits was not recorded.
        """
        return fit_content(
            self.content(),
            self._optional("content.diagonal.std.windows"),
            self._optional("content.lower.std.windows"),
            self._optional("content.explained.windows"),
        )

    def lag_logits(self) -> Array:
        """Return the mean logit by lag, shape (T, H, n); NaN where no pair was visible.

        Raises
        ------
        InputError
            If logits by lag were not recorded.
        """
        count = self._optional("logits.lag.count")[:, None, :].astype(np.float64)
        total = self._optional("logits.lag.sum")
        mean = np.full(total.shape, np.nan)
        np.divide(total, count, out=mean, where=count > 0.0)
        return mean

    def slopes(self) -> Array | None:
        """Return the effective ALiBi slopes, shape (T, H), None for models without ALiBi."""
        return self._arrays.get("position.slopes")

    def kernels(self, kind: KernelKind = "attention", *, n: int | None = None) -> list[Kernel]:
        """Return one kernel per layer, the bottom layer first.

        Parameters
        ----------
        kind : str
            ``attention``: the measured attention, mean over heads and windows, a
            `posbias.kernels.SummaryKernel` if it was kept summarised. Rows are divided by their
            own sums, which differ from D by rounding only (checked within `ROW_TOLERANCE`).
            ``attention-energy``, ``value-weighted``, ``centred-value-weighted`` and the latter
            two with ``-energy``: those of `posbias.measurement.estimator_arrays`, where recorded.
            ``position``: what mask and ALiBi slopes do alone; uniform over the visible keys for
            other schemes. ``position+content``: the same with the measured d of each layer and
            head. ``lag``: the measured mean logit by lag (`lag_logits`), plus the position bias.
        n : int, optional
            Number of positions, by default that of the measurement, beyond which measured
            attention and logits by lag cannot be continued; for fewer they are those among the
            first `n` tokens.

        Raises
        ------
        InputError
            If `kind` is unknown or was not recorded, or `n` is too large for what was measured.
        """
        length = self.n if n is None else n
        if isinstance(length, bool) or not isinstance(length, (int, np.integer)) or length < 1:
            raise InputError(f"n is {n!r}; a number of positions of at least 1 is required")
        if kind == "attention" and self.has_summarised_kernels:
            return summary_kernels(self._arrays, length, self.layer_windows)
        if kind in MEASURED_KERNELS:
            return attention_kernels(self._optional(MEASURED_KERNELS[kind]), length)
        if kind not in KERNEL_KINDS:
            raise InputError(f"kernel kind {kind!r} is unknown; use one of {KERNEL_KINDS}")
        if kind == "lag":
            return lag_kernels(length, self.layer_windows, self.slopes(), self.lag_logits())
        content = self.content() if kind == "position+content" else None
        return content_free_kernels(length, self.layer_windows, self.slopes(), content)

    def sinks(self) -> Sinks:
        """Return the keys that act as attention sinks, see `posbias.sinks.detect_sinks`."""
        return sinks_of(self._arrays, self.layer_windows)

    def influence(self, method: str | None = None) -> Profile:
        """Return the measured influence profile: the normalised mean over windows and its error.

        Parameters
        ----------
        method : str, optional
            By default the ``influence_method`` of the manifest.

        Raises
        ------
        InputError
            If the method was not recorded.
        """
        name = self._method(method)
        rows = self.influence_windows(name)
        return Profile(
            rows.mean(axis=0),
            stderr=standard_error(rows),
            quantity=f"{name} influence",
            name="measured",
            origin={**self.origin(), "method": name, "windows": self.windows},
        )

    def influence_windows(self, method: str | None = None) -> Array:
        """Return the influence of each window, shape (D, n), scaled by one common factor.

        The factor makes the mean over windows equal to `influence`; rows of windows in which the
        model depends more on its input are larger. Raw values are in `arrays`.

        Raises
        ------
        InputError
            If the method was not recorded.
        """
        return scale_rows(self._arrays[influence_array(self._method(method))])

    def origin(self) -> dict[str, Any]:
        """Return where results computed from this measurement come from, JSON-serialisable."""
        return {
            **({"kernels": "summarised"} if self.has_summarised_kernels else {}),
            "source": None if self._path is None else str(self._path),
            "sha256": self._sha256,
            "model": self._manifest["model"]["id"],
            "text_sha256": self._manifest["text"]["sha256"],
            "measured_with": self._manifest["posbias_version"],
        }

    def to_pandas(self, table: str) -> pandas.DataFrame:
        """Return a table as a data frame; see `posbias.measurement.frames.to_pandas`."""
        from posbias.measurement.frames import to_pandas

        return to_pandas(self, table)

    def to_xarray(self) -> xarray.Dataset:
        """Return all arrays as a dataset; see `posbias.measurement.frames.to_xarray`."""
        from posbias.measurement.frames import to_xarray

        return to_xarray(self)

    def summary(self) -> str:
        """Return a few lines about model, text and results, for people."""
        return summarise(self)

    def _repr_html_(self) -> str:
        return summarise_html(self)

    def __repr__(self) -> str:
        return (
            f"Measurement(model={self._manifest['model']['id']!r}, layers={self.layers}, "
            f"heads={self.heads}, n={self.n}, windows={self.windows})"
        )

    def _mixing_values(self, estimator: str) -> Array:
        return mixing_values(self._arrays, estimator, self._manifest.get("run", {}))

    def _content_windows(self) -> Array:
        d: Array = self._arrays["content.diagonal.windows"] - self._arrays["content.lower.windows"]
        return d

    def _optional(self, name: str) -> NDArray[Any]:
        if name not in self._arrays:
            reason = why_absent(name, self._manifest.get("run", {}))
            raise InputError(f"this measurement has no array {name}; {reason}")
        return self._arrays[name]

    def _method(self, method: str | None) -> str:
        methods = self.influence_methods
        if not methods:
            raise InputError(
                "this measurement has no measured influence; measure again with an influence method"
            )
        if method is None:
            return methods[0]
        if method not in methods:
            raise InputError(f"influence method {method!r} was not recorded; there is {methods}")
        return method
