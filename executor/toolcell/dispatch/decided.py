"""Tell what is decided about a call, and by which rule, without making the call."""

from dataclasses import replace

from toolcell.call import ToolCall
from toolcell.errors import UsageError
from toolcell.policy import Explanation, explained
from toolcell_tools.errors import ErrorBase

from .permit import lacking_grants
from .resolve import resolved
from .route import Routes
from .services import Caller, Services


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
    if offer.lacks:
        return Explanation("deny", lacking_grants(offer.declaration, caller.data.info, offer.lacks).reason)
    found = explained(services.policy, call, offer.declaration, caller.data.info)
    found = replace(found, file=services.rule_files.get(found.rule, ""))
    asks = offer.declaration.requires_approval and tool.requires_approval_for(call.arguments)
    if asks and found.decision == "allow":
        return Explanation("ask", f"the tool {tool.name!r} asks for approval", ((found.rule, "allow"), *found.others))
    return found
