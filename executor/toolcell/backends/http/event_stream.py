"""The events of answers that a call reads while they arrive, beside the whole answers that it gets at their ends."""

from collections.abc import Callable

import anyio

from toolcell.backends.protocols import Refused

__all__ = ["Feed", "Feeds", "WholeLines"]

FEED_BYTES = 64 * 1024
"""Lines of one answer that wait to be fetched."""
FETCHES = 1_000
"""Fetches of one answer's lines. What comes later is in the whole answer only."""
FEEDS = 1_000  # of one call


class WholeLines:
    """Passes on the bytes that it takes, as whole lines. It stops for good at a line of more than `FEED_BYTES`."""

    def __init__(self, pass_on: Callable[[bytes], None]) -> None:
        self._pass_on = pass_on
        self._begun = bytearray()
        self._is_over = False

    def take(self, data: bytes) -> None:
        if self._is_over:
            return
        end = data.rfind(b"\n") + 1
        if end:
            self._pass_on(bytes(self._begun) + data[:end])
            self._begun.clear()
        self._begun += data[end:]
        self._is_over = len(self._begun) > FEED_BYTES


class Feed:
    """The lines of one answer, in order and without gaps, until a bound is reached or the request is over."""

    def __init__(self) -> None:
        self.scope: anyio.CancelScope | None = None
        """The request, while it is under way."""
        self.is_left = False
        self._waiting = bytearray()
        self._fetches = 0
        self._is_full = self.is_over = False
        self._changed = anyio.Event()

    def take(self, lines: bytes) -> None:
        """Keep lines to be fetched, and none any more once they are too many."""
        self._is_full = self._is_full or len(self._waiting) + len(lines) > FEED_BYTES
        if not self._is_full:
            self._waiting += lines
            self._changed.set()

    def leave(self) -> None:
        """Cancel the request, now or when it begins: the call does not want the rest."""
        self.is_left = True
        if self.scope is not None:
            self.scope.cancel()

    def end(self) -> None:
        """Note that the request is over."""
        self.scope = None
        self.is_over = True
        self._waiting.clear()  # the whole answer has them
        self._changed.set()

    async def fetch(self) -> bytes | None:
        """Wait for lines, and return all that there are; None once the request is over."""
        self._fetches += 1
        self._is_full = self._is_full or self._fetches >= FETCHES
        while not self._waiting and not self.is_over:
            if self._changed.is_set():
                self._changed = anyio.Event()
            await self._changed.wait()
        lines = bytes(self._waiting)
        self._waiting.clear()
        return lines or None


class Feeds:
    """The feeds of one call's requests, by the numbers that the call gives them."""

    def __init__(self) -> None:
        self._feeds: dict[int, Feed] = {}

    def __getitem__(self, number: int) -> Feed:
        """The feed of a request, which may not have begun. Raises Refused if there are too many."""
        if number not in self._feeds and len(self._feeds) >= FEEDS:
            raise Refused(
                f"A call reads the events of at most {FEEDS:,} answers. Make the request without watching it."
            )
        return self._feeds.setdefault(number, Feed())

    def begin(self, number: int, scope: anyio.CancelScope) -> Feed:
        """The feed of a request that begins. Raises Refused if the number is taken."""
        feed = self[number]
        if feed.scope is not None or feed.is_over:
            raise Refused(f"The number {number} is another request's. Take another number.")
        feed.scope = scope
        if feed.is_left:
            scope.cancel()
        return feed
