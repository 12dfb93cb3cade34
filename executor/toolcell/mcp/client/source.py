"""`ServerSource`: one MCP server as a program configures it, and the profile of its cells."""

from collections.abc import Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from importlib.metadata import version
from typing import Any

from toolcell.backends.protocols import HttpClient
from toolcell.rules import hosts
from toolcell.rules.profile import Profile
from toolcell.sessions.foreign_tools import Farewell, ForeignSource
from toolcell_sandbox.profile import QUARANTINED, UNCHECKED
from toolcell_tools.capability import Capability
from toolcell_tools.declaration import fingerprint

from .http_session import ServerSession

USABLE = frozenset({Capability.READ, Capability.WRITE, Capability.EXEC, Capability.NET})
"""What a server's process can use. The supervisor's handles are not for it."""


@dataclass(frozen=True, eq=False, kw_only=True)
class ServerSource(ForeignSource):
    """A server: `command` for a process in a cell, or `url`. It needs `needs`, and uses what else its session grants of
    `uses`. Compared by identity: no two servers share a cell."""

    name: str
    profile: Profile = field(repr=False)  # its env may hold secrets, as words of a command may
    needs: frozenset[Capability]
    uses: frozenset[Capability]
    command: tuple[str, ...] = field(default=(), repr=False)
    url: str = field(default="", repr=False)
    headers: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    http: HttpClient | None = None

    @property
    def process(self) -> str:
        return f"mcp:{self.name}"

    @property
    def client(self) -> HttpClient | None:
        return self.http

    def client_in(
        self, session: HttpClient, rules: Sequence[str], farewells: MutableMapping[ForeignSource, Farewell]
    ) -> HttpClient:
        known = farewells.get(self)
        if isinstance(known, ServerSession):
            return known
        client = super().client_in(session, rules, farewells)
        if not self.url:
            return client
        mine = farewells[self] = ServerSession(self.url, dict(self.headers), rules, client)
        return mine

    @property
    def words(self) -> str:
        return f"MCP server {self.name!r}"

    @property
    def fixed_headers(self) -> Mapping[str, str]:
        return self.headers

    def profile_in(self, session: Profile) -> Profile:
        """The server's profile, on the session's limits and with its protected names; requests that both allow."""
        own = self.profile
        return own.replace(
            grants=own.grants & session.grants,
            limits=own.limits.narrow(session.limits),
            http=hosts.common(own.http, session.http),
            protected=tuple(dict.fromkeys((*session.protected, *own.protected))),
            unchecked=max(session.unchecked, own.unchecked, key=UNCHECKED.index),
            quarantined=max(session.quarantined, own.quarantined, key=QUARANTINED.index),
        )

    @cached_property
    def told(self) -> dict[str, Any]:
        """How the cell reaches the server."""
        told: dict[str, Any] = {"version": version("toolcell")}
        if self.url:
            return {**told, "url": self.url, "headers": dict(self.headers)}
        return {**told, "command": list(self.command), "cpu_s": self.profile.limits.cpu_s}

    @cached_property
    def shipment(self) -> Mapping[str, object]:
        """What a cell loads. Another server, or the same with other settings, is another cell."""
        settings = [self.name, self.told, {**self.profile.to_wire(), "http": list(self.profile.http)}]
        where = "toolcell.mcp.client.inside.serve:serve"
        return {"name": "mcp", "how": "import", "where": where, "preload": ["subprocess"], "of": fingerprint(settings)}
