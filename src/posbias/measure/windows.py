"""Windows of tokens: which pieces of which documents a measurement looks at."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from posbias.errors import InputError, TextError
from posbias.measure.text import TextCollection

__all__ = [
    "TokenWindows",
    "Tokenizer",
    "WindowCounts",
    "automatic_prefix",
    "check_vocabulary",
    "make_windows",
    "prepared_windows",
]

Ids = NDArray[np.int64]

_PROBES = ("a", "the", "0", "\u4e00", "hello world")


class Tokenizer(Protocol):
    """What is used of a tokenizer of the `transformers` library."""

    def __call__(self, text: str, **options: Any) -> Any:
        """Return a mapping with the token ids of a text under ``"input_ids"``."""
        ...


@dataclass(frozen=True)
class WindowCounts:
    """What the windows were drawn from.

    Parameters
    ----------
    documents, skipped, used : int
        Documents given; of them too short for one window; of them drawn from at least once.
    tokens : int
        Tokens of all documents, skipped ones included, special tokens not.
    available : int
        How many windows fit without overlap.
    """

    documents: int
    skipped: int
    used: int
    tokens: int
    available: int


@dataclass(frozen=True, eq=False)
class TokenWindows:
    """Token ids of D windows of n positions.

    Parameters
    ----------
    ids : array of int64, shape (D, n)
        Read-only.
    starts : array of int64, shape (D, 2)
        Document number and offset, in tokens, of the first token of text in each window.
    first_token_is_bos : bool
        Whether every window begins with the tokenizer's beginning-of-sequence token.
    counts : WindowCounts
        What the windows were drawn from.
    prefix : int
        Special tokens that begin every window.
    packed : bool
        Whether a window may span several documents.
    """

    ids: Ids
    starts: Ids
    first_token_is_bos: bool
    counts: WindowCounts
    prefix: int = 0
    packed: bool = False

    @property
    def count(self) -> int:
        """Number of windows D."""
        return int(self.ids.shape[0])

    @property
    def length(self) -> int:
        """Positions n of a window."""
        return int(self.ids.shape[1])

    @property
    def sha256(self) -> str:
        """SHA-256 of the ids as little-endian int64, windows in order."""
        return hashlib.sha256(self.ids.astype("<i8").tobytes()).hexdigest()


def make_windows(
    tokenizer: Tokenizer,
    texts: TextCollection | Sequence[str],
    *,
    length: int,
    count: int,
    seed: int,
    pack: bool = False,
) -> TokenWindows:
    """Draw windows of tokens from documents, without overlap and reproducibly.

    Each document is tokenised without special tokens. If the tokenizer begins its sequences with
    special tokens of its own accord (BOS), so does every window, and the rest of it is text. Every
    document holds as many windows as fit side by side, shifted by a random offset; a random
    permutation of all of them decides which are taken. The first k windows of a larger count are
    those of count k. Depends on the tokens, length and seed only, not on the platform.

    Parameters
    ----------
    tokenizer : Tokenizer
        Of the `transformers` library, or anything that is called like it.
    texts : TextCollection or sequence of str
        The documents. Those shorter than a window are skipped and counted.
    length : int
        Positions n of a window, BOS included; at least 2.
    count : int
        Number of windows D; at least 1.
    seed : int
        Non-negative.
    pack : bool
        Join all documents to one, each followed by the end-of-sequence token if the tokenizer
        has one, so that short documents are used and windows may span several.

    Returns
    -------
    TokenWindows

    Raises
    ------
    InputError
        If a number is out of range or not whole, or leaves no room for text after BOS.
    TextError
        If fewer than `count` windows fit. Windows are never repeated and never fewer than asked.

    Notes
    -----
    Time and memory are linear in the length of the documents.
    """
    length = _whole_number(length, "length", minimum=2)
    count = _whole_number(count, "count", minimum=1)
    seed = _whole_number(seed, "seed", minimum=0)
    documents = texts if isinstance(texts, TextCollection) else TextCollection(texts)
    prefix = automatic_prefix(tokenizer)
    room = length - len(prefix)
    if room < 1:
        raise InputError(
            f"length is {length}, but the tokenizer begins every sequence with {len(prefix)} "
            f"special tokens; a length of at least {len(prefix) + 1} is required"
        )
    tokens = [_encode(tokenizer, text, prefix) for text in documents.documents]
    streams = _packed(tokens, tokenizer) if pack else _separate(tokens)
    grid = _grid(streams, room, seed)
    if len(grid) < count:
        raise TextError(_too_few(documents.source, streams, len(grid), count, room))
    chosen = grid[_permutation(len(grid), seed)[:count]]
    ids = np.empty((count, length), dtype=np.int64)
    ids[:, : len(prefix)] = prefix
    for row, (stream, offset) in enumerate(chosen):
        ids[row, len(prefix) :] = streams[stream].ids[offset : offset + room]
    starts = np.array([streams[stream].locate(offset) for stream, offset in chosen], dtype=np.int64)
    counts = WindowCounts(
        documents=len(tokens),
        skipped=sum(stream.documents for stream in streams if stream.ids.size < room),
        used=_documents_used(starts, tokens, streams, room),
        tokens=sum(document.size for document in tokens),
        available=len(grid),
    )
    return TokenWindows(
        _readonly(ids), _readonly(starts), bool(prefix), counts, prefix=len(prefix), packed=pack
    )


def prepared_windows(
    ids: ArrayLike, *, vocabulary_size: int, bos_token_id: int | None = None
) -> TokenWindows:
    """Take windows that were made elsewhere.

    Parameters
    ----------
    ids : array_like of integers, shape (D, n)
        Token ids, used as they are; D at least 1, n at least 2. Window d counts as document d.
    vocabulary_size : int
        Ids from 0 to one less are valid.
    bos_token_id : int, optional
        To record whether every window begins with it.

    Raises
    ------
    InputError
        If the array is not of whole numbers, has another shape, or an id is out of range.
    """
    try:
        raw = np.asarray(ids)
    except (ValueError, OverflowError) as error:
        raise InputError(
            f"windows are no array ({error}); rows of integers of equal length are required"
        ) from error
    if raw.dtype.kind not in "iu":
        raise InputError(f"windows have type {raw.dtype}; an array of integers is required")
    if raw.ndim != 2 or raw.shape[0] < 1 or raw.shape[1] < 2:
        raise InputError(
            f"windows have shape {raw.shape}; (windows, positions) with at least 1 window and "
            "2 positions is required"
        )
    _check_range(raw, vocabulary_size)
    count = raw.shape[0]
    starts = np.stack([np.arange(count), np.zeros(count, dtype=np.int64)], axis=1)
    first_is_bos = bos_token_id is not None and bool((raw[:, 0] == bos_token_id).all())
    counts = WindowCounts(count, skipped=0, used=count, tokens=raw.size, available=count)
    return TokenWindows(
        _readonly(raw.astype(np.int64)),
        _readonly(starts.astype(np.int64)),
        first_is_bos,
        counts,
        prefix=int(first_is_bos),
    )


def check_vocabulary(windows: TokenWindows, vocabulary_size: int) -> None:
    """Check that a model knows every token id; tokenizer and model may not belong together.

    Raises
    ------
    InputError
        Naming the first id outside 0..vocabulary_size - 1.
    """
    _check_range(windows.ids, vocabulary_size)


def automatic_prefix(tokenizer: Tokenizer) -> list[int]:
    """Return the special tokens with which a tokenizer begins every sequence, mostly [] or [BOS].

    Found from what it does, since settings such as ``add_bos_token`` are not always obeyed.
    """
    probe, bare = _probe(tokenizer)
    told = _ids(tokenizer(probe, verbose=False))
    bos = getattr(tokenizer, "bos_token_id", None)
    if bos is not None and bare[0] == bos:
        # Some tokenizers add it even when told not to; it is taken off the documents then.
        return [int(bos)]
    for start in range(len(told) - len(bare) + 1):
        if told[start : start + len(bare)] == bare:
            return told[:start]
    raise TextError(
        f"the tokenizer encodes {probe!r} as {told} with special tokens and {bare} without; the "
        "second must be part of the first. Cut the windows yourself and pass them as an array"
    )


def _probe(tokenizer: Tokenizer) -> tuple[str, list[int]]:
    """Return a text and its tokens without special ones; not every tokenizer knows every text."""
    for probe in _PROBES:
        bare = _ids(tokenizer(probe, add_special_tokens=False, verbose=False))
        if bare:
            return probe, bare
    raise TextError(
        f"the tokenizer makes no token of {_PROBES!r}; it may be empty. Check that it belongs to "
        "the model"
    )


@dataclass(frozen=True, eq=False)
class _Stream:
    """Tokens from which windows are cut, and where documents begin in them."""

    ids: Ids
    first_document: int
    document_starts: Ids

    @property
    def documents(self) -> int:
        return int(self.document_starts.size)

    def locate(self, offset: int) -> tuple[int, int]:
        """Return the document and the offset in it."""
        # side="right": of several documents that start here, all but the last are empty.
        index = int(np.searchsorted(self.document_starts, offset, side="right")) - 1
        return self.first_document + index, int(offset - self.document_starts[index])


def _separate(tokens: Sequence[Ids]) -> list[_Stream]:
    start = np.zeros(1, dtype=np.int64)
    return [_Stream(ids, number, start) for number, ids in enumerate(tokens)]


def _packed(tokens: Sequence[Ids], tokenizer: Tokenizer) -> list[_Stream]:
    eos = getattr(tokenizer, "eos_token_id", None)
    end = np.array([] if eos is None else [eos], dtype=np.int64)
    pieces = [np.concatenate([ids, end]) for ids in tokens]
    starts = np.cumsum([0, *(piece.size for piece in pieces[:-1])], dtype=np.int64)
    return [_Stream(np.concatenate(pieces), 0, starts)]


def _encode(tokenizer: Tokenizer, text: str, prefix: list[int]) -> Ids:
    """Return the tokens of a document without the special tokens that windows begin with."""
    ids = _ids(tokenizer(text, add_special_tokens=False, verbose=False))
    while prefix and ids[: len(prefix)] == prefix:
        ids = ids[len(prefix) :]
    return np.array(ids, dtype=np.int64)


def _ids(encoding: Any) -> list[int]:
    return [int(token) for token in encoding["input_ids"]]


def _grid(streams: Sequence[_Stream], room: int, seed: int) -> Ids:
    """Return stream and offset of every window, shape (windows, 2), side by side per stream."""
    sizes = np.array([stream.ids.size for stream in streams], dtype=np.int64)
    fitting = sizes // room
    slack = np.where(fitting > 0, sizes - fitting * room, 0)
    shift = (_raw_random(len(streams), seed, "shift") % (slack + 1).astype(np.uint64)).astype(
        np.int64
    )
    stream = np.repeat(np.arange(len(streams)), fitting)
    first = np.repeat(np.cumsum(fitting) - fitting, fitting)
    offset = shift[stream] + room * (np.arange(stream.size) - first)
    return np.stack([stream, offset], axis=1).astype(np.int64)


def _permutation(size: int, seed: int) -> NDArray[np.intp]:
    return np.argsort(_raw_random(size, seed, "order"), kind="stable")


def _raw_random(size: int, seed: int, purpose: str) -> NDArray[np.uint64]:
    """Return random 64-bit words that are the same for every version of NumPy.

    NumPy promises that of bit generators and their seeding, not of `Generator.permutation`.
    """
    stream = {"shift": 0, "order": 1}[purpose]
    generator = np.random.PCG64(np.random.SeedSequence(seed, spawn_key=(stream,)))
    return np.asarray(generator.random_raw(size), dtype=np.uint64)


def _documents_used(
    starts: Ids, tokens: Sequence[Ids], streams: Sequence[_Stream], room: int
) -> int:
    """Count the documents that any window touches."""
    if len(streams) == len(tokens) and streams[-1].documents == 1:
        return int(np.unique(starts[:, 0]).size)
    boundaries = streams[0].document_starts
    touched: set[int] = set()
    for document, offset in starts:
        first = int(boundaries[document] + offset)
        last = int(np.searchsorted(boundaries, first + room - 1, side="right")) - 1
        touched.update(d for d in range(int(document), last + 1) if tokens[d].size)
    return len(touched)


def _too_few(source: str, streams: Sequence[_Stream], available: int, count: int, room: int) -> str:
    longest = max(stream.ids.size for stream in streams)
    if longest < room:
        return (
            f"{source}: no document is long enough for one window: the longest of {len(streams)} "
            f"has {longest} tokens, a window needs {room}. Ask for shorter windows, give longer "
            "texts, or join documents (--pack, pack=True)"
        )
    return (
        f"{source}: only {available} windows of {room} tokens of text fit without overlap, {count} "
        "were asked for. Ask for fewer or shorter windows, or give more text"
    )


def _whole_number(value: object, name: str, *, minimum: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < minimum:
        raise InputError(f"{name} is {value!r}; a whole number of at least {minimum} is required")
    return int(value)


def _check_range(ids: NDArray[Any], vocabulary_size: int) -> None:
    bad = np.argwhere((ids < 0) | (ids >= vocabulary_size))
    if bad.size:
        window, position = (int(index) for index in bad[0])
        raise InputError(
            f"token id {ids[window, position]} at position {position} of window {window} is "
            f"outside the vocabulary 0..{vocabulary_size - 1}; the tokenizer or the windows "
            "belong to another model"
        )


def _readonly(array: Ids) -> Ids:
    array.setflags(write=False)
    return array
