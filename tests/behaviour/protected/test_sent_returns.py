"""Returns of a sent workspace one after the other: what one brought may have a protected name only since a later one.

Ray is not needed here: the changes are written as for a node's answer.
"""

import os
import subprocess
from hashlib import sha256
from pathlib import Path

import pytest

from toolcell.workplaces.diff import ReceivedDiff
from toolcell.workplaces.exclusions import DEFAULT_EXCLUDED, Exclusions
from toolcell.workplaces.listing import TreeEntry
from toolcell.workplaces.writer import ApplyReport, apply
from toolcell_sandbox.trees.protected import DEFAULT_PROTECTED
from toolcell_sandbox.trees.quarantine import Quarantine


class Returns:
    """A workspace here, and the returns to it."""

    def __init__(self, top: Path, quarantine: Path) -> None:
        self.top, self.quarantine = top, Quarantine(str(quarantine))
        self._there: dict[str, TreeEntry] = {}

    def bring(self, made: dict[str, bytes | str | None], gone: list[str] | None = None) -> ApplyReport:
        """Bring files (bytes), links (text) and directories (None) back, and the directories above them."""
        contents: dict[bytes, bytes] = {}
        entries: dict[str, TreeEntry] = {}
        for path, value in made.items():
            for above in [str(each) for each in Path(path).parents][-2::-1]:
                entries.setdefault(above, TreeEntry(above, "directory", 0o755))
            if value is None:
                entries[path] = TreeEntry(path, "directory", 0o755)
            elif isinstance(value, str):
                entries[path] = TreeEntry(path, "link", content=value.encode())
            else:
                digest = sha256(value).digest()
                contents[digest] = value
                entries[path] = TreeEntry(path, "file", 0o755, len(value), digest)
        done = apply(
            str(self.top),
            ReceivedDiff(entries, gone or [], self._there, self._there),
            lambda entry, fd: os.write(fd, contents[entry.content]),
            protected=DEFAULT_PROTECTED,
            exclusions=Exclusions.of(DEFAULT_EXCLUDED),
            policy="ours",
            quarantine=self.quarantine,
        )
        self._there |= {path: entries[path] for path in done.settled if path in entries}
        return done


@pytest.fixture
def returns(tmp_path: Path) -> Returns:
    (tmp_path / "top").mkdir()
    return Returns(tmp_path / "top", tmp_path / "quarantine")


EARLIER: dict[str, bytes | str | None] = {
    "r/config": b'[core]\n\tbare = false\n\tworktree = ..\n\tfsmonitor = "touch EVIL; false"\n[user]\n\tname = Ada\n',
    "r/hooks/post-checkout": b"#!/bin/sh\ntouch EVIL\n",
    "r/logs/HEAD": "../notes",
    "sub/.vscode/tasks.json": b"{}",
    "sub/code.py": b"x",
}


@pytest.mark.parametrize("at_once", [True, False], ids=["marks at once", "one mark a return"])
def test_what_earlier_returns_brought_does_not_stay_when_its_directory_becomes_a_repository(
    returns: Returns, at_once: bool
) -> None:
    first = returns.bring(EARLIER)
    assert not first.report.left_out and not first.report.unknown
    assert (returns.top / "r/logs/HEAD").is_symlink()
    marks: dict[str, bytes | str | None] = {"r/objects": None, "r/refs": None, "r/HEAD": b"ref: refs/heads/main\n"}
    marks["sub/.git/HEAD"] = b"ref: refs/heads/main\n"
    gone = ["r/hooks/post-checkout", "sub/.vscode/tasks.json", "sub/.vscode"]  # by the node's audit
    brought = [marks] if at_once else [{path: value} for path, value in marks.items()]
    reports = [returns.bring(each, gone).report for each in brought]
    told = {each.path: each.why for report in reports for each in report.left_out}
    assert "moved out of the workspace" in told["r/hooks/post-checkout"] + told["r/logs/HEAD"] + told["sub/.vscode"]
    assert "settings were kept" in told["r/config"] and not any(report.unknown for report in reports)
    assert (returns.top / "r/config").read_text() == "[core]\n\tbare = false\n[user]\n\tname = Ada\n"
    for path in ("r/hooks/post-checkout", "r/logs/HEAD", "sub/.vscode"):
        assert not os.path.lexists(returns.top / path), path
    assert (returns.top / "r/HEAD").exists() and (returns.top / "sub/code.py").exists()
    git = ["git", "-c", "safe.directory=*", "-C", str(returns.top / "r")]
    subprocess.run([*git, "--work-tree", str(returns.top), "status"], check=True, capture_output=True)
    assert not list(returns.top.rglob("EVIL"))


def test_a_return_brings_no_link_into_a_git_directory(returns: Returns) -> None:
    subprocess.run(["git", "init", "-q", str(returns.top / "mine")], check=True)
    links: dict[str, bytes | str | None] = {
        "mine/.git/logs/HEAD": "../../notes",
        "new/.git/MERGE_MSG": "config",
        "bare/logs/HEAD": "../hooks",
        "plain/logs/HEAD": "x",
    }
    marks: dict[str, bytes | str | None] = {"bare/objects": None, "bare/refs": None, "bare/HEAD": b"ref: x\n"}
    done = returns.bring({**links, **marks})
    assert {each.path for each in done.report.left_out} == set(links) - {"plain/logs/HEAD"}
    assert [path for path in links if os.path.lexists(returns.top / path)] == ["plain/logs/HEAD"]


def test_what_a_person_has_here_is_moved_only_where_a_return_gives_it_a_protected_name(returns: Returns) -> None:
    for path in ("mine/.vscode/tasks.json", "other/.vscode/tasks.json"):
        (returns.top / path).parent.mkdir(parents=True)
        (returns.top / path).write_text("{}")
    (returns.top / "mine/.git").mkdir()
    returns.bring({"mine/.git/HEAD": b"ref: refs/heads/main\n", "third/objects": None})
    assert (returns.top / "mine/.vscode/tasks.json").exists() and (returns.top / "other/.vscode/tasks.json").exists()


def test_a_return_brings_no_hook_or_setting_that_the_settings_here_name(returns: Returns) -> None:
    git = [
        "git",
        "-c",
        "safe.directory=*",
        "-c",
        "user.name=a",
        "-c",
        "user.email=a@example.org",
        "-C",
        str(returns.top),
    ]
    subprocess.run([*git, "init", "-q"], check=True)
    subprocess.run([*git, "config", "core.hooksPath", "tools/hooks"], check=True)
    subprocess.run([*git, "config", "include.path", "../team.ini"], check=True)
    hook = b"#!/bin/sh\ntouch EVIL\n"
    done = [
        returns.bring({"tools/hooks/pre-commit": hook, "code.py": b"x"}),
        returns.bring({"team.ini": b'[core]\n\tfsmonitor = "touch EVIL; false"\n[user]\n\tname = Ada\n'}),
        returns.bring({"tools/hooks/post-commit": hook}),
    ]
    assert ["moved out of the workspace" in each.report.left_out[0].why for each in done] == [True, False, True]
    assert (returns.top / "team.ini").read_text() == "[core]\n[user]\n\tname = Ada\n"
    subprocess.run([*git, "commit", "-q", "--allow-empty", "-m", "x"], check=True)
    assert not list(returns.top.rglob("EVIL")) and (returns.top / "code.py").exists()
