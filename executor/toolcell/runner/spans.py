"""The steps of a tool, which the supervisor exports as spans below the call's span.

A step has a number, not an id: the supervisor makes the ids, so a cell can name no span outside its call.
"""

import os
import time
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from contextvars import ContextVar, Token
from types import TracebackType

from toolcell.wire.frames import Field
from toolcell.wire.messages import SpanEnd, SpanStart

from .link import Link

NO_SPAN: AbstractContextManager[None] = nullcontext()
_around: ContextVar[tuple[int, int]] = ContextVar("around", default=(0, 0))
"""The number of the call, and of the step that encloses the running code. A kept process may still have a step of an
earlier call here."""
_VARIABLES = {"traceparent": "TRACEPARENT", "tracestate": "TRACESTATE"}
"""The names of OpenTelemetry's specification "Environment Variables as Context Propagation Carriers"."""


class CellSpan(AbstractContextManager[None]):
    """One step: it is reported when it begins and when it ends, so a killed call shows the step in which it was."""

    def __init__(self, link: Link, numbers: Iterator[int], name: str, attributes: dict[str, Field]) -> None:
        self._link = link
        self._numbers = numbers
        self._name = name
        self._attributes = attributes
        self._number = 0
        self._before: Token[tuple[int, int]] | None = None

    def __enter__(self) -> None:
        call, parent = _around.get()
        seq, number = self._link.seq, next(self._numbers)
        self._number, self._before = number, _around.set((seq, number))
        self._link.tell(
            SpanStart(seq, number, parent if call == seq else 0, self._name, time.time_ns(), self._attributes)
        )

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._before is not None:
            _around.reset(self._before)
        self._link.tell(SpanEnd(self._link.seq, self._number, time.time_ns(), "" if kind is None else kind.__name__))


def set_environment(trace: Mapping[str, str]) -> None:
    """Set the variables from which programs and libraries read the trace context."""
    for name, variable in _VARIABLES.items():
        if name in trace:
            os.environ[variable] = trace[name]
        else:
            os.environ.pop(variable, None)
