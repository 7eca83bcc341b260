"""One colour per variant, the same hue in figures, in reports and in notebooks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

__all__ = ["INK", "MEASURED", "TINTS", "Tint", "style_rules"]

MEASURED = "measured"
"""Name of the profile that is drawn in the colour of the text; no other one is."""

INK = "#222222"
"""Colour of text and of the measured curve in figures."""


@dataclass(frozen=True)
class Tint:
    """A hue of the Okabe-Ito palette, which stays apart under colour blindness, by background.

    Parameters
    ----------
    figure : str
        In figures.
    light, dark : str
        In reports on a light and on a dark background, with a contrast of at least 3 to 1.
    either : str
        In notebooks, whose background is not known.
    """

    figure: str
    light: str
    dark: str
    either: str


_BLUE = Tint("#0072B2", "#0b4f86", "#4d8ff0", "#0072b2")
_PURPLE = Tint("#CC79A7", "#b4538c", "#e893c0", "#c45f97")

TINTS: Mapping[str, Tint] = {
    MEASURED: Tint(INK, "#1c1d20", "#f2f2f0", "currentColor"),
    "attention-only": Tint("#D55E00", "#c24e00", "#ff8f4d", "#d55e00"),
    "residual": Tint("#56B4E9", "#2b8ac4", "#5fb4ee", "#2b8ac4"),
    "residual+content": Tint("#009E73", "#00805c", "#35c99a", "#009e73"),
    "residual+lag": _BLUE,
    "residual+measured": _PURPLE,
    "energy-rollout": _BLUE,
    "paper+mlp": _BLUE,
    "paper": _PURPLE,
    "fixed-half": Tint("#E69F00", "#996a00", "#e8b43a", "#b8860b"),
    "uniform": Tint("#8A8A8A", "#75777c", "#979ba3", "#888888"),
}
"""By variant; two that share a hue differ in dashes."""


def style_rules() -> str:
    """Return the tints as CSS variables ``--c-NAME``, for a page, its dark setting and its print.

    The ``+`` of a name is written as ``-``.
    """
    light = _variables({name: tint.light for name, tint in TINTS.items()})
    dark = _variables({name: tint.dark for name, tint in TINTS.items()})
    return (
        f":root {{ {light} }}\n"
        f"@media screen and (prefers-color-scheme: dark) {{ :root {{ {dark} }} }}"
    )


def _variables(colours: Mapping[str, str]) -> str:
    return " ".join(f"--c-{name.replace('+', '-')}: {colour};" for name, colour in colours.items())
