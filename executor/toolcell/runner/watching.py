"""One HTTP request of a sync tool, whose answer's events are read while they arrive."""

from toolcell.wire.frames import Field
from toolcell_tools.handles import HttpResponse

from .link import Link

_REQUEST, _EVENTS, _LEAVE = "http.request", "http.events", "http.leave"


class WatchedPost:
    """A request under way. Its answer has all bytes; `received` of them have come as events before. With 0 for `watch`,
    none do."""

    def __init__(self, link: Link, watch: int, request: dict[str, Field]) -> None:
        self.received = 0
        self._link = link
        self._watch: dict[str, Field] = {"watch": watch} if watch else {}
        self._request = link.begin(_REQUEST, {**request, **self._watch})
        self._events: int | None = None

    def wait(self, seconds: float, *, events: bool = True) -> bytes | HttpResponse | None:
        """Wait for at most so many seconds. Return whole lines of events, the answer, or None if neither has come.
        Without `events`, wait for the answer only. Raises as `ctx.http.request` does."""
        if self._events is None and events and self._watch:
            self._events = self._link.begin(_EVENTS, self._watch)
        waiting = [self._request] if self._events is None else [self._request, self._events]
        number = self._link.answered(waiting, seconds)
        if number is None:
            return None
        if number == self._request:
            self._end_events()
            return HttpResponse.from_dict(self._link.answer(number, _REQUEST))
        self._events = None
        lines: bytes | None = self._link.answer(number, _EVENTS)
        if lines is None:  # over, or over a bound: the answer comes next
            return self.wait(seconds, events=False)
        self.received += len(lines)
        return lines

    def leave(self) -> None:
        """End the request. Its answer is lost."""
        self._link.request(_LEAVE, self._watch)
        self._link.answered([self._request], 1.0)
        self._link.forget(self._request)
        self._end_events()

    def _end_events(self) -> None:
        """Take the answer to the open question for events, which comes when the request is over."""
        if self._events is not None and self._link.answered([self._events], 1.0) is not None:
            self._link.answer(self._events, _EVENTS)
        self._events = None
