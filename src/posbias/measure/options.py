"""Options of a measurement, checked before anything is loaded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from posbias.errors import InputError

__all__ = ["INFLUENCE_METHODS", "KERNEL_DETAILS", "RECORDS", "MeasureOptions"]

INFLUENCE_METHODS = ("gradient", "gradient-input", "integrated-gradients", "occlusion")
"""Methods of the measured influence, see docs/methods/influence.md."""

KERNEL_DETAILS = ("full", "summary")
"""How measured attention is kept."""

RECORDS = ("paper", "default", "all")
"""What is recorded beside the paper's own quantities."""

NO_INFLUENCE = "none"


@dataclass(frozen=True)
class MeasureOptions:
    """What to measure and how.

    Parameters
    ----------
    length : int
        Positions per window, at least 2.
    windows : int
        Number of windows of text, at least 1.
    batch_size : int
        Windows per forward pass. Results do not depend on it beyond the rounding of the model's
        own matrix products (1e-10 relative in float64, about 1e-6 in float32).
    seed : int
        Seed of the draw of windows, at least 0.
    dtype : str or None
        ``"float32"``, ``"float64"``, ``"bfloat16"`` or ``"float16"``. None takes a loaded model
        as it is and loads a named one in float32.
    device : str, optional
        Where a named model is loaded.
    influence : str or sequence of str
        Methods of the measured influence, from `INFLUENCE_METHODS`, the main one first; or
        ``"none"``. Kept as a tuple, which is empty for none.
    integration_steps : int
        Points of the quadrature of integrated gradients, at least 1; each is one forward and
        one backward pass.
    checkpoint : bool
        Recompute the layers in the backward pass: about a third slower, far less memory.
    threads : int, optional
        Threads of torch during the measurement. By default one for models of fewer than 20
        million parameters, whose products are too small to share, else what torch is set to.
    kernels : {"full", "summary"}
        Whether measured attention is kept in full, ``8 T n^2`` bytes, or summarised by blocks of
        positions and nearest lags, which needs no n x n array.
    part : tuple of int, optional
        ``(k, m)``, the k-th of m parts of the windows, from 1: whole batches in the order of the
        text. The measurements of all parts merge to that of the whole.
    pack : bool
        Join documents before windows are cut, so that short documents are used.
    record : {"default", "paper", "all"}
        What to record for estimators beyond the paper's, see
        `posbias.measurement.estimator_arrays`: ``"paper"`` nothing, ``"default"`` their mixing,
        lengths, and the centred value-weighted kernel, ``"all"`` every kernel. Kernels take
        ``8 T n^2`` bytes each; none is recorded with summarised kernels.
    jacobian : int
        Random vector-Jacobian products per layer and window for the mixing ``jacobian``, at least
        0; see `posbias.measure.jacobian`.
    revision, gguf_file, attn_implementation : str, optional
        For a named model, see `posbias.models.loading.load_model`.
    trust_remote_code : bool
        Allow code that comes with the model to run.

    Raises
    ------
    InputError
        If a value is out of range.
    """

    length: int = 256
    windows: int = 64
    batch_size: int = 4
    seed: int = 0
    dtype: str | None = None
    device: str | None = None
    influence: str | Sequence[str] = "gradient"
    integration_steps: int = 32
    checkpoint: bool = False
    threads: int | None = None
    kernels: str = "full"
    record: str = "default"
    jacobian: int = 0
    part: tuple[int, int] | None = None
    pack: bool = False
    revision: str | None = None
    gguf_file: str | None = None
    attn_implementation: str | None = None
    trust_remote_code: bool = False

    def __post_init__(self) -> None:
        limits = {"length": 2, "windows": 1, "batch_size": 1, "seed": 0, "integration_steps": 1}
        limits["jacobian"] = 0
        if self.threads is not None:
            limits["threads"] = 1
        for name, least in limits.items():
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < least:
                raise InputError(
                    f"{name} is {value!r}; a whole number of at least {least} is required"
                )
        if self.kernels not in KERNEL_DETAILS:
            raise InputError(
                f"kernels is {self.kernels!r}; {' or '.join(KERNEL_DETAILS)} is required"
            )
        if self.part is not None:
            _check_part(self.part)
        if self.record not in RECORDS:
            raise InputError(f"record is {self.record!r}; one of {', '.join(RECORDS)} is required")
        if self.record == "all" and self.kernels == "summary":
            raise InputError(
                "record is 'all' and kernels is 'summary'; all kernels are n x n arrays, so "
                "kernels has to be 'full', or record 'default' or 'paper'"
            )
        # The class is frozen: after this line the value is a tuple of checked names.
        object.__setattr__(self, "influence", _checked_methods(self.influence))

    def as_dict(self) -> dict[str, Any]:
        """Return all options by name."""
        return asdict(self)


def _check_part(part: Any) -> None:
    is_pair = isinstance(part, tuple) and len(part) == 2
    if is_pair and all(type(k) is int for k in part) and 1 <= part[0] <= part[1]:
        return
    raise InputError(
        f"part is {part!r}; a pair of whole numbers (k, m) with 1 <= k <= m is required"
    )


def _checked_methods(influence: object) -> tuple[str, ...]:
    if influence in (NO_INFLUENCE, (NO_INFLUENCE,), [NO_INFLUENCE]):
        return ()
    names = (influence,) if isinstance(influence, str) else influence
    if not isinstance(names, list | tuple):
        raise InputError(
            f"influence is {influence!r}; a method or a list of methods is required: "
            f"{', '.join(INFLUENCE_METHODS)} or none"
        )
    for name in names:
        if name not in INFLUENCE_METHODS:
            raise InputError(
                f"influence is {name!r}; {', '.join(INFLUENCE_METHODS)} or none is required, and "
                "none only by itself"
            )
    if len(set(names)) < len(names):
        raise InputError(f"influence is {list(names)}; each method may be named once")
    return tuple(names)
