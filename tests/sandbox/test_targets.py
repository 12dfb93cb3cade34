"""What protected links, `.git` files and git settings lead to. `test_audit.py` has what becomes of it after a call."""

import os
from pathlib import Path

import pytest

from toolcell_sandbox.trees.audit import ProtectedTree
from toolcell_sandbox.trees.protected import GIT_PARTS


@pytest.fixture
def root(tmp_path: Path) -> Path:
    path = tmp_path / "work"
    path.mkdir()
    return path


def put(root: Path, path: str, text: str = "text") -> Path:
    file = root / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    return file


def names(root: Path, *vocabularies: tuple[str, ...]) -> dict[str, tuple[str | None, ...]]:
    """The names of each path that is found, for each vocabulary."""
    tree = ProtectedTree(str(root))
    for each in vocabularies:
        tree.learn(each)
    look = tree.look()
    assert not look.unknown
    return {path: seen.names for path, seen in look.found.items()}


def test_the_target_of_a_link_is_protected_by_the_links_name_with_all_that_is_below(root: Path) -> None:
    put(root, "shared/editor/tasks.json")
    (root / ".vscode").symlink_to("shared/editor")
    assert names(root, (".vscode",)) == {
        ".vscode": (".vscode",),
        "shared/editor": (".vscode",),
        "shared/editor/tasks.json": (".vscode",),
    }


@pytest.mark.parametrize("target", ["nowhere", "../outside", "/etc/passwd", "round"])
def test_a_target_that_is_not_in_the_tree_adds_nothing(root: Path, target: str) -> None:
    put(root.parent, "outside")
    (root / "round").symlink_to("round")
    (root / ".envrc").symlink_to(target)
    assert names(root, (".envrc",)) == {".envrc": (".envrc",)}


@pytest.mark.parametrize("first", [0, 1])
def test_a_target_of_two_links_is_protected_for_the_vocabulary_of_each(root: Path, first: int) -> None:
    put(root, "shared")
    links = (".envrc", ".mcp.json")
    for link in links:
        (root / link).symlink_to("shared")
    assert names(root, (links[first],), (links[1 - first],))["shared"] == (links[first], links[1 - first])


@pytest.mark.parametrize("first", [0, 1])
def test_a_target_with_a_protected_name_of_its_own_keeps_it(root: Path, first: int) -> None:
    put(root, ".envrc")
    (root / ".mcp.json").symlink_to(".envrc")
    words = (".envrc", ".mcp.json")
    assert names(root, (words[first],), (words[1 - first],))[".envrc"] == (words[first], words[1 - first])
    assert names(root, words)[".envrc"] == (".envrc",)


def test_a_git_file_leads_to_its_repository_and_to_the_common_one(root: Path) -> None:
    own = root / "store/worktrees/one"
    put(root, "store/worktrees/one/commondir", "../..\n")
    put(root, "store/config", "[core]\n")
    put(root, "store/hooks/pre-commit")
    put(root, "store/objects/00/11")
    put(root, "store/worktrees/one/config.worktree", "")
    put(root, "wt/.git", f"gitdir: {own}\n")
    found = names(root, (".git",))
    assert {"wt/.git", "store/config", "store/hooks", "store/hooks/pre-commit"} <= found.keys()
    assert not any(path.startswith("store/objects") for path in found)


def test_a_git_file_that_is_none_leads_nowhere(root: Path) -> None:
    put(root, "store/config")
    put(root, "wt/.git", "../store")
    assert set(names(root, (".git",))) == {"wt/.git"}


@pytest.mark.parametrize("hooks", ["my hooks", "absolute"])
def test_the_hooks_and_further_settings_that_git_settings_name_are_protected(root: Path, hooks: str) -> None:
    put(root, "my hooks/pre-commit")
    put(root, "more.ini")
    place = os.path.join(root, "my hooks") if hooks == "absolute" else hooks
    put(root, ".git/HEAD", "ref: refs/heads/main\n")
    put(root, ".git/config", f'[core]\n\thooksPath = "{place}"\n[include]\n\tpath = ../more.ini\n')
    found = names(root, (".git/config", ".git/hooks"))
    assert found["my hooks/pre-commit"] == (GIT_PARTS["hooks"],)
    assert found["more.ini"] == (GIT_PARTS["config"],)
