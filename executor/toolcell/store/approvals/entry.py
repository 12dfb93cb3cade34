"""What a store of approvals shows: a request with its answer, and an approval that holds for more calls than one."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from toolcell.rules.patterns import matches
from toolcell.store.approvals.request import ApprovalRequest

__all__ = ["ApprovalEntry", "ApprovalState", "StandingApproval"]

ApprovalState = Literal["pending", "approved", "denied", "used", "withdrawn", "expired", "invalid"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovalEntry:
    """One request and what became of it.

    `state` is "pending", "approved" or "denied" (answered, and no call has had the answer yet), "used" (a call has had
    it), "withdrawn", "expired", or "invalid" (the row does not fit its signature). `request` is None if the row is
    invalid. `arguments` replaces the request's if the answer has other ones. `payload` is that of the answer to a
    confirmation. `message` is for the model. `answered_by` names who answered, in words of their own.
    """

    id: str
    state: ApprovalState
    request: ApprovalRequest | None
    approved: bool = False
    arguments: Mapping[str, Any] | None = None
    payload: Any = None
    message: str = ""
    answered_by: str = ""
    answered_at: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StandingApproval:
    """An approval of later calls of one tool, in this version, by one agent, until `expires_at` (Unix seconds).

    The agent is `agent_id` below `ancestors`: an approval for a helper of one agent holds for no other agent's helper.
    With `session_id`, it holds in that session for all arguments. Without, it holds in every session of the agent for
    arguments that match `pattern`: a shell glob for each argument that it names, such as `{"path": "src/*"}`.
    """

    id: str
    tool: str
    fingerprint: str
    agent_id: str
    session_id: str
    pattern: Mapping[str, str]
    expires_at: float
    approved_by: str = ""
    ancestors: tuple[str, ...] = ()

    @property
    def line(self) -> tuple[str, ...]:
        """The agent ids from the root of the session's tree to `agent_id`."""
        return (*self.ancestors, self.agent_id)

    def covers(self, request: ApprovalRequest) -> bool:
        """Whether the call of the request is approved, if the time is not over."""
        return (
            (self.tool, self.fingerprint, self.line) == (request.tool, request.fingerprint, request.line)
            and self.session_id in ("", request.session_id)
            and matches(self.pattern, request.arguments, in_doubt=False)
        )
