"""What a call and its commands printed: the head and the tail of each stream, and an exact count of the rest."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Captured:
    """One stream's capture. `text` is head and tail with the count of what was left out between them."""

    text: str = ""
    total_bytes: int = 0
    omitted_bytes: int = 0


EMPTY = Captured()


class Capture:
    """Takes a stream as it comes; memory stays at `keep_bytes`, whatever comes."""

    __slots__ = ("_head", "_head_bytes", "_tail", "_tail_bytes", "keep_bytes", "relayed", "total")

    def __init__(self, keep_bytes: int) -> None:
        self.keep_bytes = keep_bytes
        self._tail_bytes = keep_bytes // 3  # the end of an output says more than its middle, the start more than both
        self._head_bytes = keep_bytes - self._tail_bytes
        self._head = bytearray()
        self._tail = bytearray()
        self.total = 0
        self.relayed = 0  # of these, what commands printed: the limit on output is for the call's own processes

    def feed(self, data: bytes) -> None:
        self.total += len(data)
        room = self._head_bytes - len(self._head)
        if room > 0:
            self._head += data[:room]
            data = data[room:]
        if data:
            self._tail += data[-self._tail_bytes :]
            if len(self._tail) > self._tail_bytes:
                del self._tail[: -self._tail_bytes]

    def relay(self, data: bytes, skipped: int) -> None:
        """Take what a command printed, after `skipped` bytes that did not come."""
        self.relayed += skipped + len(data)
        if skipped:
            self.total += skipped
            self._head_bytes = len(self._head)  # what comes now is no part of the beginning
            self._tail.clear()
        self.feed(data)

    def kept(self) -> bytes:
        """The bytes that are kept: all that there were, as long as `total` is at most `keep_bytes`."""
        return bytes(self._head + self._tail)

    def take(self) -> Captured:
        """What was captured since the last take."""
        if not self.total:
            return EMPTY
        omitted = self.total - len(self._head) - len(self._tail)
        head = self._head.decode("utf-8", "replace")
        tail = self._tail.decode("utf-8", "replace")
        gap = f"\n[{omitted:,} of {self.total:,} bytes left out]\n" if omitted else ""
        captured = Captured(head + gap + tail, self.total, omitted)
        self.clear()
        return captured

    def clear(self) -> None:
        self._head.clear()
        self._tail.clear()
        self._head_bytes = self.keep_bytes - self._tail_bytes
        self.total = self.relayed = 0
