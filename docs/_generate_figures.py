"""Draw the images of docs/figures.md by its own commands: ``python docs/_generate_figures.py``.

Measures both embedded models first, which takes about two minutes.
"""

from __future__ import annotations

import os
import re
import shlex
import tempfile
from pathlib import Path

from PIL import Image

from posbias.cli import main

DOCS = Path(__file__).resolve().parent
PAGE = DOCS / "figures.md"
FOLDER = DOCS / "images" / "figures"
WIDTH_INCHES, WIDTH_PIXELS, COLOURS = "4.8", 660, 256
LARGEST = 60_000

COMMAND = re.compile(r"^(?:<!-- before: )?posbias (.*?)(?: -->)?$", re.MULTILINE)


def generate() -> None:
    """Write one image per command of the page.

    Raises
    ------
    SystemExit
        If a command fails or an image is too large.
    """
    text = PAGE.read_text(encoding="utf-8")
    spec = re.search(r"```yaml\n(.*?)```", text, re.DOTALL)
    if spec is None:
        raise SystemExit(f"{PAGE} has no spec")
    FOLDER.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as work:
        os.chdir(work)
        Path("spec.yaml").write_text(spec[1], encoding="utf-8")
        for command in re.findall(
            r"^(?:<!-- before: )?posbias (.*?)(?: -->)?$", text, re.MULTILINE
        ):
            words = shlex.split(command)
            if words[0] == "figure":
                words += ["--width", WIDTH_INCHES]
            if main(words) != 0:
                raise SystemExit(f"posbias {command} failed")
        for drawn in sorted(Path().glob("*.png")):
            shrink(drawn, FOLDER / drawn.name)


def shrink(source: Path, target: Path) -> None:
    """Write an image at the width of the page, in few colours."""
    with Image.open(source) as image:
        size = (WIDTH_PIXELS, round(image.height * WIDTH_PIXELS / image.width))
        small = image.convert("RGB").resize(size, Image.Resampling.LANCZOS)
    # Median cut, the default, would give thin coloured lines the grey of their surroundings.
    small.quantize(COLOURS, Image.Quantize.MAXCOVERAGE).save(target, optimize=True)
    if target.stat().st_size > LARGEST:
        raise SystemExit(f"{target} has {target.stat().st_size} bytes, more than {LARGEST}")


if __name__ == "__main__":
    generate()
