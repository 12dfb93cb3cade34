"""The context of one call: a frozen value that every step is given."""

from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple, final

from toolcell_tools.errors import ValidationError

from .reports import OnProgress
from .route import Routes
from .services import Caller, Services
from .streams import OnOutput

Repair = Callable[[ValidationError], Awaitable[dict[str, Any]]]


@final
class CallContext(NamedTuple):
    """One call: its id, what the caller asked for, the session that calls, and the services."""

    services: Services
    caller: Caller
    routes: Routes
    call_id: str
    timeout_s: float | None = None
    """All the time that the call has; None for the tool's own, or the profile's."""
    on_progress: OnProgress | None = None
    on_output: OnOutput | None = None
    session: object = None
    """The session's public object, which a host tool is given."""
