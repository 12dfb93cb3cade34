"""Looking at a tree from outside: what is found, what counts as changed, and where it goes."""

import os
import shutil
import stat
import subprocess
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.helpers import nest

from toolcell_sandbox import CellProfile
from toolcell_sandbox.kernel.syscalls import born_ns
from toolcell_sandbox.trees import audit, facts, look
from toolcell_sandbox.trees.audit import Finding, ProtectedTree, ProtectedTrees
from toolcell_sandbox.trees.facts import RACY_NS, Look, Seen, as_before
from toolcell_sandbox.trees.git_settings_copy import Drafts
from toolcell_sandbox.trees.protected import DEFAULT_PROTECTED, PROJECT_CODE
from toolcell_sandbox.trees.quarantine import Quarantine
from toolcell_sandbox.trees.walker import Budget, Copies, Root

EVERYWHERE = tuple(name.removeprefix("/") for name in (*DEFAULT_PROTECTED, *PROJECT_CODE))
"""All names of the table, with no regard to their reach."""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    path = tmp_path / "work"
    path.mkdir()
    return path


@pytest.fixture
def quarantine(tmp_path: Path) -> Quarantine:
    return Quarantine(str(tmp_path / "quarantine"))


def tree_at(root: Path) -> ProtectedTree:
    return ProtectedTree(str(root), EVERYWHERE)


def put(root: Path, path: str, text: str = "text") -> Path:
    file = root / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    return file


def names(look: Look) -> dict[str, str]:
    assert not look.unknown
    return {path: seen.name for path, seen in look.found.items()}


def told(root: Path, findings: list[Finding]) -> dict[str, str]:
    return {os.path.relpath(finding.path, root): finding.what for finding in findings}


def settled(tree: ProtectedTree, before: Look, quarantine: Quarantine) -> list[Finding]:
    done = tree.settle(before, quarantine)
    assert not (done.unknown or done.stuck)
    return list(done.findings)


def listing(root: Path) -> list[str]:
    return sorted(str(path.relative_to(root)) for path in root.rglob("*"))


def grow_old(tick_ns: int = RACY_NS) -> None:
    """Wait until nothing that was just made is fresh any more."""
    time.sleep(2 * tick_ns / 1e9)


def test_what_is_there_is_found_with_all_that_is_below(root: Path) -> None:
    for path in (".git/config", ".git/hooks/pre-commit", ".git/HEAD", "a/b/conftest.py", "a/.VSCode/x/y", "a/code.py"):
        put(root, path)
    (root / "x.pth").symlink_to("nowhere")
    os.mkfifo(root / ".envrc")
    (root / "wt").mkdir()
    (root / "wt" / ".git").write_text("gitdir: /elsewhere")
    assert names(tree_at(root).look()) == {
        ".git/config": ".git/config",
        ".git/hooks": ".git/hooks",
        ".git/hooks/pre-commit": ".git/hooks",
        "a/b/conftest.py": "conftest.py",
        "a/.VSCode": ".vscode",
        "a/.VSCode/x": ".vscode",
        "a/.VSCode/x/y": ".vscode",
        "x.pth": "*.pth",
        ".envrc": ".envrc",
        "wt/.git": ".git",
    }


def test_directories_are_listed_again_only_if_they_changed(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(20):
        put(root, f"d{number}/file")
    tree = tree_at(root)
    grow_old()
    tree.look()
    listed: list[str] = []
    list_one = look.Walk._list

    def count(self: Any, frame: Any, *arguments: Any) -> None:
        listed.append(frame.name)
        list_one(self, frame, *arguments)

    monkeypatch.setattr(look.Walk, "_list", count)
    tree.look()
    assert listed == []
    put(root, "d7/conftest.py")
    assert names(tree.look()) == {"d7/conftest.py": "conftest.py"}
    assert listed == ["d7"]
    tree.look()
    assert listed == ["d7", "d7"]  # its change time was fresh when it was listed, and so proves nothing
    assert tree.directories == 21


def test_a_change_within_one_tick_of_the_clock_is_seen(root: Path) -> None:
    for _ in range(50):
        tree = tree_at(root)
        tree.look()
        path = put(root, ".mcp.json")
        assert ".mcp.json" in tree.look().found
        path.unlink()


def test_a_forged_modification_time_hides_nothing(root: Path, quarantine: Quarantine) -> None:
    path = put(root, "conftest.py")
    tree = tree_at(root)
    grow_old()
    before, info = tree.look(), path.stat()
    directory = root.stat()
    path.write_text("evil")
    put(root, ".envrc")
    os.utime(path, ns=(info.st_atime_ns, info.st_mtime_ns))
    os.utime(root, ns=(directory.st_atime_ns, directory.st_mtime_ns))
    assert told(root, settled(tree, before, quarantine)) == {"conftest.py": "changed", ".envrc": "made"}


def test_what_a_call_made_is_in_quarantine_with_its_content(root: Path, quarantine: Quarantine) -> None:
    put(root, "ordinary/file")
    tree = tree_at(root)
    before, names_before = tree.look(), listing(root)
    put(root, ".vscode/tasks.json", "evil").chmod(0o600)
    (root / ".vscode" / "link").symlink_to("/etc/passwd")
    os.mkfifo(root / ".envrc")
    (root / "ordinary" / "x.pth").symlink_to("file")
    findings = settled(tree, before, quarantine)
    assert told(root, findings) == {".vscode": "made", ".envrc": "made", "ordinary/x.pth": "made"}
    assert listing(root) == names_before
    places = {finding.name: Path(finding.place) for finding in findings}
    assert (places[".vscode"] / "tasks.json").read_text() == "evil"
    assert os.readlink(places[".vscode"] / "link") == "/etc/passwd"
    assert stat.S_ISFIFO(places[".envrc"].stat().st_mode) and os.readlink(places["*.pth"]) == "file"
    assert stat.S_IMODE(places[".envrc"].parent.stat().st_mode) == 0o700
    assert settled(tree, tree.look(), quarantine) == []


def test_what_was_there_before_is_left_alone(root: Path, quarantine: Quarantine) -> None:
    put(root, ".vscode/tasks.json")
    tree = tree_at(root)
    before = tree.look()
    put(root, ".vscode/evil.json")
    put(root, "src/code.py")
    assert told(root, settled(tree, before, quarantine)) == {".vscode/evil.json": "made"}
    assert listing(root) == [".vscode", ".vscode/tasks.json", "src", "src/code.py"]


def test_what_was_moved_away_with_its_directory_is_put_back(root: Path, quarantine: Quarantine) -> None:
    put(root, "pkg/sub/conftest.py", "mine")
    put(root, "pkg/code.py")
    tree = tree_at(root)
    before = tree.look()
    (root / "pkg").rename(root / "other")
    put(root, "pkg/sub/conftest.py", "evil")
    findings = settled(tree, before, quarantine)
    assert told(root, findings) == {"pkg/sub/conftest.py": "changed"}
    assert (root / "pkg/sub/conftest.py").read_text() == "mine"
    assert Path(findings[0].place).read_text() == "evil"
    assert (root / "other/code.py").exists() and not (root / "other/sub/conftest.py").exists()


HARMLESS = "[core]\n\tbare = false\n"


def repository(root: Path, path: str, settings: str = HARMLESS) -> None:
    for part in ("objects", "refs"):
        (root / path / part).mkdir(parents=True)
    put(root, f"{path}/config", settings)
    put(root, f"{path}/hooks/pre-commit", "mine")
    put(root, f"{path}/HEAD", "ref: refs/heads/main\n")


def test_a_repository_that_is_moved_as_a_whole_stays_whole(root: Path, quarantine: Quarantine) -> None:
    repository(root, "a/.git", f"{HARMLESS}[alias]\n\tst = status\n")
    repository(root, "a/.git/modules/m", f"{HARMLESS}\tworktree = ../../../m\n")
    put(root, "a/m/.git", "gitdir: ../.git/modules/m\n")
    put(root, "a/.envrc", "mine")
    repository(root, "bare")
    tree = tree_at(root)
    before = tree.look()
    held = listing(root / "a")
    (root / "a").rename(root / "b")
    (root / "bare").rename(root / "c")
    assert settled(tree, before, quarantine) == []
    assert listing(root / "b") == held and not (root / "a").exists() and (root / "c/hooks/pre-commit").exists()
    put(root, "b/.git/hooks/pre-commit", "evil")
    assert told(root, settled(tree, tree.look(), quarantine)) == {}, "no call has run since"


def test_what_was_changed_as_its_repository_was_moved_does_not_stay(root: Path, quarantine: Quarantine) -> None:
    for name in "ab":
        repository(root, f"{name}/.git")
        put(root, f"{name}/.envrc", "mine")
    tree = tree_at(root)
    grow_old()
    before = tree.look()
    for name in "ab":
        (root / name).rename(root / f"{name}2")
    put(root, "a2/.git/hooks/pre-commit", "evil")
    put(root, "a2/.git/hooks/post-commit", "evil")
    put(root, "a2/.envrc", "evil")
    put(root, "b2/.git/config", "[core]\n\tfsmonitor = x\n")
    repository(root, "a/.git")
    assert set(told(root, settled(tree, before, quarantine))) == {
        "a2/.git/hooks/pre-commit", "a2/.git/hooks/post-commit", "a2/.envrc", "b2/.git/config",
        "a/.git/hooks/pre-commit",
    }  # fmt: skip


@pytest.mark.parametrize("setting", ["[core]\n\thooksPath = ../h\n", "[include]\n\tpath = ../../i\n", "[a] b = c\n"])
def test_a_repository_whose_settings_name_further_files_is_moved_back_whole(
    root: Path, quarantine: Quarantine, setting: str
) -> None:
    repository(root, "a/.git", setting)
    tree = tree_at(root)
    before = tree.look()
    (root / "x").mkdir()
    (root / "a").rename(root / "x/a")
    put(root, "x/h/pre-commit", "evil")
    put(root, "x/i", "[core]\n\tfsmonitor = x\n")
    assert told(root, settled(tree, before, quarantine)) == {"a": "moved"}
    assert (root / "a/.git/config").read_text() == setting and not (root / "x/a").exists()
    assert not settled(tree, tree.look(), quarantine)


@pytest.mark.parametrize("setting", ["[core]\n\thooksPath = ../h\n", "[include]\n\tpath = ../../i\n", "[a] b = c\n"])
def test_where_its_place_is_taken_what_is_protected_is_put_back(
    root: Path, quarantine: Quarantine, setting: str
) -> None:
    repository(root, "a/.git", setting)
    tree = tree_at(root)
    before = tree.look()
    (root / "a").rename(root / "x")
    put(root, "a/.git/objects/x")
    assert told(root, settled(tree, before, quarantine)) == {"a/.git/config": "moved", "a/.git/hooks": "moved"}
    assert (root / "a/.git/config").read_text() == setting and not (root / "x/.git/config").exists()


def test_what_a_call_could_not_remove_of_a_repository_is_removed_for_it(root: Path, quarantine: Quarantine) -> None:
    for name in ("a", "b", "c"):
        repository(root, f"{name}/.git")
    put(root, "b/file")
    put(root, "d/.git/config", HARMLESS)  # nothing was removed of it
    tree = tree_at(root)
    before = tree.look()
    for name in "abc":
        for part in ("objects", "refs"):
            (root / name / ".git" / part).rmdir()
        (root / name / ".git/HEAD").unlink()
    put(root, "c/.git/index")
    findings = settled(tree, before, quarantine)
    assert told(root, findings) == {"a/.git": "removed", "b/.git": "removed"}
    assert all((Path(each.place) / "hooks/pre-commit").read_text() == "mine" for each in findings)
    assert sorted(os.listdir(root)) == ["b", "c", "d"] and listing(root / "b") == ["file"]


def test_a_root_that_is_a_repository_itself_stays(root: Path, quarantine: Quarantine) -> None:
    repository(root, ".")
    tree = tree_at(root)
    before = tree.look()
    for part in ("objects", "refs"):
        (root / part).rmdir()
    (root / "HEAD").unlink()
    assert settled(tree, before, quarantine) == [] and listing(root) == ["config", "hooks", "hooks/pre-commit"]


def test_what_cannot_be_put_back_is_quarantined(root: Path, quarantine: Quarantine) -> None:
    put(root, "pkg/conftest.py", "mine")
    tree = tree_at(root)
    before = tree.look()
    (root / "pkg").rename(root / "other")
    put(root, "pkg", "a file is in the way")
    assert told(root, settled(tree, before, quarantine)) == {"other/conftest.py": "made"}
    assert listing(root) == ["other", "pkg"]


def test_what_a_protected_link_and_a_git_file_lead_to_is_protected_too(root: Path, quarantine: Quarantine) -> None:
    put(root, "shared/editor/tasks.json")
    (root / ".vscode").symlink_to("shared/editor")
    put(root, ".git", "gitdir: ./.bare/worktrees/x\n")
    put(root, ".bare/worktrees/x/commondir", "../..\n")
    put(root, ".bare/config")
    put(root, ".bare/hooks/pre-commit")
    put(root, ".bare/objects/ab")
    tree = tree_at(root)
    before = tree.look()
    assert before.found["shared/editor/tasks.json"].name == ".vscode"
    assert {path for path in before.found if path.startswith(".bare")} == {
        ".bare/config", ".bare/hooks", ".bare/hooks/pre-commit", ".bare/worktrees/x/commondir",
    }  # fmt: skip
    put(root, ".bare/hooks/post-commit")
    put(root, ".bare/objects/cd")
    put(root, "shared/editor/launch.json")
    assert told(root, settled(tree, before, quarantine)) == {
        ".bare/hooks/post-commit": "made",
        "shared/editor/launch.json": "made",
    }


@pytest.mark.parametrize("name", [".git", ".envrc", "x/.git/config"])
def test_links_that_lead_on_and_on_end_no_audit(root: Path, quarantine: Quarantine, name: str) -> None:
    os.mkdir(root / "c")
    for number in range(1500):
        (root / f"c/{number}").symlink_to(str(number + 1))
    put(root, "c/1500/x")
    place = root / name
    if name == ".envrc":
        place.symlink_to("c/0/x")
    else:
        at = f"{root}/c/0/x"
        put(root, name, f"gitdir: {at}\n" if name == ".git" else f"[core]\n\thooksPath = {at}\n\tworktree = {at}\n")
    for part in ("HEAD", "objects/x", "refs/x"):
        put(root, f"x/.git/{part}")
    tree = tree_at(root)
    before = tree.look()
    assert not before.unknown and name in before.found
    put(root, ".mcp.json")
    place.rename(root / "moved")
    (root / "moved").rename(place)
    assert ".mcp.json" in told(root, settled(tree, before, quarantine))


def test_nothing_but_settings_of_git_names_further_ones(root: Path) -> None:
    put(root, ".vscode/x", "[core]\n\thooksPath = h\n")
    put(root, "h/pre-commit")
    tree = tree_at(root)
    assert set(tree.look().found) == {".vscode", ".vscode/x"}
    put(root, ".git/config", "[core]\n\thooksPath = h\n")
    assert {"h", "h/pre-commit"} <= set(tree.look().found)


def test_a_directory_below_the_hooks_does_not_stay(root: Path, quarantine: Quarantine) -> None:
    repository(root, "a/.git")
    tree = tree_at(root)
    before = tree.look()
    (root / "a/.git/hooks/pre-push").mkdir()
    assert told(root, settled(tree, before, quarantine)) == {"a/.git/hooks/pre-push": "made"}


def test_a_long_list_of_steps_stays_and_no_other_file_of_its_length(root: Path, quarantine: Quarantine) -> None:
    repository(root, "a/.git")
    tree = tree_at(root)
    before = tree.look()
    put(root, "a/.git/rebase-merge/git-rebase-todo", "pick 1234567 something\n" * 20_000)
    put(root, "b/.git", f"gitdir: {'x' * 400_000}")
    (finding,) = settled(tree, before, quarantine)
    assert finding.path == str(root / "b/.git") and finding.why.endswith("it is no plain file")


def test_a_sample_is_gits_own_wherever_the_git_in_use_is(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree = tree_at(root)
    for number, prefix in enumerate([tmp_path / "other", Path("/usr")]):
        (prefix / "bin").mkdir(parents=True, exist_ok=True)
        if prefix != Path("/usr"):
            put(prefix, "bin/git").chmod(0o755)
        monkeypatch.setenv("PATH", f"{prefix}/bin")
        subprocess.run(["/usr/bin/git", "init", "-q", str(root / str(number))], check=True)
        path = f"{number}/.git/hooks/pre-commit.sample"
        assert tree.objection(path, tree.look().found[path], (0,)) == ""


def test_a_link_that_a_call_made_takes_nothing_with_it(root: Path, quarantine: Quarantine) -> None:
    put(root, "src/code.py")
    tree = tree_at(root)
    before = tree.look()
    (root / ".vscode").symlink_to("src")
    put(root, "sub/.git", "gitdir: ../../src")
    assert told(root, settled(tree, before, quarantine)) == {".vscode": "made", "sub/.git": "made"}
    assert listing(root) == ["src", "src/code.py", "sub"]


def git(*arguments: str) -> str:
    """Run the host's git, as a person does."""
    who = ["-c", "user.name=a", "-c", "user.email=a@b", "-c", "protocol.file.allow=always", "-c", "safe.directory=*"]
    done = subprocess.run(["git", *who, *arguments], check=True, capture_output=True, text=True)
    return done.stdout


def repositories_of_all_kinds(root: Path) -> list[str]:
    """Make a repository with a submodule and a linked work tree, a bare one and one behind a `.git` file."""
    git("init", "-q", "-b", "main", f"{root}/part")
    git("-C", f"{root}/part", "commit", "-q", "--allow-empty", "-m", "x")
    git("init", "-q", "-b", "main", f"{root}/r")
    git("-C", f"{root}/r", "commit", "-q", "--allow-empty", "-m", "x")
    git("-C", f"{root}/r", "submodule", "add", "-q", f"{root}/part", "m")
    git("-C", f"{root}/r", "worktree", "add", "-q", f"{root}/tree")
    git("init", "-q", "--bare", f"{root}/bare")
    git("init", "-q", "--separate-git-dir", f"{root}/apart", f"{root}/elsewhere")
    return ["r/.git", "r/.git/modules/m", "r/.git/worktrees/tree", "bare", "apart"]


PLANTED = [
    "logs/HEAD",
    "MERGE_MSG",
    "packed-refs",
    "info/sparse-checkout",
    "refs/heads",
    "rebase-merge/message",
    "x/y/z",
]


@pytest.mark.parametrize("kind", ["link", "dangling link", "link to a directory", "FIFO", "socket"])
def test_in_a_git_directory_a_call_leaves_regular_files_and_directories(
    root: Path, quarantine: Quarantine, kind: str
) -> None:
    whole = repositories_of_all_kinds(root)
    put(root, "target", "mine")
    tree = tree_at(root)
    before = tree.look()
    planted: set[str] = set()
    for repository in whole:
        for part in PLANTED:
            path = root / repository / part
            if path.is_dir():
                shutil.rmtree(path)
            path.unlink(missing_ok=True)
            path.parent.mkdir(parents=True, exist_ok=True)
            if kind == "FIFO":
                os.mkfifo(path)
            elif kind == "socket":
                os.mknod(path, stat.S_IFSOCK | 0o600)
            else:
                path.symlink_to({"link": f"{root}/target", "dangling link": "nowhere"}.get(kind, str(root)))
            planted.add(f"{repository}/{part}")
    findings = settled(tree, before, quarantine)
    assert told(root, findings) == dict.fromkeys(planted, "made")
    assert all("neither a file nor a directory" in each.why or "goes on" in each.why for each in findings)
    for repository in whole:
        for path in (root / repository).rglob("*"):
            assert stat.S_ISREG(path.lstat().st_mode) or stat.S_ISDIR(path.lstat().st_mode), path
    assert (root / "target").read_text() == "mine" and (root / "r/.git/HEAD").is_file()


def test_a_commit_of_a_person_writes_through_no_link_that_a_call_made(root: Path, quarantine: Quarantine) -> None:
    git("init", "-q", str(root / "r"))
    put(root, ".bashrc", "mine\n")
    tree = tree_at(root)
    before = tree.look()
    for part, target in (("logs/HEAD", "../../../.bashrc"), ("COMMIT_EDITMSG", "config"), ("index", "../../.bashrc")):
        (root / "r/.git" / part).parent.mkdir(exist_ok=True)
        (root / "r/.git" / part).symlink_to(target)
    assert len(settled(tree, before, quarantine)) == 3
    settings = (root / "r/.git/config").read_bytes()
    put(root, "r/file")
    git("-C", str(root / "r"), "add", "file")
    git("-C", str(root / "r"), "commit", "-q", "-m", "; touch EVIL")
    assert (root / ".bashrc").read_text() == "mine\n" and (root / "r/.git/config").read_bytes() == settings


def test_links_of_a_person_in_a_repository_stay_and_git_writes_to_their_targets(
    root: Path, quarantine: Quarantine
) -> None:
    """Old versions of git made HEAD a link."""
    git("init", "-q", "-b", "main", str(root / "r"))
    for path, target in (("HEAD", "refs/heads/main"), ("logs", "../kept")):
        (root / "r/.git" / path).unlink(missing_ok=True)
        (root / "r/.git" / path).symlink_to(target)
    (root / "r/kept").mkdir()
    tree = tree_at(root)
    for _ in range(2):
        before = tree.look()
        git("-C", str(root / "r"), "commit", "-q", "--allow-empty", "-m", "x")
        assert settled(tree, before, quarantine) == []
    assert (root / "r/.git/HEAD").is_symlink() and "main" in git("-C", str(root / "r"), "branch")
    before = tree.look()
    (root / "r").rename(root / "moved")
    assert settled(tree, before, quarantine) == [] and (root / "moved/.git/logs").is_symlink()
    before = tree.look()
    (root / "moved/.git/HEAD").unlink()
    (root / "moved/.git/HEAD").symlink_to("config")
    assert told(root, settled(tree, before, quarantine)) == {"moved/.git/HEAD": "changed"}


def test_a_link_is_moved_away_when_a_later_call_makes_its_directory_a_repository(
    root: Path, quarantine: Quarantine
) -> None:
    tree = tree_at(root)
    (root / "r/logs").mkdir(parents=True)
    before = tree.look()
    (root / "r/logs/HEAD").symlink_to("../target")
    for path in ("r/objects", "r/refs"):  # as in any project: it has no HEAD yet
        (root / path).mkdir()
    assert settled(tree, before, quarantine) == [] and (root / "r/logs/HEAD").is_symlink()
    before = tree.look()
    put(root, "r/HEAD", "ref: refs/heads/main\n")
    assert told(root, settled(tree, before, quarantine)) == {"r/logs/HEAD": "made"}
    before = tree.look()
    (root / "s").mkdir()
    (root / "s/x").symlink_to("y")
    assert settled(tree, before, quarantine) == []
    (root / "s").rename(root / ".git")
    assert told(root, settled(tree, before, quarantine)) == {".git/x": "made"}


def test_a_repository_without_a_head_that_work_trees_share_is_a_git_directory(
    root: Path, quarantine: Quarantine
) -> None:
    tree = tree_at(root)
    before = tree.look()
    git("init", "-q", "-b", "main", "--bare", f"{root}/shared")
    (root / "shared/worktrees/w").mkdir(parents=True)
    (root / "shared/HEAD").rename(root / "shared/worktrees/w/HEAD")
    put(root, "shared/worktrees/w/commondir", "../..\n")
    put(root, "w/.git", "gitdir: ../shared/worktrees/w\n")
    git("-C", str(root / "w"), "status")
    (root / "shared/packed-refs").symlink_to("../target")
    assert told(root, settled(tree, before, quarantine)) == {"shared/packed-refs": "made"}


def test_a_link_in_a_git_directory_that_comes_and_goes_while_calls_run_is_found(
    root: Path, quarantine: Quarantine
) -> None:
    """Another process of the session replaces the link while the audit runs."""
    git("init", "-q", str(root))
    (root / ".git/logs").mkdir(exist_ok=True)
    tree = tree_at(root)
    before = tree.look()
    place, aside, stop = root / ".git/logs/HEAD", root / "aside", threading.Event()

    def swap() -> None:
        while not stop.is_set():
            aside.symlink_to("target")
            os.replace(aside, place)
            aside.write_text("text")
            os.replace(aside, place)

    swapper = threading.Thread(target=swap)
    swapper.start()
    try:
        for _ in range(20):
            tree.settle(before, quarantine, others=True)
    finally:
        stop.set()
        swapper.join()
    place.unlink(missing_ok=True)
    place.symlink_to("target")
    tree.settle(before, quarantine)
    assert not place.is_symlink()


def test_a_longer_look_moves_the_links_of_a_git_directory_too(root: Path, quarantine: Quarantine) -> None:
    git("init", "-q", str(root / "r"))
    (root / "r/.git/info/x").symlink_to("y")
    swept = tree_at(root).sweep(lambda path, seen: not stat.S_ISDIR(seen.mode), quarantine, Budget())
    assert "r/.git/info/x" in told(root, list(swept.findings))


def test_what_a_person_has_set_in_a_repository_that_a_call_made_is_not_the_calls(
    root: Path, quarantine: Quarantine
) -> None:
    tree = tree_at(root)
    before = tree.look()
    git("init", "-q", str(root / "r"))
    assert settled(tree, before, quarantine) == []
    git("-C", str(root / "r"), "config", "alias.st", "status")
    put(root, "r/.git/hooks/pre-commit", "mine")
    (root / "r/.git/MERGE_MSG").symlink_to("x")
    held = listing(root)
    for _ in range(2):
        before = tree.look()
        assert settled(tree, before, quarantine) == [] and listing(root) == held
    assert "alias.st=status" in git("-C", str(root / "r"), "config", "--list", "--local")
    assert {bound.path for bound in tree.bound(before)} >= {f"{root}/r/.git/config", f"{root}/r/.git/hooks"}
    git("-C", str(root / "r"), "config", "alias.x", "!evil")
    assert told(root, settled(tree, before, quarantine)) == {"r/.git/config": "cut"}


def test_what_a_call_made_harmful_by_another_path_is_judged_though_it_did_not_change(
    root: Path, quarantine: Quarantine
) -> None:
    tree = tree_at(root)
    before = tree.look()
    git("init", "-q", "--separate-git-dir", f"{root}/apart", f"{root}/r")
    assert settled(tree, before, quarantine) == []
    before = tree.look()
    (root / "apart").rename(root / "apart2")
    (root / "apart").symlink_to("/elsewhere")
    assert told(root, settled(tree, before, quarantine)) == {"r/.git": "changed"}


def test_a_remote_that_a_call_changes_at_another_place_is_told_too(root: Path, quarantine: Quarantine) -> None:
    for name in ("a", "b", "c"):
        git("init", "-q", "-b", "main", f"{root}/{name}")
        git("-C", f"{root}/{name}", "config", "remote.origin.url", "https://example.org/mine")
        git("-C", f"{root}/{name}", "commit", "-q", "--allow-empty", "-m", "x")
    git("-C", f"{root}/b", "worktree", "add", "-q", f"{root}/w")
    drafts = Drafts(lambda _directory: None)
    tree = ProtectedTree(str(root), DEFAULT_PROTECTED, drafts=drafts)
    before = tree.look()
    assert tree.bound(before)
    (root / "a").rename(root / "aside")
    git("init", "-q", f"{root}/a")
    git("-C", f"{root}/a", "config", "remote.origin.url", "https://example.org/evil")
    put(root, "b/.git/worktrees/w/config.worktree", '[remote "origin"]\n\turl = https://example.org/evil\n')
    git("init", "-q", f"{root}/new")
    git("-C", f"{root}/new", "config", "remote.origin.url", "https://example.org/new")
    assert told(root, settled(tree, before, quarantine)) == {
        "a/.git/config": "redirected",
        "b/.git/worktrees/w/config.worktree": "redirected",
    }
    assert settled(tree, tree.look(), quarantine) == []
    drafts.close()


def test_a_remote_that_a_call_changes_in_an_included_file_is_told_too(root: Path, quarantine: Quarantine) -> None:
    for name in ("a", "b"):
        git("init", "-q", f"{root}/{name}")
        git("-C", f"{root}/{name}", "config", "remote.origin.url", "https://example.org/mine")
        git("-C", f"{root}/{name}", "config", "include.path", f"../../{name}.ini")
    put(root, "a.ini", "[user]\n\tname = Ada\n")
    drafts = Drafts(lambda _directory: None)
    tree = ProtectedTree(str(root), DEFAULT_PROTECTED, drafts=drafts)
    before = tree.look()
    assert tree.bound(before)
    git("init", "-q", f"{root}/new")
    git("-C", f"{root}/new", "config", "remote.origin.url", "https://example.org/new")
    put(root, "b.ini", '[user]\n\tname = Ada\n[remote "other"]\n\turl = https://example.org/other\n')
    assert settled(tree, before, quarantine) == []
    before = tree.look()
    assert tree.bound(before)
    put(root, "a.ini", '[remote "origin"]\n\tpushurl = https://example.org/evil\n')
    assert told(root, settled(tree, before, quarantine)) == {"a.ini": "redirected"}
    drafts.close()


HOOKS = "[core]\n\thooksPath = tools/hooks\n"


@pytest.mark.parametrize(
    "settings",
    [
        HOOKS + "[user]\n\tname = Ada # a comment\n",
        HOOKS + '[alias]\n\tst = !git "status" ; true\n',
        HOOKS + "[user]\n\tname = a \\\n  b\n",
        HOOKS.replace("\n", "\r\n"),
        '[CORE] hookspath = "tools"/ho\\\noks # one line\n',
        "[include]\n\tpath = ../a.ini\n",
    ],
    ids=["comment", "quotes", "continued", "CR", "one line", "included twice"],
)
def test_what_settings_name_is_protected_however_a_person_wrote_them(
    root: Path, quarantine: Quarantine, settings: str
) -> None:
    git("init", "-q", str(root))
    with open(root / ".git/config", "a", newline="") as file:
        file.write(settings)
    put(root, "a.ini", "[include]\n\tpath = tools/b.ini\n")
    put(root, "tools/b.ini", HOOKS + "[include]\n\tpath = c.ini\n")
    tree = tree_at(root)
    before = tree.look()
    put(root, "tools/hooks/pre-commit", f"#!/bin/sh\ntouch {root}/EVIL\n").chmod(0o755)
    put(root, "tools/c.ini", f"[core]\n\tfsmonitor = touch {root}/EVIL\n")
    assert told(root, settled(tree, before, quarantine)).keys() >= {"tools/hooks/pre-commit"}
    git("-C", str(root), "commit", "-q", "--allow-empty", "-m", "x")
    assert not (root / "EVIL").exists()


@pytest.mark.parametrize("where", ["repository outside", "linked work tree", "submodule"])
def test_the_hooks_of_every_work_tree_of_a_repository_are_protected(
    root: Path, tmp_path: Path, quarantine: Quarantine, where: str
) -> None:
    here, top = (root / "w", tmp_path if where == "repository outside" else root)
    git("init", "-q", f"{top}/main")
    git("-C", f"{top}/main", "commit", "-q", "--allow-empty", "-m", "x")
    if where == "submodule":
        git("init", "-q", f"{tmp_path}/other")
        git("-C", f"{tmp_path}/other", "commit", "-q", "--allow-empty", "-m", "x")
        add = ["-c", "protocol.file.allow=always", "submodule", "--quiet", "add", f"{tmp_path}/other", "w"]
        git("-C", f"{top}/main", *add)
        here = top / "main/w"
    else:
        git("-C", f"{top}/main", "worktree", "add", "-q", str(here))
    git("-C", str(here), "config", "core.hooksPath", "tools/hooks")
    tree = tree_at(root)
    before = tree.look()
    put(here, "tools/hooks/pre-commit", f"#!/bin/sh\ntouch {root}/EVIL\n").chmod(0o755)
    assert list(told(here, settled(tree, before, quarantine))) == ["tools/hooks/pre-commit"]
    git("-C", str(here), "commit", "-q", "--allow-empty", "-m", "x")
    assert not (root / "EVIL").exists()


def test_no_link_is_followed(root: Path, tmp_path: Path, quarantine: Quarantine) -> None:
    outside = tmp_path / "outside"
    put(outside, ".vscode/tasks.json")
    (root / "link").symlink_to(outside)
    (root / "round").symlink_to(".")
    tree = tree_at(root)
    assert settled(tree, tree.look(), quarantine) == [] and tree.directories == 1
    assert (outside / ".vscode/tasks.json").exists()


def test_a_name_that_is_no_text_is_quarantined(root: Path, quarantine: Quarantine) -> None:
    tree = tree_at(root)
    before = tree.look()
    open(os.fsencode(root) + b"/\xff\xfe.pth", "w").close()
    (finding,) = settled(tree, before, quarantine)
    assert finding.name == "*.pth" and os.listdir(root) == []


def test_a_directory_that_the_call_closed_is_looked_into(root: Path, quarantine: Quarantine) -> None:
    tree = tree_at(root)
    before = tree.look()
    put(root, "shut/.vscode/tasks.json")
    for path in ("shut/.vscode", "shut"):
        (root / path).chmod(0)
    assert told(root, settled(tree, before, quarantine)) == {"shut/.vscode": "made"}


def test_what_is_nested_deeper_than_any_path_is_found_and_moved(root: Path, quarantine: Quarantine) -> None:
    tree = tree_at(root)
    before = tree.look()
    fd = nest(root, 100)
    os.mkdir(".vscode", dir_fd=fd)
    (finding,) = settled(tree, before, quarantine)
    assert len(finding.path) > 10_000 and os.listdir(f"/proc/self/fd/{fd}") == []
    assert os.path.basename(finding.place) == ".vscode" and os.path.isdir(finding.place)
    os.mkdir(".vscode", dir_fd=fd)
    assert tree.bound(tree.look()) == ()  # no mount has so long a path
    os.rmdir(".vscode", dir_fd=fd)
    os.close(fd)


@pytest.mark.parametrize(
    ("bound", "why"),
    [
        ({"directories": 40}, "too many directories"),
        ({"entries": 200}, "too many entries"),
        ({"names": 10}, "too many protected names"),
        ({"path_bytes": 100}, "too many bytes of paths"),
        ({"seconds": 0.0}, "took too long"),
    ],
)
def test_what_a_bound_cuts_short_is_unknown_and_what_was_found_is_moved(
    root: Path, quarantine: Quarantine, monkeypatch: pytest.MonkeyPatch, bound: dict[str, Any], why: str
) -> None:
    tree = tree_at(root)
    before = tree.look()
    put(root, ".envrc", "evil")
    for number in range(50):
        for inner in range(40):
            put(root, f"{number}/{inner}.pth", "")
    patient: dict[str, Any] = {"seconds": 600.0}
    look = tree.look(Budget(**patient | bound))
    assert why in look.unknown
    monkeypatch.setattr(audit, "Budget", lambda **_: Budget(**patient | bound))
    done = tree.settle(before, quarantine)
    assert why in done.unknown and not done.stuck
    assert {finding.name for finding in done.findings} <= {".envrc", "*.pth"}
    monkeypatch.setattr(audit, "Budget", lambda **_: Budget(**patient))
    assert len(done.findings) + len(settled(tree, before, quarantine)) == 1 + 50 * 40
    assert not [each for each in listing(root) if each.endswith(".pth")]


def test_what_was_unknown_before_is_told_by_its_change_time(root: Path, quarantine: Quarantine) -> None:
    put(root, "deep/in/conftest.py", "mine")
    grow_old(facts.COARSE_NS)
    tree = tree_at(root)
    before = tree.look(Budget(directories=1))
    assert before.unknown and not before.found
    put(root, "deep/in/.envrc", "evil")
    done = tree.settle(before, quarantine)
    assert told(root, list(done.findings)) == {"deep/in/.envrc": "made"} and "too many directories" in done.unknown
    assert (root / "deep/in/conftest.py").read_text() == "mine"


def test_from_another_file_system_it_is_copied(root: Path) -> None:
    place = Path("/dev/shm" if root.stat().st_dev != os.stat("/dev/shm").st_dev else "/var/tmp")
    elsewhere = place / f"toolcell-test-{os.getpid()}"
    assert place.stat().st_dev != root.stat().st_dev
    tree = tree_at(root)
    before = tree.look()
    put(root, ".vscode/deep/tasks.json", "evil")
    (root / ".vscode/link").symlink_to("deep")
    os.mkfifo(root / ".envrc")
    try:
        findings = {finding.name: Path(finding.place) for finding in settled(tree, before, Quarantine(str(elsewhere)))}
        assert findings[".vscode"].is_relative_to(elsewhere)
        assert (findings[".vscode"] / "deep/tasks.json").read_text() == "evil"
        assert os.readlink(findings[".vscode"] / "link") == "deep"
        assert findings[".envrc"].parent == root and findings[".envrc"].name.startswith("toolcell-quarantined-")
        assert os.listdir(root) == [findings[".envrc"].name]
    finally:
        import shutil

        shutil.rmtree(elsewhere)


@pytest.mark.root
def test_a_full_disk_does_not_keep_it_in_its_place(root: Path) -> None:
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k,nr_inodes=16", "tmpfs", root], check=True)
    try:
        tree = tree_at(root / "work")
        os.mkdir(root / "work")
        before = tree.look()
        put(root, "work/.vscode/tasks.json", "evil")
        with pytest.raises(OSError, match="No space left"):
            for number in range(16):
                put(root, f"work/{number}", "")
        (finding,) = settled(tree, before, Quarantine(str(root / "quarantine")))
        assert Path(finding.place).name.startswith("toolcell-quarantined-") and not (root / "work/.vscode").exists()
    finally:
        subprocess.run(["umount", root], check=True)


def test_what_cannot_go_back_because_its_home_is_below_it_now_is_left(root: Path, quarantine: Quarantine) -> None:
    put(root, "a/.vscode/x")
    tree = tree_at(root)
    before = tree.look()
    (root / "a/.vscode").rename(root / "b")
    (root / "a").rmdir()
    (root / "b").rename(root / "a")
    put(root, ".envrc")
    assert told(root, settled(tree, before, quarantine)) == {".envrc": "made"}


def test_a_pointer_with_a_nul_ends_there_as_it_does_for_git(root: Path) -> None:
    (root / "tree").mkdir()
    (root / "tree/.git").write_bytes(b"gitdir: ../repository\0of/none\n")
    put(root, "repository/config")
    assert names(tree_at(root).look()) == {"tree/.git": ".git", "repository/config": ".git/config"}


def test_a_quarantine_in_the_workspace_is_refused(root: Path) -> None:
    tree = tree_at(root)
    before = tree.look()
    put(root, ".envrc")
    done = tree.settle(before, Quarantine(str(root / "quarantine")))
    assert "could not be moved" in done.stuck and (root / ".envrc").exists()
    assert done.unknown == "", "it is not tried again"
    assert [(finding.what, finding.place) for finding in done.findings] == [("made", "")]


def test_a_root_below_another_is_a_tree_of_its_own_and_naming_it_lifts_the_name_above(root: Path) -> None:
    put(root, ".vscode/tasks.json")
    put(root, ".vscode/.mcp.json")
    put(root, "b/.vscode/tasks.json")
    trees = ProtectedTrees([str(root), str(root / ".vscode")], EVERYWHERE)
    outer, inner = trees.look()
    assert set(outer.found) == {"b/.vscode", "b/.vscode/tasks.json"} and set(inner.found) == {".mcp.json"}


def test_what_the_kernel_can_hold_is_bound_nearest_first_with_pins(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for path in (".git/config", ".git/hooks/x", "a/conftest.py", "a/b/c/conftest.py", ".github/workflows/ci.yml"):
        put(root, path)
    (root / ".mcp.json").symlink_to("elsewhere")
    tree = tree_at(root)
    bound = [(os.path.relpath(each.path, root), each.pin) for each in tree.bound(tree.look())]
    assert bound == [
        (".git", True), (".git/config", False), (".git/hooks", False), (".github", True), (".github/workflows", False),
        ("a/conftest.py", False), ("a/b/c/conftest.py", False),
    ]  # fmt: skip
    monkeypatch.setattr(audit, "MAX_BOUND", 4)
    assert [each.path for each in tree.bound(tree.look())] == [str(root / path) for path, _pin in bound[:3]]
    assert tree.bound(tree.look())[0].inode == ((root / ".git").stat().st_dev, (root / ".git").stat().st_ino)


def test_a_root_that_is_gone_or_a_file_has_no_names(root: Path) -> None:
    assert names(tree_at(root / "not there").look()) == {} == names(tree_at(put(root, ".mcp.json")).look())
    assert ProtectedTrees([str(root)], CellProfile(protected=()).protected).look() == ()


def test_what_took_the_place_of_what_was_seen_stays_there(root: Path, quarantine: Quarantine) -> None:
    file = put(root, "conftest.py", "another")
    info = file.stat()
    with Root(str(root)) as held:
        assert quarantine.take(held, "conftest.py", (info.st_dev, info.st_ino + 1), Copies()) == ""
    assert file.read_text() == "another" and listing(root) == ["conftest.py"]
    assert os.listdir(quarantine.made) == [], "no shelf is left"


def test_a_copy_takes_away_what_was_copied_and_no_more(root: Path, tmp_path: Path) -> None:
    put(root, "d/copied")
    changed = put(root, "d/changed")
    (tmp_path / "to").mkdir()
    grow_old()
    parent, target = (os.open(path, os.O_PATH) for path in (root, tmp_path / "to"))
    copied = Copies().copy("d", parent, "d", target)
    assert copied is not None
    changed.write_text("since")
    put(root, "d/new")
    copied.remove(parent)
    assert listing(root) == ["d", "d/changed", "d/new"] and listing(tmp_path / "to") == ["d", "d/changed", "d/copied"]
    os.close(parent)
    os.close(target)


@pytest.mark.root
def test_a_directory_that_root_makes_in_its_own_tree_keeps_roots_group(root: Path) -> None:
    os.chown(root, 0, 1234)
    with Root(str(root)) as held:
        os.close(held.parent("a/b", make=True, owned=True))
    assert ((root / "a").stat().st_uid, (root / "a").stat().st_gid) == (0, os.getegid())
    os.chown(root, 1234, 1234)
    with Root(str(root)) as held:
        os.close(held.parent("c/d", make=True, owned=True))
    assert ((root / "c").stat().st_uid, (root / "c").stat().st_gid) == (1234, 1234)


def test_a_file_that_was_as_fresh_as_the_clock_is_told_apart_by_its_content() -> None:
    was = Seen(("x",), 1, 2, stat.S_IFREG | 0o644, 5, 7, racy=True, digest=b"a")
    assert as_before(was, was) and as_before(replace(was, digest=b""), was) and as_before(was, replace(was, digest=b""))
    assert not as_before(replace(was, digest=b"b"), was)
    assert as_before(replace(was, digest=b"b"), replace(was, racy=False))


def test_a_link_that_a_call_led_elsewhere_takes_nothing_with_it(root: Path, quarantine: Quarantine) -> None:
    put(root, "old.txt")
    mine = put(root, "mine.txt")
    link = root / ".envrc"
    link.symlink_to("old.txt")
    tree = tree_at(root)
    before = tree.look()
    assert names(before).keys() == {".envrc", "old.txt"}
    link.unlink()
    link.symlink_to("mine.txt")
    assert told(root, settled(tree, before, quarantine)) == {".envrc": "changed"}
    assert mine.exists() and not link.is_symlink()


def test_what_a_link_leads_to_is_told_apart_by_its_content_while_it_is_fresh(root: Path) -> None:
    put(root, "target.txt", "text")
    (root / ".envrc").symlink_to("target.txt")
    look = tree_at(root).look()
    assert look.found["target.txt"].racy and len(look.found["target.txt"].digest) == 16 and not look.doubt


def test_a_repository_with_the_inode_number_of_one_that_a_call_made_is_not_the_calls(
    root: Path, quarantine: Quarantine, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree = tree_at(root)
    before = tree.look()
    put(root, ".git/config", "[core]\n")
    assert settled(tree, before, quarantine) == []
    monkeypatch.setattr(audit, "born_ns", lambda path: born_ns(path) and born_ns(path) + 1)  # that one is gone since
    before = tree.look()
    os.rename(root / ".git", root / "old")
    assert told(root, settled(tree, before, quarantine)) == {".git/config": "moved"}
    assert (root / ".git/config").read_text() == "[core]\n"


def test_what_was_moved_a_while_ago_with_a_repository_that_has_a_copy_of_its_settings_is_put_back(
    root: Path, quarantine: Quarantine
) -> None:
    """The audit looks twice here, and the second look does not list what is no longer fresh."""
    put(root, "r/.git/config", "[core]\n")
    put(root, "r/.git/hooks/pre-commit")
    drafts = Drafts(lambda _directory: None)
    tree = ProtectedTree(str(root), DEFAULT_PROTECTED, drafts=drafts)
    grow_old()
    before = tree.look()
    assert tree.bound(before) and drafts.paths == ("r/.git/config",)
    (root / "r/.git/config").unlink()
    (root / "r/.git/hooks").rename(root / "r/.git/old")
    (root / "r/.git").rename(root / "r/.git.old")
    grow_old()
    (finding,) = settled(tree, before, quarantine)
    assert (finding.what, finding.path) == ("moved", str(root / "r/.git/hooks"))
    assert (root / "r/.git/hooks/pre-commit").exists()
    drafts.close()


def test_what_a_call_moved_before_a_look_for_another_call_is_put_back(root: Path, quarantine: Quarantine) -> None:
    """The look lists the directory, and the audit of the first call does not list it again."""
    put(root, "r/.git/config", "[core]\n")
    put(root, "r/.git/hooks/pre-commit")
    tree = tree_at(root)
    grow_old()
    before = tree.look()
    (root / "r/.git/hooks").rename(root / "r/.git/old")
    grow_old()
    tree.look(held=before)
    assert told(root, settled(tree, before, quarantine)) == {"r/.git/hooks": "moved"}
    assert (root / "r/.git/hooks/pre-commit").exists()
