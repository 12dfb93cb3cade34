"""The request for approval of one call, the answers, and the protocol of an approver."""

import hashlib
import json
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, runtime_checkable

from toolcell_tools.capability import PermissionTier, SessionKind
from toolcell_tools.preview import Preview

__all__ = ["ApprovalRequest", "Approved", "Approver", "Denied", "canonical"]


def canonical(value: object) -> str:
    """JSON with sorted keys, without spaces and in ASCII: equal for equal data. Raises TypeError for other data."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovalRequest:
    """One call that waits for approval. `digest` binds the request to these arguments and to this version of the tool.
    It takes one answer until `expires_at` (Unix seconds). `preview` describes the effect of the call, or shows its
    arguments if the tool has no preview; `preview_by` names the author of the preview. A preview by the tool may be
    false, so show `arguments` beside it. `reason` says why approval is needed.

    If it `asks` for a confirmation, the tool has called `ctx.confirm(hint, payload)`, the preview shows both, and no
    call waits. `given` are the confirmations of the call before this one. `approved` says that the call was approved,
    too, before it asked. `agent_id` is the agent that calls, and `ancestors` are the agents above it, from the root.
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
    asks: Literal["approval", "confirmation"] = "approval"
    hint: str = ""
    payload: Any = None
    given: tuple[Mapping[str, Any], ...] = ()
    approved: bool = False
    ancestors: tuple[str, ...] = ()
    created_at: float = field(default_factory=time.time)
    id: str = field(default_factory=lambda: uuid.uuid4().hex)

    @property
    def line(self) -> tuple[str, ...]:
        """The agent ids from the root of the session's tree to `agent_id`."""
        return (*self.ancestors, self.agent_id)

    @property
    def sender(self) -> str:
        """Who asks, for people: the line and the session."""
        return "/".join((*self.line, self.session_id))

    @property
    def digest(self) -> str:
        """`sha256:<hex>` over the id, tool, fingerprint, arguments, session and expiry. An approval holds for these
        only.
        """
        bound: list[Any] = [self.id, self.tool, self.fingerprint, dict(self.arguments), self.session_id]
        bound.append(self.expires_at)
        if self.asks == "confirmation":
            bound += [self.hint, self.payload, list(self.given), self.approved]
        text = json.dumps(bound, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
        return "sha256:" + hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


@dataclass(frozen=True, slots=True)
class Approved:
    """The call may run. With `arguments`, it runs with these arguments instead, after they are validated. `payload` is
    JSON data for a tool that asked for a confirmation."""

    arguments: Mapping[str, Any] | None = None
    payload: Any = None


@dataclass(frozen=True, slots=True)
class Denied:
    """The call may not run. The model reads `message`, which should say what it may do instead."""

    message: str = ""


@runtime_checkable
class Approver(Protocol):
    """Decides on requests. Called on the event loop. It may wait for a person until the request expires."""

    async def approve(self, request: ApprovalRequest) -> Approved | Denied: ...


def to_data(request: ApprovalRequest) -> dict[str, Any]:
    """The request as JSON data."""
    return {
        **{name: getattr(request, name) for name in _TEXTS},
        "arguments": dict(request.arguments),
        "preview": request.preview.to_dict(),
        "tier": str(request.tier),
        "session_kind": str(request.session_kind),
        "given": list(request.given),
        "ancestors": list(request.ancestors),
    }


def from_data(data: Mapping[str, Any]) -> ApprovalRequest:
    """The request of what `to_data` made. Data of an earlier version names no ancestors: it is of a root's agent."""
    return ApprovalRequest(
        **{name: data[name] for name in _TEXTS if name in data},  # an earlier version had fewer
        arguments=data["arguments"],
        preview=Preview.from_dict(data["preview"]),
        tier=PermissionTier(data["tier"]),
        session_kind=SessionKind(data["session_kind"]),
        given=tuple(data.get("given", ())),
        ancestors=tuple(data.get("ancestors", ())),
    )


_TEXTS = (
    "tool", "version", "fingerprint", "preview_by", "reason", "call_id", "session_id", "agent_id", "expires_at",
    "created_at", "id", "asks", "hint", "payload", "approved",
)  # fmt: skip
"""The fields that are JSON data as they are."""
