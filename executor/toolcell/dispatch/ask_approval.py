"""Ask for approval: choose the approver, show the request, and bind the answer to the arguments.

No cell is held while the approver decides, and the call's own time has not begun. The approved arguments are the ones
that run. If the answer has other arguments, the caller of `ask` validates them.

The store (`services.approvals`) keeps each request and each answer. With a state directory, a person can answer there,
also after a restart and from another process. The first answer counts.
"""

import logging
import math
import time
from collections.abc import Callable, Mapping
from copy import deepcopy
from functools import partial
from typing import Any, Final, Literal, NamedTuple

import anyio

from toolcell.backends.protocols import Channel
from toolcell.backends.threads import APPROVERS, NoThread, in_thread
from toolcell.dispatch.hooks import answer_of
from toolcell.errors import UsageError
from toolcell.rules.call import ToolCall
from toolcell.sessions.session_result import SessionState
from toolcell.sessions.tree import SessionLife
from toolcell.store.approvals import (
    AnyApprover,
    ApprovalRequest,
    Approvals,
    Approved,
    Denied,
    StandingApproval,
)
from toolcell.store.approvals.store import Unusable
from toolcell.store.journal import Record
from toolcell.store.journal.arguments import arguments_for_journal
from toolcell.store.journal.durable import given_back
from toolcell.wire.budget import REQUEST_COST, Charge
from toolcell_tools.declaration import ToolDeclaration
from toolcell_tools.definition import Tool
from toolcell_tools.errors import Cancelled, PermissionDenied
from toolcell_tools.interrupts import Guard
from toolcell_tools.preview import Preview, printable
from toolcell_tools.result import ToolResult

from .call_context import CallContext
from .call_errors import closed, error_of
from .services import agent_facts
from .serving import SessionRun, in_pool

_log = logging.getLogger("toolcell.approval")
POLL_S: Final = 0.1
"""How often a waiting call looks for an answer in the store."""
WITHDRAW_S: Final = 15.0
"""The most seconds that the end of a session waits until its requests are withdrawn: their file system may hang."""
_NOT_PUT_UP: Final = Denied("The call could not be put up for approval.")
_FAILED: Final = "the approver failed"
PREVIEW_WALL_S = 5.0
_KEPT_BACK: Final = frozenset({"validation", "permission_denied"})
"""The errors of a call that would end in the same way with the same approval again."""


class _Ending(NamedTuple):
    """An answer, how it came about, who gave it, whether it is used up by this, and when it was given, in Unix
    seconds."""

    answer: Approved | Denied
    why: str
    by: str = ""
    used: bool = False
    at: float | None = None


async def ask(
    context: CallContext, tool: Tool[..., Any], call: ToolCall, reason: str
) -> Mapping[str, Any] | PermissionDenied | Cancelled:
    """The approved arguments, or the error of a call that may not run: Cancelled if the session closes meanwhile."""
    services, caller, declaration = context.services, context.caller, tool.declaration
    approver = context.approver if caller.approver is None else caller.approver
    if approver is None and services.durable is None:
        message = (
            f"The tool {tool.name!r} runs only when somebody approves, and nobody can be asked in this session. "
            "Do without it."
        )
        summary = (await arguments_of(tool, call)).summary
        show(context, f"The call was denied, because nobody can be asked who could approve it: {summary} ({reason})")
        return _denied(declaration, message, "no approver, and no session above owns a channel that can approve")
    request = await request_of(context, tool, call, reason)
    if caller.life.closed:  # while the preview was made
        return closed(tool.name, caller.life)
    began = time.monotonic()
    answer, why = await _answer(context, approver, request, declaration)
    if context.trace is not None:
        context.trace.approval_asked(began, time.monotonic(), why)
    if caller.life.closed:
        return closed(tool.name, caller.life)
    if isinstance(answer, Approved):
        return call.arguments if answer.arguments is None else answer.arguments
    return _denied(declaration, answer.message or f"The call of {tool.name!r} was not approved.", why)


async def request_of(context: CallContext, tool: Tool[..., Any], call: ToolCall, reason: str) -> ApprovalRequest:
    """The request for approval of a call, with its preview, which is made in a cell."""
    preview = await preview_of(context, tool, call)
    return new_request(context, tool, call, reason, preview, "tool" if is_previewed(tool) else "supervisor")


def new_request(
    context: CallContext,
    tool: Tool[..., Any],
    call: ToolCall,
    reason: str,
    preview: Preview,
    preview_by: Literal["tool", "supervisor"],
) -> ApprovalRequest:
    """A request that is bound to the session, the tool's version and the exact arguments of a call."""
    caller, declaration, now = context.caller, tool.declaration, context.services.approvals().now()
    return ApprovalRequest(
        tool=tool.name,
        version=tool.version,
        fingerprint=declaration.fingerprint,
        arguments=deepcopy(call.arguments),  # a copy: an approver cannot change what runs by changing the request
        preview=preview,
        preview_by=preview_by,
        tier=declaration.tier,
        reason=reason,
        call_id=call.id,
        session_id=caller.id,
        agent_id=caller.agent_id,
        ancestors=caller.data.info.ancestors,
        session_kind=caller.kind,
        created_at=now,
        expires_at=now + context.services.approval_timeout_s,
    )


async def put_up(
    context: CallContext, request: ApprovalRequest, declaration: ToolDeclaration
) -> ApprovalRequest | None:
    """Store a request for a call that will be made when somebody has answered. None if the answer is there already, or
    if the request cannot be stored: the result of the call then has the reason."""
    store = context.services.approvals()
    try:
        if await in_thread(partial(store.covering, request)) is not None:
            return None
        kept = await submitted(context, request, declaration)
        store.leave(kept.id)
        entry = await in_thread(partial(store.get, kept.id))
    except (NoThread, UsageError):
        _log.exception("approval of the call %s cannot be asked", request.call_id)
        return None
    if entry.state != "pending":
        return None
    record_approval(context, kept, "", event="asked", is_earlier=kept.id != request.id)
    if context.caller.life.closed:  # while the request was kept
        await withdrawn(context.caller.life, store, kept.id)
        return None
    return kept


async def submitted(context: CallContext, request: ApprovalRequest, declaration: ToolDeclaration) -> ApprovalRequest:
    """The request as it is kept, or that of an earlier call. The close of the session withdraws it. Raises NoThread or
    UsageError."""
    submit = context.services.approvals().submit
    kept = await in_thread(lambda: submit(request, declaration.parameters_schema).prepared())
    context.caller.tally.questions.add(kept.id)
    return kept


async def _answer(
    context: CallContext, approver: AnyApprover | None, request: ApprovalRequest, declaration: ToolDeclaration
) -> tuple[Approved | Denied, str]:
    """The answer, and in words how it came about. Each step is recorded."""
    store = context.services.approvals()
    try:
        standing, refused = await in_thread(partial(_earlier_answers, store, request))
        if standing is not None:
            words = f"approved by the standing approval {standing.id}"
            record_approval(context, request, words, by=standing.approved_by, standing=standing)
            return Approved(), "approved"
        for id, why in refused:
            record_approval(context, request, f"the approval {id} {why}", event="refused")
        kept = await submitted(context, request, declaration)
        try:
            is_earlier = kept.id != request.id  # the same call asked before, and ended without the answer
            if is_earlier and (await in_thread(partial(store.get, kept.id))).state != "pending":
                approver = None  # the answer is there: nobody is asked again
            record_approval(context, kept, "", event="asked", is_earlier=is_earlier)
            show(context, f"Approval is asked, and is not given here: {kept.preview.summary} ({kept.reason})")
            outcome = await _until_closed(context, store, approver, kept)
        finally:
            store.leave(kept.id)
    except* (NoThread, UsageError) as failures:
        failed = failures
    else:
        if not context.caller.life.closed:
            context.caller.tally.questions.discard(kept.id)
        answered_at = outcome.at if is_earlier else None
        record_approval(context, kept, outcome.why, by=outcome.by, used=outcome.used, answered_at=answered_at)
        return outcome.answer, outcome.why
    _log.error("approval of the call %s cannot be asked", request.call_id, exc_info=failed)
    cause: Exception = failed
    while isinstance(cause, ExceptionGroup):
        cause = cause.exceptions[0]
    record_approval(context, request, f"could not be asked: {cause}")
    return _NOT_PUT_UP, f"the request could not be kept: {cause}"


def _earlier_answers(
    store: Approvals, request: ApprovalRequest
) -> tuple[StandingApproval | None, list[tuple[str, str]]]:
    """The standing approval of this call, or the answers that nearly fit it. The thread that calls this also computes
    the digest, because that takes long for large arguments."""
    _ = request.digest
    standing = store.covering(request)
    return standing, [] if standing is not None else store.refused(request)


def record_approval(
    context: CallContext,
    request: ApprovalRequest,
    answer: str,
    *,
    event: str = "answered",
    by: str = "",
    used: bool = False,
    is_earlier: bool = False,
    answered_at: float | None = None,
    standing: StandingApproval | None = None,
) -> None:
    """Record an event of a request for approval or confirmation. `is_earlier`: an earlier call made the request.
    `answered_at`: the time of the answer, if it may be long before this record."""
    data: dict[str, Any] = {"event": event, "tool": request.tool, "version": request.version, "request": request.id}
    data |= {"digest": request.digest, "reason": request.reason, "expires_at": request.expires_at, "answer": answer}
    data |= {"used": used, "by": by}
    if request.asks == "confirmation":
        data["asks"] = request.asks
    if is_earlier:
        data |= {"made_by": request.call_id, "made_at": request.created_at}
    if answered_at is not None:
        data["answered_at"] = answered_at
    if standing is not None:
        data |= {**agent_facts(standing.line), "session": standing.session_id, "pattern": dict(standing.pattern)}
        data["expires_at"] = standing.expires_at
    if event == "asked" and context.services.durable is not None:
        data |= arguments_for_journal(request.arguments)
    context.services.journal.write(Record("approval", context.caller.id, context.call_id, data))


def note_taken(context: CallContext, request: str) -> None:
    """Note that the call has taken the approving answer to a request."""
    if context.taken is not None:
        context.taken.append(request)


def settle(context: CallContext, taken: list[str], result: ToolResult | None) -> None:
    """Give the approvals back that a call has taken, if it has ended and did not begin. `result` is None if its caller
    has gone. Those of a closed session have ended with it."""
    requests, error = list(taken), None if result is None else result.error
    taken.clear()
    if _ends_questions(context.caller.life, context.services.approvals()):
        return
    if result is not None and (error is None or error.outcome != "not started" or error.kind in _KEPT_BACK):
        return
    for request in requests:
        context.services.journal.write(given_back(context.caller.id, context.call_id, request))
        context.services.approvals().note_unused(request)
    context.services.in_background(catch_up, context.services.approvals())


def show(context: CallContext, text: str) -> None:
    """Show the question to the channels that cannot answer it. Slow channels miss some questions."""
    services, caller = context.services, context.caller
    sender = "/".join((*caller.line, caller.id))
    for channel in caller.onlookers:
        charge = services.pool.budgets.requests.hold(caller.id, REQUEST_COST + len(text))
        if charge is None:
            _log.warning("%r is not shown that approval is asked for %s: too many questions wait", channel, sender)
        else:
            services.in_background(_sent, channel, printable(text), sender, services.approval_timeout_s, charge)


async def _sent(channel: Channel, text: str, sender: str, timeout_s: float, charge: Charge) -> None:
    with anyio.move_on_after(timeout_s):
        try:
            async with Guard():
                await channel.send(text, sender=sender)
        except Exception:  # this is only a notice; the approver is asked elsewhere
            _log.exception("%r could not show that approval is asked for %s", channel, sender)
        finally:
            charge.release()


async def _until_closed(
    context: CallContext, store: Approvals, approver: AnyApprover | None, request: ApprovalRequest
) -> _Ending:
    """The answer, how it came about, and who gave it. The close of the session withdraws the question; the end of the
    supervisor does not."""
    life = context.caller.life
    with life.doing(f"{approver or store!r}, which was asked for approval,") as work, work.scope:
        if life.closed:  # while the request was kept, so nothing else ends the wait
            work.scope.cancel()
        return await _first_answer(context, store, approver, request)
    if store.is_ending or life.state is SessionState.SUSPENDED:
        what = "supervisor ended" if store.is_ending else "session was suspended"
        return _Ending(Denied(), f"not answered before the {what}")
    await withdrawn(life, store, request.id)
    return _Ending(Denied(), "withdrawn, for the session was closed")


async def withdrawn(life: SessionLife, store: Approvals, id: str) -> None:
    """Withdraw the question of a session that was closed. One of a suspended session stays."""
    if not _ends_questions(life, store):
        return
    with anyio.move_on_after(WITHDRAW_S, shield=True):
        try:
            await in_thread(partial(store.withdraw, id), abandon=True)
        except (NoThread, UsageError):  # the answer came in this moment, and nobody will use it
            _log.info("the request %s for approval is not withdrawn", id, exc_info=True)


def _ends_questions(life: SessionLife, store: Approvals) -> bool:
    """Whether a session was closed for good, by its end and not by that of the supervisor."""
    return life.closed and not (store.is_ending or life.state is SessionState.SUSPENDED)


async def catch_up(store: Approvals) -> None:
    """Give unused approvals back, and withdraw the requests of closed sessions, also while the supervisor ends."""
    with anyio.move_on_after(WITHDRAW_S, shield=True):
        try:
            await in_thread(store.catch_up, abandon=True)
        except (NoThread, UsageError):
            _log.exception("approvals are not given back, or requests of a closed session not withdrawn, for now")


async def _first_answer(
    context: CallContext, store: Approvals, approver: AnyApprover | None, request: ApprovalRequest
) -> _Ending:
    """The answer that comes first, by the approver or in the store."""
    wait_s, answered = max(0.0, request.expires_at - store.now()), anyio.Event()
    found: _Ending | None = None
    with anyio.move_on_after(wait_s):
        async with anyio.create_task_group() as tasks:
            if approver is not None:
                tasks.start_soon(put_to, approver, request, store, answered)
            found = await _taken(context, store, request.id, answered)
            tasks.cancel_scope.cancel()
    limit_s = round(request.expires_at - request.created_at, 3)  # the request may be older than this wait
    return found or _Ending(Denied(f"Nobody approved the call within {limit_s:g} s."), "expired")


async def put_to(approver: AnyApprover, request: ApprovalRequest, store: Approvals, answered: anyio.Event) -> None:
    """Ask the approver, and keep the answer. Raises NoThread or UsageError if it cannot be kept."""
    answer: Approved | Denied = _NOT_PUT_UP
    by = _FAILED
    try:
        said: object = await answer_of(approver.approve, deepcopy(request), timeout_s=math.inf, threads=APPROVERS)
        if isinstance(said, (Approved, Denied)):  # pyright: ignore[reportUnnecessaryIsInstance] - it is the user's code
            answer, by = said, type(approver).__name__
        else:
            _log.error("%r answered %r, which is neither Approved nor Denied", approver, said)
    except Exception:
        _log.exception("%r failed on %s", approver, request.id)
    try:
        await in_thread(partial(store.answer, request.id, answer, by))
    except (NoThread, TypeError, ValueError):  # the last two: arguments that are not JSON data
        _log.exception("the answer of %r to %s cannot be kept", approver, request.id)
        await in_thread(partial(store.answer, request.id, _NOT_PUT_UP, _FAILED))
    answered.set()


async def _taken(context: CallContext, store: Approvals, id: str, answered: anyio.Event) -> _Ending:
    """Wait for the answer in the store, which another process may give."""
    seen: tuple[int, int] | None = None
    while True:
        now = store.changes(id)
        if now is None or now != seen:
            seen = now
            try:
                taken = await in_thread(partial(_take, store, id))
            except Unusable as error:
                return _Ending(Denied(f"The approval {error}."), f"the approval {error}")
            if taken is not None:
                answer, by, at = taken
                if isinstance(answer, Approved):
                    note_taken(context, id)  # at once: the caller may be cancelled at the next await
                return _Ending(answer, _words(answer, by), by, used=True, at=at)
        with anyio.move_on_after(POLL_S):
            await answered.wait()


def _take(store: Approvals, id: str) -> tuple[Approved | Denied, str, float | None] | None:
    """The answer, who gave it, and when. The answer is used by this. None if there is none yet. Raises Unusable."""
    taken = store.take(id)
    return None if taken is None else (*taken, store.get(id).answered_at)


def _words(answer: Approved | Denied, by: str) -> str:
    if isinstance(answer, Denied):
        return _FAILED if by == _FAILED else "denied"
    return "approved" if answer.arguments is None else "approved with other arguments"


def _denied(declaration: ToolDeclaration, message: str, reason: str) -> PermissionDenied:
    return PermissionDenied(message=message, tier=declaration.tier, reason=reason)


async def preview_of(context: CallContext, tool: Tool[..., Any], call: ToolCall) -> Preview:
    """The tool's preview of this call; without one, the arguments. A failed preview says so in its summary."""
    if not is_previewed(tool):
        return await arguments_of(tool, call)
    return await _for_people((await _said(context, tool, call)).for_people)


async def arguments_of(tool: Tool[..., Any], call: ToolCall) -> Preview:
    """The preview of a tool that has none: the arguments."""
    return await _for_people(lambda: Preview.of_call(tool.name, call.arguments).for_people())


async def _for_people(written: Callable[[], Preview]) -> Preview:
    """A preview that is written in a thread: a long one takes a while."""
    try:
        return await in_thread(written)
    except NoThread:
        return Preview("(no preview: no thread can be started)")


def is_previewed(tool: Tool[..., Any]) -> bool:
    """Whether the tool has a preview function."""
    return tool.has_preview and tool.placement == "cell"


async def _said(context: CallContext, tool: Tool[..., Any], call: ToolCall) -> Preview:
    while True:
        run = SessionRun(context, context.routes.of_preview(context.routes.offer(tool)), call, PREVIEW_WALL_S)
        run.preview = True
        outcome = await in_pool(context, run)
        if outcome.ending != "moved":  # otherwise the workspace is another directory now
            break
    if outcome.ending != "result":
        return Preview(f"(no preview: {error_of(outcome, tool.declaration, run.limits, run.elapsed_s).message})")
    try:
        shown = outcome.payload["output"]
        return Preview.from_dict(shown) if isinstance(shown, dict) else Preview("(no preview: it is malformed)")
    except (TypeError, KeyError):
        return Preview("(no preview: it is malformed)")
