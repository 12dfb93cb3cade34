"""Read a workspace that will be sent: hostile trees, bounds, and what is left out."""

import os
import socket
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from toolcell.cluster import SentWorkspaces, WorkspaceTooLarge
from toolcell.cluster.sent.sender import ContentPlace, StaleSource, packs_of
from toolcell.cluster.sent.source_tree import SourceTree, read_source
from toolcell.workplaces.listing import DigestCache


def read(path: Path, cache: DigestCache | None = None, **options: Any) -> SourceTree:
    return read_source(str(path), SentWorkspaces(**options), DigestCache() if cache is None else cache)


def test_files_directories_and_links_are_read_and_no_link_is_followed(tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "a.py").write_text("a")
    (tmp_path / "out").symlink_to("/etc")
    (tmp_path / "run").write_text("x")
    (tmp_path / "run").chmod(0o4755)
    entries = read(tmp_path).manifest.entries
    assert {path: each.kind for path, each in entries.items()} == {
        "out": "link",
        "run": "file",
        "src": "directory",
        "src/a.py": "file",
    }
    assert entries["out"].content == b"/etc"
    assert entries["run"].mode == 0o755


def test_special_files_are_left_out_and_named(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "socket"))
        found = read(tmp_path)
    assert not found.manifest.entries
    assert sorted(path for path, _why in found.left_out) == ["fifo", "socket"]


def test_a_directory_that_becomes_a_link_while_it_is_read_leads_nowhere(tmp_path: Path) -> None:
    secret, tree = tmp_path / "secret", tmp_path / "tree"
    secret.mkdir()
    (secret / "key").write_text("secret")
    (tree / "dir").mkdir(parents=True)
    (tree / "dir" / "key").write_text("mine")
    stop = threading.Event()

    def swap() -> None:
        while not stop.is_set():
            os.rename(tree / "dir", tmp_path / "aside")
            os.symlink(secret, tree / "dir")
            os.unlink(tree / "dir")
            os.rename(tmp_path / "aside", tree / "dir")

    swapper = threading.Thread(target=swap)
    swapper.start()
    try:
        found = [read(tree).manifest.entries for _ in range(100)]
    finally:
        stop.set()
        swapper.join()
    contents = {each["dir/key"].size for each in found if "dir/key" in each}
    assert contents <= {4}


def test_a_workspace_over_the_bounds_is_refused_with_its_biggest_parts(tmp_path: Path) -> None:
    (tmp_path / "data" / "raw").mkdir(parents=True)
    (tmp_path / "data" / "raw" / "a.bin").write_bytes(b"x" * 9_000)
    (tmp_path / "data" / "raw" / "b.bin").write_bytes(b"x" * 9_000)
    (tmp_path / "small.txt").write_text("x")
    with pytest.raises(WorkspaceTooLarge, match=r"18\.0 kB in 5 entries, more than max_bytes=10,000\.") as caught:
        read(tmp_path, max_bytes=10_000)
    assert caught.value.parts[0] == ("data/raw", 18_000, 3)
    assert "exclude=['/data/raw']" in str(caught.value)
    assert len(read(tmp_path, max_bytes=10_000, exclude=["/data/raw"]).manifest.entries) == 2


def test_too_many_files_are_refused_with_the_directory_that_has_most(tmp_path: Path) -> None:
    (tmp_path / "many").mkdir()
    for number in range(30):
        (tmp_path / "many" / str(number)).touch()
    with pytest.raises(WorkspaceTooLarge, match="max_files=20") as caught:
        read(tmp_path, max_files=20)
    assert caught.value.parts[0] == ("many", 0, 31)


def test_a_sparse_giant_is_refused_without_being_read(tmp_path: Path) -> None:
    with (tmp_path / "giant").open("wb") as file:
        file.truncate(2**40)
    with pytest.raises(WorkspaceTooLarge, match=r"1099\.5 GB"):
        read(tmp_path)


def test_a_tree_that_is_too_deep_is_refused(tmp_path: Path) -> None:
    (tmp_path / "/".join("d" * 12)).mkdir(parents=True)
    with pytest.raises(WorkspaceTooLarge, match="max_depth"):
        read(tmp_path, max_depth=10)


def test_defaults_and_a_gitignore_keep_files_here(tmp_path: Path) -> None:
    for path in (".venv/bin", "node_modules/x", "src/__pycache__", "src/build", ".toolcell/outputs"):
        (tmp_path / path).mkdir(parents=True)
        (tmp_path / path / "file").touch()
    (tmp_path / ".gitignore").write_text("*.log\n")
    (tmp_path / "src" / ".gitignore").write_text("build/\n!keep.log\n")
    (tmp_path / "a.log").touch()
    (tmp_path / "src" / "keep.log").touch()
    assert "src/build/file" in read(tmp_path).manifest.entries
    assert "a.log" in read(tmp_path).manifest.entries
    entries = set(read(tmp_path, gitignore=True).manifest.entries)
    assert entries == {".gitignore", "src", "src/.gitignore", "src/keep.log"}


def test_an_unchanged_file_is_not_read_again(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("a")
    os.utime(tmp_path / "a", (1, 1))
    cache = DigestCache()
    first = read(tmp_path, cache)
    assert len(cache) == 0  # its change time is too fresh
    time.sleep(0.03)
    assert read(tmp_path, cache).manifest.digest == first.manifest.digest
    assert len(cache) == 1
    (tmp_path / "a").write_text("b")
    assert read(tmp_path, cache).manifest.digest != first.manifest.digest


def test_a_file_that_has_changed_since_is_noticed_before_it_is_sent(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("as it was")
    tree = read(tmp_path)
    (place,) = [ContentPlace(digest, b"", tree.root, path) for digest, path in tree.places.items()]
    assert len(list(packs_of([place]))) == 1
    (tmp_path / "a").write_text("otherwise")
    with pytest.raises(StaleSource):
        list(packs_of([place]))
    (tmp_path / "a").unlink()
    (tmp_path / "a").symlink_to("/etc/passwd")
    with pytest.raises(StaleSource):
        list(packs_of([place]))
