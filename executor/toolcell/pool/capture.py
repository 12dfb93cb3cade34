"""Capture what a call and its commands print: the head and the tail of each stream, and the count of the rest."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Captured:
    """One stream's capture. `text` is the head and the tail, with the number of omitted bytes between them."""

    text: str = ""
    total_bytes: int = 0
    omitted_bytes: int = 0


EMPTY = Captured()


class Capture:
    """Takes a stream piece by piece, and keeps at most `keep_bytes` of it."""

    __slots__ = ("_head", "_head_bytes", "_tail", "_tail_bytes", "keep_bytes", "relayed", "total")

    def __init__(self, keep_bytes: int) -> None:
        self.keep_bytes = keep_bytes
        self._tail_bytes = keep_bytes // 3  # the start of an output is worth most, then its end
        self._head_bytes = keep_bytes - self._tail_bytes
        self._head = bytearray()
        self._tail = bytearray()
        self.total = 0
        self.relayed = 0  # bytes that commands printed, which the limit on output does not count

    def feed(self, data: bytes) -> None:
        self.total += len(data)
        room = self._head_bytes - len(self._head)
        if room > 0:
            self._head += data[:room]
            data = data[room:]
        if data and self._tail_bytes:
            self._tail += data[-self._tail_bytes :]
            if len(self._tail) > self._tail_bytes:
                del self._tail[: -self._tail_bytes]

    def relay(self, data: bytes, skipped: int) -> None:
        """Take what a command printed, after `skipped` bytes that were not sent."""
        self.relayed += skipped + len(data)
        if skipped:
            self.total += skipped
            self._head_bytes = len(self._head)  # later bytes are not part of the head
            self._tail.clear()
        self.feed(data)

    def kept(self) -> bytes:
        """The bytes that are kept: all of them if `total` is at most `keep_bytes`."""
        return bytes(self._head + self._tail)

    def take(self) -> Captured:
        """The bytes that were captured since the last take."""
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
