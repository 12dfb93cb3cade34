"""`ServerSource`: one MCP server as a program configures it, and the profile of its cells.

A server that is a command must see its own code: the program, its virtual environment or its `node_modules`. A server
behind a URL may begin an MCP session, which outlives the cell that began it: `ServerSession` ends it.
"""

import os
import re
import shutil
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from importlib.metadata import version
from pathlib import Path
from typing import Any

from toolcell.backends.addresses import parse_url
from toolcell.backends.http import BrokeredHttp, Requester, Trail
from toolcell.backends.http.checks import checked_headers, rule_for
from toolcell.backends.protocols import HttpClient, HttpReply, HttpRequest, Refused
from toolcell.errors import UsageError
from toolcell.rules.credentials import Credential
from toolcell.rules.hosts import common, rules_of
from toolcell.rules.profile import Profile
from toolcell.rules.redaction import Redaction, secrets_of_url
from toolcell.sessions.foreign_tools import Farewell, ForeignSource
from toolcell_sandbox.profile import QUARANTINED, UNCHECKED
from toolcell_tools.capability import Capability
from toolcell_tools.declaration import fingerprint

USABLE = frozenset({Capability.READ, Capability.WRITE, Capability.EXEC, Capability.NET})
"""What a server's process can use. The supervisor's handles are not for it."""
_SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib64")
_ID = re.compile(r"[!-~]{1,1024}")  # visible ASCII, as the transport of MCP 2025-11-25 says; the length is ours
_SESSION, _VERSION, _GONE = "mcp-session-id", "mcp-protocol-version", 404


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
            http=common(own.http, session.http),
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
        where = "toolcell.mcp.client.inside.connection:serve"
        return {"name": "mcp", "how": "import", "where": where, "preload": ["subprocess"], "of": fingerprint(settings)}


def source_of_command(
    name: str,
    command: Sequence[str],
    profile: Profile | None,
    needs: frozenset[Capability],
    env: Mapping[str, str] | None,
) -> ServerSource:
    """The server that `command` starts. Its cells see the workspace and its own code. Raises UsageError."""
    if isinstance(command, str) or not command:
        raise UsageError(f"The command of an MCP server is a list of words: {command!r}. Write ['program', 'word'].")
    words = (program_of(command[0]), *command[1:])
    own = Profile(grants=frozenset({"read", "write", "exec"})) if profile is None else profile
    own = own.replace(
        readable=(*map(os.path.realpath, own.readable), *code_paths(words)),
        writable=tuple(map(os.path.realpath, own.writable)),
        follow_links=False,  # a cell may put a link there later
        env={**own.env, **(env or {})},
        http=(),
    )
    rights = frozenset(each for each in USABLE if each.value in own.grants)
    needed = needs | {Capability.EXEC}
    if not needed <= rights:
        lacks = ", ".join(sorted(needed - rights))
        raise UsageError(f"The MCP server {name!r} needs {lacks}, which its profile does not grant. Add to its grants.")
    return ServerSource(name=name, profile=own, needs=needed, uses=rights - needed, command=words)


def source_of_url(
    name: str,
    url: str,
    profile: Profile | None,
    needs: frozenset[Capability],
    headers: Mapping[str, str] | None,
    credentials: Credential | Sequence[Credential],
    http: HttpClient | None,
) -> ServerSource:
    """The server at `url`. Its cells make requests to it, and nothing else. Raises UsageError."""
    sent = dict(headers or {})
    try:
        target = parse_url(url, any_port=True)
        place = f"{target.scheme}://{target.authority}{target.path.partition('?')[0]}"
        checked_headers(sent)
        private = " private" if target.literal is None else ""
        rules = (
            tuple(f"{method} {place}{private}" for method in ("POST", "DELETE"))
            if profile is None or not profile.http
            else profile.http
        )
        listed = (credentials,) if isinstance(credentials, Credential) else tuple(credentials)
        if listed:
            http = BrokeredHttp(credentials={f"{target.scheme}://{target.authority}": listed})
        own = (profile or Profile()).replace(grants=frozenset({"http"}), http=rules)
    except (Refused, ValueError) as error:
        why = Redaction(secrets_of_url(url)).text(str(error))
        raise UsageError(f"The MCP server {name!r} cannot be asked: {why}") from None
    if needs - {Capability.HTTP}:
        raise UsageError(f"The MCP server {name!r} is behind a URL, and needs http only. Leave out needs.")
    rights = frozenset({Capability.HTTP})
    return ServerSource(name=name, profile=own, needs=rights, uses=frozenset(), url=url, headers=sent, http=http)


def program_of(command: str) -> str:
    """The absolute path of a command, found as a shell finds it; of what it links to, unless it lies in a virtual
    environment, which its path tells. The command itself if there is none."""
    found = shutil.which(command)
    if found is None:
        return command
    here = Path(os.path.abspath(found))
    return str(here) if (here.parent.parent / "pyvenv.cfg").is_file() else os.path.realpath(here)


def code_paths(command: Sequence[str]) -> tuple[str, ...]:
    """The paths that a command names, and those that belong to them: a file, its virtual environment, its
    `node_modules`. Directories that are arguments are data, and are left out."""
    found: dict[str, None] = {}
    for word in command:
        if os.path.isabs(word) and os.path.isfile(word):
            found.update(dict.fromkeys(os.path.realpath(path) for path in _around(Path(word))))
    return tuple(path for path in found if not path.startswith(tuple(f"{each}/" for each in _SYSTEM)))


def _around(file: Path) -> Iterator[Path]:
    """The file, or the environment that it was installed into."""
    modules = [each for each in file.parents if each.name == "node_modules"]
    if modules:
        yield modules[-1]
    elif file.parent.name in ("bin", "sbin") and (config := file.parent.parent / "pyvenv.cfg").is_file():
        yield file.parent.parent
        yield from _bases(config)
    else:
        yield file


def _bases(config: Path) -> Iterator[Path]:
    """The installation on which a virtual environment stands, by its pyvenv.cfg."""
    for line in config.read_text(errors="replace").splitlines():
        key, _, value = line.partition("=")
        if key.strip() == "home" and os.path.isabs(value.strip()):
            yield Path(value.strip()).parent


class ServerSession:
    """The client of one server's requests in one session. It notes the id of the MCP session in the server's answers,
    so that `say` can end it: the cell is gone by then."""

    def __init__(self, url: str, headers: dict[str, str], rules: Sequence[str], client: HttpClient) -> None:
        self._target = parse_url(url, any_port=True)
        self._headers = headers
        self._rules = rules
        self._client = client
        self._noted: dict[str, str] = {}
        """The headers that name the MCP session, if there is one."""

    async def send(self, request: HttpRequest) -> HttpReply:
        """Send a request, and note what its answer says of the MCP session."""
        reply = await self._client.send(request)
        if request.method == "POST" and request.url == self._target.url:
            self._note(request, reply)
        return reply

    def _note(self, request: HttpRequest, reply: HttpReply) -> None:
        sent = {name.lower(): value for name, value in request.headers.items()}
        if reply.status == _GONE and sent.get(_SESSION) == self._noted.get(_SESSION):
            self._noted = {}
        said = [value for name, value in reply.headers if name.lower() == _SESSION]
        if len(said) == 1 and _ID.fullmatch(said[0]):
            self._noted = {_SESSION: said[0]}
        if self._noted and _VERSION in sent:
            self._noted[_VERSION] = sent[_VERSION]

    async def say(self, record: Callable[[dict[str, Any]], None]) -> None:
        """End the MCP session with a DELETE, if there is one and the rules allow it. `record` gets the record of the
        request. Raises what the client raises."""
        noted, self._noted = self._noted, {}
        if not noted or not self._may_delete():
            return
        requester = Requester(self._rules, self._client, Trail(record))
        await requester.request("DELETE", self._target.url, {**self._headers, **noted}, b"")

    def _may_delete(self) -> bool:
        try:
            rule_for(rules_of(self._rules), "DELETE", self._target)
        except Refused:
            return False
        return True
