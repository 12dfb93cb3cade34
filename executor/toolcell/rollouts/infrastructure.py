"""Which failures are the infrastructure's: neither the agent's, nor a tool's, nor those of a call's limits."""

from typing import Final

from toolcell.errors import ToolcellError
from toolcell_tools.errors import ErrorBase, Overloaded

__all__ = ["InfrastructureFailure", "is_infrastructure"]

_KINDS: Final = frozenset({"overloaded", "sandbox_unavailable", "cancelled"})
"""The kinds of errors that no tool can bring about. `Cancelled` counts, because an agent's own cancellation is an
exception in the agent, and no result."""


class InfrastructureFailure(ToolcellError):
    """An agent raises this if something outside of it has failed, such as the server of its model: the attempt is tried
    again. Within an ExceptionGroup, it counts too."""


def is_infrastructure(error: ErrorBase | None) -> bool:
    """Whether the call failed outside of its tool. A tool that is refused because it keeps crashing did not."""
    if isinstance(error, Overloaded) and error.circuit_open:
        return False
    return error is not None and error.kind in _KINDS


def failure_of(error: BaseException) -> InfrastructureFailure | None:
    """The InfrastructureFailure that an agent has raised, or None."""
    if isinstance(error, InfrastructureFailure):
        return error
    if isinstance(error, BaseExceptionGroup):
        found = (failure_of(one) for one in error.exceptions)  # pyright: ignore[reportUnknownVariableType,reportUnknownMemberType,reportUnknownArgumentType]
        return next((one for one in found if one is not None), None)
    return None
