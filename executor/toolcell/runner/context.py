"""Build the ToolContext of a call: a handle for each granted capability, None for the others.

The context reports over the pipe. A step of the tool (`ctx.span`) has a number, not an id: the supervisor makes the
ids, so a cell can name no span outside its call.
"""

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from contextvars import ContextVar, Token
from itertools import count
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, cast

from toolcell.wire.frames import Field
from toolcell.wire.messages import Log, Progress, SpanEnd, SpanStart
from toolcell_sandbox.limits import GRACE_SHARE
from toolcell_tools.capability import Capability, SessionKind
from toolcell_tools.context import ToolContext
from toolcell_tools.definition import Tool
from toolcell_tools.encode import encode_json
from toolcell_tools.failures import UsageError
from toolcell_tools.shell import Shell
from toolcell_tools.workspace import DeniedWorkspace, Protects, WorkspaceReader, WorkspaceWriter

from .handles import brokered
from .link import Link
from .live_output import Relay

if TYPE_CHECKING:
    from toolcell_tools.confirmation import Confirmation
    from toolcell_tools.signals import Signal

LOG_CHARS = 16_000


class LinkReporter:
    """The context's reporter, which sends over the pipe."""

    deadline = 0.0
    tidy_at = 0.0
    spans: Iterator[int] | None = None
    """The numbers of the call's spans; None if the supervisor traces no calls."""
    signals: "Sequence[Signal]" = ()
    """The signals that the tool has given so far."""
    given: "Sequence[Mapping[str, Any]] | None" = None
    """The confirmations that were given for this call; None if the tool does not confirm."""
    has_asked = False
    """Whether `ctx.confirm` has asked in this call."""
    tool: Tool[..., object]

    def __init__(self, link: Link, writer: WorkspaceWriter | None, shell: Shell | None) -> None:
        self._link = link
        self._writer = writer
        self._shell = shell

    def progress(self, message: str, fraction: float | None) -> None:
        self._link.tell(Progress(self._link.seq, _text(message), fraction))

    def log(self, message: str, level: str, fields: Mapping[str, Any]) -> None:
        plain = cast("dict[str, Field]", encode_json(dict(fields)))
        self._link.tell(Log(self._link.seq, _text(level), _text(message), plain))

    def span(self, name: str, attributes: Mapping[str, Any]) -> AbstractContextManager[None]:
        if self.spans is None:
            return NO_SPAN
        plain = cast("dict[str, Field]", encode_json(dict(attributes)))
        return CellSpan(self._link, self.spans, _text(name), plain)

    def signal(self, signal: "Signal") -> None:
        if signal.kind not in self.tool.signals:
            from toolcell_tools.signals import undeclared

            raise UsageError(f"{undeclared(self.tool.name, signal.kind)}.")
        self.signals = [*self.signals, signal]

    def confirm(self, hint: str, payload: object) -> "Confirmation":
        from toolcell_tools.confirmation import given_or_asked

        if self._link.acted or (self._writer is not None and self._writer.artifacts) or self._has_run():
            raise UsageError(
                f"The tool {self.tool.name!r} calls ctx.confirm after an effect. Ask first, because the call runs "
                "again with the answer."
            )
        return given_or_asked(self, self.tool.name, self.given, hint, payload)

    def _has_run(self) -> bool:
        return self._shell is not None and self._shell.has_run

    def remaining(self) -> float:
        return self.deadline - time.monotonic()

    def cancelled(self) -> bool:
        self._link.poll()
        return self._link.cancelled or time.monotonic() >= self.tidy_at


def _text(value: object) -> str:
    return str(value).encode("utf-8", "replace").decode()[:LOG_CHARS]


class Contexts:
    """Makes the contexts of a cell's calls. `session` is the part of the context that they share, which the supervisor
    has sent once. The kernel's rules were set at lockdown.

    `protects` is the policy of protected names, with which the write handle makes its error messages. Each call has its
    own write handle, which records what was written; the other handles are shared. The output of a command is sent to
    the supervisor while the command runs, completely up to `stream_bytes` bytes of each stream. The first context is
    made at once, in the init. A call process forked from it needs no other.
    """

    def __init__(self, session: Mapping[str, Field], protects: Protects, link: Link, stream_bytes: int = 0) -> None:
        given = cast("dict[str, Any]", session)
        grants = frozenset[Capability](map(Capability, given["grants"]))
        root = Path(given["workspace_root"])
        self.link = link
        self._root = root
        self._protects = protects if Capability.WRITE in grants else None
        self._grace_s: float = given["grace_s"]
        self._same: dict[str, Any] = {
            "session_id": given["session_id"],
            "agent_id": given["agent_id"],
            "session_kind": SessionKind(given["session_kind"]),
            "workspace_root": root,
            "user_id": given.get("user_id", ""),
            "context": given.get("context", ""),
            "workspace": (WorkspaceReader if Capability.READ in grants else DeniedWorkspace)(root),
            "shell": Shell(root, relay=Relay(link, stream_bytes)) if Capability.EXEC in grants else None,
            **brokered(link, grants),
        }
        self.reporter: LinkReporter
        """The reporter of the present call."""
        self.ready: tuple[ToolContext, LinkReporter] | None = self._made()

    def of(self, call_id: str, given: dict[str, Any], tool: Tool[..., object]) -> ToolContext:
        """The context of one call of the tool, from the `context` of its `Call`."""
        ctx, reporter = self.ready or self._made()
        self.ready, self.reporter, reporter.tool = None, reporter, tool
        ctx.call_id = call_id
        remaining_s = given["remaining_s"]
        ctx.deadline = reporter.deadline = deadline = time.monotonic() + remaining_s
        grace_s = remaining_s * GRACE_SHARE
        reporter.tidy_at = deadline - (grace_s if grace_s < self._grace_s else self._grace_s)
        if len(given) > 1:
            ctx.config = given.get("config", ctx.config)
            ctx.values = given.get("values", ctx.values)
            ctx.attempt = given.get("attempt", 1)
            ctx.invocation_id = given.get("invocation_id", "")
            if "confirm" in given:
                reporter.given = given["confirm"]
                if ctx.shell is not None:
                    ctx.shell.has_run = False  # a kept process has one shell for all its calls
            if "trace" in given:
                ctx.trace = given["trace"]
                reporter.spans = count(1)
        return ctx

    def _made(self) -> tuple[ToolContext, LinkReporter]:
        writer = None if self._protects is None else WorkspaceWriter(self._root, self._protects)
        reporter = LinkReporter(self.link, writer, self._same["shell"])
        return ToolContext(call_id="", reporter=reporter, deadline=0.0, writer=writer, **self._same), reporter


NO_SPAN: AbstractContextManager[None] = nullcontext()
_around: ContextVar[tuple[int, int]] = ContextVar("around", default=(0, 0))
"""The number of the call, and of the step that encloses the running code. A kept process may still have a step of an
earlier call here."""
_VARIABLES = {"traceparent": "TRACEPARENT", "tracestate": "TRACESTATE"}
"""The names of OpenTelemetry's specification "Environment Variables as Context Propagation Carriers"."""


class CellSpan(AbstractContextManager[None]):
    """One step, which the supervisor exports as a span below the call's. It is reported when it begins and when it
    ends, so a killed call shows the step in which it was."""

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
