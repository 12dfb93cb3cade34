"""The changed files of a tree, in the hands of a hostile program."""

import ctypes
import errno
import os
import shutil
import subprocess
import threading
import time
import traceback
from pathlib import Path

import pytest
from tests.helpers import nest
from tests.ordinary import USER

from toolcell_sandbox.kernel import inotify
from toolcell_sandbox.trees import audit, changes
from toolcell_sandbox.trees.audit import ProtectedTree
from toolcell_sandbox.trees.changes import ChangedFile, WatchedTree
from toolcell_sandbox.trees.look import Audience
from toolcell_sandbox.trees.quarantine import Quarantine

pytestmark = pytest.mark.smoke


@pytest.fixture
def tree(tmp_path: Path) -> WatchedTree:
    return begun(tmp_path)


def begun(root: Path) -> WatchedTree:
    (root / "d").mkdir()
    (root / "d" / "old.txt").write_text("one\n")
    made = WatchedTree(str(root))
    assert made.begin() == ""
    return made


@pytest.mark.parametrize(("function", "number"), [("_init", errno.EMFILE), ("_add", errno.ENOSPC)])
def test_without_a_queue_or_a_watch_each_look_lists_the_tree(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, function: str, number: int
) -> None:
    """A limit of the user holds for all programs; to reach it here would disturb them."""

    def refuse(*_arguments: object) -> int:
        ctypes.set_errno(number)
        return -1

    monkeypatch.setattr(inotify, function, refuse)
    tree = begun(tmp_path)
    assert isinstance(tree.events, inotify.NoQueue) and seen(tree) == {}
    (tmp_path / "d" / "old.txt").write_text("two\n")
    (tmp_path / "e").mkdir()
    (tmp_path / "e" / "new").touch()
    found = seen(tree)
    assert {path: change.kind for path, change in found.items()} == {"d/old.txt": "modified", "e/new": "created"}
    assert (found["d/old.txt"].before, found["d/old.txt"].after) == (b"one\n", b"two\n")
    shutil.rmtree(tmp_path / "e")
    shutil.move(tmp_path / "d", tmp_path / "f")
    assert kinds(tree) == {"e/new": "deleted", "d/old.txt": "deleted", "f/old.txt": "created"}
    for _ in range(3):
        (tmp_path / "made").mkdir()
        assert seen(tree) == {}
        (tmp_path / "made").rmdir()
        assert seen(tree) == {}
    assert len(tree.events._numbers) == len(tree.events._watched) == 2  # pyright: ignore[reportPrivateUsage]
    shutil.move(tmp_path, f"{tmp_path}.moved")
    tmp_path.mkdir()
    assert "moved or replaced" in tree.look(10).unknown and tree.is_lost


def seen(tree: WatchedTree) -> dict[str, ChangedFile]:
    found = tree.look(1_000)
    assert found.unknown == ""
    return {change.path: change for change in found.found}


def kinds(tree: WatchedTree) -> dict[str, str]:
    return {path: change.kind for path, change in seen(tree).items()}


def test_a_write_a_creation_and_a_removal_are_seen_once(tree: WatchedTree, tmp_path: Path) -> None:
    assert not tree.has_news
    (tmp_path / "d" / "old.txt").write_text("two\n")
    (tmp_path / "new").write_bytes(b"\0\1")
    assert tree.has_news
    found = seen(tree)
    assert {path: change.kind for path, change in found.items()} == {"d/old.txt": "modified", "new": "created"}
    assert (found["d/old.txt"].before, found["d/old.txt"].after) == (b"one\n", b"two\n")
    assert found["new"].digest.startswith("sha256:") and found["new"].size == 2
    assert seen(tree) == {}
    (tmp_path / "new").unlink()
    assert kinds(tree) == {"new": "deleted"}


def test_a_renamed_directory_is_followed(tree: WatchedTree, tmp_path: Path) -> None:
    (tmp_path / "d").rename(tmp_path / "e")
    assert kinds(tree) == {"d/old.txt": "deleted", "e/old.txt": "created"}
    (tmp_path / "e" / "old.txt").write_text("three\n")
    assert kinds(tree) == {"e/old.txt": "modified"}
    shutil.rmtree(tmp_path / "e")
    (tmp_path / "e").mkdir()  # it may have the same inode number
    (tmp_path / "e" / "x").touch()
    assert kinds(tree) == {"e/old.txt": "deleted", "e/x": "created"}
    (tmp_path / "e" / "y").touch()
    assert kinds(tree) == {"e/y": "created"}


def test_a_touched_file_has_not_changed_and_one_with_an_old_time_has(tree: WatchedTree, tmp_path: Path) -> None:
    file = tmp_path / "d" / "old.txt"
    times = file.stat().st_atime_ns, file.stat().st_mtime_ns
    os.utime(file)
    assert seen(tree) == {}
    file.write_text("six\n")
    os.utime(file, ns=times)
    assert kinds(tree) == {"d/old.txt": "modified"}


def test_links_pipes_sparse_files_and_odd_names_do_no_harm(tree: WatchedTree, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    os.symlink("/etc/passwd", tmp_path / "link")
    with (tmp_path / "sparse").open("wb") as file:
        file.truncate(2**40 if os.fstatvfs(file.fileno()).f_bsize else 0)
    Path(os.fsdecode(os.fsencode(tmp_path) + b"/a\n\xff")).write_text("x")
    os.link(tmp_path / "d" / "old.txt", tmp_path / "hard")
    found = seen(tree)  # to read the sparse file would take an hour
    assert found.keys() >= {"pipe", "link", "sparse", "a\n\udcff", "hard"}
    assert not found["link"].is_file and not found["pipe"].is_file
    assert found["sparse"].size == 2**40 and found["sparse"].digest == ""


def test_a_directory_that_becomes_a_link_shows_nothing_behind_it(tree: WatchedTree, tmp_path: Path) -> None:
    outside = tmp_path.with_name(f"{tmp_path.name}-outside")
    outside.mkdir()
    (outside / "secret").write_text("secret")
    shutil.rmtree(tmp_path / "d")
    os.symlink(outside, tmp_path / "d")
    found = seen(tree)
    assert {path: change.kind for path, change in found.items()} == {"d/old.txt": "deleted", "d": "created"}
    (outside / "secret").write_text("another")
    assert seen(tree) == {}


def test_a_root_that_was_replaced_is_told_whatever_its_inode_number(tree: WatchedTree, tmp_path: Path) -> None:
    away = tmp_path.with_name(f"{tmp_path.name}-away")
    tmp_path.rename(away)
    tmp_path.mkdir()
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "unseen").touch()
    tree.top.inode = tmp_path.stat().st_ino  # as if it was given the same number again
    assert "moved or replaced" in tree.look(10).unknown and tree.is_lost
    assert tree.begin() == ""
    tmp_path.rename(tmp_path.with_name(f"{tmp_path.name}-later"))
    os.symlink("/etc", tmp_path)
    assert tree.look(10).unknown and tree.is_lost and tree.begin() and tree.files == 0
    tmp_path.unlink()


def test_after_lost_events_everything_is_looked_at(
    tree: WatchedTree, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    queued = int(Path("/proc/sys/fs/inotify/max_queued_events").read_text())
    noise = tmp_path / "noise"
    for number in range(queued // 2 + 10):
        noise.rename(tmp_path / f"n{number}") if noise.exists() else (tmp_path / f"n{number}").touch()
        (tmp_path / f"n{number}").rename(noise)
    (tmp_path / "d" / "old.txt").write_text("late\n")
    (tmp_path / "d" / "sub").mkdir()
    (tmp_path / "d" / "sub" / "x").touch()
    assert kinds(tree) == {"noise": "created", "d/old.txt": "modified", "d/sub/x": "created"}
    (tmp_path / "d" / "sub" / "y").touch()
    assert kinds(tree) == {"d/sub/y": "created"}


def test_a_flood_is_bounded_and_told(tree: WatchedTree, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(changes, "MAX_CHANGES", 50)
    for number in range(60):
        (tmp_path / str(number)).touch()
    told = tree.look(10)
    assert len(told.found) == 50 and "too many files" in told.unknown
    monkeypatch.setattr(changes, "MAX_FILES", 70)
    for number in range(60, 80):
        (tmp_path / str(number)).touch()
    assert "more than 70 files" in tree.look(10).unknown and tree.is_lost
    assert "more than 70 files" in tree.begin() and tree.is_lost


def test_a_deep_tree_takes_bounded_time(tree: WatchedTree, tmp_path: Path) -> None:
    os.close(nest(tmp_path, 2_000, "deep-directory"))
    told = tree.look(10)
    subprocess.run(["rm", "-rf", tmp_path / "deep-directory"], check=True)  # too deep for shutil.rmtree
    assert told.unknown


def test_a_storm_of_renames_during_looks_leaves_the_tree_as_it_is(tree: WatchedTree, tmp_path: Path) -> None:
    end = threading.Event()

    def storm() -> None:
        number = 0
        while not end.is_set():
            number += 1
            (tmp_path / "d").rename(tmp_path / "e")
            (tmp_path / "e" / f"f{number % 5}").write_text(str(number))
            (tmp_path / "e").rename(tmp_path / "d")

    thread = threading.Thread(target=storm)
    thread.start()
    there: set[str] = {"d/old.txt"}
    try:
        for _ in range(200):
            for change in tree.look(100).found:
                (there.discard if change.kind == "deleted" else there.add)(change.path)
    finally:
        end.set()
        thread.join()
    for change in tree.look(100).found:
        (there.discard if change.kind == "deleted" else there.add)(change.path)
    assert there == {f"d/{name}" for name in os.listdir(tmp_path / "d")}


def test_it_leaves_no_descriptor(tmp_path: Path) -> None:
    before = os.listdir("/proc/self/fd")
    tree = WatchedTree(str(tmp_path))
    tree.begin()
    (tmp_path / "a").touch()
    tree.look(1)
    tree.close()
    assert os.listdir("/proc/self/fd") == before
    assert WatchedTree(str(tmp_path / "absent")).begin() != ""


def test_a_directory_that_was_closed_is_looked_at_when_it_is_opened(tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    closed.mkdir()
    (closed / "old").touch()
    closed.chmod(0)
    tree = WatchedTree(str(tmp_path))
    assert tree.begin() == ""
    closed.chmod(0o700)
    tree.look(10)
    (closed / "new").touch()
    assert kinds(tree) == {"closed/new": "created"}


def test_a_directory_that_denies_access_is_told_once_and_not_at_each_look(private_dir: Path) -> None:
    private_dir.chmod(0o777)
    (private_dir / "closed").mkdir(mode=0)
    if (child := os.fork()) == 0:
        status = 1
        try:
            if os.getuid() == 0:
                os.setresuid(USER, USER, USER)
                assert ctypes.CDLL(None).prctl(4, 1) == 0  # PR_SET_DUMPABLE, for /proc/self/fd
            tree = begun(private_dir)
            (private_dir / "new").touch()
            assert kinds(tree) == {"new": "created"}
            (private_dir / "d").chmod(0)
            (private_dir / "late").mkdir(mode=0)
            assert "late" in tree.look(10).unknown
            (private_dir / "new").write_text("more")
            assert kinds(tree) == {"new": "modified"}
            (private_dir / "d").chmod(0o700)
            (private_dir / "d" / "old.txt").write_text("two\n")
            (private_dir / "late").chmod(0o700)
            (private_dir / "late" / "file").touch()
            assert kinds(tree) == {"d/old.txt": "modified", "late/file": "created"}
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)
    assert os.waitpid(child, 0)[1] == 0


def test_what_an_audience_takes_is_not_taken_from_the_time_of_an_audit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After an overflow of the queue, changed files cost a listing of the whole tree, which an audit need not make."""

    class Slow(Audience):
        def visit(self, above: object, name: str, info: os.stat_result) -> object:
            return self

        def entry(self, place: object, each: "os.DirEntry[str]") -> bool:
            time.sleep(0.05)
            return True

    for number in range(30):
        (tmp_path / "root" / f"d{number}").mkdir(parents=True)
    guard = ProtectedTree(str(tmp_path / "root"), [".envrc"])
    before = guard.look()
    (tmp_path / "root" / ".envrc").touch()
    monkeypatch.setattr(audit, "AFTER_S", 1.0)
    audience = Slow()
    settled = guard.settle(before, Quarantine(str(tmp_path / "quarantine")), audience=audience)
    assert audience.spent_s > 1.5
    assert [finding.name for finding in settled.findings] == [".envrc"] and settled.unknown == ""
