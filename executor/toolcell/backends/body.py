"""Reading the body of a reply: capped as it is received and as it is decoded, so that a bomb stays small."""

import zlib
from collections.abc import Callable
from http.client import HTTPResponse, IncompleteRead
from typing import Protocol

from toolcell.backends.errors import Unreachable

__all__ = ["FREE_BYTES", "read_body"]

FREE_BYTES = 64 * 1024  # that a body may have before there must be room for all that it may have
_CHUNK = 16 * 1024
_SLACK = 64 * 1024  # how far a compressed body may exceed what it decodes to before it is cut off


def read_body(
    response: HTTPResponse, max_bytes: int, on_large: Callable[[], None] | None = None
) -> tuple[bytes, bool, int | None]:
    """Return the decoded body, at most `max_bytes` of it; whether that is not all; and its full length where known.
    `on_large` is called before more than `FREE_BYTES` of it are kept, once, and may block.
    """
    declared = response.length
    decoder = _decoder(response.getheader("content-encoding"))
    body = bytearray()
    received = 0
    ended = False
    while len(body) <= max_bytes and received <= max_bytes + _SLACK:
        try:
            chunk = response.read1(_CHUNK)
        except IncompleteRead:
            break
        if not chunk:
            ended = not response.length and decoder.complete
            break
        received += len(chunk)
        decoded = decoder.feed(chunk, max_bytes + 1 - len(body))
        if on_large is not None and len(body) + len(decoded) > FREE_BYTES:
            on_large()
            on_large = None
        body += decoded
    truncated = not ended or len(body) > max_bytes
    total = len(body) if not truncated else declared if isinstance(decoder, _Plain) else None
    return bytes(memoryview(body)[:max_bytes]), truncated, total


class _Decoder(Protocol):
    @property
    def complete(self) -> bool: ...
    def feed(self, data: bytes, room: int) -> bytes: ...


class _Stream(Protocol):
    """A `zlib.decompressobj`; its own type has no public name."""

    @property
    def eof(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...
    def decompress(self, data: bytes, max_length: int, /) -> bytes: ...


class _Plain:
    complete = True

    def feed(self, data: bytes, room: int) -> bytes:
        return data[:room]


class _Inflate:
    """gzip (several members too), zlib, and the bare deflate that some servers send for "deflate"."""

    def __init__(self) -> None:
        self._head = b""
        self._inflate: _Stream | None = None
        self._gzip = False

    @property
    def complete(self) -> bool:
        return not self._head if self._inflate is None else self._inflate.eof

    def feed(self, data: bytes, room: int) -> bytes:
        """Return at most `room` bytes of what `data` decodes to; where that is all of `room`, ask no more."""
        out = b""
        while data and len(out) < room:
            if self._inflate is None:
                self._head += data
                if len(self._head) < 2:
                    break
                data, self._head = self._head, b""
                self._gzip = data[:2] == b"\x1f\x8b"
                zlib_header = data[0] & 15 == 8 and int.from_bytes(data[:2], "big") % 31 == 0
                self._inflate = zlib.decompressobj(31 if self._gzip else 15 if zlib_header else -15)
            elif self._inflate.eof:
                if not self._gzip or data[0] != 0x1F:
                    break  # what follows the stream is padding
                self._inflate = None
                continue
            out += self._inflate.decompress(data, room - len(out))
            data = self._inflate.unused_data if self._inflate.eof else b""
        return out


def _decoder(encoding: str | None) -> _Decoder:
    name = (encoding or "identity").strip().lower()
    if name in {"identity", ""}:
        return _Plain()
    if name in {"gzip", "x-gzip", "deflate"}:
        return _Inflate()
    raise Unreachable(f"The answer is compressed as {name[:20]!r}, which is not supported. Use another source.")
