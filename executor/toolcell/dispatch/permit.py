"""Decide whether a call may run: compare the tool's needs with the session's capabilities, then ask the policy.

`sessions.grants.grants_for` is the only function that computes grants. `lacking` and `granted` call it for a tool.
"""

import logging
from typing import Any, Final

from toolcell.rules.call import ToolCall
from toolcell.rules.policy import Decision, Explanation, Policy, explained
from toolcell.sessions.grants import grants_for
from toolcell.sessions.toolbox import out_of_reach
from toolcell_tools.capability import Capability
from toolcell_tools.declaration import ToolDeclaration
from toolcell_tools.definition import Tool
from toolcell_tools.errors import PermissionDenied
from toolcell_tools.interrupts import pass_on
from toolcell_tools.session_info import SessionInfo

from .call_errors import forbidden, lacking_grants
from .services import Caller, Offer

_log = logging.getLogger("toolcell.policy")
_POLICY_FAILED: Final = "the policy failed"


def lacking(caller: Caller, tool: Tool[..., Any]) -> frozenset[Capability]:
    """The needs of the tool that the session does not hold, or that reach nothing in it."""
    return grants_for(caller.grants, tool.needs, tool.uses).missing | out_of_reach(tool, caller.profile)


def granted(caller: Caller, tool: Tool[..., Any], *, changes: bool) -> frozenset[Capability]:
    """The capabilities of a call of the tool, without those that reach nothing. `changes`: it may change something."""
    given = grants_for(caller.grants, tool.needs, tool.uses, mutates=changes).given
    useless = out_of_reach(tool, caller.profile)
    return given - useless if useless else given


def mutates(call: ToolCall, tool: Tool[..., Any]) -> bool | PermissionDenied:
    """Whether the call may change anything, by the tool's own rule. If the rule raises, the call is denied."""
    try:
        return tool.mutates_for(call.arguments)
    except BaseException as error:
        pass_on(error)
        _log.exception("mutates of %s failed on call %s", call.tool, call.id)
        return forbidden(tool.declaration, "its `mutates` rule failed")


def permit(policy: Policy, call: ToolCall, offer: Offer, session: SessionInfo) -> PermissionDenied | str:
    """The reason for an approval, "" if none is needed, or the denial. If the policy raises, the call is denied."""
    declaration, tool = offer.declaration, offer.tool
    if offer.lacks:
        return lacking_grants(declaration, session, offer.lacks)
    try:
        decision = policy.decide(call, declaration, session)
        needs_approval = declaration.requires_approval and tool.requires_approval_for(call.arguments)
    except BaseException as error:
        pass_on(error)
        _log.exception("the policy failed on call %s of %s", call.id, call.tool)
        return forbidden(declaration, _POLICY_FAILED)
    if decision == "ask":
        why = f"the policy asks for approval of {declaration.tier.value} calls of {tool.name!r}"
        return why + _by_rule(policy, call, declaration, session)
    if decision != "allow":
        return forbidden(declaration, "the policy denies it" + _by_rule(policy, call, declaration, session))
    return f"the tool {tool.name!r} asks for approval" if needs_approval else ""


def _by_rule(policy: Policy, call: ToolCall, declaration: ToolDeclaration, session: SessionInfo) -> str:
    """The rule that decides, in brackets, if the policy can tell."""
    if not hasattr(policy, "explain"):
        return ""
    try:
        return f" ({explained(policy, call, declaration, session).rule})"
    except BaseException as error:
        pass_on(error)
        _log.exception("the policy cannot explain its decision on call %s of %s", call.id, call.tool)
        return ""


def allowed_by(policy: Policy, call: ToolCall, offer: Offer, reason: str, session: SessionInfo) -> str:
    """What has allowed the call, for the journal: an approval for this reason, or a rule of the policy."""
    if reason:
        return f"an approval, because {reason}"
    return _explained_as(policy, call, offer.declaration, session, "allow").rule


def explain(policy: Policy, call: ToolCall, offer: Offer, session: SessionInfo) -> Explanation:
    """What `permit` decides about the call, and by which rule."""
    declaration, tool = offer.declaration, offer.tool
    if offer.lacks:
        return Explanation("deny", lacking_grants(declaration, session, offer.lacks).reason)
    try:
        decision = policy.decide(call, declaration, session)
        needs_approval = declaration.requires_approval and tool.requires_approval_for(call.arguments)
    except BaseException as error:
        pass_on(error)
        _log.exception("the policy failed on a call of %s that is explained", call.tool)
        return Explanation("deny", _POLICY_FAILED)
    found = _explained_as(policy, call, declaration, session, decision)
    if needs_approval and found.decision == "allow":
        return Explanation("ask", f"the tool {tool.name!r} asks for approval", ((found.rule, "allow"), *found.others))
    return found


def _explained_as(
    policy: Policy, call: ToolCall, declaration: ToolDeclaration, session: SessionInfo, decision: Decision
) -> Explanation:
    """The policy's explanation; `decision` alone if it has none."""
    try:
        return explained(policy, call, declaration, session)
    except BaseException as error:
        pass_on(error)
        _log.exception("the policy cannot explain its decision on call %s of %s", call.id, call.tool)
        return Explanation(decision, type(policy).__name__)
