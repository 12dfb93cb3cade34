"""`SessionSource`: sessions for frameworks that make their tools and environments from names in a configuration file.

SESSIONS = SessionSource(base_tools(), workspace="runs")    # in my_sessions.py: "my_sessions:SESSIONS"
"""

from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import anyio
from anyio.lowlevel import current_token

from toolcell.backends.threads import in_thread
from toolcell.errors import UsageError
from toolcell.rollouts.infrastructure import InfrastructureFailure, is_infrastructure
from toolcell.session import Session
from toolcell.supervisor import Supervisor
from toolcell_tools.declaration import ToolDeclaration
from toolcell_tools.result import ToolResult
from toolcell_tools.typed import as_tool

from .foreign import found

__all__ = ["SessionSource", "answered", "source_of"]


class SessionSource:
    """Opens a session, in a workspace of its own, for each trajectory of a framework.

    The supervisor starts with the first session, on the event loop that opens it. Each process of a framework has its
    own supervisor. Each session has the new directory `workspace`/NAME, which `prepare(task, directory)` may fill.
    `task` is the value from the framework. An unclosed session expires after `ttl_s` seconds. `options` are for
    `Supervisor`.
    """

    def __init__(
        self,
        tools: Any = (),
        *,
        workspace: str | Path,
        kind: str = "main",
        prepare: Callable[[Any, Path], Awaitable[None] | None] | None = None,
        ttl_s: float = 3600.0,
        session_options: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> None:
        self._tools = [as_tool(one) for one in tools]
        self._workspace = Path(workspace).resolve()
        self._kind = kind
        self._prepare = prepare
        self._session_options: dict[str, Any] = {"ttl_s": ttl_s, **(session_options or {})}
        self._options = options
        self._supervisor: Supervisor | None = None
        self._loop: object = None
        self._starting: anyio.Lock | None = None
        self.declarations: dict[str, ToolDeclaration] = {one.name: one.declaration for one in self._tools}
        """The tools, by name."""

    async def open(self, name: str, task: Any = None) -> Session:
        """Open a session with this name. Raises UsageError on another event loop than that of the first session."""
        supervisor = await self._started()
        directory = self._workspace / name
        await in_thread(lambda: directory.mkdir(parents=True, exist_ok=True))
        if self._prepare is not None:
            prepare = self._prepare
            returned = await in_thread(lambda: prepare(task, directory))
            if returned is not None:
                await returned
        return await supervisor.open_session(self._kind, workspace=directory, session_id=name, **self._session_options)

    async def aclose(self) -> None:
        """Close the supervisor and its sessions. The next `open` starts another supervisor."""
        supervisor, self._supervisor, self._starting = self._supervisor, None, None
        if supervisor is not None:
            await supervisor.aclose()

    async def _started(self) -> Supervisor:
        loop = current_token()
        if self._starting is None:
            self._starting, self._loop = anyio.Lock(), loop
        if loop != self._loop:
            raise UsageError("This SessionSource belongs to another event loop. Make one for each loop.")
        async with self._starting:
            if self._supervisor is None:
                supervisor = Supervisor(self._tools, **self._options)
                await supervisor.start()
                self._supervisor = supervisor
            return self._supervisor


def source_of(given: object) -> SessionSource:
    """The source, or the source at the import path `module:name`. Raises UsageError."""
    source = found(given)
    if not isinstance(source, SessionSource):
        raise UsageError(f"{given!r} is not a SessionSource. Pass one, or its import path: 'package.module:NAME'.")
    return source


def answered(result: ToolResult) -> ToolResult:
    """The result, for the model. Raises InfrastructureFailure if the call failed outside its tool."""
    if result.error is not None and is_infrastructure(result.error):
        raise InfrastructureFailure(f"{result.tool}: {result.error.message}")
    return result
