"""The context of one call, a frozen value that every step gets, and the callbacks that its caller may give."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, final

from toolcell.store.approvals import AnyApprover
from toolcell.telemetry.tracing import CallTrace
from toolcell_tools.errors import ValidationError

from .route import Routes
from .services import Caller, Services

Repair = Callable[[ValidationError], Awaitable[dict[str, Any]] | dict[str, Any]]
"""Corrects the arguments of a call. A plain function runs on the event loop."""
OnProgress = Callable[[str, float | None], Awaitable[None] | None]
OnLog = Callable[[str, str, Mapping[str, Any]], None]
"""Receives what a tool logs: `on_log("info", "message", fields)`. It runs on the event loop and must return at once."""
StreamName = Literal["stdout", "stderr"]
OnOutput = Callable[[StreamName, str], Awaitable[None] | None]
"""Receives what a call prints: `on_output("stdout", "line\\n")`. A plain function runs on the event loop and must
return at once. A slow one must be async."""


@dataclass(slots=True)
class CallFate:
    """What is known of a call whose caller was cancelled: whether a process got it, and whether what it did may last.
    Set before the cancellation leaves the pipeline."""

    delivered: bool = False
    effect: bool = False


@final
class CallContext(NamedTuple):
    """One call: its id, the caller's options, the calling session, and the services."""

    services: Services
    caller: Caller
    routes: Routes
    call_id: str
    timeout_s: float | None = None
    """The call's whole time in seconds; None for the tool's own timeout, or the profile's."""
    on_progress: OnProgress | None = None
    on_output: OnOutput | None = None
    session: object = None
    """The session's public object, which a host tool gets."""
    trace: CallTrace | None = None
    """The span of the call; None if the supervisor has no telemetry."""
    on_log: OnLog | None = None
    fate: CallFate | None = None
    """Filled in if the caller is cancelled. None for a call without an idempotency key."""
    approver: AnyApprover | None = None
    """Decides on this call if the session has no approver."""
    taken: list[str] | None = None
    """The requests whose approvals the call has taken, until it begins. None if it is not to be run."""
    began: int | None = 0
    """The turn of the session's malformed calls in which it began; None while a repair may correct it."""
