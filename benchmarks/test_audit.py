"""The look at a workspace for protected names, which every call that may write takes twice."""

import shutil
import time
from functools import partial
from pathlib import Path

import pytest

from toolcell_sandbox.trees.audit import ProtectedTree
from toolcell_sandbox.trees.facts import RACY_NS
from toolcell_sandbox.trees.protected import DEFAULT_PROTECTED

from .conftest import Publish
from .interleave import Case, interleave, timed
from .replay import recorded_time
from .report import Figure

pytestmark = pytest.mark.benchmark(timer=recorded_time)

FILES = 8


@pytest.mark.parametrize("directories", [10, 1_000, 10_000])
def test_a_look_for_protected_names(publish: Publish, directories: int) -> None:
    publish(partial(look, directories), 20 if directories < 10_000 else 8)


async def look(directories: int, rounds: int, workspace: Path) -> Figure:
    directories = min(directories, 1_250 * rounds)  # two rounds, which only try it out, need no large tree
    root = workspace / "tree"
    grow(root, directories)
    try:
        tree = ProtectedTree(str(root), DEFAULT_PROTECTED)
        tree.look()

        def afresh() -> None:
            ProtectedTree(str(root), DEFAULT_PROTECTED).look()

        cases = [
            Case("nothing has changed", "ours", timed(tree.look)),
            Case("the first look", "ours", timed(afresh)),
            Case("rglob", "floor", timed(lambda: sum(1 for _ in root.rglob("*")))),
        ]
        title = f"A look for protected names, in {directories:,} directories of {FILES} files"
        return Figure(f"audit-{directories}", title, await interleave(cases, rounds))
    finally:
        shutil.rmtree(root)


def grow(root: Path, directories: int) -> None:
    """Directories a hundred to each, and a repository with what is protected in one."""
    (root / ".git" / "hooks").mkdir(parents=True)
    (root / ".git" / "config").write_text("[core]\n")
    for number in range(directories):
        inner = root / f"package{number // 100}" / f"module{number % 100}"
        inner.mkdir(parents=True)
        for file in range(FILES):
            (inner / f"file_{file}.py").touch()
    time.sleep(2 * RACY_NS / 1e9)
