"""The init's blocking end of the control socket. Messages are from the supervisor, so they are trusted. `wire.control`
encodes the messages of each call.
"""

import os
from typing import Any, cast

import msgpack

from toolcell.wire.frames import HEADER, encode
from toolcell.wire.messages import SHAPES, Message, to_fields
from toolcell.wire.protocol import CONTROL_LIMITS

from . import fds


class InitControl:
    """Sends and receives the messages before the first call, and the one that binds the cell to a session."""

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
        """The supervisor's next message. If the supervisor has closed its end, this cell exits."""
        return self.unpacked(self.receive_body())

    def receive_body(self) -> bytes:
        """The next frame's body, undecoded."""
        (size,) = HEADER.unpack(self._take(HEADER.size))
        return self._take(size)

    def _take(self, size: int) -> bytes:
        """Read exactly so many bytes, because another process may read the following ones."""
        taken = bytearray()
        while len(taken) < size:
            data = os.read(fds.CONTROL, min(size - len(taken), fds.READ_BYTES))
            if not data:
                os._exit(0)
            taken += data
        return bytes(taken)
