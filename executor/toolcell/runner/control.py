"""The init's end of the control socket, blocking. What comes is the supervisor's word, so it is not judged. What is
said for each call is of `wire.control`.
"""

import os
from typing import Any, cast

import msgpack

from toolcell.wire.frames import HEADER, encode
from toolcell.wire.messages import SHAPES, Message, to_fields
from toolcell.wire.protocol import CONTROL_LIMITS

from . import fds


class InitControl:
    """What is said before the first call, and to a cell that is bound to a session."""

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
