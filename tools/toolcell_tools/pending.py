"""Pending: the return value of a long-running tool whose work goes on elsewhere."""

from dataclasses import dataclass

__all__ = ["LONG_RUNNING_NOTE", "Pending"]

LONG_RUNNING_NOTE = (  # ADK's words, which models have been seen to heed
    "NOTE: This is a long-running operation. Do not call this tool again if it has already returned some intermediate "
    "or pending status."
)


@dataclass(frozen=True, slots=True)
class Pending:
    """The handle under which the work can be asked after, its status, and a word for the model: which tool to ask.

    The work itself goes on where calls do not end it: at a service, in a `host_tool`'s program, in the process of a
    tool with `lifetime="session"`. `ToolResult.pending` reads it back.
    """

    handle_id: str
    status: str = "pending"
    message: str = ""
