"""Tell what is decided about a call, and by which rule, without making the call."""

import logging
from dataclasses import replace

from toolcell.errors import UsageError
from toolcell.rules.call import ToolCall
from toolcell.rules.policy import Explanation
from toolcell_tools.errors import ErrorBase
from toolcell_tools.interrupts import pass_on

from .permit import POLICY_FAILED, explained_as, lacking_grants
from .resolve import resolved
from .route import Routes
from .services import Caller, Services

_log = logging.getLogger("toolcell.rules.policy")


async def explained_call(services: Services, caller: Caller, routes: Routes, call: ToolCall) -> Explanation:
    """What is decided about a call, by which rule, without making it. Raises UsageError if there is no such call."""
    tool = caller.toolbox.found(call.tool) or await resolved(services, caller, call.tool)
    if isinstance(tool, ErrorBase):
        raise UsageError(tool.message)
    offer = routes.offer(tool)
    valid = offer.checks.arguments.check(call.arguments)
    if isinstance(valid, ErrorBase):
        raise UsageError(valid.message)
    call = call._replace(arguments=valid.arguments)
    declaration, info = offer.declaration, caller.data.info
    if offer.lacks:
        return Explanation("deny", lacking_grants(declaration, info, offer.lacks).reason)
    try:
        decision = services.policy.decide(call, declaration, info)
        asks = declaration.requires_approval and tool.requires_approval_for(call.arguments)
    except BaseException as error:
        pass_on(error)
        _log.exception("the policy failed on a call of %s that is explained", call.tool)
        return Explanation("deny", POLICY_FAILED)
    found = explained_as(services.policy, call, declaration, info, decision)
    found = replace(found, file=services.rule_files.get(found.rule, ""))
    if asks and found.decision == "allow":
        return Explanation("ask", f"the tool {tool.name!r} asks for approval", ((found.rule, "allow"), *found.others))
    return found
