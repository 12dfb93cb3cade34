"""The states of a session, and what a session leaves to its parent: its result, and reports of failed calls."""

from enum import StrEnum

from pydantic import BaseModel, ConfigDict

from toolcell.rules.limits import SessionUsage
from toolcell.workplaces.workspace_return import WorkspaceReturn
from toolcell_tools.artifact import Artifact
from toolcell_tools.errors import ToolError

__all__ = ["CallReport", "SessionResult", "SessionState"]


class SessionState(StrEnum):
    """The state of a session (ADR-0002). The last three are final."""

    ACTIVE = "active"
    SUSPENDED = "suspended"
    COMPLETED = "completed"
    FAILED = "failed"
    EXPIRED = "expired"

    @property
    def is_final(self) -> bool:
        return self not in (SessionState.ACTIVE, SessionState.SUSPENDED)


class _FromSession(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    session_id: str
    agent_id: str


class CallReport(_FromSession):
    """A call that failed for good: its error is not retryable, or its retries are used up. `at` is in Unix seconds."""

    call_id: str
    tool: str
    error: ToolError
    at: float


class SessionResult(_FromSession):
    """What a session that has ended leaves to its parent.

    `outcome` is a final state, and `summary` the text that the program gave to `Session.close`. `artifacts` are the
    last 1,000 paths that its calls and those of the sessions below it made or changed, without data and diffs.
    `usage` counts all these calls. `errors` are its own calls that failed for good, the last 100.
    `returned` is what came back from a workspace that was sent to a node of a cluster, None if none was.
    """

    outcome: SessionState
    summary: str = ""
    artifacts: tuple[Artifact, ...] = ()
    usage: SessionUsage = SessionUsage()
    errors: tuple[CallReport, ...] = ()
    returned: WorkspaceReturn | None = None
