"""The protocol's client: it agrees on a version, lists tools, calls them, and answers what the server asks."""

import secrets
from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from typing import Any, Protocol, cast

from toolcell_tools.context import ToolContext
from toolcell_tools.encode import encode_json
from toolcell_tools.failures import NoTimeLeft, RequestDenied, ToolFailure, Unencodable

from .jsonrpc import (
    MAX_CURSOR_CHARS,
    MAX_FINDINGS,
    MAX_LISTING_BYTES,
    MAX_MESSAGES,
    MAX_NOISE,
    MAX_PAGES,
    MAX_QUESTIONS,
    MAX_REPORTS,
    MAX_TOOLS,
    METHOD_NOT_FOUND,
    PARTS,
    PROBLEM,
    Message,
    Misbehaved,
    encoded,
    fingerprint_of,
    result_in,
)

VERSIONS = ("2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05")
"""The versions of the protocol that this client speaks, the newest first."""
LEVELS = {"debug": "debug", "info": "info", "notice": "info", "warning": "warning"}  # every other is an error
DEADLINE_SHARE = 0.2  # the share of a call's time that is left when it is cancelled because of its deadline
_KEPT = ("title", *PARTS)


class Transport(Protocol):
    """The way to a server and back."""

    def drain(self) -> Iterator[Message | None]:
        """What has arrived since the last request."""
        ...

    def post(self, message: Message) -> None:
        """Send a message that has no answer."""
        ...

    def exchange(self, message: Message, tick: Callable[[], None]) -> Generator[Message | None]:
        """Send a message, and yield what arrives from then on; None for what is no message. `tick` is called several
        times a second, and may raise."""
        ...

    def agreed(self, version: str) -> None:
        """Both sides speak this version from now on."""
        ...

    def flush(self) -> None: ...
    def close(self) -> None: ...
    def kill(self) -> None: ...


class Client:
    """One connection to a server. `listing()` is the server's description of its tools, by name."""

    def __init__(self, transport: Transport, root: str | None, version: str) -> None:
        """`root` is the URI of the workspace, if the server may see it. `version` is toolcell's."""
        self.transport = transport
        self._root = root
        self._version = version
        self._tools: list[Message] | None = None  # None: not listed, or changed since
        self._offers_tools = False

    def initialize(self, ctx: ToolContext) -> None:
        """Agree on a version. Raises ToolFailure if there is none that both speak."""
        result = self._request(
            ctx,
            "initialize",
            {
                "protocolVersion": VERSIONS[0],
                "capabilities": {} if self._root is None else {"roots": {}},
                "clientInfo": {"name": "toolcell", "version": self._version},
            },
        )
        version, capabilities = result.get("protocolVersion"), result.get("capabilities")
        if version not in VERSIONS:
            raise Misbehaved(f"The server speaks MCP {str(version)[:40]!r}, and this client {', '.join(VERSIONS)}.")
        self._offers_tools = isinstance(capabilities, dict) and "tools" in capabilities
        self.transport.agreed(cast("str", version))
        self.transport.post({"method": "notifications/initialized"})

    def listing(self, ctx: ToolContext) -> list[Message]:
        """Ask for the tools, page by page. Each has its name, and what else `PARTS` names. Entries with `PROBLEM` alone
        say what is wrong with the list."""
        if self._offers_tools:
            self._tools, wrong = self._paged(ctx)
        else:
            self._tools, wrong = [], ["it does not declare the capability 'tools', so it is not asked for any"]
        return [*self._tools, *({PROBLEM: each} for each in wrong[:MAX_FINDINGS])]

    def _paged(self, ctx: ToolContext) -> tuple[list[Message], list[str]]:
        """The tools on all pages, and what is wrong with the list. It ends at a cursor that leads to no new page."""
        tools: dict[bytes, Message] = {}  # a page may come twice
        wrong: list[str] = []
        cursors: list[object] = [None]
        while len(cursors) <= MAX_PAGES:
            page = self._request(ctx, "tools/list", {} if cursors[-1] is None else {"cursor": cursors[-1]})
            described = {encoded(tool): tool for tool in _described(page, wrong)}
            cursor: object = page.get("nextCursor")
            repeats = cursor in cursors[1:] or (described and described.keys() <= tools.keys())
            names = {tool["name"] for tool in tools.values()} if repeats else ()  # the first description of each counts
            tools.update((key, tool) for key, tool in described.items() if tool["name"] not in names)
            if len(tools) > MAX_TOOLS or sum(map(len, tools)) > MAX_LISTING_BYTES:
                raise Misbehaved(
                    f"The server offers more than {MAX_TOOLS} tools, or describes them in more than "
                    f"{MAX_LISTING_BYTES:,} bytes. It was ended."
                )
            if cursor is None:
                return [*tools.values()], wrong
            if not isinstance(cursor, str) or len(cursor) > MAX_CURSOR_CHARS:
                wrong.append(
                    f"its list of tools has a cursor that is no text of at most {MAX_CURSOR_CHARS:,} characters"
                )
                break
            if repeats:
                wrong.append(f"its list of tools repeats: the cursor {cursor[:64]!r} leads to no further page")
                break
            cursors.append(cursor)
        else:
            wrong.append(f"its list of tools has more than {MAX_PAGES} pages; the others are left out")
        return [*tools.values()], wrong

    def call(self, ctx: ToolContext, tool: str, arguments: Message, fingerprint: str) -> Message:
        """Call a tool, if its description still has this fingerprint. Raises RequestDenied if not."""
        self._settle(_Exchange(ctx, self.transport, 0))  # a change may have been announced
        if self._tools is None:
            self.listing(ctx)
        present = [fingerprint_of(each) for each in self._tools or () if each["name"] == tool]
        if not present:
            raise ToolFailure(f"The server no longer offers {tool!r}.")
        if present != [fingerprint]:
            raise RequestDenied(
                f"The server has changed the tool {tool!r} since it was first seen: its description or its schema. "
                "Whoever runs the agent can accept the change."
            )
        return self._request(ctx, "tools/call", {"name": tool, "arguments": arguments})

    # -- one request --------------------------------------------------------------------------------------------------

    def _request(self, ctx: ToolContext, method: str, params: Message) -> Message:
        id = _new_id()
        exchange = _Exchange(ctx, self.transport, id)
        self._settle(exchange)
        if method == "tools/call":
            params = {**params, "_meta": {"progressToken": id}}
        request = {"id": id, "method": method, "params": params}
        with closing(self.transport.exchange(request, exchange.tick)) as arriving:
            for message in arriving:
                exchange.count(message)
                if message is not None and "method" not in message and message["id"] == id:
                    return result_in(message, method)
                exchange.end_if_alive(message)
                self._take(message, exchange)
        raise Misbehaved(f"The server did not answer {method}.")

    def _settle(self, exchange: "_Exchange") -> None:
        """Handle what has arrived since the last request."""
        for message in self.transport.drain():
            exchange.count(message)
            self._take(message)

    def _take(self, message: Message | None, exchange: "_Exchange | None" = None) -> None:
        """Handle a message that is not the answer: a question of the server, or a notification."""
        if message is None or "method" not in message:
            return  # noise, or an answer to another request: a late one, a second one, a forged one
        method, params = message["method"], cast("Message", message.get("params", {}))
        if "id" in message:
            self.transport.post({"id": message["id"], **self._reply(method)})
        elif method == "notifications/tools/list_changed":
            self._tools = None
        elif exchange is not None:
            exchange.report(method, params)

    def _reply(self, method: str) -> Message:
        if method == "ping":
            return {"result": {}}
        if method == "roots/list" and self._root is not None:
            return {"result": {"roots": [{"uri": self._root, "name": "workspace"}]}}
        return {"error": {"code": METHOD_NOT_FOUND, "message": f"this client has no method {method[:100]}"}}


class _Exchange:
    """A request that waits for its answer: the bounds on what arrives, its reports, and its cancellation."""

    def __init__(self, ctx: ToolContext, transport: Transport, id: int) -> None:
        self._ctx = ctx
        self._transport = transport
        self._id = id
        self._messages = self._noise = self._questions = self._reports = 0
        self._begun_s = max(0.0, ctx.remaining())
        self._is_cancelled = False
        self._probe: int | None = None

    def count(self, message: Message | None) -> None:
        self._messages += 1
        is_noise = message is None or ("method" not in message and message["id"] != self._id)
        self._noise += is_noise
        self._questions += message is not None and "method" in message and "id" in message
        if self._questions > MAX_QUESTIONS:
            raise Misbehaved(f"The server asked more than {MAX_QUESTIONS} questions during one request. It was ended.")
        if self._messages > MAX_MESSAGES or self._noise > MAX_NOISE:
            what = f"{MAX_NOISE} lines that are no answer" if is_noise else f"{MAX_MESSAGES:,} messages"
            raise Misbehaved(f"The server sent more than {what} during one request. It was ended.")

    def tick(self) -> None:
        """Tell the server, once, if the call is cancelled or its time nearly over. In the second case, also ask whether
        it is alive: a server that does not answer ends with the call, at its deadline."""
        if self._is_cancelled or not self._ctx.cancelled:
            return
        self._is_cancelled = True
        self._transport.post({"method": "notifications/cancelled", "params": {"requestId": self._id}})
        is_late = self._ctx.remaining() <= self._begun_s * DEADLINE_SHARE
        if is_late:
            self._probe = _new_id()
            self._transport.post({"id": self._probe, "method": "ping"})
        self._transport.flush()
        if not is_late:
            raise ToolFailure("The call was cancelled before the server answered.")

    def end_if_alive(self, message: Message | None) -> None:
        """Raise NoTimeLeft if the message shows that the server lives, and the call's time is nearly over."""
        if self._probe is None or message is None or "method" in message or message["id"] != self._probe:
            return
        raise NoTimeLeft("The server did not answer in time. It was told to stop this call, and runs on.")

    def report(self, method: str, params: Message) -> None:
        """Pass on a report of progress, or a line of the server's log."""
        self._reports += 1
        if self._reports > MAX_REPORTS:
            return
        if method == "notifications/progress" and params.get("progressToken") == self._id:
            done, total = _number(params.get("progress")), _number(params.get("total"))
            fraction = None if done is None or not total else min(1.0, max(0.0, done / total))
            said = str(params.get("message") or "")[:1_000]
            self._ctx.progress(said or ("" if done is None else f"{done:g}"), fraction)
        elif method == "notifications/message":
            level = LEVELS.get(str(params.get("level")), "error")
            self._ctx.log(str(params.get("data"))[:2_000], level=level)


def _new_id() -> int:
    """An id that nobody can guess, so that no answer can be sent before the question."""
    return secrets.randbelow(2**52) + 1


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return float(value) if abs(value) < 2**63 else None


def _described(page: Message, wrong: list[str]) -> Iterator[Message]:
    """The tools on one page of the list, without the parts that nobody reads. An entry without a name is left out.
    Raises Misbehaved."""
    tools: object = page.get("tools")
    if not isinstance(tools, list):
        raise Misbehaved("The server's list of tools is no list. It was ended.")
    for tool in cast("list[object]", tools):
        if not isinstance(tool, dict) or not isinstance(cast("Message", tool).get("name"), str):
            wrong.append("its list of tools has an entry without a name")
            continue
        described = cast("dict[str, Any]", tool)
        yield _carried({part: described[part] for part in _KEPT if described.get(part) is not None})


def _carried(tool: Message) -> Message:
    """The tool as the supervisor gets it: with its problem alone, if the rest cannot be sent."""
    try:
        return cast("Message", encode_json([tool])[0])
    except Unencodable as error:
        return {"name": str(tool["name"]).encode("utf-8", "replace").decode(), PROBLEM: str(error)[:200]}
