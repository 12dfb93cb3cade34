"""The spans that a cell reports. A cell is not trusted: everything is bounded here, and ids are the supervisor's.

A cell numbers its spans. A parent that is not an open span of the same call is replaced by the call's span, and times
are moved into the call's own time. So no report can change or extend a trace beyond its call.
"""

import time
from collections.abc import Mapping
from typing import Any, Final

from opentelemetry.context import Context
from opentelemetry.trace import Span, Status, StatusCode, Tracer, set_span_in_context

from toolcell.rules.redaction import BoundedCopy
from toolcell_tools.preview import printable

MOST_SPANS: Final = 128
"""Of one call. OpenTelemetry's SDK has the same default bound for the events of a span."""
MOST_ATTRIBUTES: Final = 32
NAME_CHARS: Final = 128
ORIGIN: Final = "toolcell.span.origin"
_RESERVED: Final = "toolcell."


class CellSpans:
    """The spans of one call's tool. They end with the call at the latest. `dropped` counts those beyond the bound."""

    def __init__(self, tracer: Tracer, call: Context, began_ns: int) -> None:
        self._tracer = tracer
        self._call = call
        self._began_ns = began_ns
        self._open: dict[int, tuple[Span, int]] = {}
        self._numbers: set[int] = set()
        self.dropped = 0

    def begin(self, number: int, parent: int, name: str, at_ns: int, attributes: Mapping[str, Any]) -> None:
        """Begin a span, unless there are too many or its number is not a new one."""
        if number in self._numbers or len(self._numbers) >= MOST_SPANS:
            self.dropped += 1
            return
        self._numbers.add(number)
        around = self._open.get(parent)
        context = self._call if around is None else set_span_in_context(around[0])
        earliest_ns = self._began_ns if around is None else around[1]
        start_ns = _within(at_ns, earliest_ns, time.time_ns())
        span = self._tracer.start_span(
            _name(name), context, attributes={**_kept(attributes), ORIGIN: "cell"}, start_time=start_ns
        )
        self._open[number] = span, start_ns

    def end(self, number: int, at_ns: int, error: str) -> None:
        """End an open span. `error` is the name of an exception, or ""."""
        found = self._open.pop(number, None)
        if found is None:
            return
        span, start_ns = found
        if error:
            _fail(span, _name(error))
        span.end(_within(at_ns, start_ns, time.time_ns()))

    def close(self, end_ns: int) -> None:
        """End the spans that are open when the call is over: the tool was in these steps when it was killed."""
        for span, start_ns in reversed(self._open.values()):
            _fail(span, "unfinished")
            span.end(max(start_ns, end_ns))
        self._open.clear()


def _fail(span: Span, kind: str) -> None:
    span.set_attribute("error.type", kind)
    span.set_status(Status(StatusCode.ERROR))


def _within(at_ns: int, earliest_ns: int, latest_ns: int) -> int:
    return min(max(at_ns, earliest_ns), max(earliest_ns, latest_ns))


def _name(name: str) -> str:
    return printable(name[:NAME_CHARS]) or "(unnamed)"


def _kept(attributes: Mapping[str, Any]) -> dict[str, str | int | float | bool]:
    """The scalar attributes, as many as are allowed, redacted as the journal redacts arguments."""
    scalars = {
        _name(key): value
        for key, value in list(attributes.items())[:MOST_ATTRIBUTES]
        if type(value) in (str, int, float, bool) and not key.startswith(_RESERVED)
    }
    return BoundedCopy().of(scalars)
