"""The broker's handles in a cell: each operation is one request and one reply over the pipe.

There is no secret here and no security check. The broker's table, in the supervisor, decides what any request may do,
even a forged one. Each method of a handle, and its twin for async tools, is made of the operation's row in
`OPERATIONS`, and of its signature in the handle's protocol.
"""

from collections.abc import Callable, Mapping
from inspect import signature
from typing import Any

from toolcell.wire.frames import Field
from toolcell_tools.capability import Capability
from toolcell_tools.handles import (
    OPERATIONS,
    ChannelHandle,
    ChannelStatus,
    HttpHandle,
    HttpResponse,
    MemoryReader,
    MemoryWriter,
    Operation,
    SentMessage,
    WebHandle,
)

from .link import Link


class _Brokered:
    """A handle. A subclass has the operations with its capability for which its protocol has methods."""

    capability: Capability

    def __init_subclass__(cls, *, capability: Capability, protocol: type) -> None:
        cls.capability = capability
        for name, row in OPERATIONS.items():
            method = name.partition(".")[2]
            if row.capability is capability and hasattr(protocol, method) and method not in vars(cls):
                cls._add(method, name, row, getattr(protocol, method))

    def __init__(self, link: Link) -> None:
        self._link = link
        self._ask = link.request
        self._aask = link.arequest

    @classmethod
    def _add(cls, method: str, name: str, row: Operation, like: Callable[..., object]) -> None:
        """Add both methods of an operation. They take the arguments that `like` takes."""
        parameters = list(signature(like).parameters.values())[1:]  # without self
        packers = {each.name: row.arguments[each.name].sent for each in parameters}
        positional = [each.name for each in parameters if each.kind is not each.KEYWORD_ONLY]
        defaults = {each.name: each.default for each in parameters if each.default is not each.empty}

        def request(args: tuple[object, ...], options: dict[str, object]) -> dict[str, Field]:
            named = dict(zip(positional, args, strict=False))
            given: dict[str, Any] = {**defaults, **named, **options}
            if len(args) > len(positional) or given.keys() != packers.keys() or named.keys() & options.keys():
                raise TypeError(f"{method}() takes {', '.join(packers) or 'no arguments'}")
            return {each: given[each] if pack is None else pack(given[each]) for each, pack in packers.items()}

        def ask(self: _Brokered, *args: object, **options: object) -> Any:
            return row.answer(self._ask(name, request(args, options)))

        async def aask(self: _Brokered, *args: object, **options: object) -> Any:
            return row.answer(await self._aask(name, request(args, options)))

        setattr(cls, method, ask)
        setattr(cls, "a" + method, aask)


class _Channel(_Brokered, capability=Capability.CHANNEL, protocol=ChannelHandle):
    """`ctx.channel`: the channel to the session's people."""

    status: Callable[[], ChannelStatus]

    @property
    def level(self) -> str:
        return self.status().level

    @property
    def remaining(self) -> int:
        return self.status().remaining

    def send(self, text: str, *, to: str = "") -> SentMessage:
        return SentMessage.from_dict(self._ask(*_message(text, to)))

    async def asend(self, text: str, *, to: str = "") -> SentMessage:
        return SentMessage.from_dict(await self._aask(*_message(text, to)))


def _message(text: str, to: str) -> tuple[str, dict[str, Field]]:
    return ("channel.send_to", {"text": text, "to": to}) if to else ("channel.send", {"text": text})


class _MemoryReader(_Brokered, capability=Capability.MEMORY_READ, protocol=MemoryReader):
    """`ctx.memory`: search the agent's memory."""


class _MemoryWriter(_Brokered, capability=Capability.MEMORY_WRITE, protocol=MemoryWriter):
    """`ctx.memory_writer`: add to the agent's memory."""


class _Web(_Brokered, capability=Capability.WEB, protocol=WebHandle):
    """`ctx.web`: GET on the public web, fetched by the supervisor."""


class _Http(_Brokered, capability=Capability.HTTP, protocol=HttpHandle):
    """`ctx.http`: requests that the session's rules allow, made by the supervisor."""

    def watch(self, number: int, url: str, headers: Mapping[str, str], body: bytes) -> "WatchedPost":
        """POST to `url`, and do not wait for the answer. `number` is for this request in this call alone."""
        request: dict[str, Field] = {"method": "POST", "url": url, "headers": dict(headers), "body": body}
        return WatchedPost(self._link, number, request)


_HANDLES: Mapping[str, type[_Brokered]] = {
    "channel": _Channel,
    "memory": _MemoryReader,
    "memory_writer": _MemoryWriter,
    "web": _Web,
    "http": _Http,
}


def brokered(link: Link, grants: frozenset[Capability]) -> dict[str, Any]:
    """The handles of a context with these grants, by their names there."""
    return {name: handle(link) for name, handle in _HANDLES.items() if handle.capability in grants}


class WatchedPost:
    """A request of HTTP under way, for a sync tool that reads the answer's events while they arrive. Its answer has all
    bytes; the first `received` of them were delivered as events already, none if `watch` is 0."""

    def __init__(self, link: Link, watch: int, request: dict[str, Field]) -> None:
        self.received = 0
        self._link = link
        self._watch: dict[str, Field] = {"watch": watch} if watch else {}
        self._request = link.begin("http.request", {**request, **self._watch})
        self._events: int | None = None

    def wait(self, seconds: float, *, events: bool = True) -> bytes | HttpResponse | None:
        """Wait for at most so many seconds. Return whole lines of events, the answer, or None if neither has come.
        Without `events`, wait for the answer only. Raises as `ctx.http.request` does."""
        if self._events is None and events and self._watch:
            self._events = self._link.begin("http.events", self._watch)
        waiting = [self._request] if self._events is None else [self._request, self._events]
        number = self._link.answered(waiting, seconds)
        if number is None:
            return None
        if number == self._request:
            self._end_events()
            return HttpResponse.from_dict(self._link.answer(number, "http.request"))
        self._events = None
        lines: bytes | None = self._link.answer(number, "http.events")
        if lines is None:  # over, or over a bound: the answer comes next
            return self.wait(seconds, events=False)
        self.received += len(lines)
        return lines

    def leave(self) -> None:
        """End the request. Its answer is lost."""
        self._link.request("http.leave", self._watch)
        self._link.answered([self._request], 1.0)
        self._link.forget(self._request)
        self._end_events()

    def _end_events(self) -> None:
        """Take the answer to the open question for events, which comes when the request is over."""
        if self._events is not None and self._link.answered([self._events], 1.0) is not None:
            self._link.answer(self._events, "http.events")
        self._events = None
