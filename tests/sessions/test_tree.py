"""The rules of the session tree."""

from dataclasses import dataclass

import pytest

from toolcell import SessionKind, UsageError
from toolcell.sessions.tree import MAX_CHILDREN, MAX_DEPTH, check_child


@dataclass
class Node:
    kind: SessionKind = SessionKind.MAIN
    depth: int = 0
    living_children: int = 0


def test_branches_and_workers_are_opened_below_main_and_branches() -> None:
    for parent in (SessionKind.MAIN, SessionKind.BRANCH):
        for child in (SessionKind.BRANCH, SessionKind.WORKER):
            check_child(Node(parent, MAX_DEPTH - 1, MAX_CHILDREN - 1), child)


@pytest.mark.parametrize(
    ("parent", "child", "words"),
    [
        (Node(SessionKind.WORKER, 1), SessionKind.WORKER, "A Worker session is a leaf"),
        (Node(SessionKind.WORKER, 1), SessionKind.MAIN, "A Worker session is a leaf"),
        (Node(), SessionKind.MAIN, "A Main session is the root"),
        (Node(SessionKind.BRANCH, MAX_DEPTH), SessionKind.WORKER, "The session tree is 4 deep at the most"),
        (Node(living_children=MAX_CHILDREN), SessionKind.WORKER, "at most 8 open children"),
    ],
)
def test_any_other_child_is_refused(parent: Node, child: SessionKind, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        check_child(parent, child)
