"""The exceptions of posbias.

Every error says what was given, what is required, the usual cause and what to do. The command
line prints it in one line and exits with :attr:`PosbiasError.exit_code`.
"""

from __future__ import annotations

__all__ = [
    "ArtifactError",
    "InputError",
    "InstrumentationError",
    "InterruptedRunError",
    "ModelError",
    "OutputExistsError",
    "PosbiasError",
    "ProfileError",
    "SpecError",
    "TextError",
    "UnsupportedModelError",
    "shown",
]

_SHOWN = 200


def shown(name: object) -> str:
    """Return a name for a message, its middle left out if it is as long as a text."""
    text = " ".join(str(name).split()) or repr(str(name))
    return text if len(text) <= _SHOWN else f"{text[:60]}...{text[-20:]}"


class PosbiasError(Exception):
    """Base of all errors that posbias raises on purpose."""

    exit_code = 2


class InputError(PosbiasError, ValueError):
    """An argument is outside its range, has the wrong shape or the wrong type."""


class ProfileError(InputError):
    """A profile is not a probability vector, or two profiles do not fit each other."""


class SpecError(InputError):
    """An architecture spec cannot be read: unknown key, wrong shape, value out of range."""


class TextError(InputError):
    """A text is empty, binary, badly encoded, or too short for one window."""


class ModelError(InputError):
    """A model or tokenizer cannot be found or loaded, or does not fit the request."""


class OutputExistsError(InputError):
    """The output already exists and overwriting was not asked for."""


class ArtifactError(InputError):
    """A stored measurement is truncated, tampered with, or of another format version."""


class UnsupportedModelError(PosbiasError):
    """The architecture is known not to be measurable, or its parts were not found."""

    exit_code = 3


class InstrumentationError(PosbiasError):
    """A model was instrumented but a check failed, or its numbers are not finite."""

    exit_code = 3


class InterruptedRunError(PosbiasError):
    """A run was asked to stop by a signal, and its state is on the disk.

    Parameters
    ----------
    message : str
        What happened and how to continue.
    signal_number : int
        The signal; the exit code is 128 plus it.
    """

    def __init__(self, message: str, *, signal_number: int) -> None:
        super().__init__(message)
        self.exit_code = 128 + signal_number
