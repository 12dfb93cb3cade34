"""Tell failures of the infrastructure from those of the agent, of a tool, and of a call's limits."""

from collections.abc import Mapping
from typing import Any, Final, Unpack

import anyio

from toolcell.errors import ToolcellError
from toolcell.runtime.retrying import ATTEMPTS, FIRST_S, LONGEST_S, waits
from toolcell.session import CallOptions, Session
from toolcell_tools.declaration import Declared
from toolcell_tools.errors import ErrorBase, Overloaded, SandboxUnavailable
from toolcell_tools.result import ToolResult

__all__ = ["InfrastructureFailure", "failure_of", "is_infrastructure", "steady_call"]

_KINDS: Final = frozenset({"overloaded", "sandbox_unavailable", "cancelled", "node_lost"})
"""The kinds of errors that no tool can cause. `Cancelled` is among them: an agent that is cancelled itself gets an
exception instead of this result."""


class InfrastructureFailure(ToolcellError):
    """Raised by an agent if something that it depends on has failed, such as the server of its model. The attempt is
    then tried again. It may be inside an ExceptionGroup."""


def is_infrastructure(error: ErrorBase | None) -> bool:
    """Whether the call failed outside its tool."""
    return error is not None and error.kind in _KINDS


def failure_of(error: BaseException) -> InfrastructureFailure | None:
    """The InfrastructureFailure in an exception of an agent, or None."""
    if isinstance(error, InfrastructureFailure):
        return error
    if isinstance(error, BaseExceptionGroup):
        found = (failure_of(one) for one in error.exceptions)  # pyright: ignore[reportUnknownVariableType,reportUnknownMemberType,reportUnknownArgumentType]
        return next((one for one in found if one is not None), None)
    return None


async def steady_call(
    session: Session, name: str | Declared, args: Mapping[str, Any] | None = None, **options: Unpack[CallOptions]
) -> ToolResult:
    """Call as `session.call`. After a retryable infrastructure error, repeat the call up to twice if it has done
    nothing that lasts. With `call_id`, the second call has the id "<call_id>~2"."""
    call_id, number = options.get("call_id"), 1
    pauses = waits(FIRST_S, LONGEST_S)
    while True:
        result = await session.call(name, args, **options)
        error = result.error
        if error is None or not is_infrastructure(error) or number >= ATTEMPTS:
            return result
        if not error.retryable or error.outcome == "outcome unknown":
            return result
        least = error.retry_after_s if isinstance(error, Overloaded | SandboxUnavailable) else None
        await anyio.sleep((least or 0.0) + next(pauses))
        number += 1
        if call_id is not None:
            options["call_id"] = f"{call_id}~{number}"
