"""Pending: the return value of a long-running tool whose work goes on elsewhere."""

from dataclasses import dataclass

__all__ = ["LONG_RUNNING_NOTE", "Pending"]

LONG_RUNNING_NOTE = (  # the wording of ADK, which models follow
    "NOTE: This is a long-running operation. Do not call this tool again if it has already returned some intermediate "
    "or pending status."
)


@dataclass(frozen=True, slots=True)
class Pending:
    """An id of the running work, its status, and a message that tells the model which tool to ask for the result.

    The work runs where the end of a call does not stop it: at a service, in the program of a `host_tool`, in the
    process of a tool with `lifetime="session"`. `ToolResult.pending` reads a Pending back.
    """

    handle_id: str
    status: str = "pending"
    message: str = ""
