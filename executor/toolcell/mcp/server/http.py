"""MCP over HTTP: bearer tokens, one session for each principal, and bounds before anything is parsed."""

import json
import logging
import socket
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, MutableMapping
from contextlib import closing
from dataclasses import dataclass
from typing import Any, Final, Protocol, cast

import anyio
import uvicorn
from anyio.abc import TaskGroup, TaskStatus
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.server.transport_security import TransportSecuritySettings
from mcp.shared.exceptions import MCPError
from mcp_types import INVALID_REQUEST, PARSE_ERROR
from pydantic_core import from_json
from starlette.responses import Response

from toolcell.errors import UsageError

from .access import HostRules, TokenList, is_loopback
from .bounds import SMALL_BYTES, ServerBounds
from .connections import ACCEPTED, HAS_TOKEN, BoundedConnection
from .events import EventLog, SessionEvents
from .principal import BUSY, PrincipalServer

__all__ = ["HttpOptions", "McpApp", "serve"]

PATH: Final = "/mcp"
RETRY_MS: Final = 1000
"""How long a client waits before it resumes a stream."""
BODY_S: Final = 30.0
"""How long a client may take to send a request."""
MOST_MEMBERS: Final = 20_000
"""The members of all objects in a request. To validate one takes up to 10 µs of the event loop."""
INITIALIZE_BYTES: Final = 64 * 1024
"""The longest request that opens an MCP session: what the client says of itself is kept as long as the session."""
END_S: Final = 3.0
"""How long open requests may take when the server ends."""
HELD_BYTES: Final = 64 * 1024 * 1024
"""The bodies of the requests of all clients at the same time, those that are being served among them."""
_log = logging.getLogger("toolcell.mcp")
Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpOptions:
    """Where a server listens, and for which names.

    `hosts` are the values of the Host header besides those of the loopback interface, such as "mcp.example.org". With
    `origins`, such as "https://app.example.org", pages of these origins may make requests; a browser names its page's
    origin. With port 0, the system chooses a port.
    """

    host: str = "127.0.0.1"
    port: int = 8000
    hosts: tuple[str, ...] = ()
    origins: tuple[str, ...] = ()


class Serving(Protocol):
    """A running ToolServer, as this module needs it."""

    @property
    def bounds(self) -> ServerBounds: ...
    @property
    def tasks(self) -> TaskGroup: ...
    async def principal(self, name: str = "") -> PrincipalServer: ...


class McpApp:
    """The ASGI application of a running ToolServer, for a program with an HTTP server of its own."""

    def __init__(self, server: Serving, tokens: TokenList | None, options: HttpOptions) -> None:
        """Without `tokens`, all clients are one principal."""
        self._server = server
        self._tokens = tokens
        self._rules = HostRules(options.host, options.hosts, options.origins)
        self._managers: dict[str, StreamableHTTPSessionManager] = {}
        self._starting: defaultdict[str, anyio.Lock] = defaultdict(anyio.Lock)
        self._open: Counter[str] = Counter()
        self._held = 0
        self._held_of: Counter[str] = Counter()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await _no_lifespan(scope, receive, send)
        if scope["path"] != PATH:
            return await _answer(404, "Not found", scope, receive, send)
        if not self._rules.accepts_host(_header(scope, b"host")):
            return await _answer(421, "Invalid Host header", scope, receive, send)
        if not all(self._rules.accepts_origin(each) for each in _headers(scope, b"origin")):
            return await _answer(403, "Invalid Origin header", scope, receive, send)
        principal = "" if self._tokens is None else self._tokens.principal(_header(scope, b"authorization"))
        if principal is None:
            return await _answer(401, "A valid token is needed", scope, receive, send, {"WWW-Authenticate": "Bearer"})
        if HAS_TOKEN in scope.get("state", {}):
            scope["state"][HAS_TOKEN](principal)
        if self._open[principal] >= self._server.bounds.streams:
            return await _answer(429, "Too many requests at the same time", scope, receive, send, {"Retry-After": "1"})
        self._open[principal] += 1
        hold = _Hold(self, principal)
        try:
            body = await _body(receive, self._server.bounds.message_bytes, hold.grow)
            if isinstance(body, int):
                return await _refused(body, scope, receive, send)
            try:
                manager = await self._manager(principal)
            except (MCPError, UsageError):
                _log.exception("the session of the principal %r cannot be opened", principal)
                return await _answer(
                    503, "The session cannot be opened now", scope, receive, send, {"Retry-After": "1"}
                )
            await manager.handle_request(scope, _replayed(body, receive), send)
        finally:
            self._open[principal] -= 1
            hold.end()

    def take(self, principal: str, count: int) -> bool:
        """Account for bytes of a request's body, if the principal and all clients together may hold so many."""
        bound = self._server.bounds.requests_bytes
        if self._held + count > HELD_BYTES or self._held_of[principal] + count > bound:
            return False
        self._held += count
        self._held_of[principal] += count
        return True

    def give_back(self, principal: str, count: int) -> None:
        """Account for the end of a request."""
        self._held -= count
        self._held_of[principal] -= count

    async def _manager(self, principal: str) -> StreamableHTTPSessionManager:
        """The MCP sessions of a principal."""
        async with self._starting[principal]:  # a slow start holds up this principal's requests only
            found = self._managers.get(principal)
            if found is None:
                bounds = self._server.bounds
                found = _Manager(
                    (await self._server.principal(principal)).server,
                    EventLog(bounds.kept_bytes),
                    security_settings=TransportSecuritySettings(enable_dns_rebinding_protection=False),  # see HostRules
                    retry_interval=RETRY_MS,
                    session_idle_timeout=bounds.idle_s,
                    max_request_body_size=bounds.message_bytes,
                    max_sessions=bounds.sessions,
                )
                await self._server.tasks.start(_run, found)
                self._managers[principal] = found
            return found


class _Hold:
    """The bytes of one request's body, from their arrival to the end of the request."""

    def __init__(self, app: McpApp, principal: str) -> None:
        self._app = app
        self._principal = principal
        self._taken = 0

    def grow(self, length: int) -> bool:
        """Whether the body may have this length."""
        if length > max(SMALL_BYTES, self._taken):
            if not self._app.take(self._principal, length - self._taken):
                return False
            self._taken = length
        return True

    def end(self) -> None:
        self._app.give_back(self._principal, self._taken)


class _Manager(StreamableHTTPSessionManager):
    """MCP sessions, each with a store of its own: streams are named by the client, and not unique among sessions."""

    def __init__(self, app: Any, log: EventLog, **options: Any) -> None:
        self._log = log
        super().__init__(app, **options)

    @property
    def event_store(self) -> SessionEvents:  # pyright: ignore[reportIncompatibleVariableOverride] - read for each session
        return SessionEvents(self._log)

    @event_store.setter
    def event_store(self, _store: object) -> None:
        """Ignore the store that the SDK would share among sessions."""


async def _run(manager: StreamableHTTPSessionManager, *, task_status: TaskStatus[None]) -> None:
    async with manager.run():
        task_status.started()
        await anyio.sleep_forever()


async def serve(server: Serving, tokens: TokenList | None, options: HttpOptions, task_status: TaskStatus[str]) -> None:
    """Listen, and serve until the task is cancelled or the process gets a signal. The status is the URL."""
    if tokens is None and not is_loopback(options.host):
        raise UsageError(
            f"{options.host} is not a loopback address, so clients must have tokens: --tokens FILE. Or listen on "
            "127.0.0.1."
        )
    family = socket.AF_INET6 if ":" in options.host else socket.AF_INET
    with closing(socket.create_server((options.host, options.port), family=family, backlog=ACCEPTED)) as listener:
        host, port = listener.getsockname()[:2]
        config = uvicorn.Config(
            McpApp(server, tokens, options),
            http=BoundedConnection,
            backlog=ACCEPTED,  # asyncio accepts so many connections before it reads from any
            log_level="warning",
            access_log=False,  # it would have nothing of use, and one line for each request
            lifespan="off",
            ws="none",
            server_header=False,
            timeout_graceful_shutdown=int(END_S) - 1,
        )
        serving = uvicorn.Server(config)
        task_status.started(f"http://{f'[{host}]' if ':' in host else host}:{port}{PATH}")
        try:
            await serving.serve(sockets=[listener])
        except anyio.get_cancelled_exc_class():
            with anyio.move_on_after(END_S, shield=True):
                if serving.started:
                    await serving.shutdown(sockets=[listener])
            raise


async def _body(receive: Receive, most: int, grow: Callable[[int], bool]) -> bytes | int:
    """The body of a request, or the status of its refusal. Its depth is bounded here, by the JSON parser (200). `grow`
    tells whether the body may have a length, at the present."""
    found = bytearray()
    with anyio.move_on_after(BODY_S):
        while True:
            message = await receive()
            if message["type"] != "http.request":
                return 400
            found += message.get("body", b"")
            if len(found) > most:
                return 413
            if not grow(len(found)):
                return 429
            if not message.get("more_body", False):
                break
        if found:
            try:
                told: object = from_json(bytes(found))
            except ValueError:
                return 400
            if len(found) > INITIALIZE_BYTES and (_opens_session(told) or _has_too_many(told)):
                return 413
        return bytes(found)
    return 408


def _opens_session(told: object) -> bool:
    return isinstance(told, dict) and cast("dict[str, object]", told).get("method") == "initialize"


def _has_too_many(told: object) -> bool:
    """Whether the objects of a message have too many members. Lists count only for the objects and lists in them."""
    left, waiting = MOST_MEMBERS, [told]
    while waiting and left >= 0:
        value = waiting.pop()
        if isinstance(value, dict):
            members = cast("dict[str, object]", value)
            left -= len(members) + 1
            waiting.extend(members.values())
        elif isinstance(value, list):
            left -= 1
            values = cast("list[object]", value)
            waiting.extend(cast("object", each) for each in values if isinstance(each, (dict, list)))
    return left < 0


def _replayed(body: bytes, receive: Receive) -> Receive:
    """A `receive` that gives the body once, and then what comes."""
    sent = False

    async def replay() -> Message:
        nonlocal sent
        if sent:
            return await receive()
        sent = True
        return {"type": "http.request", "body": body, "more_body": False}

    return replay


def _headers(scope: Scope, name: bytes) -> list[str]:
    return [value.decode("latin-1") for key, value in scope["headers"] if key == name]


def _header(scope: Scope, name: bytes) -> str | None:
    found = _headers(scope, name)
    return found[0] if len(found) == 1 else None


async def _answer(
    status: int, text: str, scope: Scope, receive: Receive, send: Send, headers: dict[str, str] | None = None
) -> None:
    await Response(text, status_code=status, headers=headers, media_type="text/plain")(scope, receive, send)


_REFUSALS: Final = {
    400: (PARSE_ERROR, "The body is no JSON, or its values are nested too deeply."),
    408: (INVALID_REQUEST, f"The body did not arrive within {BODY_S:.0f} s."),
    429: (BUSY, "The bodies of the requests without an answer are too long together. Try again when one is answered."),
    413: (INVALID_REQUEST, "The body is too long, or its objects have too many members."),
}


async def _refused(status: int, scope: Scope, receive: Receive, send: Send) -> None:
    code, message = _REFUSALS[status]
    body = {"jsonrpc": "2.0", "id": None, "error": {"code": code, "message": message}}
    headers = {"Retry-After": "1"} if status == 429 else None
    answer = Response(json.dumps(body), status_code=status, headers=headers, media_type="application/json")
    await answer(scope, receive, send)


async def _no_lifespan(scope: Scope, receive: Receive, send: Send) -> None:
    if scope["type"] == "lifespan":
        while True:
            event = (await receive())["type"].removeprefix("lifespan.")
            await send({"type": f"lifespan.{event}.complete"})
            if event == "shutdown":
                return
