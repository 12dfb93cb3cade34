"""Policies decide whether a call runs, needs approval, or is denied, by its tool, its session and its arguments."""

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from difflib import get_close_matches
from enum import StrEnum
from typing import Any, Literal, Protocol, cast

from toolcell.errors import UsageError
from toolcell.rules.call import ToolCall
from toolcell.rules.patterns import check_pattern, matches
from toolcell_tools.capability import PermissionTier, SessionKind
from toolcell_tools.declaration import ToolDeclaration
from toolcell_tools.interrupts import pass_on
from toolcell_tools.preview import printable, shortened
from toolcell_tools.session_info import SessionInfo

__all__ = ["Decision", "Explanation", "Policy", "PolicyRule", "StricterPolicy", "TierPolicy"]

Decision = Literal["allow", "ask", "deny"]
PROJECT = "project policy"
"""The name of a project's denials in explanations."""
_DECISIONS = ("allow", "ask", "deny")
_log = logging.getLogger("toolcell.policy")


class Policy(Protocol):
    """Decides about one call. It runs on the event loop for every call, so it must be quick and without side effects.

    A denial for an agent must hold for its helpers too: decide it by `session.line`, not by `session.agent_id`. The
    decision is additional to the grants: "allow" gives no capability that the session does not hold. A policy may
    also have `offers(declaration, session) -> bool`: a tool for which it returns False is not offered to a model. With
    `explain(call, declaration, session) -> Explanation`, denials name the rule.
    """

    def decide(self, call: ToolCall, declaration: ToolDeclaration, session: SessionInfo) -> Decision: ...


@dataclass(frozen=True, slots=True)
class Explanation:
    """A decision, and the rule that made it: its place in the policy, such as `policy.tools.shell`. `others` are the
    rules that apply too and are not stricter, each with its decision. `file` is the settings file with the rule, if
    `session.explain` found it in one. A model does not see it."""

    decision: Decision
    rule: str
    others: tuple[tuple[str, Decision], ...] = ()
    file: str = ""


@dataclass(frozen=True, slots=True)
class PolicyRule:
    """A decision about the calls that fit every condition given.

    `agent` is the session's agent id. A rule that denies or asks also fits the agents below that agent; a rule that
    allows does not. `arguments` has a shell glob for each argument that it names, such as `{"path": "src/*"}`
    (`toolcell.rules.patterns`). A text that is too long to compare fits a rule that denies or asks, and fits no rule
    that allows. `name` is for explanations.
    """

    decision: Decision
    _: KW_ONLY
    tool: str = ""
    tier: PermissionTier | None = None
    kind: SessionKind | None = None
    agent: str = ""
    channel: str = ""
    arguments: Mapping[str, str] = field(default_factory=dict[str, str])
    name: str = ""

    def __post_init__(self) -> None:
        _check_decision("PolicyRule", self.decision)
        for name in ("tool", "agent", "channel", "name"):
            text: object = getattr(self, name)
            if not isinstance(text, str):
                raise UsageError(f"PolicyRule: {name} is not text: {text!r}. Write {name}='…'.")
        check_pattern("PolicyRule", self.arguments)
        for name, known in (("tier", PermissionTier), ("kind", SessionKind)):
            given: str | None = getattr(self, name)
            if given is not None:
                object.__setattr__(self, name, _member(known, f"PolicyRule: there is no {name}", given))

    def concerns(self, declaration: ToolDeclaration, session: SessionInfo) -> bool:
        """Whether some call of this tool in this session fits."""
        return (
            self.tool in ("", declaration.name)
            and self.tier in (None, declaration.tier)
            and self.kind in (None, session.session_kind)
            and (self.is_of(session) or (self.decision != "allow" and self.agent in session.line))
            and self.channel in ("", session.channel)
        )

    def is_of(self, session: SessionInfo) -> bool:
        """Whether the rule is for the session's own agent, and not only for an agent above it."""
        return self.agent in ("", session.agent_id)

    def fits(self, call: ToolCall, declaration: ToolDeclaration, session: SessionInfo) -> bool:
        """Whether this call fits."""
        if not self.concerns(declaration, session):
            return False
        return not self.arguments or matches(self.arguments, call.arguments, in_doubt=self.decision != "allow")


@dataclass(frozen=True, slots=True, kw_only=True)
class TierPolicy:
    """A decision for each permission tier, with exceptions; ADR-0004's by default.

    `tools` decides by the tool's name, in place of the tier. `rules` decide by more than that: of the rules that fit a
    call, the strictest, in place of the tier and of `tools`. But no rule lifts a "deny" in `tools`, and a rule for an
    agent above the session's lifts nothing. `kinds`, `agents` and `channels` hold other policies for a session kind, an
    agent id or the name of the session's channel. A policy of `agents` also holds for the agents below that agent. Of
    these policies and this one, the strictest decision wins.
    """

    read_only: Decision = "allow"
    workspace: Decision = "allow"
    system: Decision = "allow"
    elevated: Decision = "ask"
    tools: Mapping[str, Decision] = field(default_factory=dict[str, Decision])
    rules: Sequence[PolicyRule] = ()
    kinds: Mapping[SessionKind, "TierPolicy"] = field(default_factory=dict[SessionKind, "TierPolicy"])
    agents: Mapping[str, "TierPolicy"] = field(default_factory=dict[str, "TierPolicy"])
    channels: Mapping[str, "TierPolicy"] = field(default_factory=dict[str, "TierPolicy"])

    def __post_init__(self) -> None:
        for name in ("tools", "kinds", "agents", "channels"):
            self._check_rules(name, getattr(self, name))
        for value in (self.read_only, self.workspace, self.system, self.elevated, *self.tools.values()):
            _check_decision("TierPolicy", value)
        given: object = self.rules
        if not isinstance(given, (list, tuple)) or not all(isinstance(each, PolicyRule) for each in self.rules):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise UsageError(
                f"TierPolicy: rules is no list of PolicyRule: {self.rules!r}. Write rules=[PolicyRule(…)]."
            )

    def _check_rules(self, name: str, rules: Any) -> None:
        if not isinstance(rules, Mapping):
            raise UsageError(f"TierPolicy: {name} is not a mapping: {rules!r}. Write {name}={{…: …}}.")
        for key, rule in cast("Mapping[object, object]", rules).items():
            if name == "kinds":
                _member(SessionKind, "TierPolicy: there is no session kind", key)
            if name != "tools" and not isinstance(rule, TierPolicy):
                raise UsageError(f"TierPolicy: {name}[{key!r}] is not a TierPolicy: {rule!r}. Write TierPolicy(…).")

    @property
    def named_tools(self) -> frozenset[str]:
        """The tools that this policy names, including those in the policies inside it."""
        within = (*self.kinds.values(), *self.agents.values(), *self.channels.values())
        own = frozenset(self.tools).union(rule.tool for rule in self.rules if rule.tool)
        return own.union(*(policy.named_tools for policy in within))

    @property
    def all_rules(self) -> Iterator[PolicyRule]:
        """The rules of this policy and of the policies inside it."""
        yield from self.rules
        for policy in (*self.kinds.values(), *self.agents.values(), *self.channels.values()):
            yield from policy.all_rules

    def offers(self, declaration: ToolDeclaration, session: SessionInfo) -> bool:
        """Whether some call of the tool may run. True for a subclass with its own `decide`, which may depend on the
        call."""
        if type(self).decide is not TierPolicy.decide:
            return True
        concerned = [rule for rule in self.rules if rule.concerns(declaration, session)]
        if any(rule.decision == "deny" and not rule.arguments for rule in concerned):
            return False
        own: Decision | None = self.tools.get(declaration.name)
        decision: Decision = getattr(self, declaration.tier) if own is None else own
        of_session = [rule for rule in concerned if rule.is_of(session)]
        if decision == "deny" and (own is not None or all(rule.decision == "deny" for rule in of_session)):
            return False
        return all(policy.offers(declaration, session) for _name, _key, policy in self._within(session))

    @property
    def is_by_tier(self) -> bool:
        """Whether the tier alone decides."""
        return not (self.tools or self.rules or self.kinds or self.agents or self.channels)

    def decide(self, call: ToolCall, declaration: ToolDeclaration, session: SessionInfo) -> Decision:
        if not (self.tools or self.rules or self.kinds or self.agents or self.channels):  # `is_by_tier`
            of_tier: Decision = getattr(self, declaration.tier)  # each tier has a field of its name
            return of_tier
        found: list[Decision] = [decision for _place, decision in self._own(call, declaration, session)]
        if self.kinds or self.agents or self.channels:
            for _name, _key, policy in self._within(session):
                found.append(policy.decide(call, declaration, session))
        return max(found, key=_DECISIONS.index) if len(found) > 1 else found[0]

    def explain(
        self, call: ToolCall, declaration: ToolDeclaration | None = None, session: SessionInfo | None = None
    ) -> Explanation:
        """The decision about this call, and the rule that makes it. The declaration and the session may be those of the
        call, as in a hook. Raises UsageError if they are missing there too."""
        return _explained(self.applied(call, *_parties(call, declaration, session), "policy"))

    def applied(
        self, call: ToolCall, declaration: ToolDeclaration, session: SessionInfo, name: str
    ) -> list[tuple[str, Decision]]:
        """The rules that apply to this call, each with its decision. `name` is the policy's own name. A subclass with
        its own `decide` is one rule."""
        if type(self).decide is not TierPolicy.decide:
            return [(f"{name}: {type(self).__name__}.decide", self.decide(call, declaration, session))]
        found: list[tuple[str, Decision]] = []
        for place, decision in self._own(call, declaration, session):
            found.append((self._name_of(name, place), decision))
        for inside, key, policy in self._within(session):
            found += policy.applied(call, declaration, session, f"{name}.{inside}.{key}")
        return found

    def listed(self, name: str = "policy") -> Iterator[tuple[str, Decision | PolicyRule]]:
        """All that this policy says, by the names that explanations have."""
        for tier in PermissionTier:
            decision: Decision = getattr(self, tier)
            yield f"{name}.{tier}", decision
        for tool, decision in self.tools.items():
            yield f"{name}.tools.{tool}", decision
        for index, rule in enumerate(self.rules):
            yield self._name_of(name, index), rule
        for inside, policies in (("kinds", self.kinds), ("agents", self.agents), ("channels", self.channels)):
            for key, policy in cast("Mapping[str, TierPolicy]", policies).items():
                yield from policy.listed(f"{name}.{inside}.{key}")

    def _own(
        self, call: ToolCall, declaration: ToolDeclaration, session: SessionInfo
    ) -> list[tuple[int | str, Decision]]:
        """The decisions of this policy without the policies inside it, each with its place: the index of a rule, or a
        key."""
        found: list[tuple[int | str, Decision]] = []
        passed_down: list[tuple[int | str, Decision]] = []
        if self.rules:
            for index, rule in enumerate(self.rules):
                if rule.fits(call, declaration, session):
                    (found if rule.is_of(session) else passed_down).append((index, rule.decision))
        own: Decision | None = self.tools.get(declaration.name)
        if own is None:
            if not found:
                found.append((declaration.tier.value, getattr(self, declaration.tier)))
        elif own == "deny" or not found:
            found.append((f"tools.{declaration.name}", own))
        return found + passed_down

    def _name_of(self, policy: str, place: int | str) -> str:
        return f"{policy}.{place}" if isinstance(place, str) else f"{policy}.{rule_name(place, self.rules[place].name)}"

    def _within(self, session: SessionInfo) -> list[tuple[str, str, "TierPolicy"]]:
        """The policies inside this one that apply in a session, each with the name of its mapping and its key."""
        found: list[tuple[str, str, TierPolicy]] = []
        if self.kinds and (policy := self.kinds.get(session.session_kind)) is not None:
            found.append(("kinds", session.session_kind, policy))
        for agent in dict.fromkeys(session.line) if self.agents else ():
            if (policy := self.agents.get(agent)) is not None:
                found.append(("agents", agent, policy))
        if self.channels and (policy := self.channels.get(session.channel)) is not None:
            found.append(("channels", session.channel, policy))
        return found


@dataclass(frozen=True, slots=True)
class StricterPolicy:
    """A policy together with the denials of a project's settings, which only refuse more. The strictest wins."""

    policy: Policy
    denials: tuple[TierPolicy, ...]

    @property
    def named_tools(self) -> frozenset[str]:
        """The tools that the policy itself names. A project's file may name tools of other programs."""
        return named_tools_of(self.policy)

    def offers(self, declaration: ToolDeclaration, session: SessionInfo) -> bool:
        own = is_offered(self.policy, declaration, session)
        return own and all(each.offers(declaration, session) for each in self.denials)

    def decide(self, call: ToolCall, declaration: ToolDeclaration, session: SessionInfo) -> Decision:
        if any(each.decide(call, declaration, session) == "deny" for each in self.denials):
            return "deny"
        return self.policy.decide(call, declaration, session)

    def explain(
        self, call: ToolCall, declaration: ToolDeclaration | None = None, session: SessionInfo | None = None
    ) -> Explanation:
        """As `TierPolicy.explain`, with the project's denials."""
        declaration, session = _parties(call, declaration, session)
        own = explained(self.policy, call, declaration, session)
        found: list[tuple[str, Decision]] = [(own.rule, own.decision), *own.others]
        for each in self.denials:
            found += [rule for rule in each.applied(call, declaration, session, PROJECT) if rule[1] == "deny"]
        return _explained(found)


def _parties(
    call: ToolCall, declaration: ToolDeclaration | None, session: SessionInfo | None
) -> tuple[ToolDeclaration, SessionInfo]:
    """The declaration and the session, those of the call if they are not given. Raises UsageError if there are
    none."""
    declaration, session = declaration or call.declaration, session or call.session
    if declaration is None or session is None:
        raise UsageError(
            "The call has no declaration or no session, as it has in a hook. Pass them, or ask "
            "session.explain(name, arguments)."
        )
    return declaration, session


def explained(policy: Policy, call: ToolCall, declaration: ToolDeclaration, session: SessionInfo) -> Explanation:
    """The policy's explanation, or only its decision if it has no `explain` or explains another decision. Raises what
    the policy raises."""
    decision = policy.decide(call, declaration, session)
    explain = getattr(policy, "explain", None)
    if explain is not None:
        found: Explanation = explain(call, declaration, session)
        if found.decision == decision:
            return found
    return Explanation(decision, type(policy).__name__)


def tier_rule(policy: Policy, declaration: ToolDeclaration) -> str:
    """The name of the rule that decides all calls of the tool, if the tier alone decides; otherwise ""."""
    return f"policy.{declaration.tier}" if type(policy) is TierPolicy and policy.is_by_tier else ""


def rule_name(index: int, name: str) -> str:
    """A rule's name in explanations, such as `rules[2] 'no pushes'`."""
    return f"rules[{index}]{f' {shortened(printable(repr(name)))}' if name else ''}"


def named_tools_of(policy: Policy) -> frozenset[str]:
    """The tool names in the policy's rules; empty for a custom policy."""
    return policy.named_tools if isinstance(policy, (TierPolicy, StricterPolicy)) else frozenset()


def _explained(applied: Iterable[tuple[str, Decision]]) -> Explanation:
    found = list(applied)
    first = max(found, key=lambda rule: _DECISIONS.index(rule[1]))
    return Explanation(first[1], first[0], tuple(rule for rule in found if rule is not first))


def _check_decision(what: str, value: object) -> None:
    if value not in _DECISIONS:
        raise UsageError(f"{what} has no such decision: {value!r}. Use 'allow', 'ask' or 'deny'.")


def _member(known: type[StrEnum], what: str, given: object) -> StrEnum:
    if given not in tuple(known):
        near = get_close_matches(str(given), tuple(known), n=1)
        raise UsageError(f"{what} {given!r}.{f' Did you mean {str(near[0])!r}?' if near else ''}")
    return known(cast("str", given))


def is_offered(policy: Policy, declaration: ToolDeclaration, session: SessionInfo) -> bool:
    """Whether the tool is offered to a model. True if the policy has no `offers`, False if `offers` raises."""
    offers = getattr(policy, "offers", None)
    if offers is None:
        return True
    try:
        return bool(offers(declaration, session))
    except BaseException as error:
        pass_on(error)
        _log.exception("the policy failed on the offer of %s", declaration.name)
        return False
