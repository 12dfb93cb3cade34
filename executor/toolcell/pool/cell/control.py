"""The control socket: what the init says of itself and of the call process, and what it is told."""

from collections.abc import Sequence
from typing import Protocol

from toolcell.pool.outbox import read_available
from toolcell.wire.control import recycle
from toolcell.wire.frames import Buffer, Violation
from toolcell.wire.messages import BindSession, Exited, Failed, Hello, Ready
from toolcell.wire.protocol import ControlLink

from .channels import Channels

READ_BYTES = 64 * 1024


class Hearer(Protocol):
    """The cell, as its control socket sees it."""

    def on_process(self, event: Ready | Exited) -> None: ...
    def on_violation(self, violation: Violation) -> None: ...


class CellControl:
    """Of one cell. The init counts the call processes: `process` is the number of the one that waits or works, `asked`
    the last number that the init was asked for."""

    __slots__ = ("_channels", "_hearer", "_link", "asked", "failure", "hello", "process")

    def __init__(self, hearer: Hearer, channels: Channels, link: ControlLink) -> None:
        self._hearer = hearer
        self._channels = channels
        self._link = link
        self.process = self.asked = 0
        self.hello: Hello | None = None  # what it says when it is locked down
        self.failure: Failed | None = None  # why the cell could not start, or go on

    def pack(self, message: BindSession) -> list[Buffer]:
        """What is to be told later. Raises Unpackable where it cannot be sent."""
        return self._link.send(message)

    def tell(self, packed: Sequence[Buffer]) -> None:
        """Send a `Load`, or an introduction to a session."""
        self._channels.to_init.write(packed)

    def fork(self) -> None:
        """Ask for the process of the next call, which is assigned now."""
        self.process += 1
        self._channels.to_init.write((recycle(self.process, False),))

    def fork_ahead(self) -> None:
        """Ask for the process of the call after the one that is under way."""
        self.asked = self.process + 1
        self._channels.to_init.write((recycle(self.asked, False),))

    def sweep(self, *, account: bool) -> None:
        """Have the call of the process that is there ended, and the next process made."""
        self._channels.to_init.write((recycle(self.process, account),))

    def on_readable(self) -> None:
        self._channels.to_init.flush()
        socket = self._channels.control.fileno()
        data = read_available(socket, READ_BYTES)
        if data is None:
            return
        if not data:
            self._channels.unwatch(socket)
            return  # the init is ending; its pidfd says when it has
        for event in self._link.receive(data):
            if isinstance(event, (Ready, Exited)):
                self._hearer.on_process(event)
            elif isinstance(event, Hello):
                self.hello = event
            elif isinstance(event, Failed):
                self.failure = event
            elif isinstance(event, Violation):
                self._hearer.on_violation(event)
