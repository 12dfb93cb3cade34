"""`mcp_toolset`: the tools of an MCP server that runs in a cell, or behind a URL.

The server is a process in a cell of its session; the protocol's client is beside it, in the same cell. What comes out
of the cell is data, which is checked like any schema and any result from outside.
"""

import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, cast
from weakref import WeakValueDictionary

from toolcell.backends.http.checks import checked_headers
from toolcell.backends.protocols import HttpClient, Refused
from toolcell.backends.threads import in_thread
from toolcell.errors import UsageError
from toolcell.rules.credentials import Credential
from toolcell.rules.misuse import capability, items
from toolcell.rules.profile import Profile
from toolcell.rules.redaction import origin_of
from toolcell.rules.spellings import SHORTEST
from toolcell.sessions.foreign_tools import BUSY, ForeignTool
from toolcell_tools.capability import Capability, PermissionTier
from toolcell_tools.declaration import fingerprint
from toolcell_tools.options import suggested_name
from toolcell_tools.preview import printable
from toolcell_tools.session_info import SessionInfo
from toolcell_tools.toolsets import AnyTool, Toolset, ToolsetError

from .server_source import ServerSource, source_of_command, source_of_url
from .server_tools import Described, Register, ServerLister, ServerTool, Terms

if TYPE_CHECKING:
    from toolcell.rules.toml.config import McpServer

RETRY_S = 30.0
"""Seconds after which a server that has failed is started again for a list of its tools."""
STARTUP_S = 30.0
MOST_WAITING = 1_000  # sessions whose server has failed; the oldest is forgotten first
MOST_PRINCIPALS = 1_000  # principals whose tools are known; the one that listed longest ago is forgotten first
_Principal = tuple[tuple[str, ...], str, Path]


class _ServerRuntime(Protocol):
    """The part of the supervisor's runtime that a server's toolset uses."""

    @property
    def require_apart(self) -> Callable[[Profile], None]: ...
    @property
    def ask_source(self) -> Callable[[SessionInfo, ForeignTool, float], Awaitable[object | None]]: ...
    @property
    def report_source(self) -> Callable[[SessionInfo, str, str], None]: ...


class McpToolset(Toolset):
    """The tools of an MCP server. Made by `mcp_toolset`.

    Each session has a server of its own, which starts when the session's tools are first asked for. A server that
    fails offers no tools; the journal has an incident, and other toolsets are not affected. Lists and pins are by
    principal: the agent's line, its user and its workspace. Nobody is offered what another principal's server has
    listed.
    """

    def __init__(
        self,
        source: ServerSource,
        terms: Callable[[str], Terms],
        *,
        prefix: str,
        pins: Mapping[str, str],
        required: bool,
        startup_s: float,
    ) -> None:
        self.source = source
        self._terms = terms
        self._pins = dict(pins)
        self._prefix = prefix
        self._registers: dict[_Principal, Register] = {}
        self._made: WeakValueDictionary[str, ServerTool] = WeakValueDictionary()
        self._lister = ServerLister(source, f"mcp_{suggested_name(source.name)}"[:63])
        self._required = required
        self._startup_s = startup_s
        self._runtime: _ServerRuntime | None = None
        self._retry_at: dict[str, float] = {}

    def __repr__(self) -> str:
        how = origin_of(self.source.url) if self.source.url else self.source.command[0]
        return f"<McpToolset {self.source.name}: {how}>"

    @property
    def name(self) -> str:
        return self.source.name

    @property
    def fingerprints(self) -> Mapping[str, str]:
        """The fingerprint of each tool as it was first seen or last accepted, by the server's name for it. Keep them,
        and pass them as `pins`, so that a change is noticed in the next program too. If principals have different forms
        of a tool, the fingerprint is that of the principal that listed last."""
        return {**self._pins, **{name: pin for each in self._known() for name, pin in each.pins.items()}}

    @property
    def changed(self) -> Sequence[str]:
        """The tools, by the server's names, that have changed for some principal since they were first seen. Their
        calls are refused there."""
        return sorted({name for each in self._known() for name in each.changed})

    def accept(self, *names: str) -> None:
        """Accept the present form of these tools, by the server's names, for each principal for whom they have changed;
        without names, of all that have changed. Raises UsageError for a tool that has not changed."""
        for name in names or self.changed:
            holders = [each for each in self._known() if name in each.changed]
            if not holders:
                raise UsageError(f"The tool {name!r} of the MCP server {self.name!r} has not changed.")
            for each in holders:
                each.accept([name])
                if name in self._pins:
                    self._pins[name] = each.pins[name]

    def attach(self, runtime: object) -> None:
        self._runtime = cast("_ServerRuntime | None", getattr(runtime, "_runtime", None))
        if self._runtime is not None:
            self._runtime.require_apart(self.source.profile)

    async def tools(self, session: SessionInfo) -> Sequence[AnyTool]:
        if not self.source.needs <= session.grants:
            return ()
        register = self._register(session)
        if self._retry_at.get(session.session_id, 0.0) > time.monotonic():
            return register.last
        if self._runtime is None:
            raise ToolsetError(
                "a server's tools are known only inside a supervisor: Supervisor(toolsets=[…]).", self.name
            )
        try:
            said = await self._runtime.ask_source(session, self._lister, self._startup_s)
            if said is None:
                return ()
            if said is BUSY:
                return register.last
            tools, wrong = await in_thread(partial(register.take, said))
        except ToolsetError as error:
            if self._required:
                raise ToolsetError(f"the MCP server failed: {error}", self.name) from error
            self._wait(session)
            self._tell(session, register, f"it failed and is not used for {RETRY_S:g} s: {error}")
            return register.last
        for what in wrong:
            self._tell(session, register, what)
        return tools

    def _known(self) -> Sequence[Register]:
        return list(self._registers.values())

    def _register(self, session: SessionInfo) -> Register:
        """The register of the session's principal."""
        principal = (session.line, session.user_id, session.workspace_root)
        found = self._registers.pop(principal, None) or Register(self.name, self._tool, self._pins, self._prefix)
        self._registers[principal] = found
        while len(self._registers) > MOST_PRINCIPALS:
            del self._registers[next(iter(self._registers))]
        return found

    def _tool(self, name: str, described: Described) -> ServerTool:
        """The tool of a description. Equal descriptions share one, so that a principal costs little."""
        key = fingerprint([name, described.model_dump()])
        found = self._made.get(key)
        if found is None:
            found = self._made[key] = ServerTool(self.source, name, described, self._terms(described.name))
        return found

    def _wait(self, session: SessionInfo) -> None:
        self._retry_at.pop(session.session_id, None)
        self._retry_at[session.session_id] = time.monotonic() + RETRY_S
        while len(self._retry_at) > MOST_WAITING:
            del self._retry_at[next(iter(self._retry_at))]

    def _tell(self, session: SessionInfo, register: Register, what: str) -> None:
        """Report an incident, each once for a principal."""
        told = register.told
        if what not in told and self._runtime is not None:
            if len(told) >= MOST_WAITING:
                told.clear()
            told.add(what)
            self._runtime.report_source(session, self.source.words, printable(f"{self.source.words}: {what}"))


def mcp_toolset(
    *,
    name: str,
    command: Sequence[str] | None = None,
    url: str | None = None,
    profile: Profile | None = None,
    needs: Iterable[Capability | str] = (),
    env: Mapping[str, str] | None = None,
    headers: Mapping[str, str] | None = None,
    credentials: Credential | Sequence[Credential] = (),
    http: HttpClient | None = None,
    tier: PermissionTier | str = PermissionTier.SYSTEM,
    tiers: Mapping[str, PermissionTier | str] | None = None,
    requires_approval: bool = False,
    prefix: str = "",
    timeout: float | None = None,
    pins: Mapping[str, str] | None = None,
    required: bool = False,
    startup_s: float = STARTUP_S,
) -> McpToolset:
    """The tools of the MCP server `name`: a program, `command`, that runs in a cell, or a server at `url`.

    `profile` is the widest that its cells get; the session's grants and limits narrow it. By default a command sees the
    workspace, may write there, and has no network. `needs` are the capabilities without which the server is not
    started, besides "exec" for a command and "http" for a URL. `env` is added to the profile's. `headers` go with each
    request to the URL, and `credentials` too, which only the supervisor sees; `http` is the client that makes the
    requests, by default the session's.

    The tools are of `tier`, or of `tiers[name]` by the server's name for a tool, but not below the least tier of its
    capabilities; the server's own annotations count for nothing. `prefix` is put before each name. `timeout` is the
    time of one call in seconds. `pins` are the fingerprints of an earlier `McpToolset.fingerprints`. With `required`, a
    server that fails is a ToolsetError. `startup_s` is the time, in seconds, to start and list the tools. Raises
    UsageError.
    """
    if (command is None) == (url is None):
        raise UsageError("An MCP server is a command or a url. Pass one of them: mcp_toolset(name='…', command=['…']).")
    asked = frozenset(map(capability, items("needs", needs, "{'net'}")))
    by_name = {tool: PermissionTier(each) for tool, each in (tiers or {}).items()}
    usual = Terms(PermissionTier(tier), timeout, requires_approval)
    terms = {tool: Terms(each, timeout, requires_approval) for tool, each in by_name.items()}
    if command is not None:
        source = source_of_command(name, command, profile, asked, env)
    else:
        source = source_of_url(name, cast("str", url), profile, asked, headers, credentials, http)
    return McpToolset(
        source,
        lambda tool: terms.get(tool, usual),
        prefix=prefix,
        pins=pins or {},
        required=required,
        startup_s=startup_s,
    )


def toolset_of(server: "McpServer") -> McpToolset:
    """The toolset of a server that the settings name. Raises UsageError for settings that no server can have."""
    secret = {name: value for name, value in server.headers.items() if _is_secret(name, value)}
    return mcp_toolset(
        name=server.name,
        command=server.command or None,
        url=server.url or None,
        profile=server.profile,
        needs=server.needs,
        env=server.env,
        headers={name: value for name, value in server.headers.items() if name not in secret},
        credentials=[Credential(header=name, value=value) for name, value in secret.items()],
        tier=server.tier,
        tiers=server.tiers,
        prefix=server.prefix,
        requires_approval=server.requires_approval,
        timeout=server.timeout,
        required=server.required,
    )


def _is_secret(name: str, value: str) -> bool:
    """Whether a header is kept from cells. Settings do not tell secrets apart, so all but the shortest are."""
    try:
        checked_headers({name: value})
    except Refused:
        return True
    return len(value) >= SHORTEST
