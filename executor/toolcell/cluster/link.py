"""An ordered stream of batches over exchanges that may be lost, repeated or reordered. Sans-IO.

An exchange is a request from a driver and the node's reply. Both carry batches of frames. Each end numbers its batches,
keeps them until the other end acknowledges them, and delivers received batches once and in order.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final

import msgpack

from toolcell.wire.frames import extended, integer

__all__ = ["MOST_FRAMES", "UNPACKABLE", "WINDOW_S", "BatchLink", "pack", "unpack"]

UNPACKABLE: Final = (ValueError, TypeError, OverflowError, RecursionError)
"""The exceptions of `pack`, for a value that msgpack cannot carry."""

MOST_FRAMES: Final = 64
"""The frames of one batch, at which an end sends it."""
WINDOW_S: Final = 0.0004
"""How long a frame waits for others while more calls run, in seconds."""
MOST_EARLY: Final = 1_024
"""The most out-of-order batches that are buffered. The other end has far fewer in flight."""


def pack(value: object) -> bytes:
    """The value as msgpack. Raises `UNPACKABLE`."""
    return msgpack.packb(value, default=extended, unicode_errors="surrogatepass")


def unpack(data: bytes) -> Any:
    """The inverse of `pack`. Only for bytes from our own processes."""
    return msgpack.unpackb(data, ext_hook=integer, unicode_errors="surrogatepass", strict_map_key=False)


class BatchLink:
    """One end of the stream. `received` is the number of the last batch that was delivered."""

    def __init__(self) -> None:
        self.received = 0
        self._sent = 0
        self._kept: deque[tuple[int, bytes, Callable[[], None] | None]] = deque()
        self._early: dict[int, bytes] = {}

    def __repr__(self) -> str:
        return f"<BatchLink {self._sent} sent, {len(self._kept)} not acknowledged · {self.received} received>"

    @property
    def under_way(self) -> int:
        """The number of batches that are not acknowledged."""
        return len(self._kept)

    def send(self, frames: Sequence[object], on_received: Callable[[], None] | None = None) -> bytes:
        """Encode the next batch from these frames. `on_received` is called when the other end has acknowledged it.
        Raises `UNPACKABLE`; then no batch is added."""
        batch = pack([self._sent + 1, frames])
        self._sent += 1
        self._kept.append((self._sent, batch, on_received))
        return batch

    def again(self) -> list[bytes]:
        """The unacknowledged batches, in order, to be sent again."""
        return [batch for _number, batch, _on_received in self._kept]

    def acknowledged(self, number: int) -> None:
        """Note that the other end has all batches up to this number."""
        while self._kept and self._kept[0][0] <= number:
            _number, _batch, on_received = self._kept.popleft()
            if on_received is not None:
                on_received()

    def receive(self, batches: Iterable[bytes]) -> Iterator[list[list[Any]]]:
        """Take batches, and yield the frames of each in order. A repeated batch is dropped, and an early one waits."""
        for batch in batches:
            number, frames = unpack(batch)
            if number <= self.received or number in self._early:
                continue
            if number > self.received + 1:
                if len(self._early) < MOST_EARLY:  # otherwise the other end sends it again
                    self._early[number] = batch
                continue
            self.received = number
            yield frames
            while self.received + 1 in self._early:
                self.received += 1
                yield unpack(self._early.pop(self.received))[1]
