from __future__ import annotations

import errno
import json
import os
import stat
import threading
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import pytest

from posbias.atomic import (
    atomic_directory,
    atomic_write_bytes,
    atomic_write_text,
    has_posbias_manifest,
    refuse_existing,
)
from posbias.errors import InputError, OutputExistsError, PosbiasError


def names(folder: Path) -> list[str]:
    return sorted(entry.name for entry in folder.iterdir())


def make_measurement(folder: Path, value: str) -> None:
    (folder / "manifest.json").write_text(json.dumps({"format": "posbias.test"}))
    (folder / "value.txt").write_text(value)


def fail_with(code: int) -> Callable[..., None]:
    def fail(*_: object, **__: object) -> None:
        raise OSError(code, os.strerror(code))

    return fail


# --- files --------------------------------------------------------------------------------------


def test_file_is_written_with_its_parents(tmp_path: Path) -> None:
    target = tmp_path / "a" / "b.txt"
    atomic_write_text(target, "λ\n")
    assert target.read_bytes() == "λ\n".encode()
    assert names(target.parent) == ["b.txt"]


def test_dash_is_standard_output(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    atomic_write_text("-", "to the pipe\n")
    assert capsys.readouterr().out == "to the pipe\n"
    assert names(tmp_path) == []


def test_existing_file_is_refused_and_untouched(tmp_path: Path) -> None:
    target = tmp_path / "x"
    target.write_text("old")
    with pytest.raises(OutputExistsError, match="--overwrite"):
        atomic_write_text(target, "new")
    assert target.read_text() == "old"
    atomic_write_text(target, "new", overwrite=True)
    assert target.read_text() == "new"
    assert names(tmp_path) == ["x"]


def test_dangling_link_counts_as_existing(tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "nowhere")
    with pytest.raises(OutputExistsError):
        refuse_existing(link)


def test_folder_in_place_of_a_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is a folder"):
        atomic_write_bytes(tmp_path, b"", overwrite=True)


@pytest.mark.parametrize("overwrite", [False, True])
def test_full_disk_is_reported_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, overwrite: bool
) -> None:
    target = tmp_path / "x"
    if overwrite:
        target.write_text("old")
    monkeypatch.setattr(os, "fsync", fail_with(errno.ENOSPC))
    with pytest.raises(PosbiasError, match=r"No space left.*Free some space"):
        atomic_write_text(target, "new", overwrite=overwrite)
    assert names(tmp_path) == (["x"] if overwrite else [])
    assert not overwrite or target.read_text() == "old"


def test_parent_that_is_a_file_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(PosbiasError, match="cannot write"):
        atomic_write_text(tmp_path / "file" / "x", "text")


def test_file_system_without_hard_links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "link", fail_with(errno.EPERM))
    target = tmp_path / "x"
    atomic_write_text(target, "text")
    assert target.read_text() == "text"
    assert names(tmp_path) == ["x"]


def test_name_taken_without_hard_links_is_given_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "link", fail_with(errno.EPERM))
    monkeypatch.setattr(os, "replace", fail_with(errno.EIO))
    with pytest.raises(PosbiasError, match="cannot write"):
        atomic_write_text(tmp_path / "x", "text")
    assert names(tmp_path) == []


def test_symbolic_link_is_replaced_not_followed(tmp_path: Path) -> None:
    (tmp_path / "kept").write_text("old")
    (tmp_path / "link").symlink_to(tmp_path / "kept")
    atomic_write_text(tmp_path / "link", "new", overwrite=True)
    assert not (tmp_path / "link").is_symlink()
    assert ((tmp_path / "link").read_text(), (tmp_path / "kept").read_text()) == ("new", "old")


@pytest.mark.parametrize("path", ["", "a\0b"])
def test_impossible_names_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match="cannot be the name"):
        atomic_write_text(path, "text")
    with pytest.raises(InputError, match="cannot be the name"), atomic_directory(path):
        pass
    assert names(tmp_path) == []


def test_text_that_is_no_unicode_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="lone surrogate at character 2"):
        atomic_write_text(tmp_path / "x", "ab\ud800")
    assert names(tmp_path) == []


def test_unreadable_folder_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = tmp_path / "d"
    target.mkdir()
    monkeypatch.setattr(Path, "iterdir", fail_with(errno.EACCES))
    with (
        pytest.raises(PosbiasError, match="Permission denied"),
        atomic_directory(target, overwrite=True),
    ):
        pass


def _write_from_process(folder: str, value: int) -> bool:
    try:
        atomic_write_text(Path(folder) / "x", str(value) * 9)
    except OutputExistsError:
        return False
    return True


def test_one_of_many_processes_wins(tmp_path: Path) -> None:
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
        won = list(pool.map(_write_from_process, [str(tmp_path)] * 6, range(6)))
    assert sum(won) == 1
    assert (tmp_path / "x").read_text() == str(won.index(True)) * 9
    assert names(tmp_path) == ["x"]


def test_longest_file_name_fits(tmp_path: Path) -> None:
    target = tmp_path / ("x" * 255)
    atomic_write_text(target, "text")
    assert target.read_text() == "text"


def test_permissions_follow_the_umask(tmp_path: Path) -> None:
    old = os.umask(0o027)
    try:
        atomic_write_text(tmp_path / "x", "")
        with atomic_directory(tmp_path / "d"):
            pass
    finally:
        os.umask(old)
    assert stat.S_IMODE((tmp_path / "x").stat().st_mode) == 0o640
    assert stat.S_IMODE((tmp_path / "d").stat().st_mode) == 0o750


def run_together(jobs: list[Callable[[], None]]) -> list[BaseException | None]:
    """Run jobs at the same time and return what each raised."""
    barrier = threading.Barrier(len(jobs))
    outcomes: list[BaseException | None] = [None] * len(jobs)

    def work(index: int) -> None:
        barrier.wait()
        try:
            jobs[index]()
        except BaseException as error:
            outcomes[index] = error

    threads = [threading.Thread(target=work, args=(k,)) for k in range(len(jobs))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return outcomes


def test_one_of_many_writers_wins(tmp_path: Path) -> None:
    target = tmp_path / "x"
    outcomes = run_together([lambda k=k: atomic_write_text(target, str(k) * 9) for k in range(8)])
    winners = [k for k, error in enumerate(outcomes) if error is None]
    assert len(winners) == 1
    assert target.read_text() == str(winners[0]) * 9
    assert all(isinstance(error, OutputExistsError) for error in outcomes if error)
    assert names(tmp_path) == ["x"]


# --- directories --------------------------------------------------------------------------------


def test_directory_appears_only_when_complete(tmp_path: Path) -> None:
    target = tmp_path / "d"
    with atomic_directory(target) as folder:
        make_measurement(folder, "1")
        (folder / "sub").mkdir()
        (folder / "sub" / "file").write_text("x")
        assert not target.exists()
    assert (target / "sub" / "file").read_text() == "x"
    assert names(tmp_path) == ["d"]


def test_exception_leaves_no_directory(tmp_path: Path) -> None:
    def write_and_stop() -> None:
        with atomic_directory(tmp_path / "d") as folder:
            (folder / "x").write_text("")
            raise RuntimeError("stop")

    with pytest.raises(RuntimeError, match="stop"):
        write_and_stop()
    assert names(tmp_path) == []


def test_full_disk_in_a_directory_keeps_the_old_one(tmp_path: Path) -> None:
    target = tmp_path / "d"
    with atomic_directory(target) as folder:
        make_measurement(folder, "old")
    with (
        pytest.raises(PosbiasError, match="No space left"),
        atomic_directory(target, overwrite=True) as folder,
    ):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    assert (target / "value.txt").read_text() == "old"
    assert names(tmp_path) == ["d"]


def test_failing_rename_brings_the_old_directory_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "d"
    with atomic_directory(target) as folder:
        make_measurement(folder, "old")
    rename = os.rename

    def fail_for_new(source: str | Path, destination: str | Path) -> None:
        if Path(destination) == target and (Path(source) / "value.txt").read_text() == "new":
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        rename(source, destination)

    monkeypatch.setattr(os, "rename", fail_for_new)
    with (
        pytest.raises(PosbiasError, match="cannot write"),
        atomic_directory(target, overwrite=True) as folder,
    ):
        make_measurement(folder, "new")
    assert (target / "value.txt").read_text() == "old"
    assert names(tmp_path) == ["d"]


def test_existing_directory_is_refused_before_the_work(tmp_path: Path) -> None:
    began = False
    with pytest.raises(OutputExistsError), atomic_directory(tmp_path):
        began = True
    assert not began


@pytest.mark.parametrize("overwrite", [False, True])
def test_directory_that_appears_meanwhile_is_not_replaced(tmp_path: Path, overwrite: bool) -> None:
    target = tmp_path / "d"

    def write_late() -> None:
        with atomic_directory(target, overwrite=overwrite) as folder:
            make_measurement(folder, "late")
            target.mkdir()
            (target / "keep").write_text("")

    with pytest.raises(OutputExistsError):
        write_late()
    assert names(tmp_path) == ["d"]
    assert names(target) == ["keep"]


def test_overwrite_replaces_own_directories_only(tmp_path: Path) -> None:
    own, foreign, empty, file = (tmp_path / name for name in ("own", "foreign", "empty", "file"))
    with atomic_directory(own) as folder:
        make_measurement(folder, "old")
    foreign.mkdir()
    (foreign / "thesis.tex").write_text("years of work")
    empty.mkdir()
    file.write_text("text")
    for target in (own, empty):
        with atomic_directory(target, overwrite=True) as folder:
            make_measurement(folder, "new")
        assert (target / "value.txt").read_text() == "new"
    for target in (foreign, file):
        with (
            pytest.raises(OutputExistsError, match="not made by posbias"),
            atomic_directory(target, overwrite=True),
        ):
            pass
    assert (foreign / "thesis.tex").exists()
    link = tmp_path / "link"
    link.symlink_to(own)
    with pytest.raises(OutputExistsError), atomic_directory(link, overwrite=True):
        pass
    assert names(tmp_path) == ["empty", "file", "foreign", "link", "own"]


def test_marker_can_be_given(tmp_path: Path) -> None:
    target = tmp_path / "d"
    target.mkdir()
    (target / "marker").write_text("")
    with atomic_directory(
        target, overwrite=True, is_ours=lambda folder: (folder / "marker").exists()
    ) as folder:
        (folder / "new").write_text("")
    assert names(target) == ["new"]


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"format": "other.thing"}', "not json"])
def test_other_manifests_are_no_marker(tmp_path: Path, text: str) -> None:
    assert not has_posbias_manifest(tmp_path)
    (tmp_path / "manifest.json").write_text(text)
    assert not has_posbias_manifest(tmp_path)


@pytest.mark.parametrize("overwrite", [False, True])
def test_concurrent_directories_stay_whole(tmp_path: Path, overwrite: bool) -> None:
    target = tmp_path / "d"

    def write(value: str) -> None:
        with atomic_directory(target, overwrite=overwrite) as folder:
            make_measurement(folder, value)

    outcomes = run_together([lambda k=k: write(str(k)) for k in range(6)])
    winners = [str(k) for k, error in enumerate(outcomes) if error is None]
    assert all(isinstance(error, OutputExistsError) for error in outcomes if error)
    assert len(winners) == (6 if overwrite else 1)
    assert (target / "value.txt").read_text() in winners
    assert names(tmp_path) == ["d"]
