"""Send one request over one connection to a checked address, and bound all data that are kept.

httpcore speaks HTTP. It has no proxy, no retry, no HTTP/2, no authorities of its own and one request for each
connection. This module loads httpcore, and `outbound` loads this module. `Pinned` connects only to addresses that were
checked, and bounds the bytes before the body: h11 bounds neither the number of headers nor that of interim answers.
"""

import logging
import math
import os
import ssl
import zlib
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, cast

import anyio
import httpcore
from anyio.lowlevel import checkpoint
from httpcore import AnyIOBackend, AsyncNetworkStream

from toolcell.backends.addresses import Address, Target
from toolcell.backends.body import Body
from toolcell.backends.protocols import Unreachable

__all__ = ["HEAD_BYTES", "ExchangeReply", "HeadTooLarge", "Pinned", "ask"]

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


_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_HEADERS = 100  # as http.client, and Apache's LimitRequestFields
_LONGEST = 2**63 - 1  # bytes of a body that a server may announce; a larger number is invalid
_SENT_WITH_LENGTH = frozenset({"PATCH", "POST", "PUT"})  # even if it is 0 (RFC 9110, 8.6)
_PIECES = 32  # of a body, before other tasks run

# httpcore logs the heads of answers at DEBUG, and a server may repeat a credential in one.
_ours: ContextVar[bool] = ContextVar("toolcell.backends.exchange", default=False)
for _name in ("httpcore.connection", "httpcore.http11"):
    logging.getLogger(_name).addFilter(lambda record: not _ours.get())


@dataclass(frozen=True, slots=True)
class ExchangeReply:
    """`body` is decoded and has at most `max_bytes`. `total_bytes` is its full decoded length, if known. `location` is
    the target of a redirect, whose body is not read. `headers` are in the order of their arrival. `address` is the
    address of the connection.
    """

    status: int
    headers: tuple[tuple[str, str], ...]
    location: str | None
    body: bytes
    truncated: bool
    total_bytes: int | None
    address: str

    def header(self, name: str) -> str:
        """The first header of this name, in lower case; "" if there is none."""
        return next((value for each, value in self.headers if each.lower() == name), "")


async def ask(
    target: Target,
    addresses: Sequence[Address],
    *,
    tls: ssl.SSLContext | None,
    headers: Mapping[str, str],
    max_bytes: int,
    method: str = "GET",
    body: bytes = b"",
    on_large: Callable[[], Awaitable[None]] | None = None,
    on_events: Callable[[bytes], None] | None = None,
) -> ExchangeReply:
    """Send a request for `target` to one of `addresses`, before the deadline of the caller's cancel scope.

    `headers` are sent unchanged, beside Host, Connection and Content-Length. `on_large` is awaited once, before more
    than `FREE_BYTES` of the body are kept. `on_events` gets the body of server-sent events while it arrives. https
    needs `tls`. Raises `Unreachable` for every failure.
    """
    assert tls is not None or target.scheme == "http"
    pinned = Pinned(target, addresses)
    origin = httpcore.Origin(target.scheme.encode(), target.host.encode(), target.port)
    connection = httpcore.AsyncHTTPConnection(origin, ssl_context=tls, network_backend=pinned)
    token = _ours.set(True)
    try:
        response = await connection.handle_async_request(_request(target, method, headers, body))
        pinned.end_head()
        return await _reply(response, pinned, max_bytes, on_large, on_events)
    except HeadTooLarge:
        why = f"The headers that {target.host} answered with are too many or too large. Use another source."
    except zlib.error:
        why = f"The answer of {target.host} is compressed and damaged. Try again later or use another source."
    except (httpcore.ProtocolError, httpcore.NetworkError, OSError, ValueError) as error:
        why = _why(target.host, error)
    finally:
        _ours.reset(token)
        await pinned.aclose()
    raise Unreachable(why)  # without its context, which repeats what the server said


def _request(target: Target, method: str, headers: Mapping[str, str], body: bytes) -> httpcore.Request:
    fields = {"Host": target.authority, **headers, "Connection": "close"}
    if body or method in _SENT_WITH_LENGTH:
        fields["Content-Length"] = str(len(body))
    return httpcore.Request(
        method,
        httpcore.URL(scheme=target.scheme, host=target.host, port=target.port, target=target.path),
        headers=[(name, value.strip(" \t")) for name, value in fields.items()],
        content=body,
    )


async def _reply(
    response: httpcore.Response,
    pinned: Pinned,
    max_bytes: int,
    on_large: Callable[[], Awaitable[None]] | None,
    on_events: Callable[[bytes], None] | None,
) -> ExchangeReply:
    headers = tuple((name.decode("latin-1"), value.decode("latin-1")) for name, value in response.headers)
    extensions = cast("Mapping[str, bytes]", response.extensions)
    if response.status < 200 or not extensions["http_version"].startswith(b"HTTP/1."):
        raise httpcore.RemoteProtocolError  # 101 is another protocol
    if len(headers) > _HEADERS or sum(len(name) + len(value) for name, value in headers) > HEAD_BYTES:
        raise HeadTooLarge
    location = _joined(response, b"location") if response.status in _REDIRECTS else None
    if location is not None:
        text = location.decode("utf-8", "replace")  # raw UTF-8 is common
        return ExchangeReply(response.status, headers, text, b"", False, None, str(pinned.address))
    encoding = (_joined(response, b"content-encoding") or b"").decode("latin-1")
    if on_events is not None and not _has_events(response):
        on_events = None
    kept = await _read(response, pinned, Body(max_bytes, encoding, _declared(response)), on_large, on_events)
    return ExchangeReply(response.status, headers, None, *kept, str(pinned.address))


def _has_events(response: httpcore.Response) -> bool:
    kind = (_joined(response, b"content-type") or b"").partition(b";")[0]
    return response.status == 200 and kind.strip().lower() == b"text/event-stream"


def _joined(response: httpcore.Response, name: bytes) -> bytes | None:
    """The values of every header of this name, joined."""
    values = [value for each, value in response.headers if each.lower() == name]
    return b", ".join(values) if values else None


def _declared(response: httpcore.Response) -> int | None:
    """The announced length, or None. h11 has checked that it is one number."""
    length = _joined(response, b"content-length")
    if length is None or _joined(response, b"transfer-encoding") is not None:
        return None
    number = int(length.split(b",")[0])
    if number > _LONGEST:
        raise httpcore.RemoteProtocolError
    return number


async def _read(
    response: httpcore.Response,
    pinned: Pinned,
    body: Body,
    on_large: Callable[[], Awaitable[None]] | None,
    on_events: Callable[[bytes], None] | None,
) -> tuple[bytes, bool, int | None]:
    whole, pieces = False, 0
    chunks = aiter(cast("AsyncIterable[bytes]", response.stream))
    try:
        async for chunk in chunks:
            for piece in body.decode(chunk):
                if on_large is not None and not body.is_free(piece):
                    await on_large()
                    on_large = None
                body.keep(piece)
                if on_events is not None:
                    on_events(piece)
                pieces += 1
                if pieces % _PIECES == 0:
                    await checkpoint()
            if not body.wants_more:
                break
        else:
            whole = True
    except httpcore.RemoteProtocolError:
        pass  # the body breaks off
    finally:
        pinned.end_body()
        await _exhaust(chunks)
    return body.end(whole=whole)


async def _exhaust(chunks: AsyncIterator[bytes]) -> None:
    """End httpcore's generators here. Otherwise they would end later, and on trio with a warning."""
    try:
        async for _ in chunks:
            pass
    except httpcore.RemoteProtocolError:
        pass  # intended by `Pinned.end_body`


def _why(host: str, error: Exception) -> str:
    for each in _causes(error):
        if isinstance(each, ssl.SSLCertVerificationError):
            return f"The certificate of {host} is not valid: {each.verify_message}. Use another source."
    return f"{host} could not be asked: {_reason(error)}. Try again later or use another source."


def _reason(error: Exception) -> str:
    """The reason in the words of the system, without an address. The server's words are never used."""
    if isinstance(error, httpcore.ProtocolError):
        return "its answer is not valid HTTP/1.1, or breaks off"
    for each in _causes(error):
        if isinstance(each, ssl.SSLError):
            return (each.reason or type(each).__name__)[:120]
        if isinstance(each, OSError) and each.errno is not None:
            return os.strerror(each.errno)
    return type(error).__name__


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__
