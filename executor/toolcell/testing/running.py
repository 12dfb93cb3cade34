"""Run one tool in a real cell, with its sandbox, its limits and its schema."""

import tempfile
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

from toolcell import blocking
from toolcell.backends.protocols import Channel, HttpClient, MemoryStore, WebClient
from toolcell.dispatch.call_context import OnProgress
from toolcell.rules.profile import Profile
from toolcell.supervisor import Supervisor
from toolcell_tools.capability import SessionKind
from toolcell_tools.definition import Tool
from toolcell_tools.result import ToolResult
from toolcell_tools.typed import as_tool

from .backends import DictHttp, DictWeb, ListChannel, ListMemory

__all__ = ["run_tool", "run_tool_blocking"]


async def run_tool(
    tool: Tool[..., Any] | Callable[..., Any],
    args: Mapping[str, Any] | None = None,
    *,
    kind: SessionKind | str = SessionKind.MAIN,
    workspace: str | Path | None = None,
    timeout: float | None = None,
    profile: Profile | None = None,
    channel: Channel | None = None,
    memory: MemoryStore | None = None,
    web: WebClient | None = None,
    http: HttpClient | None = None,
    config: Mapping[str, Any] | None = None,
    allow_missing: Iterable[str] = (),
    on_progress: OnProgress | None = None,
) -> ToolResult:
    """Call one tool, or a plain function, once, in its own supervisor, session and cell. On asyncio and trio.

    Nothing of them is left afterwards, and a default workspace is removed. The default backends are in memory, with no
    pages and no HTTP answers. `profile` says which requests may be made. `timeout` is in seconds. Every failure of the
    tool is in the result. Raises SandboxUnavailableError if this machine cannot run cells. The error names what is
    missing and the cure.
    """
    tool = as_tool(tool)
    with _directory(workspace) as root:
        async with Supervisor([tool], allow_missing=allow_missing, max_cells=1, standby=0) as supervisor:
            session = await supervisor.open_session(
                kind,
                workspace=root,
                channel=channel or ListChannel(),
                memory=memory or ListMemory(),
                web=web or DictWeb(),
                http=http or DictHttp(),
                config=config,
                profile=profile,
            )
            return await session.call(tool.name, args, timeout=timeout, on_progress=on_progress)


def run_tool_blocking(
    tool: Tool[..., Any] | Callable[..., Any],
    args: Mapping[str, Any] | None = None,
    *,
    kind: SessionKind | str = SessionKind.MAIN,
    workspace: str | Path | None = None,
    timeout: float | None = None,
    profile: Profile | None = None,
    channel: Channel | None = None,
    memory: MemoryStore | None = None,
    web: WebClient | None = None,
    http: HttpClient | None = None,
    config: Mapping[str, Any] | None = None,
    allow_missing: Iterable[str] = (),
    on_progress: Callable[[str, float | None], None] | None = None,
) -> ToolResult:
    """`run_tool` for tests that are not async."""
    tool = as_tool(tool)
    with (
        _directory(workspace) as root,
        blocking.Supervisor([tool], allow_missing=allow_missing, max_cells=1, standby=0) as supervisor,
    ):
        session = supervisor.open_session(
            kind,
            workspace=root,
            channel=channel or ListChannel(),
            memory=memory or ListMemory(),
            web=web or DictWeb(),
            http=http or DictHttp(),
            config=config,
            profile=profile,
        )
        return session.call(tool.name, args, timeout=timeout, on_progress=on_progress)


def _directory(workspace: str | Path | None) -> AbstractContextManager[str | Path]:
    if workspace is None:
        return tempfile.TemporaryDirectory(prefix="toolcell-test-")
    return nullcontext(workspace)
