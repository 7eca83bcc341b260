"""How a rollout is estimated from a measurement: one choice on each of five axes."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, Literal, get_args

from posbias.errors import InputError
from posbias.rollout import ADDITIONS, Addition

__all__ = [
    "AUTO",
    "AXES",
    "ENERGY_ROLLOUT",
    "NAMED",
    "PAPER",
    "Estimator",
    "SinkTreatment",
    "checked_choice",
    "ladder",
]

Mixing = Literal["norm", "frobenius", "centred", "energy", "centred-energy", "jacobian"]
KernelWeight = Literal["attention", "value-weighted", "centred-value-weighted"]
SinkTreatment = Literal["keep", "identity", "drop"]
"""What becomes of attention to a sink, see `Estimator`."""


AUTO = "auto"
"""The choice that leaves the estimator to the rule of `posbias.recommend`."""

_WITHOUT_MLP = ("frobenius", "jacobian")
_FLAGS = {"false": False, "true": True}


@dataclass(frozen=True)
class Estimator:
    """Which mixing coefficients and kernels a rollout is made of, and how layers add up.

    Parameters
    ----------
    mixing : str
        ``norm`` (the paper's), ``frobenius``, ``centred``, ``energy``, ``centred-energy`` or
        ``jacobian``: what takes the place of lambda_t, see `posbias.measurement.estimator_arrays`.
    mlp : bool
        Whether the update of the MLP dilutes the stream: its norm (or energy) joins the
        denominator of the mixing.
    kernel : str
        ``attention``, ``value-weighted`` or ``centred-value-weighted``: what takes the place of
        A_t.
    sinks : str
        ``keep``, ``identity`` (attention to a sink is attention to oneself) or ``drop`` (rows are
        divided by what is left), see `posbias.sinks`.
    addition : str
        ``amplitudes``: the paper's product of ``(1 - l) I + l A``. ``energies``: the product of
        the same transitions with the energies of the kernel, and the square root of its row.

    Raises
    ------
    InputError
        If a value is unknown, or two do not go together.

    Examples
    --------
    >>> Estimator.parse("paper,sinks=identity")
    Estimator('paper,sinks=identity')
    >>> Estimator.parse("energy-rollout").mixing_name
    'centred-energy+mlp'
    >>> str(Estimator(mixing="frobenius"))
    'frobenius'
    """

    mixing: Mixing = "norm"
    mlp: bool = False
    kernel: KernelWeight = "attention"
    sinks: SinkTreatment = "keep"
    addition: Addition = "amplitudes"

    def __post_init__(self) -> None:
        for axis, values in AXES.items():
            given = getattr(self, axis)
            if axis == "mlp":
                if not isinstance(given, bool):
                    raise InputError(f"mlp of an estimator is {given!r}; True or False is required")
            elif given not in values:
                raise InputError(_unknown(f"estimator {axis}", given, values))
        if self.mlp and self.mixing in _WITHOUT_MLP:
            raise InputError(
                f"mlp=true does not go with mixing={self.mixing}, which has no term for the MLP; "
                "leave one of them out"
            )

    @classmethod
    def parse(cls, text: str) -> Estimator:
        """Return the estimator that ``NAME`` or ``NAME,axis=value,...`` says.

        Names are those of `NAMED`, and ``norm`` for ``paper``.

        Raises
        ------
        InputError
            If a name, an axis or a value is unknown, or an axis is given twice.
        """
        if not isinstance(text, str) or not text.strip():
            raise InputError(
                f"the estimator is {text!r}; a name ({', '.join(NAMED)}) is required, if need be "
                "with axis=value behind it"
            )
        name, *settings = (part.strip() for part in text.split(","))
        if name == AUTO:
            raise InputError(
                f"{AUTO!r} leaves the estimator to a rule and takes no settings"
                if settings
                else f"{AUTO!r} is no estimator but a rule that chooses one; see posbias.recommend"
            )
        if name not in _ALIASES:
            raise InputError(_unknown("estimator", name, (AUTO, *_ALIASES)))
        changes: dict[str, Any] = {}
        for setting in settings:
            axis, separator, value = (part.strip() for part in setting.partition("="))
            if not separator:
                raise InputError(
                    f"{setting!r} in the estimator {text!r} is no setting; axis=value is required, "
                    f"axes are {', '.join(AXES)}"
                )
            if axis not in AXES:
                raise InputError(_unknown("estimator axis", axis, tuple(AXES)))
            if axis in changes:
                raise InputError(f"{axis} is given twice in the estimator {text!r}")
            if value not in AXES[axis]:
                raise InputError(_unknown(f"estimator {axis}", value, AXES[axis]))
            changes[axis] = _FLAGS[value] if axis == "mlp" else value
        return replace(_ALIASES[name], **changes)

    @property
    def mixing_name(self) -> str:
        """The name of its coefficients in a measurement, e.g. ``centred-energy+mlp``."""
        return f"{self.mixing}+mlp" if self.mlp else self.mixing

    @property
    def kernel_kind(self) -> str:
        """The kind of its kernels in a measurement, e.g. ``centred-value-weighted-energy``."""
        return self.kernel if self.addition == "amplitudes" else f"{self.kernel}-energy"

    def as_dict(self) -> dict[str, Any]:
        """Return the text and the value of each axis, JSON-serialisable."""
        return {"text": str(self), **asdict(self)}

    def __str__(self) -> str:
        """Return the shortest text that `parse` reads as this estimator."""
        texts = []
        for name, base in NAMED.items():
            words: list[str] = [name]
            for field in fields(self):
                value = getattr(self, field.name)
                if value != getattr(base, field.name):
                    shown = str(value).lower() if isinstance(value, bool) else value
                    words.append(f"{field.name}={shown}")
            texts.append(words)
        shortest = sorted(texts, key=len)[0]
        return ",".join(shortest)

    def __repr__(self) -> str:
        return f"Estimator({str(self)!r})"


AXES: Mapping[str, tuple[str, ...]] = {
    "mixing": get_args(Mixing),
    "mlp": tuple(_FLAGS),
    "kernel": get_args(KernelWeight),
    "sinks": get_args(SinkTreatment),
    "addition": ADDITIONS,
}
"""The values of each axis in the text of an estimator; those of the paper come first."""

PAPER = Estimator()
"""The paper's estimator."""

ENERGY_ROLLOUT = Estimator(
    mixing="centred-energy",
    mlp=True,
    kernel="centred-value-weighted",
    sinks="identity",
    addition="energies",
)
"""Layers as incoherent: energies add, not amplitudes (posbias)."""

NAMED: Mapping[str, Estimator] = {
    "paper": PAPER,
    "energy-rollout": ENERGY_ROLLOUT,
    "frobenius": Estimator(mixing="frobenius"),
}
"""Estimators that have a name."""

_ALIASES = {**NAMED, "norm": PAPER}


def checked_choice(choice: str | Estimator) -> str:
    """Return ``auto``, or the text of an estimator as `Estimator.parse` reads it.

    Raises
    ------
    InputError
        If it is neither.
    """
    if isinstance(choice, Estimator):
        return str(choice)
    return AUTO if choice == AUTO else str(Estimator.parse(choice))


def ladder(choice: str | Estimator) -> Estimator:
    """Return the estimator of the variants between ``attention-only`` and ``residual+measured``.

    That is the one chosen; the paper's for ``auto``, which adds the recommended one beside them.

    Raises
    ------
    InputError
        If `choice` is neither ``auto`` nor an estimator.
    """
    text = checked_choice(choice)
    return PAPER if text == AUTO else Estimator.parse(text)


def _unknown(what: str, given: object, valid: tuple[str, ...]) -> str:
    near = difflib.get_close_matches(str(given), valid, n=1, cutoff=0.5)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    return f"{what} {given!r} is unknown, valid are {', '.join(valid)}{hint}"
