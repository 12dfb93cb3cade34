"""Policies: may this call run, must somebody be asked, or is it refused? Decided by tier, tool, agent and channel."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, Protocol

from toolcell.call import ToolCall
from toolcell.errors import UsageError
from toolcell_tools.capability import SessionKind
from toolcell_tools.declaration import ToolDeclaration
from toolcell_tools.session_info import SessionInfo

__all__ = ["Decision", "Policy", "TierPolicy"]

Decision = Literal["allow", "ask", "deny"]
_DECISIONS = ("allow", "ask", "deny")


class Policy(Protocol):
    """Decides about one call. Quick and without side effects: it runs on the event loop for every call.

    Its word comes on top of what is granted: "allow" gives no capability that the session does not hold.
    """

    def decide(self, call: ToolCall, declaration: ToolDeclaration, session: SessionInfo) -> Decision: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class TierPolicy:
    """A decision for each permission tier, with exceptions; ADR-0004's by default.

    `tools` decides by name, `kinds`, `agents` and `channels` hold other policies for a session kind, an agent id or the
    name of the session's channel. The strictest decision that applies wins, save that a name in `tools` stands in the
    place of the tier.
    """

    read_only: Decision = "allow"
    workspace: Decision = "allow"
    system: Decision = "allow"
    elevated: Decision = "ask"
    tools: Mapping[str, Decision] = field(default_factory=dict[str, Decision])
    kinds: Mapping[SessionKind, "TierPolicy"] = field(default_factory=dict[SessionKind, "TierPolicy"])
    agents: Mapping[str, "TierPolicy"] = field(default_factory=dict[str, "TierPolicy"])
    channels: Mapping[str, "TierPolicy"] = field(default_factory=dict[str, "TierPolicy"])

    def __post_init__(self) -> None:
        for value in (self.read_only, self.workspace, self.system, self.elevated, *self.tools.values()):
            if value not in _DECISIONS:
                raise UsageError(f"TierPolicy has no such decision: {value!r}. Use 'allow', 'ask' or 'deny'.")

    def decide(self, call: ToolCall, declaration: ToolDeclaration, session: SessionInfo) -> Decision:
        if not (self.tools or self.kinds or self.agents or self.channels):
            of_tier: Decision = getattr(self, declaration.tier)  # a field for each tier, by its name
            return of_tier
        own = self.tools.get(declaration.name)
        decisions: list[Decision] = [own if own is not None else getattr(self, declaration.tier)]
        for more in (
            self.kinds.get(session.session_kind),
            self.agents.get(session.agent_id),
            self.channels.get(session.channel),
        ):
            if more is not None:
                decisions.append(more.decide(call, declaration, session))
        return max(decisions, key=_DECISIONS.index)
