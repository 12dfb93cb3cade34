"""Ask for approval of a call before it is made, for programs whose framework asks the person."""

from collections.abc import Mapping
from typing import Any

from toolcell.rules.call import ToolCall
from toolcell.store.approvals import ApprovalRequest
from toolcell_tools.errors import ErrorBase

from . import approve
from .context import CallContext
from .execute import UNROUTABLE
from .permit import permit
from .resolve import resolved


async def asked_ahead(context: CallContext, name: str, arguments: Mapping[str, Any]) -> ApprovalRequest | None:
    """Ask for approval of this call, and do not make it. Returns the pending request. Hooks are not called.

    The same call, made before the request expires, takes the answer. None if the call needs no approval, has it
    already, asks the session's own approver, or would be refused: then the result of the call has the error.
    """
    services, caller, routes = context.services, context.caller, context.routes
    if caller.approver is not None:
        return None
    tool = caller.toolbox.found(name) or await resolved(services, caller, name)
    if isinstance(tool, ErrorBase):
        return None
    try:
        offer = routes.offer(tool)
        valid = offer.checks.arguments.check(arguments)
        if isinstance(valid, ErrorBase):
            return None
        info = caller.data.info
        call = ToolCall(context.call_id, name, valid.arguments, 1, info, offer.declaration)
        reason = permit(services.policy, call, offer, info)
        if not isinstance(reason, str) or not reason:
            return None
        request = await approve.request_of(context, tool, call, reason)
    except UNROUTABLE:
        return None
    return await approve.put_up(context, request, offer.declaration)
