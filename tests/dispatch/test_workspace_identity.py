"""The identity of a workspace: the same as long as the same directory is at the path, another as soon as it is not."""

import os
from pathlib import Path

import pytest

from toolcell.dispatch import route
from toolcell.dispatch.route import DirectoryIdentity


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    path = tmp_path / "workspace"
    path.mkdir()
    return path


def test_a_directory_that_has_settled_is_not_asked_for_its_birth_again(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(route, "TICK_NS", 0)
    first = DirectoryIdentity().now(str(directory))
    assert first.identity == (os.stat(directory).st_dev, os.stat(directory).st_ino, first.birth_ns)
    assert first.now(str(directory)) is first
    (directory / "new").touch()
    later = first.now(str(directory))
    assert later is not first and later.identity == first.identity


def test_one_that_has_just_changed_is_asked_each_time(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(route, "TICK_NS", 10**18)
    first = DirectoryIdentity().now(str(directory))
    assert first.now(str(directory)) is not first
    assert first.now(str(directory)).identity == first.identity


def test_another_directory_of_that_name_is_another_place(directory: Path) -> None:
    first = DirectoryIdentity().now(str(directory))
    directory.rename(directory.with_name("old"))
    assert first.now(str(directory)) == DirectoryIdentity()
    directory.mkdir()
    assert first.now(str(directory)).identity != first.identity


def test_a_file_at_the_place_of_a_workspace_is_told_from_a_directory_and_a_link(directory: Path) -> None:
    link, file = directory.with_name("link"), directory.with_name("file")
    link.symlink_to(directory)
    file.touch()
    taken = [DirectoryIdentity().now(str(path)).is_taken for path in (directory, link, file)]
    assert taken == [False, False, True]
