"""ToolServer: the tools of a supervisor, offered to MCP clients."""

import re
from collections import defaultdict
from collections.abc import Callable
from contextlib import AsyncExitStack
from functools import partial
from importlib import metadata
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self
from weakref import WeakKeyDictionary

import anyio
from anyio.abc import TaskGroup, TaskStatus
from mcp.server.subscriptions import (
    PromptsListChanged,
    ResourcesListChanged,
    ResourceUpdated,
    ServerEvent,
    ToolsListChanged,
)

from toolcell.backends.threads import in_thread
from toolcell.errors import UsageError
from toolcell.rules import misuse
from toolcell.rules.profile import Profile
from toolcell.session import Session
from toolcell.sessions.session_result import SessionState
from toolcell.store.journal.reading import JournalReader
from toolcell.supervisor import Supervisor, runtime_of
from toolcell_sandbox.errors import named
from toolcell_tools.capability import SessionKind

from .bounds import ServerBounds
from .client_approval import ApprovingChannel, ClientChannel
from .kept_tasks import TaskKeeper, TaskStore
from .offers import Completions, Offers, Prompts, Resources
from .principal import PrincipalServer, ServerIdentity

if TYPE_CHECKING:
    from .access import TokenList
    from .http import HttpOptions

__all__ = ["PRINCIPAL", "ToolServer"]

PRINCIPAL: Final = "{principal}"
"""Stands for the name of the principal in the path of a workspace."""
_NAMESPACE: Final = re.compile(r"(?:[a-z0-9][a-z0-9_]{0,30})?")
_IN_USE: Final[WeakKeyDictionary[Supervisor, set[str]]] = WeakKeyDictionary()
"""The namespaces of the running servers of each supervisor."""


class ToolServer:
    """Serves the tools of a running supervisor to MCP clients: `async with ToolServer(…) as server`, then
    `serve_stdio` or `serve_http`.

    Each authenticated principal has a session of its own, opened at its first request: of `kind`, with `profile`
    (default: the kind's), on `workspace`, with the principal's name as its agent id. `{principal}` in the path of the
    workspace stands for that name.

    With `approve_by_elicitation`, a call that needs approval asks the client that made it. The client then decides
    about its own calls. Without, such a call is decided by the supervisor's approver or in `Supervisor.approvals`, or
    is denied. `prompts`, `resources` and `completions` are the program's own. `bounds` limit what a client can make the
    server hold. `name`, `version` (toolcell's, unless told) and `instructions` are what clients are told of the server.

    Several servers may run on one supervisor, and each has principals of its own: their sessions are `mcp-NAME` in the
    namespace "", and `mcp.NAMESPACE-NAME` with the agent id `NAMESPACE.NAME` in any other. Without `namespace`, the
    first server has "", and each further one its number.
    """

    @named
    def __init__(
        self,
        supervisor: Supervisor,
        *,
        workspace: str | Path,
        kind: SessionKind | str = SessionKind.MAIN,
        profile: Profile | None = None,
        approve_by_elicitation: bool = False,
        prompts: Prompts | None = None,
        resources: Resources | None = None,
        completions: Completions | None = None,
        namespace: str | None = None,
        name: str = "toolcell",
        version: str | None = None,
        instructions: str | None = None,
        bounds: ServerBounds | None = None,
    ) -> None:
        self._supervisor = supervisor
        self._workspace = str(misuse.path("workspace", workspace))
        self._kind = misuse.session_kind(kind)
        self._profile = profile
        if namespace is not None and not _NAMESPACE.fullmatch(namespace):
            raise UsageError(f"{namespace!r} is no namespace. Use at most 31 of a-z, 0-9 and _, and not _ first.")
        self._wanted = namespace
        self._namespace = ""
        self._channel_type: Callable[[], ClientChannel] = ApprovingChannel if approve_by_elicitation else ClientChannel
        said = metadata.version("toolcell") if version is None else version
        self._identity = ServerIdentity(name=name, version=said, instructions=instructions)
        self._offers = Offers(prompts=prompts, resources=resources, completions=completions)
        self.bounds = bounds or ServerBounds()
        self._principals: dict[str, PrincipalServer] = {}
        self._opening: defaultdict[str, anyio.Lock] = defaultdict(anyio.Lock)
        self._opening_store = anyio.Lock()
        self._stack: AsyncExitStack | None = None
        self._tasks: TaskGroup | None = None
        self._store: TaskStore | None = None

    def __repr__(self) -> str:
        return f"<ToolServer {self._identity.name!r} of {self._supervisor!r}, {len(self._principals)} principals>"

    async def __aenter__(self) -> Self:
        if self._stack is not None:
            raise UsageError("The server has been entered already. Make another one.")
        self._namespace = _claimed(self._supervisor, self._wanted)
        self._stack = AsyncExitStack()
        self._tasks = await self._stack.enter_async_context(anyio.create_task_group())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._stack is not None and self._tasks is not None
        self._tasks.cancel_scope.cancel()
        try:
            await self._stack.__aexit__(kind, error, trace)
        finally:
            self._tasks = None
            with anyio.CancelScope(shield=True):
                for each in self._principals.values():
                    await each.session.close(grace_s=0)
                async with self._opening_store:
                    if self._store is not None:
                        self._store.close()
            _IN_USE[self._supervisor].discard(self._namespace)

    @property
    def tasks(self) -> TaskGroup:
        """The tasks of the running server. Raises UsageError if it does not run."""
        if self._tasks is None:
            raise UsageError("The server is not running. Write: async with ToolServer(…) as server.")
        return self._tasks

    async def principal(self, name: str = "") -> PrincipalServer:
        """The server of one principal. Its session is opened at the first time; if that fails, nothing is left of it.
        Other principals do not wait for it. Raises UsageError."""
        async with self._opening[name]:
            found = self._principals.get(name)
            if found is None:
                found = self._principals[name] = await self._opened(name)
            return found

    async def _opened(self, name: str) -> PrincipalServer:
        tasks, channel = self.tasks, self._channel_type()
        session = await self._supervisor.open_session(
            self._kind,
            workspace=self._workspace.replace(PRINCIPAL, name or "client"),
            agent_id=f"{self._namespace}{'.' if self._namespace else ''}{name or 'client'}",
            session_id=f"mcp{'.' if self._namespace else ''}{self._namespace}-{name}" if name else None,
            channel=channel,
            profile=self._profile,
        )
        try:
            opened = PrincipalServer(
                name,
                session,
                channel,
                self._supervisor.approvals,
                tasks,
                is_durable=runtime_of(self._supervisor).settings.state_directory is not None,
                identity=self._identity,
                offers=self._offers,
                bounds=self.bounds,
                keeper=await self._keeper(name, session),
            )
            await opened.refresh()
            if self._tasks is None:
                raise UsageError(f"The server has ended while the session of {name!r} was opened. Start another one.")
        except BaseException:
            with anyio.CancelScope(shield=True):
                await session.close(grace_s=0, outcome=SessionState.FAILED)
            raise
        return opened

    async def _keeper(self, name: str, session: Session) -> TaskKeeper:
        """What keeps a principal's tasks, if the supervisor has a state directory."""
        state = runtime_of(self._supervisor).settings.state_directory
        journal = None if state is None else JournalReader(state.log, state.index)
        if state is not None:
            async with self._opening_store:
                if self._store is None and self._tasks is not None:
                    self._store = await in_thread(partial(TaskStore, state.database, state.key()))
        return await TaskKeeper.of(f"{self._namespace}-{name}", session.id, self._store, journal)

    async def serve_stdio(self, own: tuple[int, int] | None = None) -> None:
        """Serve the client at this process's standard input and output, until its end. Meanwhile, whatever else this
        process prints goes to standard error. `own` are the descriptors of `claimed_stdio`, for a program that prints
        before."""
        from .stdio import serve

        await serve(await self.principal(), self.bounds, own)

    async def serve_http(
        self,
        *,
        tokens: "TokenList | None" = None,
        options: "HttpOptions | None" = None,
        task_status: TaskStatus[str] = anyio.TASK_STATUS_IGNORED,
    ) -> None:
        """Serve HTTP until the task is cancelled, or the process gets SIGINT or SIGTERM. On asyncio only.

        `url = await tasks.start(server.serve_http)` starts it in a task group. Raises UsageError for an address other
        than loopback without `tokens`.
        """
        from .http import HttpOptions, serve

        await serve(self, tokens, options or HttpOptions(), task_status)

    async def tools_changed(self) -> None:
        """Tell the clients of a change of the tools. The server finds changes by itself when a client lists tools, and
        after each call."""
        await self._tell(ToolsListChanged())

    async def prompts_changed(self) -> None:
        """Tell the clients that `prompts` offers others."""
        await self._tell(PromptsListChanged())

    async def resources_changed(self) -> None:
        """Tell the clients that `resources` offers others."""
        await self._tell(ResourcesListChanged())

    async def resource_updated(self, uri: str) -> None:
        """Tell the clients that subscribe to a resource that its content has changed."""
        await self._tell(ResourceUpdated(uri))

    async def _tell(self, event: ServerEvent) -> None:
        for each in list(self._principals.values()):
            await each.tell(event)


def _claimed(supervisor: Supervisor, wanted: str | None) -> str:
    """Claim a namespace on the supervisor. Raises UsageError if another running server has the wanted one."""
    used = _IN_USE.setdefault(supervisor, set())
    if wanted is None:
        wanted = next(each for each in ("", *map(str, range(2, len(used) + 3))) if each not in used)
    elif wanted in used:
        raise UsageError(f"Another server of this supervisor has the namespace {wanted!r}. Pass another namespace.")
    used.add(wanted)
    return wanted
