"""Protected names in real cells, as root and as an ordinary user: the kernel's refusals and the audit's findings."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.ordinary import USER

from toolcell_sandbox import CellProfile
from toolcell_sandbox.trees.audit import ProtectedTree
from toolcell_sandbox.trees.protected import DEFAULT_PROTECTED, PROJECT_CODE

Work = Callable[..., Path]

TRIED = """
import errno, json, os, shutil
def tried(action, *arguments):
    try:
        action(*arguments)
    except OSError as error:
        return errno.errorcode[error.errno]
    return "ok"
def write(path):
    open(path, "w").write("evil")
def answer(value):
    print(json.dumps(value))
os.chdir(arguments)
"""
EXISTING = {
    ".git/config": "mine",
    ".git/hooks/pre-commit": "mine",
    ".git/HEAD": "ref",
    "conftest.py": "mine",
    "pkg/.vscode/tasks.json": "mine",
    "code.py": "code",
}


@pytest.fixture
def work(private_dir: Path) -> Work:
    """Make a workspace with these files, owned by the ordinary user."""

    def make(files: dict[str, str]) -> Path:
        root = private_dir / "work"
        root.mkdir()
        for path, text in files.items():
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).write_text(text)
        if os.geteuid() == 0:
            for each in (root, *root.rglob("*")):
                os.chown(each, USER, USER)
        return root

    return make


def listing(root: Path) -> dict[str, str]:
    """Every path with its content."""
    return {str(path.relative_to(root)): path.read_text() if path.is_file() else "" for path in sorted(root.rglob("*"))}


EVERYWHERE = tuple(name.removeprefix("/") for name in (*DEFAULT_PROTECTED, *PROJECT_CODE))
"""All names of the table, with no regard to their reach."""


def profile_of(root: Path, **changes: Any) -> CellProfile:
    return CellProfile.for_kind("main").replace(
        writable=(str(root),), cwd=str(root), **{"protected": EVERYWHERE, **changes}
    )


def told(root: Path, result: Any) -> dict[str, str]:
    return {os.path.relpath(finding["path"], root): finding["what"] for finding in result.findings}


def test_the_kernel_holds_what_is_there_and_leaves_no_trace(any_cell: Any, work: Work) -> None:
    root = work(EXISTING)
    code = """
answer({
    "write": tried(write, "conftest.py"),
    "append": tried(open, ".git/config", "a"),
    "truncate": tried(os.truncate, "conftest.py", 0),
    "chmod": tried(os.chmod, "conftest.py", 0o777),
    "times": tried(os.utime, "conftest.py"),
    "unlink": tried(os.unlink, "conftest.py"),
    "replace": tried(os.replace, "code.py", "conftest.py"),
    "rename": tried(os.rename, "conftest.py", "other.py"),
    "hard link": tried(os.link, "conftest.py", "other.py"),
    "new hook": tried(write, ".git/hooks/post-commit"),
    "old hook": tried(write, ".git/hooks/pre-commit"),
    "rename hooks": tried(os.rename, ".git/hooks", ".git/old"),
    "rename .git": tried(os.rename, ".git", "git"),
    "remove": tried(shutil.rmtree, ".git"),
    "task": tried(write, "pkg/.vscode/tasks.json"),
    "new task": tried(write, "pkg/.vscode/launch.json"),
    "rename .vscode": tried(os.rename, "pkg/.vscode", "pkg/vscode"),
    "read": open("conftest.py").read(),
})
"""
    before = listing(root)
    result = any_cell(TRIED + code, profile=profile_of(root), arguments=str(root))
    said = result.value
    assert said.pop("read") == "mine"
    # rmtree removes what it may before it comes to a mount: the index of a repository is not protected, only its hooks.
    assert said.pop("remove") in ("EROFS", "EBUSY")
    assert {name: said[name] for name in ("write", "append", "truncate", "chmod", "times", "new hook", "old hook")} == (
        dict.fromkeys(("write", "append", "truncate", "chmod", "times", "new hook", "old hook"), "EROFS")
    )
    assert {said[name] for name in ("unlink", "rename", "rename hooks", "rename .git", "rename .vscode")} == {"EBUSY"}
    assert said["replace"] in ("EBUSY", "EXDEV") and said["hard link"] == "EXDEV"
    assert (said["task"], said["new task"]) == ("EROFS", "EROFS")
    assert result.findings == []
    assert {path: text for path, text in listing(root).items() if path != ".git/HEAD"} == {
        path: text for path, text in before.items() if path != ".git/HEAD"
    }
    assert [row["state"] for row in result.in_force["mechanisms"] if row["name"] == "protected_names"] == ["on"]


EVASIONS = {
    "plainly": ("write('.mcp.json')", {".mcp.json": "made"}),
    "a symbolic link": ("os.symlink('code.py', '.mcp.json')", {".mcp.json": "made"}),
    "a dangling link": ("os.symlink('nowhere', 'x.pth')", {"x.pth": "made"}),
    "a hard link": ("os.link('code.py', 'sub.pth')", {"sub.pth": "made"}),
    "a directory": ("os.mkdir('.vscode')", {".vscode": "made"}),
    "a chain of directories": ("os.makedirs('a/b/.github/workflows/c')", {"a/b/.github/workflows": "made"}),
    "a link to a directory": (
        "os.makedirs('evil/workflows'); os.symlink('evil', '.github'); os.makedirs('n/.git'); "
        "os.symlink('../../evil', 'n/.git/hooks')",
        {".github": "made", "n/.git/hooks": "made"},
    ),
    "a FIFO": ("os.mkfifo('.envrc')", {".envrc": "made"}),
    "another case": ("write('ConfTest.PY')", {"ConfTest.PY": "made"}),
    "a look-alike": ("write('.mcp\\uff0ejson')", {".mcp．json": "made"}),
    "a trailing dot": ("write('.npmrc.')", {".npmrc.": "made"}),
    "renaming a file": ("os.rename('code.py', 'sitecustomize.py')", {"sitecustomize.py": "made"}),
    "renaming a directory": (
        "os.makedirs('tmp/workflows'); write('tmp/workflows/ci.yml'); os.rename('tmp', '.github')",
        {".github/workflows": "made"},
    ),
    "a nested repository": (
        "os.makedirs('sub/.git/hooks'); write('sub/.git/hooks/x'); write('sub/.git/config'); write('sub/.git/HEAD')",
        {"sub/.git/hooks/x": "made", "sub/.git/config": "made"},
    ),
    "a repository of another name": (
        "[os.makedirs(f'lib/{each}') for each in ('objects', 'refs', 'Hooks')]; write('lib/Hooks/x'); "
        "write('lib/config')",
        {"lib/Hooks/x": "made", "lib/config": "made"},
    ),
    "a common directory without a HEAD": (
        "[os.makedirs(f'.git/modules/m/{each}') for each in ('objects', 'refs')]; write('.git/modules/m/config'); "
        "write('.git/modules/m/config.worktree')",
        {".git/modules/m/config": "made", ".git/modules/m/config.worktree": "made"},
    ),
    "settings first, and then the repository": (
        "os.mkdir('lib'); write('lib/config.worktree'); [os.makedirs(f'lib/{each}') for each in ('objects', 'refs')]",
        {"lib/config.worktree": "made"},
    ),
    "a .git file": ("os.mkdir('wt'); write('wt/.git')", {"wt/.git": "made"}),
    "a common directory": ("write('.git/commondir')", {".git/commondir": "made"}),
    "a submodule": (
        "[os.makedirs(f'.git/modules/m/{each}') for each in ('objects', 'refs', 'hooks')]; "
        "write('.git/modules/m/config'); os.symlink('x', '.git/modules/m/hooks/post-checkout')",
        {".git/modules/m/hooks/post-checkout": "made", ".git/modules/m/config": "made"},
    ),
    "renaming the parent": (
        "os.rename('pkg', 'other'); os.makedirs('pkg/.vscode'); write('pkg/.vscode/tasks.json')",
        {"pkg/.vscode": "changed", "pkg/.vscode/tasks.json": "changed"},
    ),
    "promoting an inert one": (
        "os.rename('vendor/lib', 'vendor/x'); os.rename('vendor/x/.github', '.github')",
        {},
    ),
    "creating and deleting": ("write('.mcp.json'); os.unlink('.mcp.json')", {}),
    "in the scratch": ("write('/tmp/conftest.py'); os.makedirs('/tmp/.git/hooks')", {}),
    "closing the directory": (
        "os.mkdir('shut'); write('shut/.envrc'); os.chmod('shut', 0)",
        {"shut/.envrc": "made"},
    ),
    "closing the directory but for its names": (
        "os.mkdir('shut'); write('shut/.envrc'); os.chmod('shut', 0o400)",
        {"shut/.envrc": "made"},
    ),
    "taking the right to rename": (
        "os.mkdir('shut'); os.mkdir('shut/.vscode'); os.chmod('shut/.vscode', 0o500); os.chmod('shut', 0o500)",
        {"shut/.vscode": "made"},
    ),
}


@pytest.mark.parametrize("how", EVASIONS)
def test_what_was_not_there_does_not_stay(any_cell: Any, work: Work, how: str) -> None:
    action, wanted = EVASIONS[how]
    root = work(EXISTING | {"vendor/lib/.github/workflows/ci.yml": "inert"})
    code = f"try:\n    exec({action!r})\nexcept OSError as error:\n    print(error)\nanswer(None)"
    result = any_cell(TRIED + code, profile=profile_of(root), arguments=str(root))
    assert result.status == 0, result.err
    found = told(root, result)
    if how == "renaming the parent":
        assert found["pkg/.vscode"] == "changed"
        assert (root / "pkg/.vscode/tasks.json").read_text() == "mine"
    elif how == "promoting an inert one":
        assert not (root / ".github").exists() and "Device or resource busy" in result.out
        assert (root / "vendor/lib/.github/workflows/ci.yml").read_text() == "inert"
    else:
        assert found == wanted
    for finding in result.findings:
        assert os.path.lexists(finding["place"]), finding
    tree = ProtectedTree(str(root), profile_of(root).protected)
    left = tree.look().found
    assert {path for path, seen in left.items() if tree.objection(path, seen, (0,))} == {
        ".git/config", ".git/hooks/pre-commit", "conftest.py", "pkg/.vscode", "pkg/.vscode/tasks.json",
        "vendor/lib/.github/workflows", "vendor/lib/.github/workflows/ci.yml",
    }  # fmt: skip


def test_a_process_that_is_killed_at_the_end_leaves_nothing(any_cell: Any, work: Work) -> None:
    root = work({})
    code = """
import time
kept = open("innocent", "w")
if os.fork() == 0:
    while True:
        tried(os.rename, "innocent", ".mcp.json")
        kept.write("x")
        kept.flush()
time.sleep(0.2)
answer(None)
"""
    result = any_cell(TRIED + code, profile=profile_of(root), arguments=str(root))
    assert told(root, result) == {".mcp.json": "made"} and listing(root) == {}


def test_a_lifted_name_is_written_as_any_other(any_cell: Any, work: Work) -> None:
    root = work(EXISTING)
    profile = profile_of(root).lifting("conftest.py", ".git/hooks", ".mcp.json")
    code = "answer([tried(write, path) for path in ('conftest.py', '.git/hooks/x', '.mcp.json', '.git/config')])"
    result = any_cell(TRIED + code, profile=profile, arguments=str(root))
    assert result.value == ["ok", "ok", "ok", "EROFS"] and result.findings == []
    assert (root / "conftest.py").read_text() == (root / ".mcp.json").read_text() == "evil"


def test_a_writable_path_that_is_one_of_the_names_is_lifted_by_that(any_cell: Any, work: Work) -> None:
    root = work(EXISTING | {".claude/worktrees/x/code.py": "", ".claude/settings.json": "mine"})
    inner = str(root / ".claude/worktrees/x")
    profile = profile_of(root).replace(writable=(str(root), str(root / "pkg/.vscode"), inner))
    paths = ["pkg/.vscode/tasks.json", "pkg/.vscode/.envrc", ".claude/settings.json", ".claude/worktrees/x/code.py"]
    result = any_cell(
        TRIED + f"answer([tried(write, path) for path in {paths!r}])", profile=profile, arguments=str(root)
    )
    assert result.value == ["ok", "ok", "EROFS", "ok"]
    assert told(root, result) == {"pkg/.vscode/.envrc": "made"}


def test_without_mounts_of_its_own_the_audit_holds_alone_and_the_report_says_so(cell: Any, work: Work) -> None:
    root = work(EXISTING)
    missing = ("mount_namespace", "mount_setattr", "pivot_root", "proc")
    code = """
write("conftest.py"); write(".mcp.json"); os.rename("pkg/.vscode", "pkg/vscode"); write(".git/hooks/pre-commit")
answer(None)
"""
    result = cell(TRIED + code, user=True, profile=profile_of(root), arguments=str(root), missing=missing)
    assert result.status == 0, (result.err, result.error)
    assert told(root, result) == {
        "conftest.py": "changed",
        ".mcp.json": "made",
        ".git/hooks/pre-commit": "changed",
        "pkg/.vscode": "moved",
    }
    assert (root / "pkg/.vscode/tasks.json").read_text() == "mine" and not (root / "conftest.py").exists()
    (row,) = [row for row in result.in_force["mechanisms"] if row["name"] == "protected_names"]
    assert row["state"] == "substituted" and "audit" in row["detail"]
