"""Decode the body of an answer in bounded pieces, so that a decompression bomb cannot fill the memory."""

import zlib
from collections.abc import Iterator
from typing import Protocol

from toolcell.backends.protocols import Unreachable

__all__ = ["FREE_BYTES", "Body"]

FREE_BYTES = 64 * 1024  # of a body that are kept before room for its maximum is reserved
PIECE = 64 * 1024  # inflated at a time, because the event loop is blocked meanwhile
_SLACK = 64 * 1024  # by which a compressed body may exceed its decoded form


class Body:
    """Keeps at most `max_bytes` of an answer, decoded according to `encoding`, its Content-Encoding. `declared` is the
    length that the server announced. Raises Unreachable for an unsupported encoding.
    """

    def __init__(self, max_bytes: int, encoding: str = "", declared: int | None = None) -> None:
        self._decoder = _decoder(encoding)
        self._declared = declared
        self._kept = bytearray()
        self._max_bytes = max_bytes
        self._received = 0

    @property
    def wants_more(self) -> bool:
        return len(self._kept) <= self._max_bytes and self._received <= self._max_bytes + _SLACK

    def decode(self, data: bytes) -> Iterator[bytes]:
        """Yield the decoded form of `data` in pieces. Call `keep` for each piece before the next. Raises `zlib.error`
        for a damaged body.
        """
        self._received += len(data)
        while data and self.wants_more:
            piece, data = self._decoder.feed(data, self._max_bytes + 1 - len(self._kept))
            yield piece

    def is_free(self, piece: bytes) -> bool:
        """Whether the piece can be kept without a request for room."""
        return len(self._kept) + len(piece) <= FREE_BYTES

    def keep(self, piece: bytes) -> None:
        self._kept += piece

    def end(self, *, whole: bool) -> tuple[bytes, bool, int | None]:
        """Return the body, whether bytes of it are missing, and its full length if known. `whole` says whether the
        server has sent the last byte.
        """
        truncated = not (whole and self._decoder.complete and len(self._kept) <= self._max_bytes)
        plain = isinstance(self._decoder, _Plain)
        total = len(self._kept) if not truncated else self._declared if plain else None
        return bytes(memoryview(self._kept)[: self._max_bytes]), truncated, total


class _Decoder(Protocol):
    @property
    def complete(self) -> bool: ...
    def feed(self, data: bytes, room: int) -> tuple[bytes, bytes]:
        """Return at most `room` decoded bytes, and the rest of `data`."""
        ...


class _BodyStream(Protocol):
    """A `zlib.decompressobj`; its own type has no public name."""

    @property
    def eof(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...
    @property
    def unconsumed_tail(self) -> bytes: ...
    def decompress(self, data: bytes, max_length: int, /) -> bytes: ...


class _Plain:
    complete = True

    def feed(self, data: bytes, room: int) -> tuple[bytes, bytes]:
        return data[:room], data[room:]


class _Inflate:
    """gzip (several members too), zlib, and the bare deflate that some servers send for "deflate"."""

    def __init__(self) -> None:
        self._head = b""
        self._inflate: _BodyStream | None = None
        self._gzip = False

    @property
    def complete(self) -> bool:
        return not self._head if self._inflate is None else self._inflate.eof

    def feed(self, data: bytes, room: int) -> tuple[bytes, bytes]:
        out, room = b"", min(room, PIECE)
        while data and len(out) < room:
            if self._inflate is None:
                self._head += data
                if len(self._head) < 2:
                    return out, b""
                data, self._head = self._head, b""
                self._gzip = data[:2] == b"\x1f\x8b"
                zlib_header = data[0] & 15 == 8 and int.from_bytes(data[:2], "big") % 31 == 0
                self._inflate = zlib.decompressobj(31 if self._gzip else 15 if zlib_header else -15)
            elif self._inflate.eof:
                if not self._gzip or data[0] != 0x1F:
                    return out, b""  # data after the stream are padding
                self._inflate = None
                continue
            out += self._inflate.decompress(data, room - len(out))
            data = self._inflate.unused_data if self._inflate.eof else self._inflate.unconsumed_tail
        return out, data


def _decoder(encoding: str) -> _Decoder:
    name = encoding.strip().lower()
    if name in {"identity", ""}:
        return _Plain()
    if name in {"gzip", "x-gzip", "deflate"}:
        return _Inflate()
    raise Unreachable(f"The answer is compressed as {name[:20]!r}, which is not supported. Use another source.")
