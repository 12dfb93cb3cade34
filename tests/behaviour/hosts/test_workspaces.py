"""Places of a workspace, and the removal of a workspace, for root and for an ordinary user."""

import os
from pathlib import Path

import pytest

from .conftest import HERE, PYTHON, USER, Found, assert_works, command_on, told

ROOT = os.geteuid() == 0
WORKING = [
    "with space",
    "ünïcødé 目录",
    "new\nline",
    "quo'te\"$x`",
    "-dash",
    "a:b,c\\d",
    "tab\t",
    "below /tmp",
    "long",
    "link",
    "moved",
    "made again",
    "replaced",
    "cwd deleted",
]
MOUNTED = ["tmpfs", "noexec", "overlay", "mount within"]
REFUSED = {
    "not UTF-8": "The workspace is not UTF-8",
    "/": "The workspace cannot be '/': a cell has its own. Pass a directory elsewhere.",
    "/tmp": "The workspace cannot be '/tmp'",
    "/proc": "The workspace cannot be '/proc'",
    "/proc/nothing": "The workspace cannot be made: '/proc/nothing': No such file or directory. Pass one that",
    "/sys": "The workspace cannot be '/sys'",
    "/dev": "The workspace cannot be '/dev'",
    "/dev/shm": "The workspace cannot be '/dev/shm'",
    "a file": "The workspace is not a directory",
    "nowhere": "Pass one that exists, or a new name in one.",
    "cwd deleted, relative": "relative to a directory that was deleted: 'relative'. Pass an absolute path.",
}


@pytest.fixture(scope="module", params=["user", pytest.param("root", marks=pytest.mark.root)] if ROOT else ["user"])
def found(request: pytest.FixtureRequest, open_directory: Path) -> Found:
    """The findings of workspaces.py for that user, on file systems that only root can mount."""
    base = open_directory / f"for-{request.param}"
    base.mkdir()
    user = request.param == "user"
    if ROOT and user:
        os.chown(base, USER, USER)
    steps = f"file_systems={base}" if ROOT else ""
    return told(command_on(steps, [*PYTHON, str(HERE / "workspaces.py"), str(base)], user=user))


@pytest.mark.parametrize("name", WORKING)
def test_a_workspace_works(name: str, found: Found) -> None:
    assert_works(found[name])


@pytest.mark.root
@pytest.mark.parametrize("name", MOUNTED)
def test_a_workspace_on_another_file_system_works(name: str, found: Found) -> None:
    assert_works(found[name])


@pytest.mark.root
def test_a_result_says_whether_this_cell_had_id_mapped_mounts(found: Found, request: pytest.FixtureRequest) -> None:
    mapped = found["idmapped_mounts"]
    as_root = "root" in request.node.callspec.id
    assert [mapped[name] for name in ("tmpfs", "with space", "overlay")] == [as_root, as_root, False]


@pytest.mark.root
def test_on_a_read_only_mount_reading_works_and_writing_is_an_error(found: Found) -> None:
    tried = found["read-only"]
    assert tried["read"] == "1\thello"
    assert tried["save"]["kind"] == "execution" and "read-only" in tried["save"]["message"]
    assert "Read-only file system" in tried["shell"]["stderr"]


@pytest.mark.parametrize(("name", "reason"), REFUSED.items())
def test_a_workspace_is_refused_with_what_to_do(name: str, reason: str, found: Found) -> None:
    assert found[name].startswith("UsageError: ") and reason in found[name], found[name]


def test_a_removed_workspace_is_an_error_that_names_it(found: Found) -> None:
    assert "does not exist" in found["removed"] and "/moved. Create it" in found["removed"]
    assert found["in the new one"] == ["a.txt", "b.txt"]


@pytest.mark.root
@pytest.mark.parametrize("found", ["root"], indirect=True)
def test_in_root_s_sessions_files_get_the_owner_of_their_workspace(found: Found) -> None:
    assert_works(found["another user's"])
    assert found["owner"] == 4242
