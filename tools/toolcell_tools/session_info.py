"""SessionInfo: read-only facts about the session that a toolset, a hook or a policy is asked about."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .capability import Capability, SessionKind

__all__ = ["SessionInfo"]


@dataclass(frozen=True, slots=True)
class SessionInfo:
    """A session as its supervisor knows it. `channel` is the name of its channel, or "". `values` is the live dict that
    hooks and tools share; the other attributes do not change.

    `user_id` is the person for whom the agent works, and `invocation_id` the turn of the conversation that makes the
    calls, both as the program names them, or "". `context` is the summary that the parent gave to the session.

    `ancestors` are the agent ids above `agent_id`, from the root of the tree. `line` has all, with `agent_id` last. A
    policy that denies an agent something must look at the line, because `agent_id` may be that of a helper.
    """

    session_id: str
    agent_id: str
    session_kind: SessionKind
    parent_id: str | None
    grants: frozenset[Capability]
    workspace_root: Path
    channel: str = ""
    config: Mapping[str, Any] = field(default_factory=dict[str, Any])
    values: dict[str, Any] = field(default_factory=dict[str, Any], compare=False)
    user_id: str = ""
    invocation_id: str = ""
    context: str = ""
    ancestors: tuple[str, ...] = ()

    @property
    def line(self) -> tuple[str, ...]:
        """The agent ids from the root of the tree to `agent_id`. A session that has its parent's agent adds
        none."""
        return (*self.ancestors, self.agent_id)
