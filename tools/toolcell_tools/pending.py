"""Pending: what a long-running tool returns while its work goes on elsewhere."""

from dataclasses import dataclass

__all__ = ["LONG_RUNNING_NOTE", "Pending"]

LONG_RUNNING_NOTE = (  # ADK's words, which models have been seen to heed
    "NOTE: This is a long-running operation. Do not call this tool again if it has already returned some intermediate "
    "or pending status."
)


@dataclass(frozen=True, slots=True)
class Pending:
    """The handle under which the work can be asked after, its status, and a word for the model."""

    handle_id: str
    status: str = "pending"
    message: str = ""
