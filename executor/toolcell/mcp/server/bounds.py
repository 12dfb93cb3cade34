"""The bounds of an MCP server: what a client can make it hold."""

from dataclasses import dataclass, fields
from typing import Final

from toolcell.errors import UsageError

__all__ = ["SMALL_BYTES", "ServerBounds"]

MIB = 1024 * 1024
SMALL_BYTES: Final = 16 * 1024
"""A request of at most this length is taken beyond the bounds on bytes, because the number of requests is bounded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerBounds:
    """What one client may make a server hold. Over HTTP, each principal has all of it for itself.

    Raises UsageError for a value that is not above zero.
    """

    message_bytes: int = 4 * MIB
    """The longest request, in bytes."""
    requests_bytes: int = 16 * MIB
    """The bytes of all requests that are not answered yet. Others are refused, except short ones."""
    requests: int = 32
    """The requests that are served at the same time. Others are refused."""
    streams: int = 64
    """The HTTP requests that are open at the same time, event streams among them. Others are refused."""
    sessions: int = 256
    """The MCP sessions (Mcp-Session-Id) that are open at the same time."""
    idle_s: float = 1800.0
    """The time after which an MCP session without requests is closed."""
    listeners: int = 8
    """The event streams (`subscriptions/listen`) at the same time, and the resources that a session subscribes to."""
    reports: int = 256
    """The progress and log messages of a request that wait to be sent. Others are dropped, and counted."""
    rounds: int = 8
    """How often a call may ask the client for answers."""
    answers_bytes: int = 64 * 1024
    """The size of all questions and answers of a call, as JSON."""
    answer_s: float = 300.0
    """How long a client has for an answer."""
    tasks: int = 64
    """The tasks that are kept, finished tasks among them."""
    task_s: float = 3600.0
    """How long a task is kept, from its start."""
    kept_bytes: int = 64 * MIB
    """The size of the arguments and results of tasks, that of the artifacts without a file, and that of the messages
    for streams that are resumed, each."""
    artifacts: int = 1000
    """The artifacts that clients can read. The oldest are forgotten first."""
    page: int = 200
    """The entries of one page of a list."""

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < float("inf"):
                raise UsageError(f"ServerBounds.{field.name} is not a number above zero: {value!r}.")
