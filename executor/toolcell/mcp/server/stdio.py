"""MCP over standard input and output, with bounds: the length of a line, and the requests without an answer, in number
and in bytes.

The descriptors are waited for, not read in threads, so the server ends even if its client neither reads nor writes.
"""

import json
import os
import sys
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager, nullcontext
from fcntl import F_DUPFD_CLOEXEC, fcntl
from typing import Final

import anyio
import mcp_types as types
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.shared.jsonrpc_dispatcher import cancelled_request_id_from_params
from mcp.shared.message import SessionMessage

from .bounds import SMALL_BYTES, ServerBounds
from .principal import BUSY, PrincipalServer

__all__ = ["claimed_stdio", "serve"]

CHUNK: Final = 65_536
ATOMIC: Final = 4096  # PIPE_BUF: a pipe that is ready takes so many bytes without blocking
Incoming = MemoryObjectSendStream[SessionMessage | Exception]


async def serve(principal: PrincipalServer, bounds: ServerBounds, own: tuple[int, int] | None) -> None:
    """Serve the client at the standard input and output of this process, until it closes its end. `own` are the
    descriptors of `claimed_stdio`, if they are claimed already."""
    with claimed_stdio() if own is None else nullcontext(own) as (read_fd, write_fd):
        to_server, incoming = anyio.create_memory_object_stream[SessionMessage | Exception](0)
        outgoing, from_server = anyio.create_memory_object_stream[SessionMessage](0)
        pipe = _JsonLines(read_fd, write_fd, bounds)
        server = principal.server
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(pipe.read, to_server)
            tasks.start_soon(pipe.write, from_server)
            await server.run(incoming, outgoing, server.create_initialization_options())
            tasks.cancel_scope.cancel()


@contextmanager
def claimed_stdio() -> Generator[tuple[int, int]]:
    """Private copies of descriptors 0 and 1. Meanwhile 0 is empty, and 1 is standard error, so that nothing else in
    this process reads requests or writes between answers."""
    sys.stdout.flush()
    read_fd, write_fd = fcntl(0, F_DUPFD_CLOEXEC, 3), fcntl(1, F_DUPFD_CLOEXEC, 3)
    nothing = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    try:
        yield read_fd, write_fd
    finally:
        sys.stdout.flush()
        for private, fd in ((read_fd, 0), (write_fd, 1)):
            os.dup2(private, fd)
            os.close(private)


class _JsonLines:
    """Lines of JSON on two descriptors."""

    def __init__(self, read_fd: int, write_fd: int, bounds: ServerBounds) -> None:
        self._read_fd = read_fd
        self._write_fd = write_fd
        self._most_bytes = bounds.message_bytes
        self._most_open = 4 * bounds.requests
        self._most_held = bounds.requests_bytes
        self._open = 0  # requests without an answer
        self._held: dict[types.RequestId, list[int]] = {}  # their bytes, by id; a client may use an id twice
        self._held_bytes = 0
        self._room = anyio.Event()
        self._writing = anyio.Lock()

    async def read(self, to_server: Incoming) -> None:
        """Pass on each message of the client. A client that does not read its answers is not read either."""
        buffer, skipping = bytearray(), False
        async with to_server:
            while chunk := await self._chunk():
                *lines, rest = chunk.split(b"\n")
                for line in lines:
                    if not skipping and len(buffer) + len(line) <= self._most_bytes:
                        await self._pass(bytes(buffer + line), to_server)
                    elif not skipping:
                        await self._refuse()
                    buffer.clear()
                    skipping = False
                buffer += rest
                if len(buffer) > self._most_bytes:
                    buffer.clear()
                    if not skipping:
                        skipping = True
                        await self._refuse()

    async def _chunk(self) -> bytes:
        await _ready(anyio.wait_readable, self._read_fd)
        try:
            return os.read(self._read_fd, CHUNK)
        except OSError:  # a terminal that was hung up
            return b""

    async def _pass(self, line: bytes, to_server: Incoming) -> None:
        if not line.strip():
            return
        try:
            message = types.jsonrpc_message_adapter.validate_json(line, by_name=False)
        except ValueError:
            return await self._error(types.PARSE_ERROR, "The line is no JSON-RPC message.")
        if isinstance(message, types.JSONRPCRequest):
            while self._open >= self._most_open:
                self._room = anyio.Event()
                await self._room.wait()
            if not self._hold(message.id, len(line)):
                return await self._error(BUSY, "The requests without an answer are too long together.", message.id)
        elif isinstance(message, types.JSONRPCNotification) and message.method == "notifications/cancelled":
            self._let_go(cancelled_request_id_from_params(message.params))  # it has no answer
        await to_server.send(SessionMessage(message))

    def _hold(self, id: types.RequestId, size: int) -> bool:
        """Account for a request, if the open ones may be so long. A short one always may, so that a client can answer
        and cancel: their number is bounded."""
        if size > SMALL_BYTES and self._held_bytes + size > self._most_held:
            return False
        self._open += 1
        self._held_bytes += size
        self._held.setdefault(id, []).append(size)
        return True

    def _let_go(self, id: types.RequestId | None) -> None:
        """Account for an answer, or for a cancelled request, which has none."""
        if id is None or id not in self._held:
            return
        sizes = self._held[id]
        self._held_bytes -= sizes.pop()
        if not sizes:
            del self._held[id]
        self._open -= 1
        self._room.set()

    async def _refuse(self) -> None:
        await self._error(types.INVALID_REQUEST, f"The message is longer than {self._most_bytes:,} bytes.")

    async def _error(self, code: int, message: str, id: types.RequestId | None = None) -> None:
        answer = {"jsonrpc": "2.0", "id": id, "error": {"code": code, "message": message}}
        await self._line(json.dumps(answer).encode())

    async def write(self, from_server: MemoryObjectReceiveStream[SessionMessage]) -> None:
        """Write each message of the server."""
        async with from_server:
            async for message in from_server:
                await self._line(message.message.model_dump_json(by_alias=True, exclude_unset=True).encode())
                if isinstance(message.message, (types.JSONRPCResponse, types.JSONRPCError)):
                    self._let_go(message.message.id)

    async def _line(self, line: bytes) -> None:
        async with self._writing:
            view = memoryview(line + b"\n")
            while view:
                await _ready(anyio.wait_writable, self._write_fd)
                try:
                    view = view[os.write(self._write_fd, view[:ATOMIC]) :]
                except BrokenPipeError:  # the client is gone; the end of its input ends the server
                    return


async def _ready(wait: Callable[[int], Awaitable[None]], fd: int) -> None:
    """Wait for a descriptor. A regular file cannot be waited for, and never blocks."""
    try:
        await wait(fd)
    except PermissionError:
        await anyio.lowlevel.checkpoint()
