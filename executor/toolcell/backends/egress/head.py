"""Parse the heads of requests and responses strictly (RFC 9112), so that no two parsers can read them differently.
Sans-IO.

An ambiguous head is refused, never repaired: bare line ends, folded lines, space before a colon, two lengths, a length
beside an encoding. The forwarded head is written anew from the parsed one. `Counted` and `Chunked` find the end of a
body, so that exactly one request is forwarded over a connection.
"""

import re
from dataclasses import dataclass

__all__ = [
    "HEAD_BYTES",
    "BadHead",
    "Chunked",
    "Counted",
    "RequestHead",
    "end_of_head",
    "parse_request",
    "rewrite_request",
    "rewrite_response",
]

HEAD_BYTES = 32 * 1024  # Apache and nginx accept lines of 8 KiB, and several of them
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
    """The head is invalid or ambiguous. The message says why."""


@dataclass(frozen=True, slots=True)
class RequestHead:
    """A parsed request head. `target` is unchanged. `length` is the body's length, None if it is chunked."""

    method: str
    target: str
    headers: tuple[Header, ...]
    length: int | None


def end_of_head(data: bytes | bytearray) -> int:
    """The offset of the body, 0 if the head is not complete. Raises BadHead if the head is too large."""
    end = data.find(b"\r\n\r\n", 0, HEAD_BYTES)
    if end >= 0:
        return end + 4
    if len(data) >= HEAD_BYTES:
        raise BadHead(f"the head is larger than {HEAD_BYTES:,} bytes")
    return 0


def parse_request(head: bytes) -> RequestHead:
    """Parse a complete request head, with its empty line."""
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
    """The forwarded request head: for the checked authority and for one exchange, without headers for the proxy."""
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
    """The status, and the forwarded response head, which says that the connection ends after the response."""
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
    if not colon or not _TOKEN.fullmatch(name):  # a folded line starts with white space, which is no token
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


_SIZE = re.compile(rb"[0-9A-Fa-f]{1,12}")
_LINE_BYTES, _TRAILER_BYTES = 16, 8 * 1024


class Counted:
    """A body of a known length. Later bytes are dropped."""

    __slots__ = ("_left",)

    def __init__(self, length: int) -> None:
        self._left = length

    @property
    def done(self) -> bool:
        return self._left == 0

    def feed(self, data: bytes) -> bytes:
        """The part of `data` to forward."""
        taken = data[: self._left]
        self._left -= len(taken)
        return taken


class Chunked:
    """A chunked body, parsed strictly and written anew. Chunk extensions are refused, and trailers are dropped."""

    __slots__ = ("_buffer", "_left", "_state", "_trailers", "done")

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._left = 0
        self._state = "size"
        self._trailers = 0
        self.done = False

    def feed(self, data: bytes) -> bytes:
        """The chunks to forward. Raises BadHead for invalid chunks."""
        self._buffer += data
        out = bytearray()
        while not self.done and self._step(out):
            pass
        return bytes(out)

    def _step(self, out: bytearray) -> bool:
        """Parse the next part. Returns False if more data are needed."""
        if self._state == "data":
            taken = bytes(self._buffer[: self._left])
            if not taken:
                return False
            del self._buffer[: len(taken)]
            self._left -= len(taken)
            out += b"%x\r\n%b\r\n" % (len(taken), taken)
            if not self._left:
                self._state = "end"
            return True
        line = self._line(_TRAILER_BYTES if self._state == "trailers" else _LINE_BYTES)
        if line is None:
            return False
        if self._state == "end":
            if line:
                raise BadHead("a chunk is longer than its size")
            self._state = "size"
        elif self._state == "size":
            if not _SIZE.fullmatch(line):
                raise BadHead("a chunk's size cannot be read")
            self._left = int(line, 16)
            self._state = "data" if self._left else "trailers"
        elif line:
            self._trailers += len(line)
            if self._trailers > _TRAILER_BYTES:
                raise BadHead("the trailers are too large")
        else:
            self.done = True
            out += b"0\r\n\r\n"
        return True

    def _line(self, most: int) -> bytes | None:
        end = self._buffer.find(b"\r\n", 0, most + 2)
        if end < 0:
            if len(self._buffer) >= most + 2:
                raise BadHead("a line of the chunked body is too long")
            return None
        line = bytes(self._buffer[:end])
        del self._buffer[: end + 2]
        return line
