"""Workspaces that are sent to their nodes, whose directories are apart from the driver's and from each other's."""

import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.cluster.conftest import LEASE_S, RayNodes
from tests.conftest import Supervise

from toolcell import Capability, Session, ToolContext, base_tools, tool
from toolcell.cluster import RayCluster, SentWorkspaces

pytestmark = pytest.mark.anyio


@tool(needs={Capability.READ})
def where(ctx: ToolContext) -> str:
    """Where the call works."""
    return str(ctx.workspace_root)


TOOLS = [where, *base_tools()]


def cluster(directory: Path, **options: Any) -> RayCluster:
    """A cluster whose nodes keep their files below a directory of the test."""
    sent = SentWorkspaces(**{"directory": str(directory / "nodes"), **options})
    return RayCluster(namespace=f"sent-{directory.name}", lease_s=LEASE_S, min_nodes=2, workspaces=sent)


@pytest.fixture
async def sent(ray_nodes: RayNodes, tmp_path: Path) -> AsyncIterator[RayCluster]:
    made = cluster(tmp_path)
    yield made
    await made.remove()


async def shell(session: Session, command: str) -> str:
    result = await session.call("shell", {"command": command})
    output = result.unwrap()
    assert output["exit_code"] == 0, result
    return str(output["stdout"])


async def test_a_session_works_in_a_copy_and_its_changes_come_back(
    supervise: Supervise, sent: RayCluster, tmp_path: Path, workspace: Path
) -> None:
    (workspace / "src").mkdir()
    (workspace / "src" / "a.txt").write_text("one\n")
    (workspace / "gone.txt").write_text("x")
    (workspace / "link").symlink_to("src/a.txt")
    async with supervise(TOOLS, cluster=sent) as supervisor:
        session = await supervisor.open_session("main", workspace=workspace)
        place = Path((await session.call("where")).unwrap())
        assert place.is_relative_to(tmp_path / "nodes")
        assert (
            await shell(session, "cat link; echo two >> src/a.txt; rm gone.txt; echo new > new.txt; chmod +x new.txt")
            == "one\n"
        )
        assert (workspace / "src" / "a.txt").read_text() == "one\n"
        result = await session.close()
    assert result.returned is not None
    assert (result.returned.created, result.returned.changed, result.returned.deleted) == (
        ("new.txt",),
        ("src/a.txt",),
        ("gone.txt",),
    )
    assert (workspace / "src" / "a.txt").read_text() == "one\ntwo\n"
    assert not (workspace / "gone.txt").exists()
    assert os.access(workspace / "new.txt", os.X_OK)
    assert not place.exists()
