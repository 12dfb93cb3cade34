"""Write a hostile session's changes into a workspace that others change too."""

import os
import stat
import threading
from collections.abc import Callable, Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from toolcell.workplaces.diff import ReceivedDiff
from toolcell.workplaces.exclusions import DEFAULT_EXCLUDED, Exclusions
from toolcell.workplaces.listing import TreeEntry
from toolcell.workplaces.workspace_return import ConflictPolicy
from toolcell.workplaces.writer import ApplyReport, apply
from toolcell_sandbox.trees.judge import leads_out
from toolcell_sandbox.trees.protected import DEFAULT_PROTECTED

CONTENTS: dict[bytes, bytes] = {}


def file(path: str, content: bytes = b"", mode: int = 0o644) -> TreeEntry:
    digest = sha256(content).digest()
    CONTENTS[digest] = content
    return TreeEntry(path, "file", mode, len(content), digest)


def link(path: str, target: str) -> TreeEntry:
    return TreeEntry(path, "link", content=target.encode())


def directory(path: str) -> TreeEntry:
    return TreeEntry(path, "directory", 0o755)


def fill(entry: TreeEntry, fd: int) -> None:
    os.write(fd, CONTENTS[entry.content])


def applied(
    top: Path,
    made: list[TreeEntry],
    gone: list[str] | None = None,
    sent: list[TreeEntry] | None = None,
    policy: ConflictPolicy = "ours",
    fill: Callable[[TreeEntry, int], object] = fill,
    base: Mapping[str, TreeEntry] | None = None,
) -> ApplyReport:
    expected = {each.path: each for each in sent or []}
    diff = ReceivedDiff({each.path: each for each in made}, gone or [], expected, base or expected)
    return apply(
        str(top), diff, fill, protected=DEFAULT_PROTECTED, exclusions=Exclusions.of(DEFAULT_EXCLUDED), policy=policy
    )


def tree(top: Path) -> dict[str, Any]:
    """What is in a directory: contents, targets of links, None for directories."""
    found: dict[str, Any] = {}
    for above, directories, files in os.walk(top):
        for name in [*directories, *files]:
            path = Path(above, name)
            key = str(path.relative_to(top))
            found[key] = os.readlink(path) if path.is_symlink() else path.read_bytes() if path.is_file() else None
    return found


@pytest.fixture
def top(tmp_path: Path) -> Path:
    made = tmp_path / "top"
    made.mkdir()
    return made


def test_changes_are_written_where_nothing_else_has_changed(top: Path) -> None:
    (top / "a").write_bytes(b"1")
    (top / "b").write_bytes(b"2")
    (top / "old" / "deep").mkdir(parents=True)
    (top / "old" / "deep" / "x").write_bytes(b"3")
    sent = [file("a", b"1"), file("b", b"2"), directory("old"), directory("old/deep"), file("old/deep/x", b"3")]
    made = [file("a", b"one"), directory("new"), file("new/y", b"4", 0o755), link("new/l", "../a")]
    done = applied(top, made, ["old", "old/deep", "old/deep/x", "b"], sent)
    assert tree(top) == {"a": b"one", "new": None, "new/y": b"4", "new/l": "../a"}
    assert done.report.created == ("new/l", "new/y")
    assert done.report.changed == ("a",)
    assert done.report.deleted == ("b", "old/deep/x")
    assert not done.report.conflicts
    assert set(done.settled) == {"a", "b", "new", "new/l", "new/y", "old", "old/deep", "old/deep/x"}


def test_only_the_right_to_execute_comes_with_a_file(top: Path) -> None:
    (top / "private").write_bytes(b"1")
    (top / "private").chmod(0o600)
    applied(top, [file("private", b"2", 0o777), file("tool", b"x", 0o777)], sent=[file("private", b"1")])
    assert stat.S_IMODE((top / "private").stat().st_mode) == 0o700
    assert stat.S_IMODE((top / "tool").stat().st_mode) == 0o755


def test_a_file_that_has_changed_here_too_is_a_conflict_and_stays(top: Path) -> None:
    (top / "a").write_bytes(b"ours")
    done = applied(top, [file("a", b"theirs")], sent=[file("a", b"base")])
    (conflict,) = done.report.conflicts
    assert (top / "a").read_bytes() == b"ours"
    versions = [conflict.base, conflict.ours, conflict.theirs]
    texts = (b"base", b"ours", b"theirs")
    assert [each and each.digest for each in versions] == [f"sha256:{sha256(text).hexdigest()}" for text in texts]
    assert (conflict.path, conflict.kept, conflict.beside) == ("a", "ours", "")
    assert done.settled == ()


def test_the_policy_can_take_theirs(top: Path) -> None:
    (top / "a").write_bytes(b"ours")
    (top / "b").write_bytes(b"ours")
    done = applied(top, [file("a", b"theirs")], ["b"], [file("a", b"base"), file("b", b"base")], "theirs")
    assert tree(top) == {"a": b"theirs"}
    assert [each.kept for each in done.report.conflicts] == ["theirs", "theirs"]
    assert set(done.settled) == {"a", "b"}


def test_the_policy_can_write_theirs_beside(top: Path) -> None:
    (top / "a").write_bytes(b"ours")
    (top / "a.theirs").write_bytes(b"of earlier")
    done = applied(top, [file("a", b"theirs")], sent=[file("a", b"base")], policy="beside")
    assert tree(top) == {"a": b"ours", "a.theirs": b"of earlier", "a.theirs-2": b"theirs"}
    assert done.report.conflicts[0].beside == "a.theirs-2"


def test_a_conflict_that_is_reported_again_is_not_written_beside_again(top: Path) -> None:
    (top / "a").write_bytes(b"ours")
    for content, beside in ((b"theirs", "a.theirs"), (b"theirs", "a.theirs"), (b"more", "a.theirs-2")):
        done = applied(top, [file("a", content)], sent=[file("a", b"base")], policy="beside")
        assert done.report.conflicts[0].beside == beside
    assert sorted(each.name for each in top.iterdir()) == ["a", "a.theirs", "a.theirs-2"]


def test_a_change_that_was_made_here_too_is_no_conflict(top: Path) -> None:
    (top / "a").write_bytes(b"same")
    done = applied(top, [file("a", b"same")], ["b"], [file("a", b"base"), file("b", b"2")])
    assert not done.report
    assert set(done.settled) == {"a", "b"}


def test_a_new_file_where_somebody_has_made_one_is_a_conflict(top: Path) -> None:
    (top / "a").write_bytes(b"ours")
    (top / "fifo-like").mkdir()
    os.mkfifo(top / "fifo")
    done = applied(top, [file("a", b"theirs"), file("fifo", b"x"), file("fifo-like", b"x")], policy="theirs")
    assert {each.path: (each.ours and each.ours.kind, each.kept) for each in done.report.conflicts} == {
        "a": ("file", "theirs"),
        "fifo": ("other", "ours"),
        "fifo-like": ("directory", "theirs"),  # it was empty
    }


def test_a_deleted_directory_with_other_files_stays(top: Path) -> None:
    (top / "d").mkdir()
    (top / "d" / "mine").write_bytes(b"x")
    done = applied(top, [file("d", b"now a file")], sent=[directory("d")], policy="theirs")
    assert tree(top) == {"d": None, "d/mine": b"x"}
    assert done.report.conflicts[0].why == "the directory has other files"


def test_a_file_that_became_a_directory_and_the_reverse_are_replaced(top: Path) -> None:
    (top / "f").write_bytes(b"1")
    (top / "d").mkdir()
    (top / "d" / "x").write_bytes(b"2")
    sent = [file("f", b"1"), directory("d"), file("d/x", b"2")]
    done = applied(top, [directory("f"), file("f/in", b"3"), file("d", b"4")], ["d/x"], sent)
    assert tree(top) == {"f": None, "f/in": b"3", "d": b"4"}
    assert not done.report.conflicts


@pytest.mark.parametrize(
    "path",
    [
        ".git/hooks/pre-commit",
        ".GIT/hooks/pre-commit",
        "sub/.git/config",
        ".git",
        ".envrc",
        ".vscode/tasks.json",
        ".g\u200cit/hooks/pre-commit",
        ".mcp.json",
        "bare/hooks/post-checkout",
    ],
)
def test_a_protected_name_is_not_written(top: Path, path: str) -> None:
    parts = path.split("/")
    above = [directory("/".join(parts[:count])) for count in range(1, len(parts))]
    marks = [directory("bare"), directory("bare/objects"), directory("bare/refs")] if path.startswith("bare") else []
    done = applied(top, [*above, *marks, file(path, b"evil")])
    assert not (top / path).exists()
    assert any("protected" in each.why for each in done.report.left_out)


@pytest.mark.parametrize(
    ("path", "target", "is_out"),
    [
        ("a", "b", False),
        ("a", "b/c", False),
        ("d/a", "../b", False),
        ("a", "/etc/passwd", True),
        ("a", "../x", True),
        ("d/a", "../../x", True),
        ("d/e/a", "../../x", False),
        ("a", "b/../c", True),  # b may be a link
        ("a", "./../x", True),
        ("a", "", True),
        ("d/a", "..//..//x", True),
    ],
)
def test_a_link_that_may_lead_out_is_recognised(path: str, target: str, is_out: bool) -> None:
    assert leads_out(path, target.encode()) is is_out


def test_a_link_out_of_the_workspace_is_not_written_and_none_is_followed(top: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (top / "mine").symlink_to(outside)  # of a person
    done = applied(
        top, [link("evil", str(outside)), directory("mine"), file("mine/x", b"evil"), link(".github", "src")]
    )
    assert os.listdir(outside) == []
    assert tree(top) == {"mine": str(outside)}
    assert {each.path for each in done.report.left_out} == {"evil", "mine/x", ".github"}


@pytest.mark.parametrize("path", ["../evil", "/tmp/evil", "a/../../evil", "a\0b", ""])
def test_a_path_with_an_escape_is_not_written(top: Path, path: str) -> None:
    done = applied(top, [file(path, b"evil")], [path])
    assert not (top.parent / "evil").exists()
    assert done.report.left_out_count == 2


def test_excluded_names_are_not_written(top: Path) -> None:
    done = applied(top, [directory("node_modules"), file("node_modules/x", b"evil"), file("a.pyc", b"evil")])
    assert tree(top) == {}
    assert done.report.left_out_count == 3


def test_a_path_that_is_not_utf8_is_written_and_shown_escaped(top: Path) -> None:
    done = applied(top, [file(os.fsdecode(b"caf\xe9"), b"x")])
    assert os.listdir(os.fsencode(top)) == [b"caf\xe9"]
    assert done.report.created == ("caf\\xe9",)
    assert done.report.model_dump_json()


def test_a_file_of_the_other_directory_is_made_here_if_it_was_changed(top: Path) -> None:
    base = {"lib": file("lib", b"1"), "old": file("old", b"2")}
    done = applied(top, [file("lib", b"changed")], ["old"], base=base)
    assert tree(top) == {"lib": b"changed"}
    assert (done.report.changed, done.report.deleted) == (("lib",), ("old",))


def test_an_editor_that_writes_between_the_read_and_the_write_wins(top: Path) -> None:
    (top / "a").write_bytes(b"base")

    def edit_then_fill(entry: TreeEntry, fd: int) -> None:
        (top / "new").write_bytes(b"of the editor")
        os.rename(top / "new", top / "a")
        fill(entry, fd)

    done = applied(top, [file("a", b"theirs")], sent=[file("a", b"base")], fill=edit_then_fill)
    assert tree(top) == {"a": b"of the editor"}
    assert [each.path for each in done.report.conflicts] == ["a"]


def test_a_content_that_is_too_short_is_not_written(top: Path) -> None:
    (top / "a").write_bytes(b"base")
    done = applied(top, [file("a", b"theirs")], sent=[file("a", b"base")], fill=lambda entry, fd: os.write(fd, b"th"))
    assert tree(top) == {"a": b"base"}
    assert done.report.left_out_count == 1


def test_a_directory_that_is_swapped_for_a_link_meanwhile_leads_nowhere(top: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (top / "d").mkdir()
    stop = threading.Event()

    def swap() -> None:
        while not stop.is_set():
            os.rename(top / "d", tmp_path / "aside")
            os.symlink(outside, top / "d")
            os.unlink(top / "d")
            os.rename(tmp_path / "aside", top / "d")

    swapper = threading.Thread(target=swap)
    swapper.start()
    try:
        for number in range(200):
            applied(top, [file(f"d/{number}", b"x")], sent=[directory("d")])
    finally:
        stop.set()
        swapper.join()
    assert os.listdir(outside) == []
