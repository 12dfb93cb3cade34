"""Workspaces whose file systems do not answer, and many of them."""

import gc
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from tests.helpers import PATIENCE_S
from tests.hung import hung_mount

from toolcell.sessions import changes
from toolcell.sessions.changes import CallChanges, RemoteRoot, TrackedRoot, WorkspaceChanges

pytestmark = [pytest.mark.anyio, pytest.mark.few_on_trio]


async def entered(tracked: TrackedRoot | RemoteRoot) -> CallChanges:
    """The changes of a call before which one has looked."""
    call = tracked.call(10)
    await tracked.enter(call)
    return call


def open_queues() -> int:
    """The inotify queues of this process."""
    found = 0
    for fd in os.listdir("/proc/self/fd"):
        with suppress(FileNotFoundError):  # the descriptor of the listing itself
            found += os.readlink(f"/proc/self/fd/{fd}") == "anon_inode:inotify"
    return found


@pytest.fixture
def hung(tmp_path: Path) -> Iterator[Path]:
    """A workspace with a file system in it that answers nothing."""
    with hung_mount(tmp_path / "hung" / "mount"):
        yield tmp_path / "hung"


@pytest.mark.root
async def test_a_file_system_that_does_not_answer_holds_a_call_for_seconds_only_and_no_other_workspace(
    hung: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(changes, "WAIT_S", 0.3)
    workspaces = WorkspaceChanges()
    tracked = workspaces.of(str(hung), (0, 0, 0), texts=True)
    first = await entered(tracked)
    assert "did not answer in time" in first.unknown
    await tracked.leave(first)
    monkeypatch.setattr(tracked, "_again_at", 0.0)
    assert "does not answer" in (await entered(tracked)).unknown
    second = await entered(workspaces.of(str(hung), (0, 0, 0), texts=True))
    assert "does not answer" in second.unknown
    assert len(workspaces.hung) == 1, "one thread"
    (tmp_path / "other").mkdir()
    monkeypatch.setattr(changes, "WAIT_S", PATIENCE_S)
    other = await entered(workspaces.of(str(tmp_path / "other"), (0, 0, 0), texts=True))
    assert other.unknown == ""
    monkeypatch.setattr(changes, "MAX_HUNG", 1)
    (tmp_path / "third").mkdir()
    assert "hold all threads" in (await entered(workspaces.of(str(tmp_path / "third"), (0, 0, 0), texts=True))).unknown
    workspaces.close()


async def test_the_least_recently_used_workspaces_give_their_queues_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(changes, "MAX_QUEUES", 2)
    workspaces = WorkspaceChanges()
    gc.collect()  # the trees of other tests
    before = open_queues()
    for name in "abca":
        (tmp_path / name).mkdir(exist_ok=True)
        tracked = workspaces.of(str(tmp_path / name), (0, 0, 0), texts=False)
        call = await entered(tracked)
        assert call.unknown == ""
        await tracked.leave(call)
    assert open_queues() == before + 2
    workspaces.close()
    assert open_queues() == before
