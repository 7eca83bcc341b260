"""Windows: no overlap, no repetition, reproducible, and begun as the tokenizer begins them."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from posbias.errors import InputError, TextError
from posbias.measure.text import TextCollection
from posbias.measure.windows import (
    TokenWindows,
    automatic_prefix,
    check_vocabulary,
    make_windows,
    prepared_windows,
)

BOS, EOS, SPECIALS = 1, 2, 10


class Characters:
    """A tokenizer with one token per character; what it adds around them can be chosen."""

    def __init__(self, before: Sequence[int] = (), after: Sequence[int] = ()) -> None:
        self.before, self.after = list(before), list(after)
        self.bos_token_id: int | None = BOS
        self.eos_token_id: int | None = EOS

    def __call__(self, text: str, **options: Any) -> dict[str, list[int]]:
        ids = self.bare(text)
        if options.get("add_special_tokens", True):
            ids = [*self.before, *ids, *self.after]
        return {"input_ids": ids}

    def bare(self, text: str) -> list[int]:
        return [SPECIALS + ord(character) for character in text]


class Stubborn(Characters):
    """A tokenizer that adds BOS even when told not to."""

    def bare(self, text: str) -> list[int]:
        return [BOS, *super().bare(text)]


def letters(size: int, start: int = 0) -> str:
    """Return text in which every character occurs once, so that a window tells where it is from."""
    return "".join(chr(0x4E00 + start + index) for index in range(size))


def documents(sizes: Sequence[int]) -> list[str]:
    """Return documents of the given sizes without a character in common."""
    offsets = np.cumsum([0, *sizes])
    return [letters(size, int(offset)) for size, offset in zip(sizes, offsets, strict=False)]


def fitting(sizes: Sequence[int], room: int) -> int:
    return sum(size // room for size in sizes)


draws = st.tuples(
    st.lists(st.integers(0, 60), min_size=1, max_size=6),
    st.integers(2, 12),
    st.integers(0, 2**64),
    st.booleans(),
).filter(lambda draw: fitting(draw[0], draw[1] - draw[3]) > 0)


# --- properties ----------------------------------------------------------------------------------


@given(draws)
def test_windows_are_pieces_of_their_documents_without_overlap(
    draw: tuple[list[int], int, int, bool],
) -> None:
    sizes, length, seed, has_bos = draw
    tokenizer = Characters(before=[BOS] if has_bos else [])
    room = length - has_bos
    texts = documents(sizes)
    count = fitting(sizes, room)
    windows = make_windows(tokenizer, texts, length=length, count=count, seed=seed)
    assert windows.ids.shape == (count, length)
    assert windows.ids.dtype == windows.starts.dtype == np.int64
    seen: set[int] = set()
    for ids, (document, offset) in zip(windows.ids, windows.starts, strict=True):
        piece = texts[document][offset : offset + room]
        assert ids.tolist() == [*([BOS] if has_bos else []), *tokenizer.bare(piece)]
        assert not seen & set(piece)
        seen |= set(piece)
    assert windows.first_token_is_bos is has_bos


@given(draws, st.data())
def test_a_smaller_count_gives_the_first_windows_of_a_larger(
    draw: tuple[list[int], int, int, bool], data: st.DataObject
) -> None:
    sizes, length, seed, has_bos = draw
    tokenizer = Characters(before=[BOS] if has_bos else [])
    available = fitting(sizes, length - has_bos)
    count = data.draw(st.integers(1, available))
    options = {"length": length, "seed": seed}
    few = make_windows(tokenizer, documents(sizes), count=count, **options)
    all_of_them = make_windows(tokenizer, documents(sizes), count=available, **options)
    assert np.array_equal(few.ids, all_of_them.ids[:count])
    assert np.array_equal(few.starts, all_of_them.starts[:count])


@given(draws)
def test_counts_say_what_was_used_and_what_was_not(
    draw: tuple[list[int], int, int, bool],
) -> None:
    sizes, length, seed, has_bos = draw
    tokenizer = Characters(before=[BOS] if has_bos else [])
    room = length - has_bos
    counts = make_windows(tokenizer, documents(sizes), length=length, count=1, seed=seed).counts
    assert counts.documents == len(sizes)
    assert counts.skipped == sum(size < room for size in sizes)
    assert counts.used == 1
    assert counts.tokens == sum(sizes)
    assert counts.available == fitting(sizes, room)


@given(draws)
def test_one_window_more_than_fit_is_refused(draw: tuple[list[int], int, int, bool]) -> None:
    sizes, length, seed, has_bos = draw
    tokenizer = Characters(before=[BOS] if has_bos else [])
    room = length - has_bos
    available = fitting(sizes, room)
    with pytest.raises(TextError, match=f"only {available} windows of {room} tokens"):
        make_windows(tokenizer, documents(sizes), length=length, count=available + 1, seed=seed)


@given(
    st.lists(st.integers(0, 9), min_size=1, max_size=8),
    st.integers(2, 8),
    st.integers(0, 100),
    st.booleans(),
)
def test_packed_windows_run_through_the_joined_documents(
    sizes: list[int], length: int, seed: int, has_eos: bool
) -> None:
    tokenizer = Characters()
    tokenizer.eos_token_id = EOS if has_eos else None
    texts = documents(sizes)
    joined: list[tuple[int, int, int]] = []
    for document, text in enumerate(texts):
        ids = [*tokenizer.bare(text), *([EOS] if has_eos else [])]
        joined += [(token, document, offset) for offset, token in enumerate(ids)]
    count = len(joined) // length
    if not sum(sizes) or not count:
        return
    windows = make_windows(tokenizer, texts, length=length, count=count, seed=seed, pack=True)
    places = [(document, offset) for _, document, offset in joined]
    starts = [places.index((document, offset)) for document, offset in windows.starts.tolist()]
    for ids, start in zip(windows.ids.tolist(), starts, strict=True):
        assert ids == [token for token, _, _ in joined[start : start + length]]
    assert all(later - earlier >= length for earlier, later in pairwise(sorted(starts)))
    touched = {joined[at][1] for start in starts for at in range(start, start + length)}
    assert windows.counts.used == sum(bool(sizes[document]) for document in touched)
    assert windows.counts.available == count


# --- reproducibility -----------------------------------------------------------------------------


def test_the_draw_is_the_same_everywhere() -> None:
    """Frozen: a changed draw would make stored measurements impossible to repeat."""
    windows = make_windows(Characters(), documents([50, 3, 70]), length=8, count=6, seed=7)
    assert windows.starts.tolist() == [[0, 9], [2, 36], [0, 33], [2, 28], [0, 25], [0, 17]]


def test_the_draw_follows_from_raw_random_words() -> None:
    sizes, length, seed = [50, 3, 70], 8, 7
    shift, order = (
        np.random.PCG64(np.random.SeedSequence(seed, spawn_key=(key,))) for key in (0, 1)
    )
    places = []
    for document, size in enumerate(sizes):
        word = int(shift.random_raw())
        first = word % (size % length + 1)
        places += [(document, first + length * index) for index in range(size // length)]
    ranked = sorted(places, key=lambda _: int(order.random_raw()))
    windows = make_windows(Characters(), documents(sizes), length=length, count=14, seed=seed)
    assert windows.starts.tolist() == [list(place) for place in ranked]


def test_seeds_differ_in_shift_and_in_order() -> None:
    text = documents([1003])
    draw = {
        seed: make_windows(Characters(), text, length=10, count=100, seed=seed).starts[:, 1]
        for seed in range(12)
    }
    assert {int(offsets.min()) for offsets in draw.values()} == {0, 1, 2, 3}
    assert len({tuple(offsets // 10) for offsets in draw.values()}) == 12


def test_windows_come_from_all_over_the_text() -> None:
    windows = make_windows(Characters(), documents([10_000]), length=10, count=100, seed=0)
    per_quarter = np.bincount(windows.starts[:, 1] // 2500, minlength=4)
    assert per_quarter.min() >= 12


def test_digest_identifies_the_windows() -> None:
    windows = make_windows(Characters(), documents([50]), length=8, count=2, seed=0)
    rows = b"".join(int(t).to_bytes(8, "little") for row in windows.ids.tolist() for t in row)
    assert windows.sha256 == hashlib.sha256(rows).hexdigest()
    assert (windows.count, windows.length) == (2, 8)


def test_windows_cannot_be_changed() -> None:
    windows = make_windows(Characters(), documents([50]), length=8, count=2, seed=0)
    with pytest.raises(ValueError, match="read-only"):
        windows.ids[0, 0] = 5


# --- how sequences begin -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("tokenizer", "prefix"),
    [
        (Characters(), []),
        (Characters(before=[BOS]), [BOS]),
        (Characters(before=[BOS], after=[EOS]), [BOS]),
        (Characters(after=[EOS]), []),
        (Characters(before=[5, 6]), [5, 6]),
        (Stubborn(), [BOS]),
        (Stubborn(after=[EOS]), [BOS]),
    ],
)
def test_the_beginning_is_found_from_what_the_tokenizer_does(
    tokenizer: Characters, prefix: list[int]
) -> None:
    assert automatic_prefix(tokenizer) == prefix
    windows = make_windows(tokenizer, documents([40]), length=8, count=4, seed=1)
    plain = Characters()
    for ids, (_, offset) in zip(windows.ids.tolist(), windows.starts, strict=True):
        piece = letters(40)[offset : offset + 8 - len(prefix)]
        assert ids == [*prefix, *plain.bare(piece)]
    assert windows.first_token_is_bos is bool(prefix)


def test_a_document_that_spells_out_bos_does_not_double_it() -> None:
    class Literal(Characters):
        def bare(self, text: str) -> list[int]:
            text_ids = super().bare(text.removeprefix("<s>"))
            return [BOS, *text_ids] if text.startswith("<s>") else text_ids

    windows = make_windows(Literal(before=[BOS]), ["<s>" + letters(7)], length=8, count=1, seed=0)
    assert windows.ids.tolist() == [[BOS, *Characters().bare(letters(7))]]
    assert windows.counts.tokens == 7


def test_the_beginning_needs_room() -> None:
    with pytest.raises(InputError, match="a length of at least 3 is required"):
        make_windows(Characters(before=[5, 6]), documents([9]), length=2, count=1, seed=0)


def test_a_tokenizer_that_contradicts_itself_is_refused() -> None:
    class Reversing(Characters):
        def __call__(self, text: str, **options: Any) -> dict[str, list[int]]:
            ids = self.bare(text + "bc")
            return {"input_ids": ids if options.get("add_special_tokens", True) else ids[::-1]}

    with pytest.raises(TextError, match="the second must be part of the first"):
        automatic_prefix(Reversing())


def test_a_tokenizer_without_tokens_is_refused() -> None:
    class Mute(Characters):
        def bare(self, text: str) -> list[int]:
            return []

    with pytest.raises(TextError, match="makes no token"):
        automatic_prefix(Mute(before=[BOS]))


@pytest.mark.parametrize("has_bos", [False, True])
def test_a_byte_level_tokenizer_of_transformers(has_bos: bool) -> None:
    tokenizers = pytest.importorskip("tokenizers")
    transformers = pytest.importorskip("transformers")
    symbols = ["<s>", "</s>", *sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())]
    vocabulary = {symbol: index for index, symbol in enumerate(symbols)}
    backend = tokenizers.Tokenizer(tokenizers.models.BPE(vocabulary, []))
    backend.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = tokenizers.decoders.ByteLevel()
    if has_bos:
        backend.post_processor = tokenizers.processors.TemplateProcessing(
            single="<s> $A", special_tokens=[("<s>", 0)]
        )
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=backend, bos_token="<s>", eos_token="</s>", model_max_length=4
    )
    text = "The quick brown fox jumps over the lazy dog. " * 3
    windows = make_windows(tokenizer, [text], length=9, count=5, seed=0)
    assert windows.first_token_is_bos is has_bos
    for ids, (_, offset) in zip(windows.ids, windows.starts, strict=True):
        assert tokenizer.decode(ids[has_bos:]) == text[offset : offset + 9 - has_bos]
        assert (ids[0] == 0) is np.bool_(has_bos)


# --- refusals ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["length", "count", "seed"])
@pytest.mark.parametrize("value", [-1, 2.0, True, "3", None, np.float64(4)])
def test_numbers_are_whole_and_in_range(name: str, value: object) -> None:
    numbers: dict[str, Any] = {"length": 4, "count": 1, "seed": 0, name: value}
    with pytest.raises(InputError, match=f"{name} is"):
        make_windows(Characters(), documents([9]), **numbers)


@pytest.mark.parametrize(("name", "value"), [("length", 1), ("count", 0)])
def test_smallest_numbers(name: str, value: int) -> None:
    numbers = {"length": 4, "count": 1, "seed": 0, name: value}
    with pytest.raises(InputError, match=f"{name} is {value}; a whole number of at least"):
        make_windows(Characters(), documents([9]), **numbers)


def test_numbers_of_numpy_are_taken() -> None:
    windows = make_windows(
        Characters(), documents([9]), length=np.int64(4), count=np.int32(2), seed=np.uint8(3)
    )
    assert windows.ids.shape == (2, 4)


def test_too_short_documents_are_refused_with_numbers() -> None:
    expected = (
        "notes: no document is long enough for one window: the longest of 3 has 9 tokens, a window "
        "needs 15"
    )
    collection = TextCollection(documents([5, 9, 0]), source="notes")
    with pytest.raises(TextError, match=expected):
        make_windows(Characters(before=[BOS]), collection, length=16, count=1, seed=0)


def test_packing_helps_short_documents() -> None:
    windows = make_windows(
        Characters(), documents([5, 9, 0, 4]), length=16, count=1, seed=0, pack=True
    )
    assert windows.counts.skipped == 0
    assert windows.counts.documents == 4


# --- prepared windows ----------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [np.int8, np.uint16, np.int32, np.int64])
def test_prepared_windows_are_taken_as_they_are(kind: type) -> None:
    ids = np.array([[1, 5, 6], [1, 7, 8]], dtype=kind)
    windows = prepared_windows(ids, vocabulary_size=9, bos_token_id=1)
    assert isinstance(windows, TokenWindows)
    assert windows.ids.dtype == np.int64
    assert np.array_equal(windows.ids, ids)
    assert windows.starts.tolist() == [[0, 0], [1, 0]]
    assert windows.first_token_is_bos


def test_prepared_windows_are_a_copy() -> None:
    ids = np.array([[1, 5, 6]], dtype=np.int64)
    windows = prepared_windows(ids, vocabulary_size=9)
    ids[0, 0] = 3
    assert windows.ids[0, 0] == 1


@pytest.mark.parametrize(("first", "bos"), [([1, 2], 1), ([1, 1], None), ([1, 1], 0)])
def test_bos_is_recorded_only_where_every_window_has_it(first: list[int], bos: int | None) -> None:
    ids = [[first[0], 5], [first[1], 6]]
    assert not prepared_windows(ids, vocabulary_size=9, bos_token_id=bos).first_token_is_bos


@pytest.mark.parametrize(
    ("ids", "expected"),
    [
        ([[1.0, 2.0]], "type float64; an array of integers"),
        ([[True, False]], "type bool"),
        ([[1, 2], [3]], "rows of integers of equal length are required"),
        ([1, 2, 3], r"shape \(3,\)"),
        ([[[1, 2]]], r"shape \(1, 1, 2\)"),
        ([[1], [2]], r"shape \(2, 1\)"),
        (np.zeros((0, 5), dtype=int), r"shape \(0, 5\)"),
        ([[1, 2], [3, 9]], r"token id 9 at position 1 of window 1 is outside the vocabulary 0..8"),
        ([[1, -1]], "token id -1 at position 1 of window 0"),
        (np.array([[2**64 - 1, 1]], dtype=np.uint64), "token id 18446744073709551615"),
    ],
)
def test_what_is_no_array_of_windows_is_refused(ids: object, expected: str) -> None:
    with pytest.raises(InputError, match=expected):
        prepared_windows(ids, vocabulary_size=9)


def test_a_tokenizer_of_another_model_is_noticed() -> None:
    windows = make_windows(Characters(), ["abcdefgh"], length=4, count=2, seed=0)
    check_vocabulary(windows, SPECIALS + ord("h") + 1)
    with pytest.raises(InputError, match="belong to another model"):
        check_vocabulary(windows, SPECIALS + ord("h"))
