"""A rebase, cherry-pick or am that has stopped, with git itself: what runs does not stay, the rest does."""

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from toolcell_sandbox.trees.audit import ProtectedTree
from toolcell_sandbox.trees.git_allowed import STATE
from toolcell_sandbox.trees.protected import DEFAULT_PROTECTED
from toolcell_sandbox.trees.quarantine import Quarantine

STOPS = {"rebase": "rebase --merge topic", "am": "rebase --apply topic", "pick": "cherry-pick topic~1 topic"}
EVIL = "#!/bin/sh\ntouch EVIL\n"
ENV = {
    **{f"GIT_{who}_{what}": "a@b.c" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")},
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_EDITOR": "true",
    "PATH": os.environ["PATH"],
    "HOME": "/nonexistent",
}


def git(directory: Path, command: str, *, check: bool = True) -> str:
    """Git as a person runs it, on the host."""
    done = subprocess.run(
        ["git", *command.split()], cwd=directory, env=ENV, check=check, capture_output=True, text=True
    )
    return done.stdout + done.stderr


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository for each thing that may stop on a conflict, and has, which is resolved."""
    above = tmp_path_factory.mktemp("stopped")
    for name, command in STOPS.items():
        at = above / name
        at.mkdir()
        git(at, "init -q -b main")
        for branch, text in (("main", "1"), ("topic", "2"), ("main", "3")):
            git(at, f"checkout -q {'-B' if text != '3' else ''} {branch}")
            (at / "f").write_text(text)
            (at / f"g{text}").write_text(text)
            for path in ("f", f"g{text}"):
                git(at, f"add {path}")
                git(at, f"commit -qm {path}{text}")
        git(at, command, check=False)
        (at / "f").write_text("4")
        git(at, "add f")
    return above


@pytest.fixture
def begun(stopped: Path, tmp_path: Path) -> Callable[[str], Path]:
    """A copy of one of them."""

    def copy(what: str) -> Path:
        return shutil.copytree(stopped / what, tmp_path / "work" / what, symlinks=True)

    return copy


def goes_on(at: Path, what: str) -> str:
    return git(at, "cherry-pick --continue" if what == "pick" else "rebase --continue", check=False)


HELPER = {"git-merge-x/evil": EVIL}
PLANTED = {
    "exec": ("rebase", {"rebase-merge/git-rebase-todo": "exec touch EVIL\n"}),
    "its short form": ("rebase", {"rebase-merge/git-rebase-todo": "x touch EVIL\n"}),
    "blanks, tabs and a return": ("rebase", {"rebase-merge/git-rebase-todo": " \t x \t touch EVIL\r\n"}),
    "no end of line": ("rebase", {"rebase-merge/git-rebase-todo": "# x\n\nnoop\nexec touch EVIL"}),
    "after a comment of another form": ("rebase", {"rebase-merge/git-rebase-todo": "# \\\nexec touch EVIL\n"}),
    "a return before it": ("rebase", {"rebase-merge/git-rebase-todo": "\r\nexec touch EVIL\n"}),
    "a strategy": ("rebase", {"rebase-merge/strategy": "x/evil\n", "rebase-merge/strategy_opts": "\n"}),
    "a strategy of a cherry-pick": ("pick", {"sequencer/opts": "[options]\n\tstrategy = x/evil\n"}),
    "an option of an am": ("am", {"rebase-apply/apply-opt": " '--build-fake-ancestor=EVIL'\n"}),
}


@pytest.mark.parametrize("how", PLANTED)
def test_what_a_call_planted_runs_nothing_when_a_person_goes_on(begun: Callable[[str], Path], how: str) -> None:
    what, files = PLANTED[how]
    at = begun(what)
    tree = ProtectedTree(str(at), DEFAULT_PROTECTED)
    quarantine = Quarantine(str(at.parent.parent / "quarantine"))
    for audited in (True, False):  # without the audit it does run: the test knows what it tests
        before = tree.look()
        for path, text in (HELPER | {f".git/{path}": text for path, text in files.items()}).items():
            (at / path).parent.mkdir(exist_ok=True)
            (at / path).write_text(text)
        (at / "git-merge-x/evil").chmod(0o755)
        if audited:
            done = tree.settle(before, quarantine)
            assert [os.path.relpath(each.path, at / ".git") for each in done.findings] == [
                path for path in files if os.path.basename(path) in STATE
            ]
            assert "goes on" in done.findings[0].why and not done.unknown
            kept = shutil.copytree(at, at.with_name("kept"), symlinks=True)
            goes_on(kept, what)
            assert not (kept / "EVIL").exists()
        else:
            goes_on(at, what)
            assert (at / "EVIL").exists()


@pytest.mark.parametrize(
    "directory",
    [".git/worktrees/wt", ".git/modules/m", "bare", "sub/.git", "elsewhere", ".GIT", ".git/modules/a/modules/b"],
)
def test_a_step_that_runs_does_not_stay_in_any_repository(tmp_path: Path, directory: str) -> None:
    root = tmp_path / "work"
    git_dir = root / directory
    git_dir.mkdir(parents=True)
    (root / "wt").mkdir()
    if directory == "elsewhere":
        (root / "wt/.git").write_text("gitdir: ../elsewhere\n")
    for mark in ("commondir",) if "worktrees" in directory else ("objects", "refs"):
        (git_dir / mark).mkdir() if mark != "commondir" else (git_dir / mark).write_text("../..\n")
    tree = ProtectedTree(str(root), DEFAULT_PROTECTED)
    before = tree.look()
    (git_dir / "Rebase-Merge").mkdir()
    (git_dir / "Rebase-Merge/git-rebase-TODO").write_text("x touch EVIL\n")
    (git_dir / "rebase-apply").symlink_to(tmp_path)
    done = tree.settle(before, Quarantine(str(tmp_path / "quarantine")))
    assert {os.path.relpath(each.path, git_dir) for each in done.findings} == {
        "Rebase-Merge/git-rebase-TODO", "rebase-apply",
    }  # fmt: skip


@pytest.mark.parametrize("what", STOPS)
def test_what_git_has_stopped_at_stays_as_it_is_and_goes_on(
    begun: Callable[[str], Path], tmp_path: Path, what: str
) -> None:
    at = begun(what)
    (tmp_path / "new").mkdir()
    tree = ProtectedTree(str(tmp_path), DEFAULT_PROTECTED)
    before = tree.look()
    assert not [each for each in tree.bound(before) if "/.git/rebase-" in each.path or "sequencer" in each.path]
    moved = shutil.copytree(at, tmp_path / "new" / what, symlinks=True)
    goes_on(at, what)
    done = tree.settle(before, Quarantine(str(tmp_path / "quarantine")))
    assert not done.findings and not done.unknown
    goes_on(moved, what)
    assert (
        git(moved, "status --porcelain=2 --branch --untracked-files=no").count("\n") == 2
        and not (moved / ".git/rebase-merge").exists()
    )


def test_steps_of_every_kind_that_runs_nothing_stay() -> None:
    steps = (
        "pick 1234 exec x\nreword 1234\ne 1 a\nfixup -C 12 b\n\tf 1\nlabel x\nreset onto\nmerge -C 12 x # y\nu refs/x\n"
        "break\nb\r\nnoop\n# exec x\n; x y\n\n  # x\nd 12\xff\nrevert 12\nt x"
    )
    assert STATE["git-rebase-todo"](steps.encode("latin-1"))
    for step in ("x", "exec", "run y", "execute", "Exec y", "xy", "pick1 2", "\tx y", "pic k", "1"):
        assert not STATE["git-rebase-todo"](f"{steps}\n{step}".encode("latin-1")), step
    for name in (
        *("no-commit", "edit", "allow-empty", "allow-empty-message", "drop-redundant-commits", "signoff", "mainline"),
        *("keep-redundant-commits", "record-origin", "allow-ff", "allow-rerere-auto", "default-msg-cleanup"),
    ):
        assert STATE["opts"](f"[options]\n\t{name} = 1\n".encode()), name
    for options in (
        "[options]\n\tstrategy = ort\n\tedit = false\n\tgpg-sign\n",
        "",
        '[options]\n\tstrategy-option = "a b"\n',
    ):
        assert STATE["opts"](options.encode())
    for options in (
        "[options]\n\tstrategy\n",
        "[options]\n\tother = 1\n",
        "[options] strategy = x\n",
        "[a]\n\tedit = 1\n",
    ):
        assert not STATE["opts"](options.encode())
    assert STATE["apply-opt"](b" '--whitespace=fix' '-C3' '--directory=a b' '--reject'\n") and STATE["apply-opt"](b"\n")
    for text in (b" '--unsafe-paths'", b" '--directory=a'\\''b'", b" '-C3x'", b" --reject"):
        assert not STATE["apply-opt"](text)
    assert STATE["strategy"](b"ort\n") and STATE["strategy"](b"") and not STATE["strategy"](b"ort\0/x")


def test_steps_that_run_and_were_there_are_held_read_only_and_stay(
    begun: Callable[[str], Path], tmp_path: Path
) -> None:
    at = begun("rebase")
    todo = at / ".git/rebase-merge/git-rebase-todo"
    todo.write_text("exec make\n")
    tree = ProtectedTree(str(at), DEFAULT_PROTECTED)
    before = tree.look()
    assert str(at / ".git/rebase-merge") in [each.path for each in tree.bound(before) if not each.pin]
    (at / "file").write_text("")
    assert not tree.settle(before, Quarantine(str(tmp_path / "quarantine"))).findings
    assert todo.read_text() == "exec make\n"


def test_a_directory_that_gets_the_number_of_a_state_that_is_gone_is_left_alone(
    begun: Callable[[str], Path], tmp_path: Path
) -> None:
    at = begun("rebase")
    tree = ProtectedTree(str(at), DEFAULT_PROTECTED)
    before = tree.look()
    os.rename(at / ".git/rebase-merge", at / "source")  # as a file system does that gives a number out again
    done = tree.settle(before, Quarantine(str(tmp_path / "quarantine")))
    assert not done.findings and (at / "source/git-rebase-todo").exists() and not (at / ".git/rebase-merge").exists()
