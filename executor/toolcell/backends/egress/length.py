"""Find the end of a request's body, so that exactly one request is forwarded over a connection. Sans-IO."""

import re

from toolcell.backends.egress.head import BadHead

__all__ = ["Chunked", "Counted"]

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
