"""Text sources: files, folders, the `datasets` library and the embedded sample."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from posbias.errors import TextError, shown
from posbias.measure._dataset_text import iterate_dataset

__all__ = ["DATASET_DOCUMENTS", "DEFAULT_FIELD", "EMBEDDED_TEXT", "TextCollection", "read_text"]

EMBEDDED_TEXT = "embedded"
"""Name of the text that is shipped with posbias."""

DEFAULT_FIELD = "text"
"""Field of a JSON line or a dataset row that holds the document."""

DATASET_DOCUMENTS = 1000
"""How many documents are streamed from a dataset unless `max_documents` says otherwise."""

_DATASET_PREFIX = "datasets:"
_SAMPLE = Path(__file__).resolve().parents[1] / "data" / "text" / "sample.txt"
_PLAIN_SUFFIXES = {"", ".txt", ".text", ".md"}
_JSONL_SUFFIXES = {".jsonl", ".ndjson"}
_MAX_CONTROL_SHARE = 0.01
_UTF16_MARKS = (b"\xff\xfe", b"\xfe\xff")


@dataclass(frozen=True)
class TextCollection:
    """Documents and where they come from.

    Parameters
    ----------
    documents : sequence of str
        At least one, and at least one of them with something else than white space. Stored as
        a tuple; short and blank documents are kept, so that a document keeps its number.
    source : str
        The source as it was named, with everything that selects the documents.

    Raises
    ------
    TextError
        If there is no document, an entry is not a string, or all are blank.

    Examples
    --------
    >>> TextCollection(["a first document", "a second one"], source="notes").characters
    28
    """

    documents: tuple[str, ...]
    source: str = "documents"

    def __init__(self, documents: Sequence[str], source: str = "documents") -> None:
        if isinstance(documents, str):
            raise TextError(
                "documents is one string; a sequence of strings is required. "
                "Write [text] for one document, read_text(path) for a file"
            )
        kept = tuple(documents)
        for index, document in enumerate(kept):
            if not isinstance(document, str):
                raise TextError(
                    f"document {index} of {source} is {type(document).__name__}; text is required"
                )
            _check_encodable(document, f"document {index} of {source}")
        if not any(document.strip() for document in kept):
            raise TextError(
                f"{source} holds no text: {len(kept)} documents, all empty or white space"
            )
        object.__setattr__(self, "documents", kept)
        object.__setattr__(self, "source", source)

    @property
    def sha256(self) -> str:
        """Identity of the documents, as 64 hexadecimal digits.

        SHA-256 of the UTF-8 bytes for one document; for several, of their digests in order.
        Independent of how the documents were stored.
        """
        digests = [hashlib.sha256(document.encode()) for document in self.documents]
        if len(digests) == 1:
            return digests[0].hexdigest()
        return hashlib.sha256(b"".join(digest.digest() for digest in digests)).hexdigest()

    @property
    def characters(self) -> int:
        """Number of characters of all documents."""
        return sum(map(len, self.documents))


def read_text(
    source: str | os.PathLike[str],
    *,
    field: str | None = None,
    split: str | None = None,
    max_documents: int | None = None,
) -> TextCollection:
    r"""Read documents from a named source.

    Parameters
    ----------
    source : str or path
        ``"embedded"``; a ``.txt``, ``.md`` or suffixless file (one document); a ``.jsonl`` file
        (one document per line); a folder (its ``.txt`` and ``.jsonl`` files, recursively, in the
        order of their names); or ``"datasets:NAME"`` / ``"datasets:NAME:CONFIG"``, a data set of
        the `datasets` library.
    field : str, optional
        Field of a JSON line or row that holds the text; ``"text"`` by default.
    split : str, optional
        Split of a data set; ``"train"`` by default.
    max_documents : int, optional
        Take the first so many documents. All by default; `DATASET_DOCUMENTS` for a data set,
        which is streamed and read no further.

    Returns
    -------
    TextCollection
        Text decoded as UTF-8; a byte order mark is dropped and line ends become ``\n``.

    Raises
    ------
    TextError
        If the source is missing, empty, blank, binary or not UTF-8, if a JSON line is damaged or
        lacks the field, if an option does not apply to the source, or a data set cannot be read.
    """
    _check_max_documents(max_documents)
    name = os.fspath(source)
    if not name:
        raise TextError("the name of the text is empty; a file, a folder or a data set is required")
    if name.startswith(_DATASET_PREFIX):
        limit = DATASET_DOCUMENTS if max_documents is None else max_documents
        rows = iterate_dataset(
            name.removeprefix(_DATASET_PREFIX),
            field=DEFAULT_FIELD if field is None else field,
            split="train" if split is None else split,
        )
        return TextCollection(_take(rows, limit), _describe(name, field, split, limit))
    if split is not None:
        raise TextError(f"split {split!r} was given for {name}; only data sets have splits")
    path = _SAMPLE if name == EMBEDDED_TEXT else Path(os.path.expanduser(name))
    files = _text_files(path, name)
    if field is not None and not any(file.suffix in _JSONL_SUFFIXES for file in files):
        raise TextError(
            f"field {field!r} was given for {name}; only JSON lines and data sets have fields"
        )
    documents = (document for file in files for document in _read_file(file, field))
    return TextCollection(
        _take(documents, max_documents), _describe(name, field, split, max_documents)
    )


def _check_max_documents(value: int | None) -> None:
    if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < 1):
        raise TextError(f"max_documents is {value!r}; a whole number of at least 1 is required")


def _take(documents: Iterable[str], limit: int | None) -> list[str]:
    """Return the first documents without reading beyond them."""
    taken: list[str] = []
    for document in documents:
        taken.append(document)
        if len(taken) == limit:
            break
    return taken


def _describe(name: str, field: str | None, split: str | None, limit: int | None) -> str:
    options: Mapping[str, object] = {"field": field, "split": split, "max_documents": limit}
    given = [f"{key}={value}" for key, value in options.items() if value is not None]
    return f"{name} ({', '.join(given)})" if given else name


def _text_files(path: Path, name: str) -> list[Path]:
    """Return the files to read, in an order that is the same on every platform."""
    if os.path.isdir(path):
        files = sorted(_walk(path), key=lambda file: file.relative_to(path).parts)
        if not files:
            raise TextError(f"the folder {name} holds no .txt or .jsonl file")
        return files
    # Unlike `Path.exists`, false for a whole text, which is too long to be a name.
    if not os.path.exists(path):
        raise TextError(
            f"no text at {shown(name)}: no such file or folder. Give a .txt or .jsonl file, a "
            f"folder, datasets:NAME[:CONFIG], or {EMBEDDED_TEXT}; a string names a source, "
            "documents themselves go in a list: [document, ...]"
        )
    if path.suffix.lower() not in _PLAIN_SUFFIXES | _JSONL_SUFFIXES:
        raise TextError(
            f"{name} has the suffix {path.suffix}; plain text (.txt, .md, none) and JSON lines "
            "(.jsonl) can be read. Convert it, or rename it if it is one of these"
        )
    return [path]


def _walk(folder: Path) -> Iterator[Path]:
    """Yield the text files below a folder; hidden files and linked folders are left out."""
    for root, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith(".")]
        for name in names:
            suffix = Path(name).suffix.lower()
            if suffix in {".txt", *_JSONL_SUFFIXES} and not name.startswith("."):
                yield Path(root, name)


def _read_file(path: Path, field: str | None) -> Iterator[str]:
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise TextError(f"cannot read {path}: {error.strerror or error}") from error
    text = _decode(raw, path)
    if path.suffix.lower() in _JSONL_SUFFIXES:
        yield from _json_documents(text, path, DEFAULT_FIELD if field is None else field)
    else:
        yield text


def _decode(raw: bytes, path: Path) -> str:
    """Decode UTF-8 with universal line ends; refuse what is not text."""
    if not raw.strip():
        size = f"{len(raw)} bytes of white space" if raw else "0 bytes"
        raise TextError(f"{path} holds no text: {size}")
    if raw.startswith(_UTF16_MARKS):
        raise TextError(
            f"{path} is UTF-16; UTF-8 is required. Convert it: iconv -f utf-16 -t utf-8"
        )
    nul = raw.find(b"\0")
    if nul >= 0:
        raise TextError(f"{path} is binary: byte {nul} is NUL; UTF-8 text is required")
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        # The decoder counts from after a byte order mark.
        offset = error.start + (3 if raw.startswith(b"\xef\xbb\xbf") else 0)
        raise TextError(
            f"{path} is not UTF-8: byte {offset} is 0x{raw[offset]:02x} ({error.reason}). "
            "Convert it, for example: iconv -f latin1 -t utf-8"
        ) from error
    control = sum(raw.count(code) for code in range(32) if chr(code) not in "\t\n\v\f\r")
    if control > _MAX_CONTROL_SHARE * len(text):
        raise TextError(
            f"{path} is binary: {control} of {len(text)} characters are control characters; "
            f"at most {_MAX_CONTROL_SHARE:.0%} are allowed in text"
        )
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _json_documents(text: str, path: Path, field: str) -> Iterator[str]:
    # Not splitlines(): U+2028 and others may stand unescaped inside a JSON string.
    for number, line in enumerate(text.split("\n"), start=1):
        if line.strip():
            yield _json_document(line, f"{path} line {number}", field)


def _json_document(line: str, place: str, field: str) -> str:
    try:
        record = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise TextError(
            f"{place} is not JSON: {error}. One JSON object per line is required"
        ) from (error)
    if not isinstance(record, dict):
        raise TextError(f"{place} is a JSON {type(record).__name__}; an object is required")
    if field not in record:
        available = ", ".join(map(repr, record)) or "none"
        raise TextError(f"{place} has no field {field!r}; available fields: {available}")
    if not isinstance(record[field], str):
        raise TextError(
            f"{place}: field {field!r} is {type(record[field]).__name__}; a string is required"
        )
    document: str = record[field]
    return document


def _check_encodable(document: str, place: str) -> None:
    """Refuse half of a surrogate pair, which JSON can hold and no tokenizer takes."""
    try:
        document.encode()
    except UnicodeEncodeError as error:
        raise TextError(
            f"{place} has a lone surrogate, U+{ord(document[error.start]):04X}, at character "
            f"{error.start}; Unicode text is required. Its source was cut or encoded wrongly"
        ) from error
