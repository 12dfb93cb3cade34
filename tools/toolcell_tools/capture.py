"""A bounded buffer that keeps the head and the tail of a stream and counts the bytes between them."""

from collections import deque

__all__ = ["HeadTail"]


class HeadTail:
    """Takes bytes; keeps the first half and the last half of `limit` of them."""

    __slots__ = ("_head", "_head_room", "_tail", "_tail_limit", "_tail_size", "total")

    def __init__(self, limit: int) -> None:
        self.total = 0
        self._head = bytearray()
        self._head_room = limit - limit // 2
        self._tail: deque[bytes] = deque()
        self._tail_size = 0
        self._tail_limit = limit // 2

    def feed(self, data: bytes) -> None:
        self.total += len(data)
        if self._head_room:
            taken = data[: self._head_room]
            self._head += taken
            self._head_room -= len(taken)
            data = data[len(taken) :]
        if data:
            self._tail.append(data)
            self._tail_size += len(data)
            while self._tail and self._tail_size - len(self._tail[0]) >= self._tail_limit:
                self._tail_size -= len(self._tail.popleft())

    @property
    def omitted(self) -> int:
        """The number of bytes that `text` leaves out."""
        return max(0, self.total - len(self._head) - self._tail_limit)

    def text(self) -> str:
        """The kept bytes as UTF-8 (invalid ones become U+FFFD), with a line that counts the bytes left out."""
        tail = b"".join(self._tail)
        if not self.omitted:
            return (bytes(self._head) + tail).decode(errors="replace")
        kept = tail[len(tail) - self._tail_limit :]
        note = f"\n[… {self.omitted:,} of {self.total:,} bytes left out …]\n"
        return bytes(self._head).decode(errors="replace") + note + kept.decode(errors="replace")
