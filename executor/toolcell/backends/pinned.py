"""A network backend for httpcore that connects only to addresses which the guard has checked.

Each connection is for one request. The bytes before the body are bounded here, because h11 bounds neither the number of
headers nor the number of interim answers.
"""

import math
import ssl
from collections.abc import Iterable, Sequence
from typing import Any

import anyio
import httpcore
from httpcore import AnyIOBackend, AsyncNetworkStream

from toolcell.backends.guard import Address, Target

__all__ = ["HEAD_BYTES", "HeadTooLarge", "Pinned"]

HEAD_BYTES = 64 * 1024  # of all heads of one answer, interim ones included
_HEAD_LINES = 256
_HEAD_READ = 4 * 1024  # bytes at a time, because h11 blocks the event loop while it reads them
_ATTEMPTS = 4  # addresses of one name to try, each with a part of the time


class HeadTooLarge(Exception):
    """The server sent more bytes before the body than any answer needs."""


class Pinned(httpcore.AsyncNetworkBackend):
    """Connects to the first of `addresses` that answers, at the port of `target`.

    The host and port that httpcore passes are ignored. TLS checks the name of `target`. `address` is the address of the
    connection. Works on asyncio and on trio.
    """

    def __init__(self, target: Target, addresses: Sequence[Address]) -> None:
        self.address: Address | None = None
        self._target = target
        self._addresses = addresses[:_ATTEMPTS]
        self._streams: list[_Bounded] = []

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
    ) -> AsyncNetworkStream:
        """Connect before the deadline of the caller's cancel scope. Raise the last address's
        `httpcore.ConnectError`."""
        failed: httpcore.ConnectError | None = None
        for waiting, address in reversed(list(enumerate(reversed(self._addresses)))):
            left = anyio.current_effective_deadline() - anyio.current_time()
            with anyio.move_on_after(left / (waiting + 1) if waiting else math.inf):
                try:
                    stream = await AnyIOBackend().connect_tcp(str(address), self._target.port)
                except httpcore.ConnectError as error:
                    failed = error
                    continue
                self.address = address
                self._streams.append(_Bounded(stream, self._target.host))
                return self._streams[0]
        raise failed or httpcore.ConnectError("no address answered in time")

    def end_head(self) -> None:
        """Note that the answer's last head was read, and that its body follows."""
        for stream in self._streams:
            stream.is_head = False

    def end_body(self) -> None:
        """Read no more from the network. httpcore sees the end of the connection."""
        for stream in self._streams:
            stream.is_over = True

    async def aclose(self) -> None:
        """Close the connection. httpcore does not close it if it is cancelled in the TLS handshake."""
        with anyio.CancelScope(shield=True):
            for stream in self._streams:
                await stream.aclose()


class _Bounded(AsyncNetworkStream):
    """A stream with a bound on the bytes of an answer's heads."""

    def __init__(self, stream: AsyncNetworkStream, host: str) -> None:
        self.is_head, self.is_over = True, False
        self._stream = stream
        self._host = host
        self._bytes = self._lines = 0

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        if self.is_over:
            return b""
        if not self.is_head:
            return await self._stream.read(max_bytes, timeout)
        if self._bytes > HEAD_BYTES or self._lines > _HEAD_LINES:
            raise HeadTooLarge
        data = await self._stream.read(min(max_bytes, _HEAD_READ), timeout)
        self._bytes += len(data)
        self._lines += data.count(b"\n")
        return data

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:
        await self._stream.write(buffer, timeout)

    async def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> AsyncNetworkStream:
        # SNI has the name, and the certificate must match the name, whatever the address is.
        self._stream = await self._stream.start_tls(ssl_context, self._host, timeout)
        return self

    def get_extra_info(self, info: str) -> Any:
        return self._stream.get_extra_info(info)

    async def aclose(self) -> None:
        await self._stream.aclose()
