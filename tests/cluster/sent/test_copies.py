"""A session's copy on a node, and what a hostile cell can leave in it."""

import os
import threading
from collections.abc import Callable, Iterator
from hashlib import sha256
from pathlib import Path

import pytest
from tests.helpers import nest

from toolcell.cluster.sent.blobs import BlobStore
from toolcell.cluster.sent.copies import WorkingCopy
from toolcell.cluster.sent.manifest import TreeManifest
from toolcell.cluster.sent.seat_files import NodeDirectory
from toolcell.workplaces.diff import CopyChanges
from toolcell.workplaces.exclusions import DEFAULT_EXCLUDED, Exclusions
from toolcell.workplaces.listing import TreeEntry

FILES = {"a.txt": b"one\n", "src/b.txt": b"two\n", "src/deep/c.txt": b"three\n"}


@pytest.fixture
def store(tmp_path: Path) -> BlobStore:
    return BlobStore(str(tmp_path / "store"), 1_000_000)


@pytest.fixture
def copy(tmp_path: Path, store: BlobStore) -> Iterator[WorkingCopy]:
    entries = [TreeEntry("link", "link", content=b"a.txt"), *map(directory, ("src", "src/deep"))]
    for path, raw in FILES.items():
        digest = sha256(raw).digest()
        store.put("", digest, 0, len(raw), raw)
        entries.append(TreeEntry(path, "file", 0o640, len(raw), digest, 1_000_000_000))
    made = WorkingCopy(
        str(tmp_path / "x" / "project"), TreeManifest(entries), Exclusions.of(DEFAULT_EXCLUDED), 100_000, 100
    )
    made.make(store)
    yield made
    made.remove()
    assert not (tmp_path / "x").exists()


def directory(path: str) -> TreeEntry:
    return TreeEntry(path, "directory", 0o755)


def look(copy: WorkingCopy, store: BlobStore, change: Callable[[Path], object]) -> CopyChanges:
    change(Path(copy.path))
    return copy.changes(store)


def test_a_new_copy_equals_the_sent_tree_and_has_no_changes(copy: WorkingCopy, store: BlobStore) -> None:
    top = Path(copy.path)
    assert {path: (top / path).read_bytes() for path in FILES} == FILES
    assert os.readlink(top / "link") == "a.txt"
    info = (top / "a.txt").stat()
    assert (info.st_mode & 0o777, info.st_mtime_ns, info.st_nlink) == (0o640, 1_000_000_000, 1)
    found = copy.changes(store)
    assert (found.made, found.gone, found.left_count, found.unknown) == ([], [], 0, "")


def test_a_write_to_the_copy_does_not_change_the_store(copy: WorkingCopy, store: BlobStore) -> None:
    (Path(copy.path) / "a.txt").write_bytes(b"evil")
    assert store.read(sha256(FILES["a.txt"]).digest(), 0, 100) == FILES["a.txt"]


def test_created_changed_and_deleted_entries_are_found(copy: WorkingCopy, store: BlobStore) -> None:
    def change(top: Path) -> None:
        (top / "a.txt").write_bytes(b"new content\n")
        (top / "src" / "b.txt").unlink()
        (top / "made").mkdir()
        (top / "made" / "d.txt").write_bytes(b"four\n")
        (top / "link").unlink()
        (top / "link").symlink_to("src")

    found = look(copy, store, change)
    assert [each.path for each in found.made] == ["a.txt", "link", "made", "made/d.txt"]
    assert found.gone == ["src/b.txt"]
    assert store.read(sha256(b"four\n").digest(), 0, 100) == b"four\n"


def test_a_change_that_keeps_size_and_times_is_found(copy: WorkingCopy, store: BlobStore) -> None:
    def change(top: Path) -> None:
        info = (top / "a.txt").stat()
        (top / "a.txt").write_bytes(b"ONE\n")
        os.utime(top / "a.txt", ns=(info.st_atime_ns, info.st_mtime_ns))

    assert [each.path for each in look(copy, store, change).made] == ["a.txt"]


def test_a_touched_file_is_no_change(copy: WorkingCopy, store: BlobStore) -> None:
    assert look(copy, store, lambda top: os.utime(top / "a.txt")).made == []


def test_a_file_that_becomes_a_directory_is_both(copy: WorkingCopy, store: BlobStore) -> None:
    def change(top: Path) -> None:
        (top / "a.txt").unlink()
        (top / "a.txt").mkdir()
        (top / "a.txt" / "in").touch()

    found = look(copy, store, change)
    assert [(each.path, each.kind) for each in found.made] == [("a.txt", "directory"), ("a.txt/in", "file")]


def test_a_change_that_the_driver_has_is_not_reported_again(copy: WorkingCopy, store: BlobStore) -> None:
    def change(top: Path) -> None:
        (top / "a.txt").write_bytes(b"x")
        (top / "src" / "b.txt").unlink()

    look(copy, store, change)
    copy.settle(["a.txt", "src/b.txt"])
    found = copy.changes(store)
    assert (found.made, found.gone) == ([], [])
    assert [each.path for each in look(copy, store, lambda top: (top / "a.txt").write_bytes(b"y")).made] == ["a.txt"]


def test_special_bits_and_special_files_stay_on_the_node(copy: WorkingCopy, store: BlobStore) -> None:
    def change(top: Path) -> None:
        (top / "tool").write_bytes(b"x")
        (top / "tool").chmod(0o6777)
        os.mkfifo(top / "fifo")

    found = look(copy, store, change)
    assert [(each.path, each.mode) for each in found.made] == [("tool", 0o777)]
    assert [path for path, _why in found.left_out] == ["fifo"]


def test_a_sparse_giant_is_left_out_and_the_rest_comes(copy: WorkingCopy, store: BlobStore) -> None:
    def change(top: Path) -> None:
        with (top / "giant").open("wb") as file:
            file.truncate(2**40)
        (top / "small").write_bytes(b"x")

    found = look(copy, store, change)
    assert [each.path for each in found.made] == ["small"]
    assert found.left_out == [("giant", "more than 100,000 bytes have changed")]


def test_more_files_than_the_bound_are_left_out_and_counted(copy: WorkingCopy, store: BlobStore) -> None:
    found = look(copy, store, lambda top: [(top / f"f{number}").write_bytes(b"x") for number in range(150)])
    assert len(found.made) == 100
    assert found.left_count == 50


def test_a_tree_beyond_the_bounds_of_a_scan_deletes_nothing(copy: WorkingCopy, store: BlobStore) -> None:
    def change(top: Path) -> None:
        (top / "src" / "b.txt").unlink()
        for number in range(3_000):
            (top / f"f{number}").touch()

    found = look(copy, store, change)
    assert "entries" in found.unknown
    assert found.gone == []


def test_a_deep_tree_costs_no_more_than_its_bound(copy: WorkingCopy, store: BlobStore) -> None:
    found = look(copy, store, lambda top: os.close(nest(top, 300, "d")))
    assert len(found.made) < 101
    assert ("its path is too long or too deep" in dict(found.left_out).values()) or found.left_count
    assert found.gone == []


def test_odd_names_come_back_as_they_are(copy: WorkingCopy, store: BlobStore) -> None:
    names = [b"new\nline", b"caf\xe9", "é".encode(), "é".encode(), b" ", b"-rf", b"\x1b[2J"]
    for name in names:
        os.close(os.open(os.fsencode(copy.path) + b"/" + name, os.O_CREAT | os.O_WRONLY))
    found = copy.changes(store)
    assert {os.fsencode(each.path) for each in found.made} == set(names)
    assert all(TreeEntry.from_wire(each.to_wire()) == each for each in found.made)


def test_excluded_files_of_the_node_do_not_come_back(copy: WorkingCopy, store: BlobStore) -> None:
    def change(top: Path) -> None:
        (top / "node_modules").mkdir()
        (top / "node_modules" / "x").touch()

    assert look(copy, store, change).made == []


def test_a_file_that_is_written_all_the_time_is_left_out(copy: WorkingCopy, store: BlobStore) -> None:
    stop = threading.Event()
    path = Path(copy.path) / "busy"
    path.write_bytes(b"x" * 50_000)

    def write() -> None:
        with path.open("r+b") as file:
            while not stop.is_set():
                file.seek(0)
                file.write(os.urandom(50_000))
                file.flush()

    writer = threading.Thread(target=write)
    writer.start()
    try:
        found = copy.changes(store)
    finally:
        stop.set()
        writer.join()
    taken = [each for each in found.made if each.path == "busy"]
    if taken:  # between two writes
        assert sha256(store.read(taken[0].content, 0, 100_000)).digest() == taken[0].content
    else:
        assert found.left_out == [("busy", "it changes while it is read")]


def test_a_directory_swapped_for_a_link_leads_nowhere(copy: WorkingCopy, store: BlobStore, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.mkdir()
    (secret / "b.txt").write_bytes(b"the secret of the node")
    top, stop = Path(copy.path), threading.Event()

    def swap() -> None:
        while not stop.is_set():
            os.rename(top / "src", tmp_path / "aside")
            os.symlink(secret, top / "src")
            os.unlink(top / "src")
            os.rename(tmp_path / "aside", top / "src")

    swapper = threading.Thread(target=swap)
    swapper.start()
    try:
        for _ in range(100):
            copy.changes(store)
    finally:
        stop.set()
        swapper.join()
    assert sha256(b"the secret of the node").digest() not in store


def test_two_node_supervisors_have_two_directories_and_a_later_one_takes_over(tmp_path: Path) -> None:
    first, second = NodeDirectory(str(tmp_path / "nodes")), NodeDirectory(str(tmp_path / "nodes"))
    assert first.path != second.path
    Path(first.copies, "left").mkdir()
    Path(first.store).mkdir()
    os.close(first._lock)  # as after a kill
    later = NodeDirectory(str(tmp_path / "nodes"))
    assert later.path == first.path
    assert os.listdir(later.copies) == []
    assert Path(later.store).exists()
    later.close()
    second.close()


def test_a_directory_that_others_can_access_is_not_used(tmp_path: Path) -> None:
    (tmp_path / "nodes").mkdir(mode=0o755)
    with pytest.raises(PermissionError, match="directory="):
        NodeDirectory(str(tmp_path / "nodes"))
