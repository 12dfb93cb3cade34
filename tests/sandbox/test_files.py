"""Looks at the files of a tree, and what differs between two of them."""

import os
import time
from pathlib import Path

import pytest

from toolcell_sandbox import files, walker
from toolcell_sandbox.files import FilesLook, changes_of, look_at_files


def kinds(root: Path, before: FilesLook, most: int = 100) -> dict[str, str]:
    return {change.path: change.kind for change in changes_of(str(root), before, look_at_files(str(root)), most)[0]}


def test_a_file_is_created_modified_or_deleted(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("a")
    (tmp_path / "b").write_text("b")
    before = look_at_files(str(tmp_path))
    assert kinds(tmp_path, before) == {}
    (tmp_path / "a").write_text("A")  # the same size, perhaps within one tick of the clock
    (tmp_path / "b").unlink()
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "c").write_text("c")
    assert kinds(tmp_path, before) == {"a": "modified", "b": "deleted", "d/c": "created"}


def test_links_are_not_followed_and_some_directories_are_left_out(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("/etc")
    (tmp_path / "file").symlink_to("/etc/passwd")
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git" / "index").write_text("x")
    os.mkfifo(tmp_path / "pipe")
    assert look_at_files(str(tmp_path)) == FilesLook()


def test_the_content_of_an_unchanged_file_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a").write_text("a")
    os.utime(tmp_path / "a")
    time.sleep(0.05)
    before = look_at_files(str(tmp_path))
    assert not before.files["a"].racy

    def refuse(*_: object) -> bytes:
        raise AssertionError("it was read again")

    monkeypatch.setattr(walker, "content", refuse)
    assert look_at_files(str(tmp_path), before).files["a"] is before.files["a"]


def test_a_look_that_ends_early_claims_nothing_of_what_it_did_not_see(tmp_path: Path) -> None:
    for number in range(600):
        (tmp_path / f"{number}").write_text("x")
    cut = look_at_files(str(tmp_path), seconds=0.0)
    whole = look_at_files(str(tmp_path))
    assert cut.unknown == "the look took too long" and whole.unknown == ""
    assert changes_of(str(tmp_path), cut, whole, 10) == ([], 0)
    assert changes_of(str(tmp_path), whole, cut, 10) == ([], 0)
    found, count = changes_of(str(tmp_path), FilesLook(), whole, 10)
    assert (len(found), count) == (10, 600)


def test_a_tree_that_is_too_deep_is_said_to_be_so(tmp_path: Path) -> None:
    deep = tmp_path
    for _ in range(files.MAX_DEPTH + 2):
        deep = deep / "d"
    deep.mkdir(parents=True)
    assert look_at_files(str(tmp_path)).unknown.startswith("a directory is too deep")
