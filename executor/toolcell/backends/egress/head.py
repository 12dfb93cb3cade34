"""Reading what a client and a server say before a body: strict (RFC 9112), so that no two readers can differ. Sans-IO.

Whatever has two readings is refused, never mended: bare line ends, folded lines, space before a colon, two lengths,
a length beside an encoding. What goes on is written anew from what was understood.
"""

import re
from dataclasses import dataclass

__all__ = [
    "HEAD_BYTES",
    "BadHead",
    "RequestHead",
    "end_of_head",
    "parse_request",
    "rewrite_request",
    "rewrite_response",
]

HEAD_BYTES = 32 * 1024  # Apache and nginx take 8 KiB a line, and a few lines of that
HEADERS = 100  # as Apache's LimitRequestFields and http.client
_TOKEN = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,256}")
_STATUS = re.compile(rb"HTTP/1\.[01] ([1-5][0-9]{2})(?: [\t\x20-\x7e\x80-\xff]*)?")
_HOP_BY_HOP = frozenset(
    (
        b"connection proxy-connection keep-alive proxy-authenticate proxy-authorization proxy-authentication-info "
        b"te trailer upgrade http2-settings"
    ).split()
)

Header = tuple[bytes, bytes]


class BadHead(Exception):
    """It cannot be read in exactly one way. The message says what is wrong with it."""


@dataclass(frozen=True, slots=True)
class RequestHead:
    """`target` is as it was sent. `length` is the body's; None for a chunked one."""

    method: str
    target: str
    headers: tuple[Header, ...]
    length: int | None


def end_of_head(data: bytes | bytearray) -> int:
    """Where the body starts, 0 while the head is not complete. BadHead when it has grown too large."""
    end = data.find(b"\r\n\r\n", 0, HEAD_BYTES)
    if end >= 0:
        return end + 4
    if len(data) >= HEAD_BYTES:
        raise BadHead(f"the head is larger than {HEAD_BYTES:,} bytes")
    return 0


def parse_request(head: bytes) -> RequestHead:
    """Read a whole request head, its empty line included."""
    line, headers = _lines(head)
    parts = line.split(b" ")
    if len(parts) != 3 or not re.fullmatch(rb"[A-Z]{1,32}", parts[0]):
        raise BadHead("the request line is not a method, a target and a version")
    method, target, version = parts
    if version not in (b"HTTP/1.1", b"HTTP/1.0"):
        raise BadHead("the version is not HTTP/1.0 or HTTP/1.1")
    try:
        text = target.decode()
    except UnicodeDecodeError:
        raise BadHead("the target is not UTF-8") from None
    if len(_values(headers, b"host")) > 1:
        raise BadHead("there are two Host headers")
    length = _length(headers, old=version == b"HTTP/1.0")
    if method == b"CONNECT" and length != 0:
        raise BadHead("a CONNECT request has no body")
    return RequestHead(method.decode(), text, headers, length)


def rewrite_request(request: RequestHead, path: str, authority: str) -> bytes:
    """The request as it goes on: to the checked authority, for one exchange, with nothing that was meant for us."""
    lines = [f"{request.method} {path} HTTP/1.1".encode(), b"Host: " + authority.encode()]
    dropped = _HOP_BY_HOP | _named_by_connection(request.headers)
    framing = (b"host", b"content-length", b"transfer-encoding")
    kept = [each for each in request.headers if each[0].lower() not in dropped and each[0].lower() not in framing]
    lines += [name + b": " + value for name, value in kept]
    if request.length is None:
        lines.append(b"Transfer-Encoding: chunked")
    elif request.length or _values(request.headers, b"content-length"):
        lines.append(b"Content-Length: %d" % request.length)
    return b"\r\n".join((*lines, b"Connection: close", b"", b""))


def rewrite_response(head: bytes) -> tuple[int, bytes]:
    """The status, and the response head as it goes back: the same, but the connection ends with it."""
    line, headers = _lines(head)
    found = _STATUS.fullmatch(line)
    if found is None:
        raise BadHead("the status line cannot be read")
    status = int(found[1])
    dropped = _HOP_BY_HOP | (_named_by_connection(headers) - {b"content-length", b"transfer-encoding"})
    kept = [name + b": " + value for name, value in headers if name.lower() not in dropped]
    ending = () if status < 200 else (b"Connection: close",)
    return status, b"\r\n".join((line, *kept, *ending, b"", b""))


def _lines(head: bytes) -> tuple[bytes, tuple[Header, ...]]:
    if re.search(rb"[\x00-\x08\x0a-\x1f\x7f]", head.replace(b"\r\n", b"")):
        raise BadHead("it has control characters, or line ends that are not CR LF")
    first, *lines = head.removesuffix(b"\r\n\r\n").split(b"\r\n")
    if len(lines) > HEADERS:
        raise BadHead(f"it has more than {HEADERS} headers")
    return first, tuple(_header(line) for line in lines)


def _header(line: bytes) -> Header:
    name, colon, value = line.partition(b":")
    if not colon or not _TOKEN.fullmatch(name):  # a folded line starts with white space, and has no token there
        raise BadHead("a header line is not a name, a colon and a value")
    return name, value.strip(b" \t")


def _values(headers: tuple[Header, ...], name: bytes) -> list[bytes]:
    return [value for each, value in headers if each.lower() == name]


def _named_by_connection(headers: tuple[Header, ...]) -> frozenset[bytes]:
    values = (*_values(headers, b"connection"), *_values(headers, b"proxy-connection"))
    return frozenset(token.strip().lower() for value in values for token in value.split(b","))


def _length(headers: tuple[Header, ...], *, old: bool) -> int | None:
    lengths, encodings = _values(headers, b"content-length"), _values(headers, b"transfer-encoding")
    if lengths and encodings:
        raise BadHead("it has both Content-Length and Transfer-Encoding")
    if encodings:
        if old or [each.lower() for each in encodings] != [b"chunked"]:
            raise BadHead("the Transfer-Encoding is not 'chunked', once, in HTTP/1.1")
        return None
    if not lengths:
        return 0
    if len(lengths) > 1 or not re.fullmatch(rb"[0-9]{1,18}", lengths[0]):
        raise BadHead("the Content-Length is not one number")
    return int(lengths[0])
