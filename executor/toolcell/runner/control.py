"""The init's end of the control socket, blocking. What comes is the supervisor's word, so it is not judged.

What is said for each call is packed by hand: on msgpack's general way the init would write to some forty pages, which
it has to copy again after each fork.
"""

import os
from struct import Struct
from typing import Any, cast

import msgpack

from toolcell.wire.frames import HEADER, encode
from toolcell.wire.messages import SHAPES, Message, to_fields
from toolcell.wire.protocol import CONTROL_LIMITS

from . import fds

# A frame's length, an array (0x90 + fields), the kind (messages.SHAPES), then each field behind the byte of its type:
# uint 32 (0xce), int 32 (0xd2), uint 64 (0xcf), float 64 (0xcb), and the one byte that is false or true (0xc2, 0xc3).
_READY = Struct(">I3sIB")
_EXITED = Struct(">I3sIcicdcQ")


def ready(seq: int, waiting: bool) -> bytes:
    """The frame of a `Ready`."""
    return _READY.pack(8, b"\x93\x22\xce", seq, 0xC2 + waiting)


def exited(seq: int, code: int, cpu_s: float, max_rss_bytes: int) -> bytes:
    """The frame of an `Exited`."""
    return _EXITED.pack(30, b"\x95\x23\xce", seq, b"\xd2", code, b"\xcb", cpu_s, b"\xcf", max_rss_bytes)


def recycled(frames: bytes) -> list[tuple[int, bool]]:
    """What is in frames of `Recycle`: a length below 256, an array of 3, the kind, the number, one byte or more behind
    that of its type, and whether an account is asked for."""
    found: list[tuple[int, bool]] = []
    while frames:
        last = 3 + frames[3]
        found.append((frames[6] if last == 7 else int.from_bytes(frames[7:last], "big"), frames[last] == 0xC3))
        frames = frames[last + 1 :]
    return found


class Control:
    """What is said before the first call."""

    def send(self, message: Message) -> None:
        fds.write_all(fds.CONTROL, [self.packed(message)])

    @staticmethod
    def packed(message: Message) -> bytes:
        """The frame that carries a message."""
        return b"".join(encode(to_fields(message), CONTROL_LIMITS))

    @staticmethod
    def unpacked(body: bytes) -> Message:
        """The message of a frame's body."""
        kind, *fields = cast("list[Any]", msgpack.unpackb(body))
        return SHAPES[kind][0]._make(fields)

    def receive(self) -> Message:
        """The supervisor's next message. Its end being closed is the end of this cell."""
        return self.unpacked(self.receive_body())

    def receive_body(self) -> bytes:
        """The frame's body, as it came."""
        (size,) = HEADER.unpack(self._take(HEADER.size))
        return self._take(size)

    def _take(self, size: int) -> bytes:
        """So many bytes, and none of what comes after them, which another may read."""
        taken = bytearray()
        while len(taken) < size:
            data = os.read(fds.CONTROL, min(size - len(taken), fds.READ_BYTES))
            if not data:
                os._exit(0)
            taken += data
        return bytes(taken)
