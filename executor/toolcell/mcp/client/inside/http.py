"""A server behind a URL, by MCP's streamable HTTP. The supervisor makes the requests, by the session's rules."""

import json
from collections.abc import Callable, Iterator, Mapping
from typing import cast

from toolcell_tools.context import ToolContext
from toolcell_tools.failures import ToolFailure
from toolcell_tools.handles import HttpResponse

from .messages import Message, Misbehaved, decoded, encoded

_SESSION_CHARS = 1_000
_GONE = 404  # the server has forgotten the session: start another one


class SessionGone(Exception):
    """The server no longer knows the session."""


class HttpTransport:
    """Each message is a POST to `url`. An answer is JSON, or server-sent events that end with the answer."""

    def __init__(self, url: str, headers: Mapping[str, str]) -> None:
        self.ctx: ToolContext | None = None
        self._url = url
        self._headers = {**headers, "content-type": "application/json", "accept": "application/json, text/event-stream"}

    def agreed(self, version: str) -> None:
        self._headers["mcp-protocol-version"] = version

    def drain(self) -> Iterator[Message | None]:
        return iter(())

    def post(self, message: Message) -> None:
        self._send(message)

    def exchange(self, message: Message, tick: Callable[[], None]) -> Iterator[Message | None]:
        answer = self._send(message)
        session = answer.headers.get("mcp-session-id")
        if session is not None:
            if not session.isascii() or not session.isprintable() or len(session) > _SESSION_CHARS:
                raise Misbehaved("The server gave a session id that is no short ASCII text.")
            self._headers["mcp-session-id"] = session
        kind = answer.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind == "text/event-stream":
            yield from events_in(answer.body)
        elif kind == "application/json":
            yield decoded(answer.body)
        else:
            raise Misbehaved(f"The server answered with {kind[:100] or 'no content'}, and not with JSON.")

    def flush(self) -> None:
        pass

    def close(self) -> None:
        pass

    def kill(self) -> None:
        pass

    def _send(self, message: Message) -> HttpResponse:
        assert self.ctx is not None
        answer = self.ctx.require.http.request("POST", self._url, headers=self._headers, body=encoded(message))
        if answer.status == _GONE and "mcp-session-id" in self._headers:
            raise SessionGone
        if not 200 <= answer.status < 300:
            raise ToolFailure(f"The server answered with status {answer.status}{_reason(answer.body)}.")
        return answer


def _reason(body: bytes) -> str:
    """The message of a JSON-RPC error in the body of a refusal."""
    try:
        found: object = json.loads(body[:10_000])
    except (ValueError, RecursionError):
        return ""
    error = cast("Message", found).get("error") if isinstance(found, dict) else None
    message = cast("Message", error).get("message") if isinstance(error, dict) else None
    return f": {message[:500]}" if isinstance(message, str) else ""


def events_in(body: bytes) -> Iterator[Message | None]:
    """The messages in server-sent events (WHATWG HTML, 9.2). Events of other types than "message" are left out."""
    data: list[bytes] = []
    kind = b""
    for line in (*body.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n"), b""):
        if not line:
            if data and kind in (b"", b"message") and any(data):
                yield decoded(b"\n".join(data))
            data, kind = [], b""
            continue
        name, _, value = line.partition(b":")
        if name == b"data":
            data.append(value.removeprefix(b" "))
        elif name == b"event":
            kind = value.removeprefix(b" ")
