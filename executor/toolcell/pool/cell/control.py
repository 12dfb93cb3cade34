"""The control socket: messages to the init, and its reports about itself and the call process."""

from collections.abc import Sequence
from typing import Protocol

from toolcell.pool.outbox import read_available
from toolcell.wire.frames import Buffer, Violation
from toolcell.wire.messages import BindSession, Exited, Failed, Hello, Ready
from toolcell.wire.protocol import ControlLink, recycle

from .channels import Channels

READ_BYTES = 64 * 1024


class ControlOwner(Protocol):
    """The cell, as its control socket sees it."""

    def on_process(self, event: Ready | Exited) -> None: ...
    def on_violation(self, violation: Violation) -> None: ...


class CellControl:
    """The control socket of one cell. The init numbers the call processes: `process` is the number of the present one,
    `asked` is the last number that was requested."""

    __slots__ = ("_cell", "_channels", "_link", "asked", "failure", "hello", "process")

    def __init__(self, cell: ControlOwner, channels: Channels, link: ControlLink) -> None:
        self._cell = cell
        self._channels = channels
        self._link = link
        self.process = self.asked = 0
        self.hello: Hello | None = None  # its report after lockdown
        self.failure: Failed | None = None  # why the cell could not start, or go on

    def pack(self, message: BindSession) -> list[Buffer]:
        """Encode a message, to send it later. Raises Unpackable if it cannot be sent."""
        return self._link.send(message)

    def tell(self, packed: Sequence[Buffer]) -> None:
        """Send a `Load`, or an introduction to a session."""
        self._channels.to_init.write(packed)

    def fork(self) -> None:
        """Ask for the process of the call that is being assigned."""
        self.process += 1
        self._channels.to_init.write((recycle(self.process, False),))

    def fork_ahead(self) -> None:
        """Ask for the process of the call after the running one."""
        self.asked = self.process + 1
        self._channels.to_init.write((recycle(self.asked, False),))

    def sweep(self, *, account: bool) -> None:
        """Have the init kill the present call process, sweep, and make the next one."""
        self._channels.to_init.write((recycle(self.process, account),))

    def on_readable(self) -> None:
        self._channels.to_init.flush()
        socket = self._channels.control.fileno()
        data = read_available(socket, READ_BYTES)
        if data is None:
            return
        if not data:
            self._channels.unwatch(socket)
            return  # the init is ending; its pidfd reports when
        for event in self._link.receive(data):
            if isinstance(event, (Ready, Exited)):
                self._cell.on_process(event)
            elif isinstance(event, Hello):
                self.hello = event
            elif isinstance(event, Failed):
                self.failure = event
            elif isinstance(event, Violation):
                self._cell.on_violation(event)
