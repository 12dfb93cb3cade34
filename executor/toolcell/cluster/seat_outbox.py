"""The messages of a node for one driver. They wait for an exchange of the driver, and cross in its reply."""

import asyncio
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from toolcell.dispatch.services import Services
from toolcell.wire.budget import Charge

from .link import MOST_FRAMES, WINDOW_S, BatchLink
from .messages import NodeMessage, fields_of

__all__ = ["SeatOutbox"]

MOST_PARKED = 4
"""The most exchanges of a driver that wait for messages. One more ends the wait of the oldest."""
MOST_BYTES = 4 * 1024 * 1024
"""The approximate bound of a reply, unless a single result is larger. The driver handles a reply in one step."""


class _SeatFrame(NamedTuple):
    """A frame for the driver, its charge, and its approximate size in bytes."""

    fields: tuple[object, ...]
    charge: Charge | None
    size: int


class SeatOutbox:
    """The node's end of a driver's stream of batches. `running` returns how many calls the driver has on the node, and
    `told` the state of the node, as a heartbeat."""

    def __init__(self, services: Services, running: Callable[[], int], told: Callable[[], NodeMessage]) -> None:
        self.is_over = False
        self._services = services
        self._running = running
        self._told = told
        self._link = BatchLink()
        self._frames: list[_SeatFrame] = []
        self._bytes = 0
        self._ready: list[bytes] = []
        self._parked: list[asyncio.Future[None]] = []
        self._is_flushing = self._is_waking = False

    def __repr__(self) -> str:
        return f"<SeatOutbox {self._link!r} · {len(self._parked)} exchanges wait>"

    @property
    def received(self) -> int:
        """The number of the driver's last batch that was delivered."""
        return self._link.received

    def say(self, message: NodeMessage, charge: Charge | None = None, size: int = 0) -> None:
        """Send a message of about `size` bytes to the driver. The charge is released when the driver has it."""
        if self.is_over:
            if charge is not None:
                charge.release()
            return
        self._frames.append(_SeatFrame(fields_of(message), charge, size))
        self._bytes += size
        running = self._running()
        if len(self._frames) >= MOST_FRAMES or not running:
            self._soon(0.0)
        else:
            self._soon(WINDOW_S if running > 1 else 0.0)

    def _soon(self, window_s: float) -> None:
        if self._is_flushing:
            return
        if window_s:
            self._is_flushing = True
            self._services.pool.at(time.monotonic() + window_s, self._flush)
        else:
            self._wake()

    def _flush(self) -> None:
        self._is_flushing = False
        self._wake()

    def _wake(self) -> None:
        """Let a waiting exchange take all messages in the next turn of the loop, unless one will."""
        if (self._frames or self._ready) and self._parked and not self._is_waking:
            parked = self._parked.pop()  # the newest: its driver has waited least
            if not parked.done():
                self._is_waking = True
                parked.set_result(None)

    def receive(self, ack: int, batches: Sequence[bytes], *, again: bool) -> Iterator[list[list[Any]]]:
        """Take the driver's batches, and yield the frames of each in order. The driver has all batches up to `ack`.
        `again`: send the others once more."""
        self._link.acknowledged(ack)
        if again:
            self._ready = self._link.again()
        yield from self._link.receive(batches)

    async def reply(self, park_s: float) -> list[bytes]:
        """The batches for the driver, as soon as there are any, or after `park_s` seconds."""
        if not self._frames and not self._ready and not self.is_over:
            await self._park(park_s)
        return self._batches(MOST_BYTES)

    def rest(self) -> list[bytes]:
        """All batches, for a driver that leaves."""
        return self._batches(sys.maxsize)

    def _batches(self, most: int) -> list[bytes]:
        """The batches for a reply. Frames beyond `most` bytes wait for later replies."""
        batches: list[bytes] = []
        left = most
        while self._ready and (not batches or len(self._ready[0]) <= left):
            batches.append(self._ready.pop(0))
            left -= len(batches[-1])
        if self._frames and not self._ready:
            frames = self._take(left, least=not batches)
            charges = [each.charge for each in frames if each.charge is not None]
            if frames:
                on_received = (lambda: _release(charges)) if charges else None
                batches.append(self._link.send([each.fields for each in frames], on_received))
        if self._frames or self._ready:
            self._soon(0.0)
        return batches

    def _take(self, left: int, *, least: bool) -> list[_SeatFrame]:
        """Take the next frames, of `left` bytes together. `least`: take the first one, however large it is."""
        count = len(self._frames)
        if self._bytes > left:
            count = 1 if least else 0
            left -= sum(each.size for each in self._frames[:count])
            while count < len(self._frames) and self._frames[count].size <= left:
                left -= self._frames[count].size
                count += 1
        taken, self._frames = self._frames[:count], self._frames[count:]
        self._bytes -= sum(each.size for each in taken)
        return taken

    async def _park(self, park_s: float) -> None:
        if len(self._parked) >= MOST_PARKED:
            oldest = self._parked.pop(0)
            if not oldest.done():
                oldest.set_result(None)
        parked: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._parked.append(parked)
        timer = asyncio.get_running_loop().call_later(park_s, self._beat, parked)
        try:
            await parked
        finally:
            self._is_waking = False
            timer.cancel()
            if parked in self._parked:
                self._parked.remove(parked)

    def _beat(self, parked: "asyncio.Future[None]") -> None:
        """Answer an exchange that has waited long with the node's state."""
        if not parked.done():
            self._frames.append(_SeatFrame(fields_of(self._told()), None, 0))
            parked.set_result(None)

    def end(self) -> None:
        """Drop all messages, and answer the waiting exchanges."""
        self.is_over = True
        _release([each.charge for each in self._frames if each.charge is not None])
        self._link.acknowledged(2**63)
        for parked in self._parked:
            if not parked.done():
                parked.set_result(None)


def _release(charges: Sequence[Charge]) -> None:
    for charge in charges:
        charge.release()
