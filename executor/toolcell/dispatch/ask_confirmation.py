"""Confirmations from within tools: `ctx.confirm` ends the call, and the same call, made again, has the answer.

The request is kept in the store of approvals, bound to the session, the tool's version, the exact arguments and the
question. No cell and no caller waits for the answer. While it is missing, the same call does not run at all.
"""

import json
import logging
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple, cast

import anyio

from toolcell.backends.threads import NoThread, in_thread
from toolcell.errors import UsageError
from toolcell.pool.run import Outcome
from toolcell.rules.call import ToolCall
from toolcell.store.approvals import ApprovalRequest, Approvals, Approved, Denied
from toolcell.store.approvals.request import canonical
from toolcell.wire.frames import Field
from toolcell.wire.messages import VALUES_BYTES
from toolcell_tools.confirmation import HINT_CHARS
from toolcell_tools.definition import Tool
from toolcell_tools.encode import encode_json
from toolcell_tools.failures import Unencodable
from toolcell_tools.preview import Preview, printable

from . import ask_approval
from .call_context import CallContext
from .run_in_cell import Ran

_log = logging.getLogger("toolcell.approval")
MAX_CONFIRMATIONS = 8
"""The most questions of one call, one after the other."""
STATUS = "needs_confirmation"
"""The status in the output of a call that waits for an answer."""


class Standing(NamedTuple):
    """The answers that were given for this call so far. While a question is `pending` (its id), the call must not
    run."""

    given: list[Field]
    approved: bool = False
    """Whether somebody had approved the call before it asked for the confirmation."""
    pending: str = ""
    hint: str = ""


async def standing(context: CallContext, tool: Tool[..., Any], call: ToolCall) -> Standing:
    """The confirmations that were given for this call. Reading the latest answer uses it up."""
    request = _request(context, tool, call, "", None, [])
    try:
        found = await in_thread(partial(context.services.approvals().confirmation, request))
    except (NoThread, UsageError):
        _log.exception("the confirmations of call %s cannot be read", call.id)
        return Standing([])
    if found is None:
        return Standing([])
    asked, answer, by, at = found
    if answer is None:
        return Standing([], pending=asked.id, hint=asked.hint)
    context.caller.tally.questions.discard(asked.id)
    words = "confirmed" if isinstance(answer, Approved) else "not confirmed"
    if isinstance(answer, Approved):
        ask_approval.note_taken(context, asked.id)
    ask_approval.record_approval(context, asked, words, by=by, used=True, is_earlier=True, answered_at=at)
    return Standing([*map(_field, asked.given), _field(_said(asked, answer))], asked.approved)


async def waiting(
    context: CallContext, tool: Tool[..., Any], call: ToolCall, ran: Ran, given: list[Field], *, approved: bool
) -> Ran:
    """Store the question of a call that has asked for a confirmation. Returns the call with a result that says that it
    waits, or with an error if it asked after an effect, or too often."""
    outcome = ran.outcome
    if ran.run is not None and ran.run.acted:
        return _failed(ran, "ctx.confirm was called after the call had an effect. Ask first.")
    if len(given) >= MAX_CONFIRMATIONS:
        return _failed(ran, f"The call has asked for {MAX_CONFIRMATIONS} confirmations, and asks for another one.")
    try:
        payload = encode_json(outcome.payload.get("payload"))
        too_long = len(outcome.message) > HINT_CHARS or len(canonical(payload)) > VALUES_BYTES
    except Unencodable as refusal:
        return _failed(ran, f"The payload of ctx.confirm is not JSON data: {refusal}")
    if too_long:
        return _failed(ran, "The question of ctx.confirm is too long. Ask in fewer words.")
    request = _request(context, tool, call, outcome.message, payload, given, approved=approved)
    store = context.services.approvals()
    try:
        kept = await ask_approval.submitted(context, request, tool.declaration)
    except (NoThread, UsageError) as error:
        _log.exception("the confirmation of call %s cannot be asked", call.id)
        ask_approval.record_approval(context, request, f"could not be asked: {error}")
        why = f" {error}" if isinstance(error, UsageError) else ""
        return _failed(ran, f"The question for confirmation could not be kept.{why}")
    store.leave(kept.id)
    ask_approval.record_approval(context, kept, "", event="asked")
    ask_approval.show(context, f"A tool asks for confirmation: {kept.preview.summary}")
    if context.caller.life.closed:  # while the question was kept
        await ask_approval.withdrawn(context.caller.life, store, kept.id)
    elif context.caller.approver is not None:
        context.services.in_background(_asked_of, context, store, kept)
    return pending(ran, kept.id, kept.hint)


def pending(ran: Ran, id: str, hint: str) -> Ran:
    """The call as one that waits for the answer to this question."""
    message = f"A person is asked: {hint} The call has done nothing yet. Do not repeat it before you are told to."
    output: dict[str, Field] = {"handle_id": id, "status": STATUS, "message": message}
    payload: Mapping[str, Field] = {"output": output, "display": f"Waits for confirmation: {printable(hint)}"}
    outcome = replace(ran.outcome, ending="result", reason="", message="", payload=payload)
    return ran._replace(outcome=outcome, confirmation=id)


async def _asked_of(context: CallContext, store: Approvals, request: ApprovalRequest) -> None:
    """Ask the approver. The close of the session ends this, and withdraws the question."""
    approver = context.caller.approver
    assert approver is not None
    with context.caller.life.doing(f"{approver!r}, which was asked for confirmation,") as work, work.scope:
        if context.caller.life.closed:  # while the request was kept
            work.scope.cancel()
        with anyio.move_on_after(max(0.0, request.expires_at - store.now())):
            try:
                await ask_approval.put_to(approver, request, store, anyio.Event())
            except (NoThread, UsageError):
                _log.exception("the answer of %r to %s cannot be kept", approver, request.id)
        return
    await ask_approval.withdrawn(context.caller.life, store, request.id)


def _failed(ran: Ran, message: str) -> Ran:
    return ran._replace(outcome=replace(ran.outcome, ending="error", reason="exception", message=message))


def _request(
    context: CallContext,
    tool: Tool[..., Any],
    call: ToolCall,
    hint: str,
    payload: Field,
    given: list[Field],
    *,
    approved: bool = False,
) -> ApprovalRequest:
    shown = "" if payload is None else json.dumps(payload, indent=2, ensure_ascii=False)
    preview = Preview(hint, f"{hint}\n{shown}".strip()).for_people()
    reason = f"the tool {tool.name!r} asks for a confirmation"
    return replace(
        ask_approval.new_request(context, tool, call, reason, preview, "tool"),
        asks="confirmation",
        hint=hint,
        payload=payload,
        given=tuple(cast("list[Mapping[str, Any]]", given)),
        approved=approved,
    )


def _said(asked: ApprovalRequest, answer: Approved | Denied) -> dict[str, Any]:
    """The answer as the tool's process gets it."""
    if isinstance(answer, Approved):
        said = {"confirmed": True, "answer": answer.payload, "message": ""}
    else:
        said = {"confirmed": False, "answer": None, "message": answer.message}
    return {"hint": asked.hint, "payload": asked.payload, **said}


def _field(said: Mapping[str, Any]) -> Field:
    return cast("Field", dict(said))


def has_asked(outcome: Outcome) -> bool:
    """Whether the tool has ended the call to ask for a confirmation."""
    return outcome.ending == "error" and outcome.reason == "confirm"
