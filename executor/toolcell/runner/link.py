"""The call process's side of the pipes: blocking for sync tools, through the running event loop for async tools."""

import ctypes
import os
import select
import signal
import threading
import time
from collections.abc import Collection
from typing import TYPE_CHECKING, Any, NoReturn

from toolcell.wire.frames import Buffer, Field, TooLarge, Violation, WireLimits
from toolcell.wire.messages import (
    Call,
    Cancel,
    Error,
    Heeds,
    Log,
    Output,
    Progress,
    Reply,
    Request,
    Result,
    SpanEnd,
    SpanStart,
)
from toolcell.wire.pipes import PIPE_BYTES, widen
from toolcell.wire.protocol import CellLink
from toolcell.wire.sequence import CALLED, DONE, IDLE
from toolcell.wire.switches import is_on
from toolcell_tools.capability import Capability
from toolcell_tools.failures import MissingCapability, RequestDenied, ToolFailure
from toolcell_tools.handles import OPERATIONS, may_act

from .control import FRAMES_IN, FRAMES_OUT, write_all

if TYPE_CHECKING:
    import asyncio

SOON_S = 0.001
IN_FLIGHT = 200  # of the 256 of wire.protocol.CallLimits
_OVER = "The call is over, so its unanswered requests were dropped."
_libc = ctypes.CDLL(None)
_READS_WHOLE = is_on("whole_frame")


class Link:
    """One call process's pipes. `request` may be used from any thread of the tool; `arequest` from its event loop."""

    def __init__(self, limits: WireLimits, incoming: int = FRAMES_IN, outgoing: int = FRAMES_OUT) -> None:
        self._incoming = incoming
        self._outgoing = outgoing
        self.protocol = CellLink(limits)
        self._lock = threading.Lock()
        self._last_request = 0
        self._answered = 0  # the number of answered requests
        self._replies: dict[int, Reply] = {}
        self._futures: dict[int, asyncio.Future[Reply]] = {}
        self._room: asyncio.Semaphore | None = None
        self._call: Call | None = None  # a call that has arrived and was not waited for yet
        self._readable = select.poll()
        self._readable.register(incoming, select.POLLIN)
        self.cancelled = False
        self.acted = False
        """Whether the call has made a request that may have an effect."""
        self._heeded = 0  # the number of the last call whose tool has read `cancelled`

    def start_over(self) -> None:
        """Forget the calls so far, which are answered: the next call counts as the first."""
        self.protocol.state = IDLE

    def is_called(self) -> bool:
        """Whether the supervisor has already sent something: a call, or the end of the pipe."""
        return bool(self._readable.poll(0))

    def wait_for_call(self) -> Call:
        """Block until the supervisor sends a call. Raises EOFError if the supervisor has closed the pipe."""
        self.cancelled = self.acted = False
        self._last_request = self._answered = 0
        if self._replies:
            self._replies.clear()
        if self._futures:
            self._give_up()
        if self.protocol.state is DONE and self._lock.locked():
            with self._lock:
                pass  # a thread of the previous call may be waiting for a reply, and may read this call from the pipe
        while self._call is None:
            data = os.read(self._incoming, PIPE_BYTES)
            if not data:
                raise EOFError
            self.take(data)
        call, self._call = self._call, None
        return call

    def wait_for_end(self) -> NoReturn:
        """Wait, after the answer, until the init kills this process: the supervisor first reads its accounts."""
        while os.read(self._incoming, PIPE_BYTES):
            pass  # a reply or a cancellation that crossed the answer
        os._exit(0)

    def send(
        self,
        message: Result | Error | Progress | Log | Request | Output | Heeds | SpanStart | SpanEnd,
        *,
        locked: bool = False,
    ) -> None:
        """Send a message. Raises Unpackable, with nothing sent, if it cannot be encoded. `locked`: the caller holds the
        lock for reading replies."""
        buffers = self.protocol.send(message)
        first = buffers[0]
        try:
            if self._answered < self._last_request:
                self._send_and_read(buffers, locked)
            elif len(buffers) > 1 or len(first) > PIPE_BYTES:
                widen(self._outgoing, sum(map(len, buffers)))
                write_all(self._outgoing, buffers)
            elif (written := os.write(self._outgoing, first)) < len(first):
                write_all(self._outgoing, [memoryview(first)[written:]])
        except OSError:
            _lost()

    def _send_and_read(self, buffers: list[Buffer], locked: bool) -> None:
        """Write page by page, and read replies while the pipe is full. The supervisor reads nothing from a call while
        many replies wait, so a call that does not read them either would wait for ever."""
        if len(buffers) > 1 or len(buffers[0]) > PIPE_BYTES:
            widen(self._outgoing, sum(map(len, buffers)))
        either = select.poll()
        either.register(self._outgoing, select.POLLOUT)
        either.register(self._incoming, select.POLLIN)
        for buffer in buffers:
            rest = memoryview(buffer)
            while rest:
                if self._outgoing in dict(either.poll()):
                    # A writable pipe has room for a page (pipe(7)), so this write does not block.
                    rest = rest[os.write(self._outgoing, rest[: select.PIPE_BUF]) :]
                elif locked or self._lock.acquire(blocking=False):
                    try:
                        self.take(os.read(self._incoming, PIPE_BYTES))
                    finally:
                        if not locked:
                            self._lock.release()
                else:
                    time.sleep(SOON_S)  # another thread holds the lock and reads the replies

    def tell(self, message: Progress | Log | SpanStart | SpanEnd) -> None:
        """Send a message that needs no answer, from any thread. After the call's end it is dropped."""
        with self._lock:
            if self.protocol.state is CALLED:
                try:
                    self.send(message, locked=True)
                except TooLarge as error:
                    raise ToolFailure(f"The report is too large: {error}. Report less at a time.") from error

    def told(self, message: Output, wait_s: float) -> bool:
        """As `tell`, but wait for the lock for at most `wait_s` seconds. Returns False if another thread kept it."""
        if not self._lock.acquire(timeout=wait_s):
            return False
        try:
            if self.protocol.state is CALLED:
                self.send(message, locked=True)
            return True
        finally:
            self._lock.release()

    @property
    def seq(self) -> int:
        return self.protocol.seq

    def request(self, operation: str, arguments: dict[str, Field]) -> Any:
        """Send a request to the broker and wait for its answer. Raises the exception of `refusal_of` for a refusal."""
        with self._lock:
            number = self._send_request(operation, arguments)
            while number not in self._replies:
                data = os.read(self._incoming, PIPE_BYTES)
                if data or self.protocol.state is CALLED:
                    self.take(data)
                if self._call is not None or not data:  # the next call, or the end of the pipe: for `wait_for_call`
                    raise ToolFailure(_OVER)
            reply = self._replies.pop(number)
        return _value(reply, operation)

    def begin(self, operation: str, arguments: dict[str, Field]) -> int:
        """Send a request, and do not wait. Return its number, for `answered` and `answer`."""
        with self._lock:
            return self._send_request(operation, arguments)

    def answered(self, numbers: Collection[int], wait_s: float) -> int | None:
        """Wait for an answer to one of these requests, for at most `wait_s` seconds. Return the request's number."""
        until = time.monotonic() + wait_s
        with self._lock:
            while True:
                for number in numbers:
                    if number in self._replies:
                        return number
                if not self._readable.poll(max(0.0, until - time.monotonic()) * 1000):
                    return None
                self.take(os.read(self._incoming, PIPE_BYTES))
                if self._call is not None:
                    raise ToolFailure(_OVER)

    def answer(self, number: int, operation: str) -> Any:
        """The answer to a request that `answered` has returned. Raises as `request` does."""
        return _value(self._replies.pop(number), operation)

    def forget(self, number: int) -> None:
        """Drop the answer to a request of `begin`, if it is there."""
        self._replies.pop(number, None)

    async def arequest(self, operation: str, arguments: dict[str, Field]) -> Any:
        """As `request`, for an async tool: the event loop keeps running while the broker works."""
        import asyncio  # takes 30 ms and 4 MB, only in cells with async tools

        loop = asyncio.get_running_loop()
        if self._room is None:
            self._room = asyncio.Semaphore(IN_FLIGHT)
        async with self._room:  # the supervisor accepts no more at once
            future: asyncio.Future[Reply] = loop.create_future()
            with self._lock:  # held until the future is stored: another thread may read its reply
                number = self._send_request(operation, arguments)
                is_first, self._futures[number] = not self._futures, future
            if is_first:
                loop.add_reader(self._incoming, self._on_readable)
            try:
                reply = await future
            finally:
                if self._futures.get(number) is future:  # else the call is over; the number may be reused
                    del self._futures[number]
                    if not self._futures:
                        loop.remove_reader(self._incoming)
        return _value(reply, operation)

    def _give_up(self) -> None:
        """Drop a kept process's unanswered requests when its call ends. No reply comes, and their numbers are used
        again."""
        for future in self._futures.values():
            future.get_loop().remove_reader(self._incoming)
            if not future.done():
                future.set_exception(ToolFailure(_OVER))
        self._futures.clear()

    def poll(self) -> None:
        """Read pending messages, such as a cancellation, without waiting. The first time in a call, tell the supervisor
        that the tool checks for cancellation."""
        if self._lock.acquire(blocking=False):
            try:
                if self._heeded != self.protocol.seq and self.protocol.state is CALLED:
                    self._heeded = self.protocol.seq
                    self.send(Heeds(self._heeded), locked=True)
                while self._readable.poll(0):
                    self.take(os.read(self._incoming, PIPE_BYTES))
            finally:
                self._lock.release()

    def _send_request(self, operation: str, arguments: dict[str, Field]) -> int:
        if self.protocol.state is not CALLED:
            raise ToolFailure(f"The call is over: {operation} comes too late.")
        request = Request(self.protocol.seq, self._last_request + 1, operation, arguments)
        try:
            self.send(request, locked=True)
        except TooLarge as error:
            raise ToolFailure(f"The request of {operation} is too large: {error}. Send less at a time.") from error
        self._last_request += 1
        if not self.acted:
            self.acted = may_act(operation, arguments)
        return self._last_request

    def _on_readable(self) -> None:
        with self._lock:
            if self._readable.poll(0):  # otherwise another thread has read it
                self.take(os.read(self._incoming, PIPE_BYTES))

    def take(self, data: Buffer) -> None:
        """Handle bytes from the supervisor. b"" means that the supervisor is gone."""
        if not data:
            os._exit(0)  # the supervisor is gone
        call = self.protocol.called(data) if _READS_WHOLE else None
        if call is not None:
            self._call = call
            return
        events = self.protocol.receive(data)
        for event in events:
            if isinstance(event, Call):
                self._call = event
            elif isinstance(event, Reply):
                self._answered += 1
                future = self._futures.get(event.request)
                if future is None:
                    self._replies[event.request] = event
                else:  # this thread may not be the one of the future's loop
                    future.get_loop().call_soon_threadsafe(_settle, future, event)
            elif isinstance(event, Cancel):
                self.cancelled = True
            elif isinstance(event, Violation):
                _lost()


def _settle(future: "asyncio.Future[Reply]", reply: Reply) -> None:
    if not future.done():
        future.set_result(reply)


def _value(reply: Reply, operation: str) -> Any:
    """The value of an answer. Raises the exception of `refusal_of` for a refusal."""
    if reply.ok:
        return reply.value
    refusal = reply.value if isinstance(reply.value, dict) else {}
    raise refusal_of(operation, str(refusal.get("kind")), str(refusal.get("message")), refusal.get("data"))


def refusal_of(operation: str, kind: str, message: str, data: object) -> Exception:
    """The exception that a tool gets for a refused request. `kind` is the error's, such as "permission_denied"."""
    if kind == "permission_denied":
        row = OPERATIONS.get(operation)
        return MissingCapability(Capability.CHANNEL if row is None else row.capability)
    if kind == "request_denied":
        return RequestDenied(message)
    return ToolFailure(message, data or None)


def _lost() -> NoReturn:
    """End by SIGPIPE, like a program whose pipe is broken, from any thread. An exit code would be ambiguous."""
    _libc.signal(signal.SIGPIPE, None)  # SIG_DFL
    os.kill(os.getpid(), signal.SIGPIPE)
    os._exit(1)
