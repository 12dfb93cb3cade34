"""Whether a call may run: the session's capabilities first, then the policy, whose failure is a denial."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import pytest

from toolcell import (
    Capability,
    Explanation,
    PermissionDenied,
    PermissionTier,
    SessionInfo,
    SessionKind,
    TierPolicy,
    ToolCall,
    ToolDeclaration,
    provider_tool,
    tool,
)
from toolcell.dispatch.call_errors import of_provider
from toolcell.dispatch.permit import allowed_by, permit
from toolcell.dispatch.services import Offer
from toolcell.rules.policy import Decision, Policy
from toolcell_tools.definition import Tool


def pay(amount: int) -> str:
    """Pay."""
    return f"paid {amount}"


def offer(tool: Tool[..., Any], *lacks: Capability) -> Offer:
    unused = cast("Any", None)
    return Offer(tool, tool.declaration, unused, frozenset(lacks), unused)


def info(*grants: Capability) -> SessionInfo:
    return SessionInfo("s", "agent", SessionKind.WORKER, None, frozenset(grants), Path("/w"))


def decided(policy: Policy, of: Offer, arguments: Mapping[str, Any] | None = None) -> PermissionDenied | str:
    return permit(policy, ToolCall("c", of.tool.name, arguments or {"amount": 5}), of, info(Capability.NET))


class Says:
    """A policy without explanations."""

    def __init__(self, decision: object) -> None:
        self._decision = decision

    def decide(self, call: ToolCall, declaration: ToolDeclaration, session: SessionInfo) -> Decision:
        if isinstance(self._decision, Exception):
            raise self._decision
        return cast("Decision", self._decision)


class Mute(Says):
    """A policy whose explanations fail."""

    def explain(self, call: ToolCall, declaration: ToolDeclaration, session: SessionInfo) -> Explanation:
        raise RuntimeError("no words")


def test_a_capability_that_the_session_does_not_hold_denies_before_the_policy_is_asked() -> None:
    denied = decided(Says(RuntimeError("asked")), offer(tool(pay, needs={"write"}), Capability.WRITE))
    assert isinstance(denied, PermissionDenied)
    assert (denied.missing, denied.reason) == ((Capability.WRITE,), "a worker session holds no write handle")


def test_a_capability_that_reaches_nothing_is_told_apart_with_what_the_operator_can_do() -> None:
    denied = decided(Says("allow"), offer(tool(pay, needs={"net"}), Capability.NET))
    assert isinstance(denied, PermissionDenied) and denied.reason == "net reaches nothing in this session"
    assert "allow hosts in the profile's network" in denied.message


@pytest.mark.parametrize("decision", ["deny", "", None, "Allow", True], ids=repr)
def test_whatever_is_not_allow_or_ask_is_a_denial(decision: object) -> None:
    denied = decided(Says(decision), offer(tool(pay)))
    assert isinstance(denied, PermissionDenied) and denied.reason == "the policy denies it"


def test_a_policy_that_raises_denies() -> None:
    denied = decided(Says(KeyError("amount")), offer(tool(pay)))
    assert isinstance(denied, PermissionDenied) and denied.reason == "the policy failed"
    assert "amount" not in denied.message


def test_a_condition_of_the_tool_that_raises_denies() -> None:
    asking = tool(pay, requires_approval=lambda arguments: bool(arguments["missing"]))
    denied = decided(Says("allow"), offer(asking))
    assert isinstance(denied, PermissionDenied) and denied.reason == "the policy failed"


def test_a_tool_may_ask_for_an_approval_that_the_policy_does_not_want_and_waives_none() -> None:
    large = tool(pay, requires_approval=lambda arguments: bool(arguments["amount"] > 100))
    assert decided(Says("allow"), offer(large), {"amount": 5}) == ""
    assert decided(Says("allow"), offer(large), {"amount": 500}) == "the tool 'pay' asks for approval"
    assert (
        decided(Says("ask"), offer(large), {"amount": 5}) == "the policy asks for approval of read_only calls of 'pay'"
    )


def test_the_rule_is_named_if_the_policy_can_tell_and_its_silence_changes_nothing() -> None:
    elevated = offer(tool(pay, tier=PermissionTier.ELEVATED))
    assert decided(TierPolicy(), elevated) == (
        "the policy asks for approval of elevated calls of 'pay' (policy.elevated)"
    )
    assert decided(Mute("ask"), elevated) == "the policy asks for approval of elevated calls of 'pay'"
    denied = decided(Mute("deny"), elevated)
    assert isinstance(denied, PermissionDenied) and denied.reason == "the policy denies it"


@pytest.mark.parametrize(
    ("policy", "reason", "words"),
    [
        (TierPolicy(), "", "policy.read_only"),
        (Says("allow"), "", "Says"),
        (Mute("allow"), "", "Mute"),
        (TierPolicy(), "it is large", "an approval, because it is large"),
    ],
)
def test_the_journal_gets_what_has_allowed_a_call(policy: Policy, reason: str, words: str) -> None:
    assert allowed_by(policy, ToolCall("c", "pay", {}), offer(tool(pay)), reason, info()) == words


def test_a_tool_of_a_provider_is_denied_with_who_runs_it() -> None:
    denied = of_provider(provider_tool("web_search", provider="acme", definition={"type": "web_search"}))
    assert "is run by its provider (acme)" in denied.message and denied.reason == "a provider-defined tool"
