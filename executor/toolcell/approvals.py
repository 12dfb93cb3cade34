"""Approval of single calls by a person or a program: the request, the answer, and the approver."""

import hashlib
import json
import time
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, runtime_checkable

import anyio

from toolcell_tools.capability import PermissionTier, SessionKind
from toolcell_tools.preview import Preview

__all__ = ["ApprovalQueue", "ApprovalRequest", "Approved", "Approver", "Denied"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovalRequest:
    """One call that waits for approval. `digest` binds the request to these arguments and to this version of the tool.
    It takes one answer until `expires_at` (Unix seconds). `preview` describes the effect of the call, or shows its
    arguments if the tool has no preview; `preview_by` names the author of the preview. A preview by the tool may be
    false, so show `arguments` beside it. `reason` says why approval is needed.
    """

    tool: str
    version: str
    fingerprint: str
    arguments: Mapping[str, Any]
    preview: Preview
    preview_by: Literal["tool", "supervisor"] = "supervisor"
    tier: PermissionTier
    reason: str
    call_id: str
    session_id: str
    agent_id: str
    session_kind: SessionKind
    expires_at: float
    created_at: float = field(default_factory=time.time)
    id: str = field(default_factory=lambda: uuid.uuid4().hex)

    @property
    def digest(self) -> str:
        """`sha256:<hex>` over the id, tool, fingerprint, arguments, session and expiry. An approval holds for these
        only.
        """
        bound = [self.id, self.tool, self.fingerprint, dict(self.arguments), self.session_id, self.expires_at]
        text = json.dumps(bound, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
        return "sha256:" + hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


@dataclass(frozen=True, slots=True)
class Approved:
    """The call may run. With `arguments`, it runs with these arguments instead, after they are validated."""

    arguments: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Denied:
    """The call may not run. The model reads `message`, which should say what it may do instead."""

    message: str = ""


@runtime_checkable
class Approver(Protocol):
    """Decides on requests. Called on the event loop. It may wait for a person until the request expires."""

    async def approve(self, request: ApprovalRequest) -> Approved | Denied: ...


class ApprovalQueue:
    """An approver for programs with their own page or prompt. Each request waits here until `decide` is called.

    Iterating yields the pending requests, the oldest first. Each request takes one answer; a late or second answer
    raises KeyError. Use the queue on the event loop's thread.
    """

    def __init__(self) -> None:
        self._pending: dict[str, tuple[ApprovalRequest, anyio.Event]] = {}
        self._answers: dict[str, Approved | Denied] = {}

    def __iter__(self) -> Iterator[ApprovalRequest]:
        return iter([request for request, _ in self._pending.values()])

    def __len__(self) -> int:
        return len(self._pending)

    async def approve(self, request: ApprovalRequest) -> Approved | Denied:
        """Wait for the answer. The pipeline ends the wait when the request expires."""
        answered = anyio.Event()
        self._pending[request.id] = (request, answered)
        try:
            await answered.wait()
            return self._answers.pop(request.id)
        finally:
            self._pending.pop(request.id, None)
            self._answers.pop(request.id, None)

    def decide(self, request_id: str, answer: Approved | Denied) -> None:
        """Answer the request with this id. Raises KeyError if it is not pending."""
        _request, answered = self._pending.pop(request_id)
        self._answers[request_id] = answer
        answered.set()
