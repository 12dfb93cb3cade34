"""The workspace handles, on a real directory."""

import os
import pickle
import stat
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from toolcell_tools import (
    Artifact,
    DeniedWorkspace,
    Entry,
    MissingCapability,
    ProtectedName,
    ToolFailure,
    WorkspaceReader,
    WorkspaceWriter,
)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    inside = tmp_path / "work"
    inside.mkdir()
    (tmp_path / "secret.txt").write_text("secret")
    (inside / "a.txt").write_text("one\ntwo\n")
    (inside / "out").symlink_to(tmp_path)
    (inside / "in").symlink_to("a.txt")
    return inside


@pytest.fixture
def reader(root: Path) -> WorkspaceReader:
    return WorkspaceReader(root)


@pytest.fixture
def writer(root: Path) -> WorkspaceWriter:
    return WorkspaceWriter(root)


OUTSIDE = ["../secret.txt", "/etc/passwd", "out/secret.txt", "out", "x/../../secret.txt", "/", ".."]


@pytest.mark.parametrize("path", OUTSIDE)
def test_a_path_that_leads_outside_is_refused(reader: WorkspaceReader, writer: WorkspaceWriter, path: str) -> None:
    for attempt in (
        lambda: reader.read_text(path),
        lambda: reader.exists(path),
        lambda: reader.list(path),
        lambda: writer.write_text(path, "x"),
        lambda: writer.mkdir(path),
    ):
        with pytest.raises(ToolFailure, match="is outside the workspace; use a path relative"):
            attempt()


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("a\0b", "contains a NUL"),
        ("x" * 256, "too long: at most 4,095 bytes in all and 255 in each name"),
        ("x/" * 2500, "too long"),
        ("\ud800", "not valid Unicode"),
    ],
)
def test_a_path_that_is_none_is_refused(
    reader: WorkspaceReader, writer: WorkspaceWriter, path: str, message: str
) -> None:
    for attempt in (lambda: reader.read_bytes(path), lambda: writer.write_text(path, "x")):
        with pytest.raises(ToolFailure, match=message):
            attempt()


def test_paths_inside_may_be_absolute_or_go_up_and_down(reader: WorkspaceReader, root: Path) -> None:
    for path in ("a.txt", root / "a.txt", str(root / "a.txt"), "./a.txt", "x/../a.txt", "in"):
        assert reader.read_text(path) == "one\ntwo\n"
    assert reader.resolve("in") == root / "a.txt"


def test_the_root_itself_may_be_a_symlink(root: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(root)
    reader = WorkspaceReader(tmp_path / "link")
    assert reader.read_text("a.txt") == reader.read_text(tmp_path / "link" / "a.txt") == "one\ntwo\n"


def test_what_cannot_be_read_is_said_without_paths_of_the_machine(reader: WorkspaceReader, root: Path) -> None:
    os.mkfifo(root / "fifo")
    (root / "loop").symlink_to("loop")
    (root / "latin").write_bytes(b"ab\xe9")
    for path, message in {
        "none": "'none': no such file or directory",
        ".": "'.' is a directory; name a file",
        "fifo": "'fifo' is not a regular file",
        "loop": "'loop': ",
        "a.txt/b": "'a.txt/b': a part of the path is a file",
        "latin": r"'latin' is not UTF-8 text \(byte 2\)",
    }.items():
        with pytest.raises(ToolFailure, match=message) as caught:
            reader.read_text(path)
        assert str(root) not in str(caught.value)


def test_listing_and_globbing_name_what_is_inside(reader: WorkspaceReader, root: Path) -> None:
    (root / "d" / "e").mkdir(parents=True)
    (root / "d" / "e" / "b.txt").write_text("")
    assert reader.list() == [
        Entry("a.txt", "file", 8),
        Entry("d", "directory"),
        Entry("in", "link"),
        Entry("out", "link"),
    ]
    assert reader.list("d/e") == [Entry("d/e/b.txt", "file", 0)]
    assert reader.glob("**/*.txt") == ["a.txt", "d/e/b.txt"]
    assert "out/secret.txt" not in reader.glob("out/*")
    assert (reader.exists("d"), reader.exists("x")) == (True, False)


@pytest.mark.parametrize("pattern", ["/etc/*", "../*", "", "a/../../*", "a\0"])
def test_a_pattern_that_is_none_is_refused(reader: WorkspaceReader, pattern: str) -> None:
    with pytest.raises(ToolFailure, match="is not a pattern below the workspace root"):
        reader.glob(pattern)


def test_without_read_every_method_says_so(root: Path) -> None:
    denied = DeniedWorkspace(root)
    attempts: list[Any] = [
        lambda: denied.read_text("a.txt"),
        lambda: denied.read_bytes("a.txt"),
        lambda: denied.open("a.txt"),
        lambda: denied.resolve("a.txt"),
        lambda: denied.exists("a.txt"),
        denied.list,
        lambda: denied.glob("*"),
    ]
    for attempt in attempts:
        with pytest.raises(MissingCapability, match=r"Add needs=\{Capability\.READ\} to the tool"):
            attempt()


def test_writing_makes_directories_and_records_what_it_made(writer: WorkspaceWriter, root: Path) -> None:
    artifact = writer.write_text("new/deep/b.txt", "hé")
    assert (root / "new" / "deep" / "b.txt").read_bytes() == b"h\xc3\xa9"
    assert (artifact.path, artifact.kind, artifact.size) == ("new/deep/b.txt", "created", 3)
    assert artifact.digest == "sha256:" + sha256("hé".encode()).hexdigest()
    assert writer.artifacts == [artifact]


def test_writing_over_a_file_keeps_its_mode_and_leaves_no_temporary_file(writer: WorkspaceWriter, root: Path) -> None:
    (root / "a.txt").chmod(0o751)
    before = (root / "a.txt").stat().st_ino
    assert writer.write_bytes("a.txt", b"new").kind == "modified"
    status = (root / "a.txt").stat()
    assert (stat.S_IMODE(status.st_mode), status.st_ino != before) == (0o751, True)
    assert sorted(os.listdir(root)) == ["a.txt", "in", "out"]


def test_a_new_file_has_the_mode_that_the_umask_gives(writer: WorkspaceWriter, root: Path) -> None:
    old = os.umask(0o027)
    try:
        writer.write_text("b", "")
    finally:
        os.umask(old)
    assert stat.S_IMODE((root / "b").stat().st_mode) == 0o640


def test_writing_through_a_link_inside_changes_its_target(writer: WorkspaceWriter, root: Path) -> None:
    assert writer.write_text("in", "new").path == "a.txt"
    assert (root / "in").is_symlink()
    assert (root / "a.txt").read_text() == "new"


def test_a_dangling_link_that_leads_out_is_not_followed(writer: WorkspaceWriter, root: Path, tmp_path: Path) -> None:
    (root / "dangling").symlink_to(tmp_path / "new.txt")
    with pytest.raises(ToolFailure, match="outside the workspace"):
        writer.write_text("dangling", "x")
    assert not (tmp_path / "new.txt").exists()


def test_only_regular_files_are_written(writer: WorkspaceWriter, root: Path) -> None:
    os.mkfifo(root / "fifo")
    for path, message in {
        "fifo": "is not a regular file",
        ".": "is a directory; name a file",
        "new/": "is a directory; name a file",
        "a.txt/b": "a part of the path is a file",
    }.items():
        with pytest.raises(ToolFailure, match=message):
            writer.write_text(path, "x")
    with pytest.raises(ToolFailure, match="lone surrogate at character 1"):
        writer.write_text("b", "a\ud800")
    assert writer.artifacts == []


def test_moving_and_removing_are_recorded(writer: WorkspaceWriter, root: Path) -> None:
    writer.replace("a.txt", "d/b.txt")
    assert (root / "d" / "b.txt").read_text() == "one\ntwo\n"
    assert [(one.path, one.kind) for one in writer.artifacts] == [("a.txt", "deleted"), ("d/b.txt", "created")]
    writer.unlink("d/b.txt")
    assert [(one.path, one.kind) for one in writer.artifacts] == [("a.txt", "deleted")]
    writer.write_text("a.txt", "")
    assert [(one.path, one.kind) for one in writer.artifacts] == [("a.txt", "modified")]


def test_removing_a_link_removes_the_link(writer: WorkspaceWriter, root: Path, tmp_path: Path) -> None:
    writer.unlink("out")
    writer.unlink("in")
    assert (root / "a.txt").exists()
    assert (tmp_path / "secret.txt").exists()
    for path, message in {".": "is a directory", "none": "no such file", "out/../../secret.txt": "outside"}.items():
        with pytest.raises(ToolFailure, match=message):
            writer.unlink(path)


def test_many_writes_of_one_file_are_one_artifact(writer: WorkspaceWriter) -> None:
    for text in ("a", "ab", "abc"):
        writer.write_text("new.txt", text)
    assert [(one.kind, one.size) for one in writer.artifacts] == [("created", 3)]
    assert isinstance(writer.artifacts[0], Artifact)


def test_a_directory_is_made_with_those_above_it(writer: WorkspaceWriter, root: Path) -> None:
    writer.mkdir("x/y")
    writer.mkdir("x/y")
    assert (root / "x" / "y").is_dir()
    with pytest.raises(ToolFailure, match="is a file, not a directory"):
        writer.mkdir("a.txt")


def test_a_writer_refuses_what_its_policy_has_a_name_for_before_it_touches_anything(root: Path) -> None:
    asked: list[tuple[str, bool]] = []

    def protects(path: str, directory: bool) -> str:
        asked.append((os.path.relpath(path, root), directory))
        return "the name" if "kept" in path else ""

    writer = WorkspaceWriter(root, protects)
    (root / "kept").mkdir()
    (root / "link").symlink_to("kept")
    (root / "kept" / "file").write_text("old")
    before = sorted(root.rglob("*"))
    for refused in (
        lambda: writer.write_text("kept/file", "new"),
        lambda: writer.write_bytes("link/file", b"new"),
        lambda: writer.replace("a.txt", "kept/a.txt"),
        lambda: writer.replace("kept/file", "a.txt"),
        lambda: writer.unlink("kept/file"),
        lambda: writer.mkdir("kept/deep/er"),
        lambda: writer.check("kept/new"),
    ):
        with pytest.raises(ProtectedName, match="protected by the name 'the name'") as caught:
            refused()
        assert pickle.loads(pickle.dumps(caught.value)).name == "the name"
    assert sorted(root.rglob("*")) == before and (root / "kept" / "file").read_text() == "old"
    assert ("kept/deep/er", True) in asked and ("kept/new", False) in asked
    writer.write_text("b.txt", "fine")
    WorkspaceWriter(root).write_text("kept/file", "new")


def test_a_protected_name_that_links_to_an_ordinary_directory_is_protected_as_it_is_written(root: Path) -> None:
    def protects(path: str, directory: bool) -> str:
        return ".vscode" if ".vscode" in Path(path).parts else ""

    writer = WorkspaceWriter(root, protects)
    (root / "plain").mkdir()
    (root / "plain" / "old").write_text("old")
    (root / ".vscode").symlink_to("plain")
    for refused in (
        lambda: writer.write_text(".vscode/tasks.json", "{}"),
        lambda: writer.write_text("plain/../.vscode/tasks.json", "{}"),
        lambda: writer.replace("a.txt", ".vscode/tasks.json"),
        lambda: writer.replace(".vscode/old", "old"),
        lambda: writer.unlink(".vscode/old"),
        lambda: writer.mkdir(".vscode/new"),
        lambda: writer.check(".vscode/tasks.json"),
    ):
        with pytest.raises(ProtectedName):
            refused()
    assert [file.name for file in (root / "plain").iterdir()] == ["old"]
    writer.write_text("plain/tasks.json", "fine")
