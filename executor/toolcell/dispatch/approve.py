"""Ask for approval: choose the approver, show the request, and bind the answer to the arguments.

No cell is held while the approver decides, and the call's own time has not begun. The approved arguments are the ones
that run. If the answer has other arguments, the caller of `ask` validates them.
"""

import logging
import time
from collections.abc import Mapping
from copy import deepcopy
from typing import Any

import anyio

from toolcell.approvals import ApprovalRequest, Approved, Approver, Denied
from toolcell.backends.protocols import Channel
from toolcell.call import ToolCall
from toolcell.journal import Record
from toolcell.sessions.ending import SessionLife
from toolcell_tools.declaration import ToolDeclaration
from toolcell_tools.definition import Tool
from toolcell_tools.errors import Cancelled, PermissionDenied
from toolcell_tools.preview import Preview, printable

from .context import CallContext
from .preview import is_previewed, preview_of

_log = logging.getLogger("toolcell.approval")


async def ask(
    context: CallContext, tool: Tool[..., Any], call: ToolCall, reason: str
) -> Mapping[str, Any] | PermissionDenied | Cancelled:
    """The approved arguments, or the error of a call that may not run: Cancelled if the session closes meanwhile."""
    services, caller, declaration = context.services, context.caller, tool.declaration
    approver = caller.approver
    if approver is None:
        message = (
            f"The tool {tool.name!r} runs only when somebody approves, and nobody can be asked in this session. "
            "Do without it."
        )
        summary = Preview.of_call(tool.name, call.arguments).for_people().summary
        _show(context, f"The call was denied, because nobody can be asked who could approve it: {summary} ({reason})")
        return _denied(declaration, message, "no approver, and no session above owns a channel that can approve")
    request = ApprovalRequest(
        tool=tool.name,
        version=tool.version,
        fingerprint=declaration.fingerprint,
        arguments=deepcopy(call.arguments),  # a copy: an approver cannot change what runs by changing the request
        preview=await preview_of(context, tool, call),
        preview_by="tool" if is_previewed(tool) else "supervisor",
        tier=declaration.tier,
        reason=reason,
        call_id=call.id,
        session_id=caller.id,
        agent_id=caller.agent_id,
        session_kind=caller.kind,
        expires_at=time.time() + services.approval_timeout_s,
    )
    if caller.life.closed:  # while the preview was made
        return closed(tool.name)
    _show(context, f"Approval is asked, and is not given here: {request.preview.summary} ({reason})")
    answer, why = await _until_closed(caller.life, approver, request, services.approval_timeout_s)
    data = {"tool": tool.name, "request": request.id, "digest": request.digest, "reason": reason, "answer": why}
    services.journal.write(Record("approval", caller.id, call.id, data))
    if caller.life.closed:
        return closed(tool.name)
    if isinstance(answer, Approved):
        return call.arguments if answer.arguments is None else answer.arguments
    return _denied(declaration, answer.message or f"The call of {tool.name!r} was not approved.", why)


def closed(tool: str) -> Cancelled:
    """The error of a call whose session was closed before the call ran."""
    return Cancelled(message=f"The call of {printable(tool)!r} was cancelled: its session was closed.")


def _show(context: CallContext, text: str) -> None:
    """Show the question to the channels that cannot answer it."""
    services, caller = context.services, context.caller
    sender = f"{caller.agent_id}/{caller.id}"
    for channel in caller.onlookers:
        services.in_background(_sent, channel, printable(text), sender, services.approval_timeout_s)


async def _sent(channel: Channel, text: str, sender: str, timeout_s: float) -> None:
    with anyio.move_on_after(timeout_s):
        try:
            await channel.send(text, sender=sender)
        except Exception:  # this is only a notice; the approver is asked elsewhere
            _log.exception("%r could not show that approval is asked for %s", channel, sender)


async def _until_closed(
    life: SessionLife, approver: Approver, request: ApprovalRequest, timeout_s: float
) -> tuple[Approved | Denied, str]:
    """The answer. The close of the session withdraws the question."""
    with life.doing(f"{approver!r}, which was asked for approval,") as work, work.scope:
        return await _answer(approver, request, timeout_s)
    return Denied(), "withdrawn, for the session was closed"


async def _answer(approver: Approver, request: ApprovalRequest, timeout_s: float) -> tuple[Approved | Denied, str]:
    with anyio.move_on_after(timeout_s):
        try:
            answer = await approver.approve(request)
        except Exception:
            _log.exception("%r failed on %s", approver, request.id)
            return Denied("The call could not be put up for approval."), "the approver failed"
        if isinstance(answer, Approved):
            return answer, "approved" if answer.arguments is None else "approved with other arguments"
        if isinstance(answer, Denied):  # pyright: ignore[reportUnnecessaryIsInstance] - an approver is the user's code
            return answer, "denied"
        _log.error("%r answered %r, which is neither Approved nor Denied", approver, answer)
        return Denied("The call could not be put up for approval."), "the approver failed"
    return Denied(f"Nobody approved the call within {timeout_s:g} s."), "expired"


def _denied(declaration: ToolDeclaration, message: str, reason: str) -> PermissionDenied:
    return PermissionDenied(message=message, tier=declaration.tier, reason=reason)
