"""One connection of a call: read the request, check it, look the host up, connect, relay, and record."""

import logging
import socket
import struct
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Protocol

import anyio

from toolcell.backends.addresses import Target
from toolcell.backends.egress.decision import EgressRules, target_of
from toolcell.backends.egress.head import (
    BadHead,
    Chunked,
    Counted,
    RequestHead,
    end_of_head,
    parse_request,
    rewrite_request,
    rewrite_response,
)
from toolcell.backends.egress.net import Lookups, connect, linger
from toolcell.backends.protocols import Refused

__all__ = ["Connection", "ConnectionOutcome", "answer"]

_log = logging.getLogger("toolcell.egress")
HEAD_S = 10.0  # for the whole head of a request: a limit for each read, as nginx's 60 s, would not stop slow clients
CONNECT_S = 10.0  # name lookup and connection, each
HELD_S = 1.0  # a timer that is later than this shows that the event loop was held
CHUNK_BYTES = 64 * 1024
TEXT_CHARS = 400


@dataclass(slots=True)
class ConnectionOutcome:
    """The record of one connection. `allowed` is the decision. `reason` says why it was refused, or why an allowed
    connection was cut off. Bytes are counted on the side of the remote host; `in` is towards the cell.
    """

    method: str = ""
    host: str = ""
    port: int = 0
    address: str = ""
    allowed: bool = False
    reason: str = ""
    bytes_in: int = 0
    bytes_out: int = 0


class ProxiedCall(Protocol):
    """The call that the connection is for."""

    rules: EgressRules
    lookups: Lookups
    idle_s: float

    def room(self, direction: str) -> int:
        """The number of bytes that may still go "in" or "out"."""
        ...

    def moved(self, direction: str, count: int) -> None: ...
    def ended(self, connection: "Connection", outcome: ConnectionOutcome) -> None: ...


class _NotConnected(Exception):
    """There is no connection. The client gets this status and this text."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


class _Ended(Exception):
    """The exchange has ended. The message is the reason, or "" for a regular end."""


class Connection:
    """One connection. `run` is its task. `end` ends it at once, and may be called from any code on the loop."""

    def __init__(self, call: ProxiedCall, client: socket.socket) -> None:
        self.outcome = ConnectionOutcome()
        self._call = call
        self._client = client
        self._upstream: socket.socket | None = None
        self._scope: anyio.CancelScope | None = None
        self._over = False
        self._answered = False  # bytes were sent to the client, so it is too late for an error page
        self._moved = time.monotonic()

    # -- lifetime ----------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        if self._over:
            return
        try:
            with anyio.CancelScope() as self._scope:
                await self._serve()
        except OSError as error:
            self.outcome.reason = self.outcome.reason or f"the connection broke: {error.strerror or error}"
        except Exception:  # a bug here must not end other tasks of the supervisor
            _log.exception("the proxy failed")
            self.outcome.reason = self.outcome.reason or "the proxy failed"
        finally:
            self.end()
            self._close()

    def end(self, reason: str = "") -> None:
        """Close both sides now, and write the record, once."""
        if self._over:
            return
        self._over = True
        self.outcome.reason = self.outcome.reason or reason
        for sock in (self._client, self._upstream):
            if sock is not None:
                try:
                    sock.shutdown(socket.SHUT_RDWR)
                except OSError:
                    pass  # the client has disconnected
        if self._scope is None:
            self._close()  # its task has not begun, and may never begin
        else:
            self._scope.cancel()
        self._call.ended(self, self.outcome)

    def _close(self) -> None:
        for sock in (self._client, self._upstream):
            if sock is not None:
                sock.close()

    async def _serve(self) -> None:
        try:
            request, rest = await self._read_request()
            self.outcome.method = request.method
            target, upstream = await self._reach(request)
        except (BadHead, Refused, _NotConnected) as error:
            status = 400 if isinstance(error, BadHead) else 403 if isinstance(error, Refused) else error.status
            text = f"The request cannot be read: {error}." if isinstance(error, BadHead) else str(error)
            await self._refuse(status, text)
            return
        self._upstream = upstream
        self._moved = time.monotonic()
        try:
            if request.method == "CONNECT":
                await self._tunnel(rest)
            else:
                await self._exchange(request, target, rest)
        except BadHead as error:
            await self._refuse(502, f"The answer of {target.host} cannot be read: {error}.")
        except _Ended as ended:
            if str(ended):
                self.outcome.reason = str(ended)
                self._reset()
        else:
            await linger(self._client)

    async def _refuse(self, status: int, text: str) -> None:
        self.outcome.reason = self.outcome.reason or text
        if self._answered:
            self._reset()
            return
        with anyio.move_on_after(HEAD_S):
            await self._send(self._client, answer(status, text))
            await linger(self._client)

    def _reset(self) -> None:
        """End with a reset instead of an end of file, so the client sees that data are missing."""
        try:
            self._client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        except OSError:
            return
        self._client.close()

    # -- from the first byte to a connection to the remote host -------------------------------------------------------

    async def _read_request(self) -> tuple[RequestHead, bytes]:
        data = bytearray()
        with anyio.move_on_after(HEAD_S):
            while True:
                end = end_of_head(data)
                if end:
                    return parse_request(bytes(data[:end])), bytes(data[end:])
                await anyio.wait_readable(self._client)
                more = self._client.recv(CHUNK_BYTES)
                if not more:
                    self.outcome.reason = "the client disconnected before its request was complete"
                    raise OSError
                data += more
        raise _NotConnected(408, f"The request's head was not complete after {HEAD_S:g} s.")

    async def _reach(self, request: RequestHead) -> tuple[Target, socket.socket]:
        """Check the request, look the host up once, check the addresses, and connect to one of these addresses."""
        target = target_of(request)
        self.outcome.host, self.outcome.port = target.host, target.port
        self._call.rules.check(target)
        for direction in ("in", "out"):
            if self._call.room(direction) <= 0:
                raise Refused(_CAP)
        answers = [target.host] if target.literal is not None else await self._look_up(target)
        addresses = self._call.rules.addresses(target, answers)
        self.outcome.allowed = True
        where = f"{target.host}:{target.port}"
        with anyio.move_on_after(CONNECT_S):
            try:
                upstream, address = await connect(addresses, target.port)
            except OSError as error:
                raise _NotConnected(502, f"{where} cannot be reached: {error.strerror}.") from None
            self.outcome.address = str(address)
            return target, upstream
        raise _NotConnected(504, f"{where} did not answer within {CONNECT_S:g} s.")

    async def _look_up(self, target: Target) -> list[str]:
        with anyio.move_on_after(CONNECT_S):
            try:
                answers = await self._call.lookups.addresses(target.host, target.port)
            except (OSError, UnicodeError):
                answers = []
            if answers:
                return answers
            raise _NotConnected(502, f"The host {target.host} was not found. Check its spelling.")
        raise _NotConnected(504, f"The host {target.host} was not found within {CONNECT_S:g} s.")

    # -- relaying -----------------------------------------------------------------------------------------------------

    async def _tunnel(self, rest: bytes) -> None:
        """Relay bytes in both directions until both sides have ended."""
        upstream = self._far_side()
        await self._send(self._client, b"HTTP/1.1 200 Connection established\r\n\r\n")
        self._answered = True
        await self._both(
            lambda: self._copy(self._client, upstream, "out", rest), lambda: self._copy(upstream, self._client, "in")
        )

    async def _exchange(self, request: RequestHead, target: Target, rest: bytes) -> None:
        """Relay one request and one response, and end the connection."""
        await self._forward("out", rewrite_request(request, target.path, target.authority))
        body = Chunked() if request.length is None else Counted(request.length)
        done = anyio.Event()

        async def send_body() -> None:
            data = rest
            try:
                while not body.done:
                    part = body.feed(data)
                    if part:
                        await self._forward("out", part)
                    if not body.done:
                        data = await self._receive(self._client)
                        if not data:
                            raise _Ended("the client disconnected within its request")
            except OSError:
                pass  # a server may answer and disconnect before it has read everything
            await done.wait()

        async def return_response() -> None:
            await self._copy_response()
            done.set()
            raise _Ended  # the rest of the body is not needed

        try:
            await self._both(send_body, return_response)
        except _Ended as ended:
            if str(ended):
                raise

    async def _copy_response(self) -> None:
        upstream, data = self._far_side(), bytearray()
        while True:
            end = end_of_head(data)
            if not end:
                more = await self._receive(upstream)
                if not more:
                    raise BadHead("the server disconnected before the head was complete")
                data += more
                continue
            status, head = rewrite_response(bytes(data[:end]))
            if status == 101:
                raise BadHead("the server switched to another protocol")
            del data[:end]
            await self._forward("in", head)
            if status >= 200:
                break
        await self._copy(upstream, self._client, "in", bytes(data))

    async def _both(self, *halves: Callable[[], Awaitable[None]]) -> None:
        """Run both directions. The first failure ends the other direction and is raised."""
        failed: list[Exception] = []

        async def run(half: Callable[[], Awaitable[None]], scope: anyio.CancelScope) -> None:
            try:
                await half()
            except (_Ended, BadHead, OSError) as error:
                failed.append(error)
                scope.cancel()

        async with anyio.create_task_group() as group:
            for half in halves:
                group.start_soon(run, half, group.cancel_scope)
        if failed:
            raise failed[0]

    async def _copy(self, source: socket.socket, sink: socket.socket, direction: str, data: bytes = b"") -> None:
        """Copy until the source ends. Then end the sink."""
        if data:
            await self._forward(direction, data)
        while data := await self._receive(source):
            await self._forward(direction, data)
        sink.shutdown(socket.SHUT_WR)

    async def _forward(self, direction: str, data: bytes) -> None:
        """Send to the remote host ("out") or to the client ("in"), within the cap on bytes."""
        allowed = data[: max(0, self._call.room(direction))]
        self._call.moved(direction, len(allowed))
        if direction == "out":
            self.outcome.bytes_out += len(allowed)
            await self._send(self._far_side(), allowed)
        else:
            self.outcome.bytes_in += len(allowed)
            self._answered = True
            await self._send(self._client, allowed)
        if len(allowed) < len(data):
            raise _Ended(_CAP)

    async def _receive(self, sock: socket.socket) -> bytes:
        while True:
            await self._until(sock, anyio.wait_readable)
            try:
                data = sock.recv(CHUNK_BYTES)
            except BlockingIOError:
                continue
            self._moved = time.monotonic()
            return data

    async def _send(self, sock: socket.socket, data: bytes) -> None:
        rest = memoryview(data)
        while rest:
            try:
                rest = rest[sock.send(rest) :]
                self._moved = time.monotonic()
            except BlockingIOError:
                await self._until(sock, anyio.wait_writable)

    async def _until(self, sock: socket.socket, wait: Callable[[socket.socket], Awaitable[None]]) -> None:
        """Wait for the socket. Raises _Ended if no byte moves in either direction for `idle_s` seconds."""
        while True:
            due = self._moved + self._call.idle_s
            with anyio.move_on_after(max(0.0, due - time.monotonic())):
                await wait(sock)
                return
            if time.monotonic() - due > HELD_S:  # the event loop was held: nothing could move
                self._moved = time.monotonic()
            elif self._moved + self._call.idle_s == due:
                raise _Ended(f"no data has moved for {self._call.idle_s:g} s")

    def _far_side(self) -> socket.socket:
        assert self._upstream is not None
        return self._upstream


_CAP = "This call has moved as many bytes as ProxyNetwork(max_bytes=...) allows."


def answer(status: int, text: str) -> bytes:
    """A response of the proxy. The text is in the status line too, because clients show only that line after a
    CONNECT.
    """
    text = "".join(character if character.isascii() and character.isprintable() else "?" for character in text)
    body = f"{text[:TEXT_CHARS]}\n".encode()
    head = f"HTTP/1.1 {status} {text[:TEXT_CHARS]}\r\nContent-Type: text/plain\r\nContent-Length: {len(body)}\r\n"
    return head.encode() + b"Connection: close\r\n\r\n" + body
