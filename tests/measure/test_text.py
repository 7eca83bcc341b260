"""Text sources: every kind is read, everything that is not text is refused in one line."""

from __future__ import annotations

import hashlib
import json
import sys
from pathlib import Path

import pytest

from posbias.errors import TextError
from posbias.measure import _dataset_text
from posbias.measure.text import DATASET_DOCUMENTS, TextCollection, read_text


def write_jsonl(path: Path, records: list[object]) -> Path:
    path.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
    return path


def error_of(source: object, **options: object) -> str:
    """Return the one-line message with which a source is refused."""
    with pytest.raises(TextError) as caught:
        read_text(source, **options)
    message = str(caught.value)
    assert "\n" not in message
    assert caught.value.exit_code == 2
    return message


# --- files ---------------------------------------------------------------------------------------


def test_a_text_file_is_one_document(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes("First.\n\nSecond, with é and 漢.\n".encode())
    collection = read_text(path)
    assert collection.documents == ("First.\n\nSecond, with é and 漢.\n",)
    assert collection.source == str(path)


def test_digest_of_one_document_is_that_of_its_file(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes("héllo\n".encode())
    assert read_text(path).sha256 == hashlib.sha256(path.read_bytes()).hexdigest()


def test_digest_of_several_documents_knows_where_they_end() -> None:
    digests = [hashlib.sha256(text.encode()).digest() for text in ("ab", "c")]
    expected = hashlib.sha256(digests[0] + digests[1]).hexdigest()
    assert TextCollection(["ab", "c"]).sha256 == expected
    assert TextCollection(["a", "bc"]).sha256 != expected


@pytest.mark.parametrize("name", ["a.txt", "a.md", "a.text", "plain", "A.TXT"])
def test_names_of_plain_text(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("some text")
    assert read_text(str(tmp_path / name)).documents == ("some text",)


def test_byte_order_mark_and_line_ends_do_not_reach_the_document(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(b"\xef\xbb\xbfone\r\ntwo\rthree\n")
    assert read_text(path).documents == ("one\ntwo\nthree\n",)


def test_a_home_folder_is_expanded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))
    (tmp_path / "a.txt").write_text("text")
    assert read_text("~/a.txt").documents == ("text",)


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        (b"", "holds no text: 0 bytes"),
        (b" \n\t\r\n", "holds no text: 5 bytes of white space"),
        ("\u00a0\u2003".encode(), "all empty or white space"),
        (b"abc\x00def", "binary: byte 3 is NUL"),
        (b"text \x01\x02\x03\x04 more", "4 of 14 characters are control characters"),
        ("text".encode("utf-16"), "is UTF-16; UTF-8 is required"),
        (b"caf\xe9 au lait", "not UTF-8: byte 3 is 0xe9"),
        (b"\xef\xbb\xbfcaf\xe9 au lait", "not UTF-8: byte 6 is 0xe9"),
        ("漢".encode()[:2], "not UTF-8: byte 0 is 0xe6"),
    ],
)
def test_what_is_not_text_is_refused(tmp_path: Path, raw: bytes, expected: str) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(raw)
    message = error_of(path)
    assert expected in message
    assert str(path) in message


def test_a_few_control_characters_are_allowed(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(b"\x0c" + b"words of a page " * 100 + b"\x1b[0m")
    assert len(read_text(path).documents) == 1


def test_a_missing_file_names_what_can_be_given(tmp_path: Path) -> None:
    message = error_of(tmp_path / "nothing.txt")
    assert "no such file or folder" in message
    assert "datasets:NAME" in message


@pytest.mark.parametrize("name", ["a.json", "a.csv", "a.parquet", "a.txt.gz", "a.pdf"])
def test_other_formats_are_refused_by_name(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("some text")
    assert f"has the suffix {Path(name).suffix}" in error_of(tmp_path / name)


def test_an_unreadable_file_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.txt"
    path.write_text("text")

    def refuse(_: Path) -> bytes:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "read_bytes", refuse)
    assert error_of(path) == f"cannot read {path}: Permission denied"


# --- JSON lines ----------------------------------------------------------------------------------


def test_json_lines_are_documents(tmp_path: Path) -> None:
    path = write_jsonl(tmp_path / "a.jsonl", [{"text": "one\ntwo"}, {"text": ""}, {"text": "é"}])
    assert read_text(path).documents == ("one\ntwo", "", "é")


def test_a_field_is_chosen_and_recorded(tmp_path: Path) -> None:
    path = write_jsonl(tmp_path / "a.jsonl", [{"text": "no", "body": "yes"}])
    collection = read_text(path, field="body")
    assert collection.documents == ("yes",)
    assert collection.source == f"{path} (field=body)"


def test_line_separators_inside_a_string_do_not_end_the_line(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes('{"text": "a\u2028b\u0085c"}\r\n\r\n{"text": "d"}\r\n'.encode())
    assert read_text(path).documents == ("a\u2028b\u0085c", "d")


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ('{"body": "x", "id": 1}', "line 2 has no field 'text'; available fields: 'body', 'id'"),
        ("{}", "line 2 has no field 'text'; available fields: none"),
        ('{"text": 7}', "line 2: field 'text' is int; a string is required"),
        ('{"text": null}', "line 2: field 'text' is NoneType"),
        ('["text"]', "line 2 is a JSON list; an object is required"),
        ('{"text": "cut', "line 2 is not JSON"),
        ('{"text": "\\ud800x"}', "lone surrogate, U+D800, at character 0"),
    ],
)
def test_a_damaged_line_is_named(tmp_path: Path, line: str, expected: str) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"text": "good"}\n' + line + "\n")
    assert expected in error_of(path)


def test_lines_beyond_the_limit_are_not_read(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"text": "one"}\n{"text": "two"}\nnot JSON\n')
    collection = read_text(path, max_documents=2)
    assert collection.documents == ("one", "two")
    assert collection.source.endswith("(max_documents=2)")


# --- folders -------------------------------------------------------------------------------------


def test_a_folder_is_read_in_the_order_of_names(tmp_path: Path) -> None:
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "z.txt").write_text("3")
    (tmp_path / "a.txt").write_text("1")
    write_jsonl(tmp_path / "b" / "a.jsonl", [{"text": "2a"}, {"text": "2b"}])
    (tmp_path / "c.txt").write_text("4")
    (tmp_path / "notes.pdf").write_bytes(b"\0")
    (tmp_path / ".hidden.txt").write_text("no")
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git" / "x.txt").write_text("no")
    assert read_text(tmp_path).documents == ("1", "2a", "2b", "3", "4")


def test_a_folder_without_text_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.pdf").write_text("x")
    assert "holds no .txt or .jsonl file" in error_of(tmp_path)


def test_a_bad_file_in_a_folder_is_named(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("fine")
    (tmp_path / "b.txt").write_bytes(b"\xff\xfe\xfd")
    assert str(tmp_path / "b.txt") in error_of(tmp_path)


# --- options -------------------------------------------------------------------------------------


def test_a_field_needs_a_source_with_fields(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("text")
    assert "only JSON lines and data sets have fields" in error_of(tmp_path, field="body")


def test_a_split_needs_a_data_set(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("text")
    assert "only data sets have splits" in error_of(tmp_path / "a.txt", split="train")


@pytest.mark.parametrize("value", [0, -1, 2.0, True, "3"])
def test_max_documents_is_a_positive_whole_number(value: object) -> None:
    assert "max_documents is" in error_of("embedded", max_documents=value)


@pytest.mark.parametrize("documents", [[], [""], [" \n", "\t"]])
def test_documents_without_text_are_refused(documents: list[str]) -> None:
    with pytest.raises(TextError, match="holds no text"):
        TextCollection(documents)


def test_one_string_is_not_taken_for_its_characters() -> None:
    with pytest.raises(TextError, match=r"Write \[text\] for one document"):
        TextCollection("some text")


def test_documents_are_strings() -> None:
    with pytest.raises(TextError, match="document 1 of documents is bytes"):
        TextCollection(["a", b"b"])  # type: ignore[list-item]


# --- the embedded text ---------------------------------------------------------------------------


def test_the_embedded_text_is_the_one_its_provenance_describes() -> None:
    collection = read_text("embedded")
    provenance = (
        Path(_dataset_text.__file__).parents[1] / "data" / "text" / "PROVENANCE.md"
    ).read_text(encoding="utf-8")
    assert collection.source == "embedded"
    assert len(collection.documents) == 1
    assert collection.sha256 in provenance


# --- data sets -----------------------------------------------------------------------------------


@pytest.fixture
def rows(tmp_path: Path) -> str:
    """A data set of 1,200 rows that the `datasets` library reads from disk."""
    folder = tmp_path / "rows"
    folder.mkdir()
    records: list[object] = [{"text": f"document {i}", "number": i} for i in range(1200)]
    write_jsonl(folder / "train.jsonl", records)
    return f"datasets:{folder}"


def test_a_data_set_is_streamed_up_to_the_limit(rows: str) -> None:
    collection = read_text(rows, max_documents=3)
    assert collection.documents == ("document 0", "document 1", "document 2")
    assert collection.source == f"{rows} (max_documents=3)"
    assert len(read_text(rows).documents) == DATASET_DOCUMENTS


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"field": "body"}, "row 0 of .* has no field 'body'; available fields: 'text', 'number'"),
        ({"field": "number"}, "field 'number' is int; a string is required"),
        ({"split": "test"}, "split 'test': ValueError: Bad split: test"),
    ],
)
def test_what_a_data_set_lacks_is_named(rows: str, options: dict[str, str], expected: str) -> None:
    with pytest.raises(TextError, match=expected):
        read_text(rows, **options)


def test_a_missing_config_is_named(rows: str) -> None:
    assert "BuilderConfig 'nope' not found" in error_of(f"{rows}:nope")


@pytest.mark.parametrize("is_split", [False, True])
def test_a_saved_data_set_is_read(tmp_path: Path, is_split: bool) -> None:
    import datasets

    saved = datasets.Dataset.from_dict({"body": ["first", "second"]})
    datasets.disable_progress_bars()
    try:
        whole = datasets.DatasetDict({"dev": saved}) if is_split else saved
        whole.save_to_disk(tmp_path / "saved")
    finally:
        datasets.enable_progress_bars()
    collection = read_text(f"datasets:{tmp_path / 'saved'}", field="body", split="dev")
    assert collection.documents == ("first", "second")


def test_a_hub_data_set_is_asked_for_by_name_config_and_split(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    import datasets

    asked: list[object] = []

    def load(*names: object, **options: object) -> list[dict[str, str]]:
        asked.append((names, options))
        return [{"text": "a document"}]

    monkeypatch.setattr(datasets, "load_dataset", load)
    monkeypatch.setattr(_dataset_text, "is_hub_reachable", lambda: True)
    read_text("datasets:owner/name:config", split="dev")
    read_text("datasets:owner/name")
    assert asked == [
        (("owner/name", "config"), {"split": "dev", "streaming": True}),
        (("owner/name", None), {"split": "train", "streaming": True}),
    ]


def test_a_stream_that_breaks_off_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    import datasets

    def rows(*_: object, **__: object) -> object:
        yield {"text": "a document"}
        raise ConnectionError("the line\nwent dead")

    monkeypatch.setattr(datasets, "load_dataset", rows)
    monkeypatch.setattr(_dataset_text, "is_hub_reachable", lambda: True)
    assert "ConnectionError: the line went dead" in error_of("datasets:owner/name")


def test_an_unreachable_hub_is_said_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_dataset_text, "is_hub_reachable", lambda: False)
    assert "the hub cannot be reached" in error_of("datasets:owner/name")


def test_a_missing_library_says_what_to_install(rows: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "datasets", None)
    assert "pip install 'posbias[datasets]'" in error_of(rows)


def test_a_data_set_needs_a_name() -> None:
    assert "lacks a name" in error_of("datasets:")
