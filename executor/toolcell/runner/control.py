"""What the init and its call processes share with the supervisor: descriptors by number, and the control socket.

The init's end of the control socket is blocking. Messages on it are from the supervisor, so they are trusted. It
carries the messages before the first call, `BindSession`, and a `Recycle` after each call.
"""

import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final, Self, cast

import msgpack

from toolcell.wire.frames import HEADER, Buffer, Field, encode
from toolcell.wire.messages import SHAPES, BindSession, Load, Message, to_fields
from toolcell.wire.pipes import PIPE_BYTES
from toolcell.wire.protocol import CONTROL_LIMITS
from toolcell_sandbox.trees.protected import protects_below
from toolcell_sandbox.view import Bind

CONTROL: Final = 3
"""A stream socket between the init and the supervisor. Closed in every call process before tool code runs."""
FRAMES_IN: Final = 4
FRAMES_OUT: Final = 5
SHARED: Final = (1, 2, FRAMES_IN, FRAMES_OUT)
"""The pipes that all call processes inherit as the same open files. Each call process has its own standard input."""
OWN_INPUT: Final[tuple[Callable[[], object], ...]] = (
    partial(os.close, 0),
    partial(os.open, os.devnull, os.O_RDWR),  # this gets the lowest free number
    partial(os.set_inheritable, 0, True),
)
"""The steps that replace the zygote's standard input by the process's own. A shared one would share locks and flags,
which belong to the open file description (open(2))."""
READ_BYTES: Final = PIPE_BYTES


def read_all(fd: int) -> bytes:
    """Read from a pipe until all its writers have closed it."""
    parts: list[bytes] = []
    while part := os.read(fd, READ_BYTES):
        parts.append(part)
    return b"".join(parts)


def write_all(fd: int, buffers: Iterable[Buffer]) -> None:
    """Write the buffers, in order, to a blocking descriptor."""
    for buffer in buffers:
        written = os.write(fd, buffer)
        if written < len(buffer):
            rest = memoryview(buffer)[written:]
            while rest:
                rest = rest[os.write(fd, rest) :]


def send(message: Message) -> None:
    """Send a message to the supervisor."""
    write_all(CONTROL, [packed(message)])


def packed(message: Message) -> bytes:
    """The frame that carries a message."""
    return b"".join(encode(to_fields(message), CONTROL_LIMITS))


def unpacked(body: bytes) -> Message:
    """The message of a frame's body."""
    kind, *fields = cast("list[Any]", msgpack.unpackb(body))
    return SHAPES[kind][0]._make(fields)


def receive() -> Message:
    """The supervisor's next message. If the supervisor has closed its end, this cell exits."""
    return unpacked(receive_body())


def receive_body() -> bytes:
    """The next frame's body, undecoded."""
    (size,) = HEADER.unpack(_take(HEADER.size))
    return _take(size)


def _take(size: int) -> bytes:
    """Read exactly so many bytes, because another process may read the following ones."""
    taken = bytearray()
    while len(taken) < size:
        data = os.read(CONTROL, min(size - len(taken), READ_BYTES))
        if not data:
            os._exit(0)
        taken += data
    return bytes(taken)


@dataclass(frozen=True, slots=True)
class Options:
    """The options that come with the tools. `Load` documents the fields."""

    environ: dict[str, str]
    scratch: str
    kept: bool
    standby: bool
    unbound: bool
    cpu_s: float
    result_bytes: int
    file_bytes: int
    cwd: str
    writable: tuple[str, ...]
    protected: tuple[str, ...]
    session: dict[str, Field]

    @classmethod
    def of(cls, load: Load) -> Self:
        return cls(**_fields_of(load, "tools"))

    def bound(self, to: BindSession) -> Self:
        """These options with the session of a `BindSession`."""
        return replace(self, **_fields_of(to, "binds"))

    def protects(self, path: str, directory: bool) -> str:
        """The protected name that covers an absolute path, or ""."""
        return protects_below(path, self.writable, self.protected, directory=directory, listed=os.listdir)


def _fields_of(message: Load | BindSession, beside: str) -> dict[str, Any]:
    named: dict[str, Any] = message._asdict()
    del named[beside]
    return {name: tuple(cast("list[str]", value)) if type(value) is list else value for name, value in named.items()}


def binds_of(rows: list[Field]) -> tuple[Bind, ...]:
    """The binds in a message."""
    return tuple(Bind.from_wire(cast("list[Any]", row)) for row in rows)
