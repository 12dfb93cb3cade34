"""Repositories that were moved with their work trees."""

import pytest

from toolcell_sandbox.trees.repositories import work_trees


@pytest.mark.parametrize(
    ("old", "new", "found"),
    [
        ("a/.git", "b/c/.git", ("a", "b/c")),
        ("a/.git", ".git", None),
        (".git", "a/.git", None),
        ("a/.git", "b/git", None),
        ("a/bare", "b/bare", None),
    ],
)
def test_a_work_tree_has_its_repository_in_it_and_is_not_the_workspace(
    old: str, new: str, found: tuple[str, str] | None
) -> None:
    assert work_trees(old, new) == found
