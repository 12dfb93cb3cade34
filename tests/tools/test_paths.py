"""A model's paths: which of them lie below the root, and errors in words."""

import errno
import os
from pathlib import Path

import pytest

from toolcell_tools import ToolFailure
from toolcell_tools.paths import NAME_BYTES, PATH_BYTES, failure_of, relative, resolved


@pytest.fixture
def root(tmp_path: Path) -> Path:
    inside = tmp_path / "work"
    (inside / "a").mkdir(parents=True)
    (tmp_path / "work2").mkdir()
    return inside


@pytest.mark.parametrize("path", ["a/b", "./a/../a/b", "a//b", "{root}/a/b", "/proc/self/root{root}/a/b"])
def test_a_path_below_the_root_may_be_written_in_many_ways(root: Path, path: str) -> None:
    real = resolved(root, path.format(root=root))
    assert real == root / "a/b" and relative(root, real) == "a/b"


@pytest.mark.parametrize("path", ["", ".", "a/.."])
def test_the_root_itself_may_be_named(root: Path, path: str) -> None:
    assert resolved(root, path) == root and relative(root, resolved(root, path)) == "."


@pytest.mark.parametrize(
    "path", ["..", "a/../..", "/etc/passwd", "/", "{root}2", "../work2/x", "out", "out/x", "a/../out"]
)
def test_a_path_that_leads_out_is_refused_whatever_leads_there(root: Path, path: str) -> None:
    (root / "out").symlink_to("../work2")
    with pytest.raises(ToolFailure, match="is outside the workspace; use a path relative to the workspace root"):
        resolved(root, path.format(root=root))


def test_a_link_that_stays_inside_is_followed(root: Path) -> None:
    (root / "link").symlink_to("a")
    assert resolved(root, "link/b") == root / "a/b"


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("a\0b", "contains a NUL character"),
        ("a\ud800b", "is not valid Unicode"),
        ("x" * (NAME_BYTES + 1), "is too long"),
        ("é" * (NAME_BYTES // 2 + 1), "is too long"),
        ("a/" * (PATH_BYTES // 2) + "bb", "is too long"),
    ],
    ids=["nul", "surrogate", "long name", "long name in bytes", "long path"],
)
def test_a_path_that_no_file_can_have_is_refused_in_few_words(root: Path, path: str, words: str) -> None:
    with pytest.raises(ToolFailure, match=words) as refused:
        resolved(root, path)
    assert len(str(refused.value)) < 250 and str(root) not in str(refused.value)


def test_the_longest_name_is_taken_and_a_byte_that_is_no_text_too(root: Path) -> None:
    assert resolved(root, "x" * NAME_BYTES) == root / ("x" * NAME_BYTES)
    assert os.fsencode(resolved(root, "caf\udce9")) == os.fsencode(root) + b"/caf\xe9"


@pytest.mark.parametrize(
    ("number", "said"),
    [
        (errno.EBUSY, "it is protected or in use"),
        (errno.EROFS, "it is read-only here"),
        (errno.EDQUOT, "no space left"),
        (errno.ENOSPC, "no space left"),
        (errno.EPERM, "permission denied"),
        (errno.EACCES, "permission denied"),
        (errno.EMLINK, "too many links"),
        (None, "input/output error"),
    ],
)
def test_a_failure_of_the_system_is_said_in_words_without_a_path_of_the_host(number: int | None, said: str) -> None:
    error = OSError("odd") if number is None else OSError(number, "odd", "/srv/work/a")
    failure = failure_of(error, "a")
    assert str(failure) == f"'a': {said}"


def test_the_error_has_the_path_as_the_model_wrote_it_and_the_name_of_the_number() -> None:
    failure = failure_of(OSError(errno.ENOENT, "odd", "/srv/work/a"), "./a")
    assert failure.data == {"path": "./a", "errno": "ENOENT"}
