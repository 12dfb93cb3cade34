"""Renaming and linking across directories, as common programs do. No move gains a right or a protected name."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.ordinary import USER

from toolcell_sandbox import CellProfile

MOVES = """
import ctypes, errno, json, os
from toolcell_sandbox.kernel.syscalls import attempt
from toolcell_sandbox.mechanisms import landlock
def tried(action, *arguments):
    try:
        action(*arguments)
    except OSError as error:
        return errno.errorcode[error.errno]
    return "ok"
def write(path, text="x"):
    open(path, "w").write(text)
def exchange(one, other):
    result = attempt("renameat2", -100, one, -100, other, 2)
    if result < 0:
        raise OSError(-result, one)
def in_a_call_process(action):
    take, give = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            for step in landlock.call_layer():
                step()
            os.write(give, json.dumps(action()).encode())
        finally:
            os._exit(0)
    os.close(give)
    os.waitpid(child, 0)
    print(os.read(take, 65536).decode())
def moves(at):
    os.makedirs(at + "/a/inner"); os.makedirs(at + "/b/other"); os.makedirs(at + "/c")
    for name in ("a/file", "a/linked", "a/replacing", "b/replaced", "a/inner/deep", "a/x", "b/y"):
        write(at + "/" + name)
    return {
        "rename": tried(os.rename, at + "/a/file", at + "/b/file"),
        "up": tried(os.rename, at + "/b/file", at + "/file"),
        "link": tried(os.link, at + "/a/linked", at + "/b/linked"),
        "replace": tried(os.replace, at + "/a/replacing", at + "/b/replaced"),
        "exchange": tried(exchange, at + "/a/x", at + "/b/y"),
        "directory": tried(os.rename, at + "/a/inner", at + "/c/inner"),
        "exchange directories": tried(exchange, at + "/b/other", at + "/c/inner"),
    }
"""


@pytest.fixture
def place(private_dir: Path) -> Callable[[str], Path]:
    """Make a directory that the ordinary user owns."""

    def make(name: str) -> Path:
        path = private_dir / name
        path.mkdir()
        if os.geteuid() == 0:
            os.chown(path, USER, USER)
        return path

    return make


def profile_of(root: Path, **changes: Any) -> CellProfile:
    main = CellProfile.for_kind("main").narrow(protected=["project_code"])
    return main.replace(writable=(str(root),), cwd=str(root), **changes)


@pytest.mark.parametrize("where", ["workspace", "scratch"])
def test_files_and_directories_move_and_are_linked_across_directories(
    any_cell: Any, place: Callable[[str], Path], where: str
) -> None:
    root = place("work")
    at = str(root / "new") if where == "workspace" else "/tmp/new"
    said = any_cell(MOVES + f"in_a_call_process(lambda: moves({at!r}))", profile=profile_of(root)).value
    assert set(said.values()) == {"ok"}, said


def test_without_namespaces_they_move_too(cell: Any, place: Callable[[str], Path]) -> None:
    root = place("work")
    missing = [f"{name}_namespace" for name in ("mount", "pid", "net", "ipc", "uts", "cgroup", "user")]
    code = MOVES + f"in_a_call_process(lambda: moves({str(root / 'new')!r}))"
    said = cell(code, profile=profile_of(root), user=True, missing=missing).value
    assert set(said.values()) == {"ok"}, said


def test_no_move_gains_a_right_that_its_new_place_does_not_give(any_cell: Any, place: Callable[[str], Path]) -> None:
    root, other, shown = place("work"), place("other"), place("shown")
    (shown / "read.txt").write_text("shown")
    (root / "mine.txt").write_text("mine")
    if os.geteuid() == 0:
        os.chown(root / "mine.txt", USER, USER)
    code = f"""
root, other, shown = {str(root)!r}, {str(other)!r}, {str(shown)!r}
in_a_call_process(lambda: {{
    "out of what is read": tried(os.rename, shown + "/read.txt", root + "/stolen.txt"),
    "a link to what is read": tried(os.link, shown + "/read.txt", root + "/stolen.txt"),
    "into what is read": tried(os.rename, root + "/mine.txt", shown + "/planted.txt"),
    "a link into what is read": tried(os.link, root + "/mine.txt", shown + "/planted.txt"),
    "to another root": tried(os.rename, root + "/mine.txt", other + "/mine.txt"),
    "to the scratch": tried(os.rename, root + "/mine.txt", "/tmp/mine.txt"),
}})
"""
    profile = profile_of(root, readable=(str(shown),)).replace(writable=(str(root), str(other)))
    said = any_cell(MOVES + code, profile=profile).value
    assert set(said.values()) <= {"EXDEV", "EROFS", "EACCES"}, said
    assert (shown / "read.txt").read_text() == "shown" and sorted(os.listdir(shown)) == ["read.txt"]
    assert sorted(os.listdir(root)) == ["mine.txt"] and os.listdir(other) == []


def test_protected_names_hold_against_moves_from_other_directories(any_cell: Any, place: Callable[[str], Path]) -> None:
    root = place("work")
    (root / ".git/hooks").mkdir(parents=True)
    (root / ".git/config").write_text("[core]\n")
    (root / "far").mkdir()
    if os.geteuid() == 0:
        for each in (root, *root.rglob("*")):
            os.chown(each, USER, USER)
    code = """
def all_moves():
    os.makedirs("build/workflows"); os.makedirs("build/git/hooks"); write("build/evil"); write("build/conftest")
    held = {
        "over a protected file": tried(os.replace, "build/evil", ".git/config"),
        "into a protected directory": tried(os.rename, "build/evil", ".git/hooks/pre-commit"),
        "a link there": tried(os.link, "build/evil", ".git/hooks/pre-commit"),
        "the file away": tried(os.rename, ".git/config", "far/config"),
        "the directory away": tried(os.rename, ".git/hooks", "far/hooks"),
        "the repository away": tried(os.rename, ".git", "far/git"),
        "another in its place": tried(exchange, "build/git", ".git"),
    }
    os.mkdir(".github")
    found = [
        tried(os.rename, "build/workflows", ".github/workflows"),
        tried(os.rename, "build/conftest", "far/conftest.py"),
        tried(os.link, "build/evil", "far/x.pth"),
    ]
    return [held, found]
os.chdir(arguments)
in_a_call_process(all_moves)
"""
    result = any_cell(MOVES + code, profile=profile_of(root), arguments=str(root))
    held, found = result.value
    assert set(held.values()) <= {"EBUSY", "EROFS", "EXDEV"}, held
    assert found == ["ok"] * 3
    told = {os.path.relpath(finding["path"], root): finding["what"] for finding in result.findings}
    assert told == {".github/workflows": "made", "far/conftest.py": "made", "far/x.pth": "made"}
    assert sorted(os.listdir(root / ".git")) == ["config", "hooks"] and os.listdir(root / ".git/hooks") == []
