"""Policies decide whether a call runs, needs approval, or is denied: by tier, tool, agent and channel."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any, Literal, Protocol, cast

from toolcell.call import ToolCall
from toolcell.errors import UsageError
from toolcell_tools.capability import SessionKind
from toolcell_tools.declaration import ToolDeclaration
from toolcell_tools.session_info import SessionInfo

__all__ = ["Decision", "Policy", "TierPolicy"]

Decision = Literal["allow", "ask", "deny"]
_DECISIONS = ("allow", "ask", "deny")
_log = logging.getLogger("toolcell.policy")


class Policy(Protocol):
    """Decides about one call. It runs on the event loop for every call, so it must be quick and without side effects.

    Its decision is additional to the grants: "allow" gives no capability that the session does not hold. A policy may
    also have `offers(declaration, session) -> bool`: a tool for which it returns False is not offered to a model.
    """

    def decide(self, call: ToolCall, declaration: ToolDeclaration, session: SessionInfo) -> Decision: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class TierPolicy:
    """A decision for each permission tier, with exceptions; ADR-0004's by default.

    `tools` decides by name. `kinds`, `agents` and `channels` hold other policies for a session kind, an agent id or the
    name of the session's channel. The strictest decision that applies wins. A rule in `tools` replaces that of the
    tier.
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
        for name in ("tools", "kinds", "agents", "channels"):
            self._check_rules(name, getattr(self, name))
        for value in (self.read_only, self.workspace, self.system, self.elevated, *self.tools.values()):
            if value not in _DECISIONS:
                raise UsageError(f"TierPolicy has no such decision: {value!r}. Use 'allow', 'ask' or 'deny'.")

    def _check_rules(self, name: str, rules: Any) -> None:
        if not isinstance(rules, Mapping):
            raise UsageError(f"TierPolicy: {name} is not a mapping: {rules!r}. Write {name}={{…: …}}.")
        for key, rule in cast("Mapping[object, object]", rules).items():
            if name == "kinds" and key not in tuple(SessionKind):
                near = get_close_matches(str(key), tuple(SessionKind), n=1)
                hint = f" Did you mean {str(near[0])!r}?" if near else ""
                raise UsageError(f"TierPolicy: there is no session kind {key!r}.{hint}")
            if name != "tools" and not isinstance(rule, TierPolicy):
                raise UsageError(f"TierPolicy: {name}[{key!r}] is not a TierPolicy: {rule!r}. Write TierPolicy(…).")

    @property
    def named_tools(self) -> frozenset[str]:
        """The tools that this policy names, including those in the policies inside it."""
        within = (*self.kinds.values(), *self.agents.values(), *self.channels.values())
        return frozenset(self.tools).union(*(policy.named_tools for policy in within))

    def offers(self, declaration: ToolDeclaration, session: SessionInfo) -> bool:
        """Whether some call of the tool may run. True for a subclass with its own `decide`, which may depend on the
        call."""
        if type(self).decide is not TierPolicy.decide:
            return True
        if (getattr(self, declaration.tier) if (own := self.tools.get(declaration.name)) is None else own) == "deny":
            return False
        more = (
            self.kinds.get(session.session_kind),
            self.agents.get(session.agent_id),
            self.channels.get(session.channel),
        )
        return all(policy is None or policy.offers(declaration, session) for policy in more)

    def decide(self, call: ToolCall, declaration: ToolDeclaration, session: SessionInfo) -> Decision:
        if not (self.tools or self.kinds or self.agents or self.channels):
            of_tier: Decision = getattr(self, declaration.tier)  # each tier has a field of its name
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


def is_offered(policy: Policy, declaration: ToolDeclaration, session: SessionInfo) -> bool:
    """Whether the tool is offered to a model. True if the policy has no `offers`, False if `offers` raises."""
    offers = getattr(policy, "offers", None)
    if offers is None:
        return True
    try:
        return bool(offers(declaration, session))
    except Exception:
        _log.exception("the policy failed on the offer of %s", declaration.name)
        return False
