"""Progress and log messages of a call, on their way to the client.

The engine's callbacks run on the event loop and must not wait. So they put messages into a bounded queue, which a task
sends. A client that does not read loses messages, and delays nobody but itself.
"""

import math
from collections import deque
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final

import anyio
import mcp_types as types
from mcp.server.context import ServerRequestContext

from toolcell.wire.budget import MIB, memory_of
from toolcell_tools.preview import printable

__all__ = ["LEVELS", "Reports", "reporting"]

LEVELS: Final[tuple[types.LoggingLevel, ...]] = (
    "debug",
    "info",
    "notice",
    "warning",
    "error",
    "critical",
    "alert",
    "emergency",
)
FLUSH_S: Final = 2.0
"""How long a result waits for the messages before it."""
MESSAGE_CHARS: Final = 10_000
WAITING_BYTES: Final = 4 * MIB
"""The memory of the messages of a call that wait to be sent. Others are dropped, and counted."""
Context = ServerRequestContext[Any, Any]
Message = types.LoggingMessageNotificationParams | tuple[float, float | None, str]
"""A log message, or progress: its value, its total, its text."""


def _rank(level: str) -> int:
    return next((rank for rank, each in enumerate(LEVELS) if each == level), len(LEVELS))


class Reports:
    """The messages of one call. `progress` and `log` return at once."""

    def __init__(self, ctx: Context, tool: str, level: str, most: int) -> None:
        """`level` is the least severe one that the client wants, "" for none. `most` messages wait at a time."""
        self._ctx = ctx
        self._tool = tool
        self._least = _rank(level)
        self._most = most
        self._waiting: deque[tuple[Message, int]] = deque()
        self._bytes = 0
        self._changed = anyio.Event()
        self._closed = False
        self._last = 0.0
        self._dropped = 0
        self.sent = anyio.Event()

    def progress(self, message: str, fraction: float | None) -> None:
        """Report progress. MCP wants a number that grows, so a smaller fraction counts as a little more."""
        least = math.nextafter(self._last, math.inf)
        if fraction is None:
            value, total = (self._last + 1.0 if self._last >= 1.0 or self._last == 0.0 else least), None
        else:
            value, total = max(fraction, least if self._last else 0.0), 1.0
        self._last = value
        text = printable(message[:MESSAGE_CHARS])
        self._put((value, total, text), memory_of(text))

    def hears(self, level: str) -> bool:
        """Whether the client wants log messages of this level."""
        return _rank(level) >= self._least

    def log(self, level: str, message: str, fields: Mapping[str, Any]) -> None:
        """Pass on a log message, if the client wants its level."""
        rank = _rank(level)
        if rank == len(LEVELS) or rank < self._least:
            return
        text = printable(message[:MESSAGE_CHARS], keep="\n\t")
        data: Any = {"message": text, "fields": dict(fields)} if fields else text
        self._put(
            types.LoggingMessageNotificationParams(level=LEVELS[rank], logger=self._tool, data=data), memory_of(data)
        )

    def _put(self, message: Message, bytes: int) -> None:
        if self._closed:
            return
        if len(self._waiting) >= self._most or (self._waiting and self._bytes + bytes > WAITING_BYTES):
            self._dropped += 1
            return
        self._waiting.append((message, bytes))
        self._bytes += bytes
        self._changed.set()

    def close(self) -> None:
        """Take no more messages."""
        self._closed = True
        self._changed.set()

    async def pump(self) -> None:
        """Send the messages until `close`, and say how many were dropped."""
        while not self._closed or self._waiting:
            if self._waiting:
                message, bytes = self._waiting.popleft()
                self._bytes -= bytes
                await self._sent(message)
                continue
            self._changed = anyio.Event()
            await self._changed.wait()
        if self._dropped and self.hears("warning"):
            note = f"{self._dropped:,} messages of this call were dropped, because they came too fast."
            await self._sent(types.LoggingMessageNotificationParams(level="warning", logger=self._tool, data=note))
        self.sent.set()

    async def _sent(self, message: Message) -> None:
        if isinstance(message, tuple):
            return await self._ctx.session.report_progress(message[0], message[1], message[2])
        notification = types.LoggingMessageNotification(params=message)
        await self._ctx.session.send_notification(notification, self._ctx.request_id)


@asynccontextmanager
async def reporting(reports: Reports) -> AsyncGenerator[None]:
    """Send reports while the block runs, and wait a little for the last of them. The block must not raise."""
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(reports.pump)
        yield
        reports.close()
        with anyio.move_on_after(FLUSH_S):
            await reports.sent.wait()
        tasks.cancel_scope.cancel()
