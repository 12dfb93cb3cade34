"""Paths that a cell may have replaced by a symbolic link after they were resolved."""

import os
from pathlib import Path

import pytest

from toolcell import Capability, Profile, Supervisor, ToolContext, UsageError, tool


@tool(needs={Capability.READ, Capability.WRITE})
def swap(ctx: ToolContext, name: str, target: str) -> str:
    """Replace a directory by a symbolic link."""
    path = ctx.workspace_root / name
    os.rename(path, str(path) + ".old")
    os.symlink(target, path)
    return "swapped"


@tool(needs={Capability.READ})
def peek(path: str) -> str:
    """Read a file without the context."""
    return Path(path).read_text()


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    directory = tmp_path / "elsewhere"
    directory.mkdir()
    (directory / "file").write_text("secret")
    return directory


@pytest.mark.anyio
@pytest.mark.parametrize("where", ["writable", "readable"])
async def test_a_path_of_the_profile_that_became_a_link_is_refused(where: str, workspace: Path, secret: Path) -> None:
    inner = workspace / "outer" / "inner"
    inner.mkdir(parents=True)
    profile = Profile.for_kind("main").replace(**{where: (str(inner),)})
    async with Supervisor([swap, peek]) as supervisor:
        session = await supervisor.open_session("main", workspace=workspace, profile=profile)
        swapped = await session.call("swap", {"name": "outer", "target": str(secret.parent)})
        assert swapped.error is None, swapped.error
        (secret.parent / "inner").symlink_to(secret)
        result = await session.call("peek", {"path": str(secret / "file")})
        assert result.error is not None and result.error.kind == "sandbox_unavailable", result
        assert "secret" not in str(result)


@pytest.mark.anyio
async def test_a_childs_workspace_cannot_lead_out_of_its_parents(workspace: Path, secret: Path) -> None:
    (workspace / "sub").mkdir()
    async with Supervisor([swap]) as supervisor:
        session = await supervisor.open_session("main", workspace=workspace)
        assert (await session.call("swap", {"name": "sub", "target": str(secret)})).error is None
        with pytest.raises(UsageError, match="symbolic link"):
            await session.open_child("worker", workspace=workspace / "sub")


@pytest.mark.anyio
@pytest.mark.parametrize("where", ["writable", "readable"])
async def test_a_link_that_a_call_made_leads_no_later_session_elsewhere(
    where: str, workspace: Path, secret: Path, tmp_path: Path
) -> None:
    (workspace / "outer" / "inner").mkdir(parents=True)
    other = tmp_path / "other"
    other.mkdir()
    (secret.parent / "inner").symlink_to(secret)
    profile = Profile.for_kind("main").replace(**{where: (str(workspace / "outer" / "inner"),)})
    async with Supervisor([swap, peek]) as supervisor:
        session = await supervisor.open_session("main", workspace=workspace)
        assert (await session.call("swap", {"name": "outer", "target": str(secret.parent)})).error is None
        await session.close()
        with pytest.raises(UsageError, match=r"passes the symbolic link '.*/outer'"):
            await supervisor.open_session("main", workspace=other, profile=profile)
        with pytest.raises(UsageError, match="The workspace passes the symbolic link"):
            await supervisor.open_session("main", workspace=workspace / "outer" / "inner")
    async with Supervisor([peek]) as supervisor:  # a later one finds the link in the session's own workspace
        with pytest.raises(UsageError, match=r"passes the symbolic link '.*/outer'"):
            await supervisor.open_session("main", workspace=workspace, profile=profile)
