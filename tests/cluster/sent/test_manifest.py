"""The entries of a tree, and what is no tree."""

from hashlib import sha256
from typing import Any

import pytest

from toolcell.cluster.link import pack, unpack
from toolcell.cluster.sent.manifest import TreeManifest
from toolcell.workplaces.listing import TreeEntry
from toolcell_sandbox.trees.judge import MAX_DEPTH, is_sound

EMPTY = sha256(b"").digest()


def file(path: str, content: bytes = b"", mode: int = 0o644) -> TreeEntry:
    return TreeEntry(path, "file", mode, len(content), sha256(content).digest())


def directory(path: str) -> TreeEntry:
    return TreeEntry(path, "directory", 0o755)


@pytest.mark.parametrize(
    "path",
    ["", "/etc/passwd", "../x", "a/../../x", "a//b", "a/./b", "a\0b", "a/" * MAX_DEPTH + "b", "x" * 3_001, "\ud800"],
)
def test_a_path_that_does_not_stay_below_the_workspace_is_not_sound(path: str) -> None:
    assert not is_sound(path)


def test_a_name_that_is_not_utf8_is_sound() -> None:
    assert is_sound(b"caf\xe9/\xff".decode("utf-8", "surrogateescape"))


def test_a_manifest_crosses_and_its_digest_names_it() -> None:
    tree = TreeManifest([file("a/b", b"x"), directory("a"), TreeEntry("l", "link", content=b"a/b")])
    again = TreeManifest.unpacked(tree.packed())
    assert again.entries == tree.entries
    assert again.digest == tree.digest
    assert list(tree.entries) == ["a", "a/b", "l"]


def test_no_special_bit_of_a_mode_crosses() -> None:
    assert TreeEntry.from_wire(file("a", mode=0o6755).to_wire()).mode == 0o755


@pytest.mark.parametrize(
    "entries",
    [
        [["../x", 0, 0o644, 0, EMPTY, 0]],
        [["a", 9, 0o644, 0, EMPTY, 0]],
        [["a", 0, 0o644, 0, b"short", 0]],
        [["a", 0, 0o644, -1, EMPTY, 0]],
        [["a/b", 0, 0o644, 0, EMPTY, 0]],
        [["a", 0, 0o644, 0, EMPTY, 0], ["a/b", 0, 0o644, 0, EMPTY, 0]],
        [["a", 2, 0, 0, b"x", 0], ["a/b", 0, 0o644, 0, EMPTY, 0]],
    ],
)
def test_what_is_no_tree_is_refused(entries: list[Any]) -> None:
    with pytest.raises(ValueError, match="tree"):
        TreeManifest.unpacked(pack(entries))


def test_a_tree_over_another_one_hides_what_it_has_itself() -> None:
    below = TreeManifest([directory("a"), file("a/x", b"1"), file("b", b"2"), file("c", b"3")])
    over = TreeManifest([file("a", b"4"), file("b", b"5")])
    merged = over.over(below).entries
    assert list(merged) == ["a", "b", "c"]
    assert merged["a"].kind == "file"
    assert merged["b"] == file("b", b"5")


@pytest.mark.parametrize("modified_ns", [2**93, -(2**93)])
def test_a_file_of_a_far_time_crosses(modified_ns: int) -> None:
    entry = TreeEntry("a", "file", 0o644, 0, bytes(32), modified_ns)
    crossed = TreeEntry.from_wire(unpack(pack(entry.to_wire())))
    assert (crossed.is_like(entry), abs(crossed.modified_ns)) == (True, 2**62)
