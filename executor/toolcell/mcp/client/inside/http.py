"""A server behind a URL, by MCP's streamable HTTP. The supervisor makes the requests, by the session's rules."""

import json
import time
from collections.abc import Callable, Generator, Iterator, Mapping
from itertools import count
from typing import Protocol, cast

from toolcell_tools.context import ToolContext
from toolcell_tools.failures import ToolFailure
from toolcell_tools.handles import HttpResponse

from .jsonrpc import Message, Misbehaved, decoded, encoded

TICK_S = 0.05  # between looks at the call's cancellation
MOST_POSTS = 50
"""Messages whose acceptance nobody has waited for yet. The supervisor sends 16 at once."""
_SESSION_CHARS = 1_000
_GONE = 404  # the server has forgotten the session: start another one
_END_S = 0.25  # for a server to end its events after the answer
_FLUSH_S = 1.0  # for a server to accept a cancellation
_numbers = count(1)  # of the requests that are watched


class SessionGone(Exception):
    """The server no longer knows the session."""


class Post(Protocol):
    """A request under way, as `toolcell.runner.handles.WatchedPost`."""

    received: int

    def wait(self, seconds: float, *, events: bool = True) -> bytes | HttpResponse | None: ...
    def leave(self) -> None: ...


class WatchingHttp(Protocol):
    """The HTTP handle of a cell, which can also read events while they arrive."""

    def watch(self, number: int, url: str, headers: Mapping[str, str], body: bytes) -> Post: ...


class HttpTransport:
    """Each message is a POST to `url`. An answer is JSON, or server-sent events, which are read while they arrive."""

    def __init__(self, url: str, headers: Mapping[str, str]) -> None:
        self._ctx: ToolContext | None = None
        self._url = url
        self._headers = {**headers, "content-type": "application/json", "accept": "application/json, text/event-stream"}
        self._posts: list[tuple[Message, Post]] = []
        self._accepted: list[tuple[Message, HttpResponse | ToolFailure]] = []  # and not looked at yet

    def begin(self, ctx: ToolContext) -> None:
        """Use this call's handles from now on. What the last call has not waited for is over."""
        self._ctx = ctx
        self._posts.clear()
        self._accepted.clear()

    def agreed(self, version: str) -> None:
        self._headers["mcp-protocol-version"] = version

    def drain(self) -> Iterator[Message | None]:
        return iter(())

    def post(self, message: Message) -> None:
        """Send a message, and do not wait until the server has accepted it. The next exchange does."""
        while len(self._posts) >= MOST_POSTS:
            self._look(TICK_S)
        self._posts.append((message, self._send(0, message)))

    def exchange(self, message: Message, tick: Callable[[], None]) -> Generator[Message | None]:
        """Send a message after those that were posted, and yield what arrives."""
        while self._posts:
            self._look(TICK_S)
            tick()
        yield from self._answers()
        request, events = self._send(next(_numbers), message), EventReader()
        streams = message.get("method") != "initialize"  # the head of that answer names the session
        is_over = False
        try:
            while not is_over:
                said = request.wait(TICK_S, events=streams)
                if isinstance(said, bytes):
                    yield from events.read(said)
                elif said is not None:
                    is_over = True
                    yield from self._rest(said, request.received, events)
                else:
                    self._look(0)
                    yield from self._answers()
                    tick()
        finally:
            if not is_over:
                self._end(request)

    def flush(self) -> None:
        """Wait a moment until the server has accepted what was posted."""
        assert self._ctx is not None
        until = time.monotonic() + min(_FLUSH_S, self._ctx.remaining() / 2)
        while self._posts and time.monotonic() < until:
            self._look(TICK_S)

    def close(self) -> None:
        pass

    def kill(self) -> None:
        pass

    def _send(self, number: int, message: Message) -> Post:
        assert self._ctx is not None
        http = cast("WatchingHttp", self._ctx.require.http)
        return http.watch(number, self._url, self._headers, encoded(message))

    def _end(self, request: Post) -> None:
        """Wait a moment for the end of a request whose answer is known or not wanted, then leave it."""
        assert self._ctx is not None
        try:
            if request.wait(0.0 if self._ctx.cancelled else _END_S, events=False) is None:
                request.leave()
        except ToolFailure:
            pass  # the connection broke, and nothing more was expected from it

    def _look(self, wait_s: float) -> None:
        """Find out which of the posted messages the server has accepted, after waiting for the first."""
        for message, post in self._posts[:]:
            answer = _looked_at(post, wait_s)
            if answer is not None:
                self._posts.remove((message, post))
                self._accepted.append((message, answer))
            wait_s = 0

    def _answers(self) -> Iterator[Message | None]:
        """The messages in the answers to what was posted: to a ping. Raises ToolFailure for what was not accepted."""
        while self._accepted:
            message, answer = self._accepted.pop(0)
            if isinstance(answer, ToolFailure):
                raise answer
            _require_success(answer)
            if "method" in message and "id" in message:
                yield from self._rest(answer, 0, EventReader())

    def _rest(self, answer: HttpResponse, received: int, events: "EventReader") -> Iterator[Message | None]:
        """The messages in an answer, without those in the bytes that were received before."""
        if answer.status == _GONE and "mcp-session-id" in self._headers:
            raise SessionGone
        _require_success(answer)
        session = answer.headers.get("mcp-session-id")
        if session is not None:
            if not session.isascii() or not session.isprintable() or len(session) > _SESSION_CHARS:
                raise Misbehaved("The server gave a session id that is no short ASCII text.")
            self._headers["mcp-session-id"] = session
        kind = answer.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind == "text/event-stream":
            yield from events.read(answer.body[received:], is_end=True)
        elif kind == "application/json":
            yield decoded(answer.body)
        else:
            raise Misbehaved(f"The server answered with {kind[:100] or 'no content'}, and not with JSON.")


def _looked_at(post: Post, wait_s: float) -> HttpResponse | ToolFailure | None:
    try:
        answer = post.wait(wait_s, events=False)
    except ToolFailure as failure:
        return failure
    return answer if isinstance(answer, HttpResponse) else None


def _require_success(answer: HttpResponse) -> None:
    if not 200 <= answer.status < 300:
        raise ToolFailure(f"The server answered with status {answer.status}{_reason(answer.body)}.")


def _reason(body: bytes) -> str:
    """The message of a JSON-RPC error in the body of a refusal."""
    try:
        found: object = json.loads(body[:10_000])
    except (ValueError, RecursionError):
        return ""
    error = cast("Message", found).get("error") if isinstance(found, dict) else None
    message = cast("Message", error).get("message") if isinstance(error, dict) else None
    return f": {message[:500]}" if isinstance(message, str) else ""


class EventReader:
    """Finds messages in server-sent events (WHATWG HTML, 9.2). Events of other types than "message" are left out."""

    def __init__(self) -> None:
        self._data: list[bytes] = []
        self._kind = b""

    def read(self, text: bytes, *, is_end: bool = False) -> Iterator[Message | None]:
        """The messages that are complete after this text, which ends with a line, or with the body."""
        lines = text.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
        if not is_end:
            lines.pop()
        for line in (*lines, b"") if is_end else lines:
            if line:
                self._take(line)
                continue
            data, kind, self._data, self._kind = self._data, self._kind, [], b""
            if kind in (b"", b"message") and any(data):
                yield decoded(b"\n".join(data))

    def _take(self, line: bytes) -> None:
        name, _, value = line.partition(b":")
        if name == b"data":
            self._data.append(value.removeprefix(b" "))
        elif name == b"event":
            self._kind = value.removeprefix(b" ")
