"""How write, edit and apply_patch treat the files that they change: line ends, encodings, modes, links; all or none."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.ordinary import AS_USER, USER

from toolcell import Limits, Profile, Session, Supervisor, base_tools, coding_tools

ROOT = Path(__file__).resolve().parents[3]
pytestmark = [pytest.mark.anyio, pytest.mark.few_on_trio]
TOOLS = [*base_tools(), *coding_tools()]
CRLF = b"import a\r\nimport c\r\n"
MIXED = b"a\nb\nzz\na\r\nb\r\n"
UPDATE = "*** Update File: {}\n@@\n-a\n+b\n"
CHANGES: list[tuple[str, dict[str, str]]] = [
    ("write", {"path": "f", "content": "b\n"}),
    ("edit", {"path": "f", "old_text": "a", "new_text": "b"}),
    ("apply_patch", {"patch": f"*** Begin Patch\n{UPDATE.format('f')}*** End Patch"}),
    ("apply_patch", {"patch": "diff --git a/f b/f\n--- a/f\n+++ b/f\n@@ -1 +1 @@\n-a\n+b\n"}),
]


def content_of(root: Path) -> dict[str, bytes | None]:
    return {str(path.relative_to(root)): path.read_bytes() if path.is_file() else None for path in root.rglob("*")}


@pytest.mark.parametrize(
    ("before", "arguments", "after"),
    [
        (CRLF, {"old_text": "import a", "new_text": "import a\nimport b"}, b"import a\r\nimport b\r\nimport c\r\n"),
        (b"x\r\nx\r\n", {"old_text": "x", "new_text": "x\ny", "replace_all": True}, b"x\r\ny\r\nx\r\ny\r\n"),
        (CRLF, {"old_text": "import a\nimport c\n", "new_text": "import d\n"}, b"import d\r\n"),
        (CRLF, {"old_text": "import a\r\n", "new_text": "import a\n"}, b"import a\nimport c\r\n"),
        (MIXED, {"old_text": "a\nb", "new_text": "X"}, None),
        (MIXED, {"old_text": "a\nb", "new_text": "X", "replace_all": True}, b"X\nzz\nX\r\n"),
        (MIXED, {"old_text": "zz\na\nb", "new_text": "zz\nnew\na\nb\nc"}, b"a\nb\nzz\nnew\na\r\nb\r\nc\r\n"),
        (b"a\nb\nc\r\n", {"old_text": "a", "new_text": "a\na2"}, b"a\na2\nb\nc\r\n"),
        (b"a\r\nb", {"old_text": "b", "new_text": "b\nc"}, b"a\r\nb\r\nc"),
        (b"a\nb", {"old_text": "a\r\nb", "new_text": "a\r\nc"}, b"a\nc"),
        (b"\xef\xbb\xbfa\nb\n", {"old_text": "a", "new_text": "c"}, b"\xef\xbb\xbfc\nb\n"),
        (b"caf\xe9\nplain\n", {"old_text": "plain", "new_text": "x"}, b"caf\xe9\nx\n"),
        (b"caf\xe9\nplain\n", {"old_text": "plain", "new_text": "\xe9"}, None),
        ("a\n".encode("utf-16"), {"old_text": "a", "new_text": "b"}, None),
    ],
)
async def test_an_edit_changes_what_it_names_and_no_other_byte(
    main: Session, workspace: Path, before: bytes, arguments: dict[str, Any], after: bytes | None
) -> None:
    (workspace / "f").write_bytes(before)
    result = await main.call("edit", {"path": "f", **arguments})
    assert ((workspace / "f").read_bytes(), result.is_error) == (after or before, after is None), result.error


@pytest.mark.parametrize(("tool", "arguments"), CHANGES)
async def test_a_changed_file_keeps_its_mode_and_attributes_and_what_would_be_lost_is_refused(
    main: Session, workspace: Path, tool: str, arguments: dict[str, Any]
) -> None:
    file = workspace / "f"
    file.write_text("a\n")
    file.chmod(0o751)
    os.setxattr(file, "user.kept", b"value")
    assert (await main.call(tool, arguments)).error is None
    assert (file.read_text(), file.stat().st_mode & 0o7777, os.getxattr(file, "user.kept")) == ("b\n", 0o751, b"value")
    file.write_text("a\n")
    os.link(file, workspace / "other")
    linked = await main.call(tool, arguments)
    assert linked.error is not None and "'f' is a hard link: its file has 2 names" in linked.error.message
    (workspace / "other").unlink()
    file.chmod(0o444)
    read_only = await main.call(tool, arguments)
    assert read_only.error is not None and "'f' is read-only for this call (mode 444)" in read_only.error.message
    assert content_of(workspace) == {"f": b"a\n"}


@pytest.mark.parametrize("new", ["g", "f/g"])
async def test_a_moved_file_takes_its_mode_and_attributes_with_it(main: Session, workspace: Path, new: str) -> None:
    (workspace / "f").write_text("a\n")
    (workspace / "f").chmod(0o750)
    os.setxattr(workspace / "f", "user.kept", b"value")
    patch = f"*** Begin Patch\n*** Update File: f\n*** Move to: {new}\n@@\n-a\n+b\n*** End Patch"
    assert (await main.call("apply_patch", {"patch": patch})).error is None
    moved = workspace / new
    assert (moved.stat().st_mode & 0o777, os.getxattr(moved, "user.kept")) == (0o750, b"value")
    assert {name: data for name, data in content_of(workspace).items() if data is not None} == {new: b"b\n"}


@pytest.mark.parametrize(
    ("third", "why"),
    [
        ("*** Update File: 3\n@@\n-a\n" + f"+{'x' * 999}\n" * 300, "larger than this call may write"),
        (UPDATE.format("closed/4"), "'closed/4': permission denied"),
        ("*** Delete File: closed/4\n", "'closed/4': permission denied"),
        ("*** Add File: new/deep/er\n+x\n*** Delete File: closed/4\n", "'closed/4': permission denied"),
        ("*** Delete File: 3\n*** Add File: 3/x\n+x\n*** Delete File: closed/4\n", "'closed/4': permission denied"),
        ("*** Add File: 1/x\n+x\n", "a part of the path is a file"),
        ("*** Update File: none\n@@\n-a\n+b\n", "no such file"),
    ],
)
async def test_a_patch_that_fails_at_its_third_file_changes_none(
    shared: Supervisor, workspace: Path, third: str, why: str
) -> None:
    for name in ("1", "2", "3", "closed/4"):
        (workspace / name).parent.mkdir(exist_ok=True)
        (workspace / name).write_text("a\n")
    (workspace / "closed").chmod(0o555)
    before = content_of(workspace)
    profile = Profile.for_kind("main").replace(limits=Limits(file_bytes=100_000))
    session = await shared.open_session("main", workspace=workspace, profile=profile)
    patch = f"*** Begin Patch\n{UPDATE.format('1')}{UPDATE.format('2')}{third}*** End Patch"
    result = await session.call("apply_patch", {"patch": patch})
    (workspace / "closed").chmod(0o755)
    await session.close()
    assert result.error is not None and why in result.error.message and "No file was changed." in result.error.message
    assert content_of(workspace) == before


async def test_the_preview_of_a_diff_shows_new_names_and_modes(main: Session, workspace: Path) -> None:
    (workspace / "f").write_text("a\n")
    patch = "diff --git a/f b/g\nold mode 100644\nnew mode 100755\nsimilarity index 100%\nrename from f\nrename to g\n"
    result = await main.call("apply_patch", {"patch": patch})
    assert result.output == {
        "changes": [{"path": "g", "action": "created", "moved_from": "f"}],
        "diff": "rename from f\nrename to g\nnew mode 100755",
    }
    assert os.access(workspace / "g", os.X_OK) and not (workspace / "f").exists()


async def test_read_says_what_it_cannot_show(main: Session, workspace: Path) -> None:
    (workspace / "utf16").write_bytes("a\n".encode("utf-16"))
    (workspace / "latin1").write_bytes(b"caf\xe9\r\r\nb\r")
    refused = await main.call("read", {"path": "utf16"})
    assert refused.error is not None and "is UTF-16 text" in refused.error.message
    shown = (await main.call("read", {"path": "latin1"})).unwrap()
    assert shown["content"] == "1\tcaf\ufffd\r\n2\tb\r" and "a byte that is not UTF-8" in shown["note"]


async def test_a_patch_of_git_made_by_git_is_applied_as_git_does(main: Session, workspace: Path) -> None:
    """A mail of format-patch, with two commits' worth of prose around its diff."""
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@example.org"]
    for arguments in (["init", "--quiet"], ["commit", "--quiet", "--allow-empty", "-m", "first"]):
        subprocess.run([*git, *arguments], cwd=workspace, check=True)
    (workspace / "f").write_bytes(b"-- a\r\n++ b\n@@ c\nd")
    subprocess.run([*git, "add", "f"], cwd=workspace, check=True)
    subprocess.run([*git, "commit", "--quiet", "-m", "second\n\n- a list\n+ of things"], cwd=workspace, check=True)
    mail = subprocess.run([*git, "format-patch", "--stdout", "HEAD~1"], cwd=workspace, check=True, capture_output=True)
    (workspace / "f").rename(workspace / "expected")
    assert (await main.call("apply_patch", {"patch": mail.stdout.decode()})).error is None
    assert (workspace / "f").read_bytes() == (workspace / "expected").read_bytes()


async def test_a_binary_file_is_deleted_and_moved_and_its_bytes_are_not_shown(main: Session, workspace: Path) -> None:
    (workspace / "a.bin").write_bytes(b"\0a")
    (workspace / "b.bin").write_bytes(b"\0b")
    patch = "*** Begin Patch\n*** Delete File: a.bin\n*** Update File: b.bin\n*** Move to: c.bin\n*** End Patch"
    shown = (await main.call("apply_patch", {"patch": patch})).unwrap()["diff"]
    assert shown == "Binary file a.bin\nrename from b.bin\nrename to c.bin"
    assert content_of(workspace) == {"c.bin": b"\0b"}


REPLACE = """
import os, sys
from toolcell.blocking import Supervisor
from toolcell_tools import base_tools
with Supervisor(base_tools(), allow_missing={"cgroup"}) as supervisor:
    session = supervisor.open_session("main", workspace=sys.argv[1])
    print(session.call("write", {"path": "f", "content": "b"}).error, open(sys.argv[1] + "/f").read())
"""


@pytest.mark.root
def test_a_file_of_another_user_is_replaced_by_who_may_write_its_directory(tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o777)
    (shared / "f").write_text("a")
    (shared / "f").chmod(0o644)
    paths = [sys.prefix, os.path.realpath(sys.base_prefix), str(ROOT), str(shared)]
    command = [sys.executable, "-I", str(AS_USER), str(USER), *paths, "--", sys.executable, "-c", REPLACE, str(shared)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, cwd="/")
    assert (done.stdout, done.returncode) == ("None b\n", 0), done.stderr


@pytest.mark.parametrize(("name", "arguments"), CHANGES)
async def test_a_changed_file_has_no_set_id_bits(workspace: Path, name: str, arguments: dict[str, str]) -> None:
    """As after any write to it (inode(7)): new content runs with no other user's rights. A cell could not set them."""
    file = workspace / "f"
    file.write_text("a\n")
    file.chmod(0o6755)
    async with Supervisor(TOOLS) as supervisor:
        session = await supervisor.open_session("main", workspace=workspace)
        assert (await session.call(name, arguments)).error is None
    assert (file.read_text(), file.stat().st_mode & 0o7777) == ("b\n", 0o755)
