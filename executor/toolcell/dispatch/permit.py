"""Decide whether a call may run: compare the tool's needs with the session's capabilities, then ask the policy."""

import logging
from collections.abc import Set
from typing import Final

from toolcell.rules.call import ToolCall
from toolcell.rules.policy import Decision, Explanation, Policy, explained
from toolcell.sessions.toolbox import WHY
from toolcell_tools.capability import Capability
from toolcell_tools.declaration import ToolDeclaration
from toolcell_tools.errors import PermissionDenied
from toolcell_tools.interrupts import pass_on
from toolcell_tools.outside_cells import ProviderTool
from toolcell_tools.session_info import SessionInfo

from .offer import CallableTool

_log = logging.getLogger("toolcell.rules.policy")
POLICY_FAILED: Final = "the policy failed"


def lacking_grants(declaration: ToolDeclaration, session: SessionInfo, lacks: Set[Capability]) -> PermissionDenied:
    kind, missing = session.session_kind, tuple(sorted(lacks - session.grants))
    if not missing:
        return _reaching_nothing(declaration, lacks)
    handles = ", ".join(capability.value for capability in missing)
    return PermissionDenied(
        message=(
            f"The tool {declaration.name!r} needs {handles}, which this {kind.value} session does not hold. "
            "Do without it, or hand the task to the parent session."
        ),
        tier=declaration.tier,
        reason=f"a {kind.value} session holds no {handles} handle",
        missing=missing,
    )


def _reaching_nothing(declaration: ToolDeclaration, lacks: Set[Capability]) -> PermissionDenied:
    missing = tuple(sorted(lacks))
    why, cure = (" and ".join(words) for words in zip(*(WHY[capability] for capability in missing), strict=True))
    message = (
        f"The tool {declaration.name!r} cannot work in this session: {why}. Do without it. "
        f"Whoever runs the agent can {cure}."
    )
    reason = f"{', '.join(missing)} reaches nothing in this session"
    return PermissionDenied(message=message, tier=declaration.tier, reason=reason, missing=missing)


def of_provider(tool: ProviderTool) -> PermissionDenied:
    """The denial of a tool that its provider runs."""
    message = (
        f"The tool {tool.name!r} is run by its provider ({tool.provider}), not here. Pass its definition to that "
        "provider's API."
    )
    return PermissionDenied(message=message, tier=tool.tier, reason="a provider-defined tool")


def permit(policy: Policy, call: ToolCall, offer: CallableTool, session: SessionInfo) -> PermissionDenied | str:
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
        return forbidden(declaration, POLICY_FAILED)
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


def allowed_by(policy: Policy, call: ToolCall, offer: CallableTool, reason: str, session: SessionInfo) -> str:
    """What has allowed the call, for the journal: an approval for this reason, or a rule of the policy."""
    if reason:
        return f"an approval, because {reason}"
    return explained_as(policy, call, offer.declaration, session, "allow").rule


def explained_as(
    policy: Policy, call: ToolCall, declaration: ToolDeclaration, session: SessionInfo, decision: Decision
) -> Explanation:
    """The policy's explanation, or only its decision, which is this one, if the policy cannot explain it."""
    try:
        return explained(policy, call, declaration, session)
    except BaseException as error:
        pass_on(error)
        _log.exception("the policy cannot explain its decision on call %s of %s", call.id, call.tool)
        return Explanation(decision, type(policy).__name__)


def forbidden(declaration: ToolDeclaration, reason: str) -> PermissionDenied:
    """The denial of a call for this reason."""
    message = f"The tool {declaration.name!r} may not be used here: {reason}. Do without it."
    return PermissionDenied(message=message, tier=declaration.tier, reason=reason)
