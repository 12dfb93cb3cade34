"""Send one request over one connection to a checked address, and bound all data that are kept.

httpcore speaks HTTP. It has no proxy, no retry, no HTTP/2, no authorities of its own and one request for each
connection. This module loads httpcore, and `outbound` loads this module.
"""

import logging
import os
import ssl
import zlib
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from typing import cast

import httpcore
from anyio.lowlevel import checkpoint

from toolcell.backends.body import Body
from toolcell.backends.errors import Unreachable
from toolcell.backends.guard import Address, Target
from toolcell.backends.pinned import HEAD_BYTES, HeadTooLarge, Pinned

__all__ = ["ExchangeReply", "ask"]

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
