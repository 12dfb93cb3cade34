"""Approval of single calls by a person or a program: what is asked, what is answered, and who answers."""

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
    """One call that waits for a yes. It is bound to these very arguments and to this version of the tool, by `digest`,
    and good for one answer until `expires_at` (Unix seconds). `preview` says what it would do, or
    shows its arguments where the tool has none; `preview_by` says whose word that is. A tool may lie: show `arguments`
    beside it. `reason` is why somebody is asked."""

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
        """`sha256:<hex>` over what an approval is bound to: tool, fingerprint, arguments, session and expiry."""
        bound = [self.id, self.tool, self.fingerprint, dict(self.arguments), self.session_id, self.expires_at]
        text = json.dumps(bound, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
        return "sha256:" + hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


@dataclass(frozen=True, slots=True)
class Approved:
    """Yes; with `arguments`, yes to these instead: they are validated, and what runs is what was approved."""

    arguments: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Denied:
    """No. The model reads `message`: say what it may do instead."""

    message: str = ""


@runtime_checkable
class Approver(Protocol):
    """Who decides. Called on the event loop; it may wait for a person, up to the request's expiry."""

    async def approve(self, request: ApprovalRequest) -> Approved | Denied: ...


class ApprovalQueue:
    """An approver for programs with a page or a prompt of their own: requests wait here until `decide` is called.

    Iterate over it for what is pending, oldest first. Each request takes one answer; a late or second one is a
    KeyError. Use it from the event loop's thread.
    """

    def __init__(self) -> None:
        self._pending: dict[str, tuple[ApprovalRequest, anyio.Event]] = {}
        self._answers: dict[str, Approved | Denied] = {}

    def __iter__(self) -> Iterator[ApprovalRequest]:
        return iter([request for request, _ in self._pending.values()])

    def __len__(self) -> int:
        return len(self._pending)

    async def approve(self, request: ApprovalRequest) -> Approved | Denied:
        """Wait for the answer. The pipeline ends the wait at the request's expiry."""
        answered = anyio.Event()
        self._pending[request.id] = (request, answered)
        try:
            await answered.wait()
            return self._answers.pop(request.id)
        finally:
            self._pending.pop(request.id, None)
            self._answers.pop(request.id, None)

    def decide(self, request_id: str, answer: Approved | Denied) -> None:
        """Answer the request of this id; KeyError where it is not pending (any more)."""
        _request, answered = self._pending.pop(request_id)
        self._answers[request_id] = answer
        answered.set()
