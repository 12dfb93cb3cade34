"""The pipeline: all steps from a tool call to its result, in order.

Nothing here raises because of a tool, a model or a sandbox. Arguments from a repair are validated again, so the call
runs with checked arguments.
"""

import logging
from collections.abc import Mapping
from dataclasses import replace
from inspect import isawaitable
from typing import Any, NamedTuple

from toolcell.errors import UsageError
from toolcell.pool.run import NOTHING_USED, Outcome, Used
from toolcell.rules.call import ToolCall
from toolcell.rules.policy import Explanation
from toolcell.store.approvals import ApprovalRequest
from toolcell.telemetry.tracing import Telemetry
from toolcell.wire.budget import Charge
from toolcell_tools.errors import Cancelled, ErrorBase, PermissionDenied, ValidationError
from toolcell_tools.interrupts import Guard, pass_on
from toolcell_tools.result import ToolResult

from . import ask_approval, ask_confirmation, hooks
from .admit import Admission, admit, held
from .call_context import CallContext, Repair
from .call_errors import UNROUTABLE, closed, unusable
from .call_record import intend, secrets_for_record
from .conclude import concluded, put_in_place, refused
from .permit import allowed_by, explain, mutates, permit
from .resolve import resolved
from .route import Routes
from .run_in_cell import Ran, in_cell
from .run_on_host import on_host
from .services import Caller, Offer, Services
from .validate import MAX_ATTEMPTS, Checks, Valid

_log = logging.getLogger("toolcell")
UNCONFIRMED = ask_confirmation.Standing([])


async def dispatch(
    context: CallContext, name: str, arguments: Mapping[str, Any], repair: Repair | None = None
) -> ToolResult:
    """Run the call. `repair` may correct its arguments up to twice. The last result is returned, also if `repair`
    fails."""
    if repair is None:
        return await attempt(context, name, arguments)
    number, caller = 1, context.caller
    context = context._replace(began=None)
    while True:
        result = await attempt(context, name, arguments, number)
        error = result.error
        if not isinstance(error, ValidationError) or not error.retryable:
            return result
        if number >= MAX_ATTEMPTS:
            return _given_up(context, result, error)
        with caller.life.doing(f"the repair of call {context.call_id}") as work, work.scope:
            try:
                async with Guard():
                    mended, number = repair(error), number + 1
                    arguments = await mended if isawaitable(mended) else mended
            except Exception:
                _log.exception("the repair of call %s of %s failed", context.call_id, result.tool)
                return _given_up(context, result, error)
        if work.scope.cancelled_caught:
            return result.model_copy(update={"error": closed(result.tool, caller.life)})


def _given_up(context: CallContext, result: ToolResult, error: ValidationError) -> ToolResult:
    """The result of a call whose repair has given up: it counts as three malformed calls."""
    context.caller.malformed.gave_up(result.tool)
    context.caller.tally.failed(context.call_id, result.tool, error, for_good=True)
    return result.model_copy(update={"error": error.model_copy(update={"retryable": False})})


async def attempt(context: CallContext, name: str, arguments: Mapping[str, Any], number: int = 1) -> ToolResult:
    """Make one attempt at a call, step by step. The first attempt has `number` 1. Large arguments are counted in the
    budget of the session until the call ends."""
    services, caller, routes, call_id = context[:4]
    # resolve
    tool = caller.toolbox.found(name)
    if tool is None:
        found = await resolved(services, caller, name)
        if isinstance(found, ErrorBase):
            return refused(context, ToolCall(call_id, name, arguments, number), None, found)
        tool = found
    # validate
    try:
        offer = routes.offer(tool)
    except UNROUTABLE as error:  # only for tools of toolsets: the supervisor's own were checked when it started
        return refused(context, ToolCall(call_id, name, arguments, number), tool, unusable(error))
    checks = offer.checks
    valid = checks.arguments.check(arguments)
    if type(valid) is not Valid:  # isinstance() of a model takes ten times as long
        return refused(context, ToolCall(call_id, name, arguments, number), tool, valid)
    call = ToolCall(call_id, name, valid.arguments, number, caller.data.info, offer.declaration)
    charge: Charge | None = None
    if valid.bytes:
        counted = held(services, caller, valid.bytes)
        if isinstance(counted, ErrorBase):
            return refused(context, call, tool, counted)
        charge = counted
    result: ToolResult | None = None
    try:
        result = await _after_validation(context, offer, call, valid.packed)
        return result
    finally:
        if charge is not None:
            charge.release()
        if context.taken:
            ask_approval.settle(context, context.taken, result)


async def _after_validation(context: CallContext, offer: Offer, call: ToolCall, packed: bytes | None) -> ToolResult:
    """The steps after validation. Those of a call without hooks, approval and limits are here, because each function
    takes time. The others are functions below."""
    services, caller, routes = context[:3]
    tool, checks = offer.tool, offer.checks
    # before hooks
    in_its_place: ToolResult | None = None
    by = ""
    if services.hooks:
        hooked = await _after_before_hooks(context, offer, call)
        if isinstance(hooked, ToolResult):
            return hooked
        call, packed, in_its_place, by = hooked
    # permit
    reason = permit(services.policy, call, offer, caller.data.info)  # for an approval; "" if none is needed
    if not isinstance(reason, str):
        return refused(context, call, tool, reason)
    # approve
    confirmed = UNCONFIRMED
    if tool.confirms:
        confirmed = await ask_confirmation.standing(context, tool, call)
    if reason and not (confirmed.approved or confirmed.pending):
        approved = await _approved(context, offer, call, reason)
        if isinstance(approved, ToolResult):
            return approved
        if approved.call is not call:
            in_its_place = None  # it was for other arguments
            if tool.confirms:
                confirmed = await ask_confirmation.standing(context, tool, approved.call)
        call, packed = approved.call, approved.packed
    # grants
    changes = True
    if tool.sometimes_mutates:
        mutating = mutates(call, tool)
        if isinstance(mutating, PermissionDenied):
            return refused(context, call, tool, mutating)
        changes = mutating
    if caller.life.closed:  # it may have been closed while a toolset, a hook or an approver ran
        return refused(context, call, tool, closed(call.tool, caller.life))
    try:
        if services.hooks or reason or tool.sometimes_mutates:  # the program's code has run since the first offer
            offer = routes.offer(tool)
        route = routes.to(offer, changes=changes)
    except UNROUTABLE as error:
        return refused(context, call, tool, unusable(error))
    if in_its_place is not None:
        return await put_in_place(context, call, checks, route, in_its_place, by)
    if confirmed.pending:
        unrun = Ran(route, Outcome("result"), NOTHING_USED, secrets_for_record(services, caller, call))
        return await concluded(
            context, call, checks, ask_confirmation.pending(unrun, confirmed.pending, confirmed.hint)
        )
    # admit
    wall_s = context.timeout_s if context.timeout_s is not None else tool.timeout or route.limits.wall_s
    admission: Admission | None = None
    if caller.meter is not None or services.gate.is_limited:
        admitted = await admit(services, caller, offer.declaration, wall_s)
        if not isinstance(admitted, Admission):
            return refused(context, call, tool, admitted)
        admission, wall_s = admitted, admitted.wall_s
    used: Used | None = None
    try:
        if services.durable is not None:
            allowed = ""
            if reason or "allowed" not in route.intent.facts:
                allowed = allowed_by(services.policy, call, offer, reason, caller.data.info)
            unrecorded = intend(services.durable, caller.id, call, route.intent, allowed)
            if unrecorded is not None:
                return refused(context, call, tool, unrecorded)
        # run
        confirm = confirmed.given if tool.confirms else None
        if tool.placement == "host":
            ran = await on_host(context, route, call, wall_s, confirm)
        else:
            answered = await in_cell(context, route, call, packed, changes, wall_s, confirm)
            if type(answered) is not Ran:
                return refused(context, call, tool, answered, intended=True)
            ran = answered
        if admission is not None and ran.is_delivered:
            used = ran.used
        # conclude
        try:
            if confirm is not None and ask_confirmation.has_asked(ran.outcome):
                ran = await ask_confirmation.waiting(context, tool, call, ran, confirm, approved=bool(reason))
            return await concluded(context, call, checks, ran)
        except BaseException:  # the caller has gone during a hook or the write of a file
            if context.fate is not None:
                context.fate.delivered, context.fate.effect = ran.is_delivered, ran.has_effect
            if ran.run is not None:
                ran.run.leave()
            raise
    finally:
        if admission is not None:
            admission.leave(used)


class _Checked(NamedTuple):
    """A call after hooks or an approver. `packed` are its arguments, if their check has encoded them. `in_its_place` is
    the result that a hook has put in place of the call, and `by` names the hook."""

    call: ToolCall
    packed: bytes | None
    in_its_place: ToolResult | None = None
    by: str = ""


async def _after_before_hooks(context: CallContext, offer: Offer, call: ToolCall) -> _Checked | ToolResult:
    """The call with the arguments that the hooks leave, validated again, or the result of a call that is refused."""
    services = context.services
    hooked, denied, result, by = await hooks.before(services.hooks, context.caller.life, call, services.hook_timeout_s)
    if denied is not None:
        return refused(context, hooked, offer.tool, denied)
    valid = _replaced(offer.checks, hooked.arguments, "a hook")  # always: a hook may have changed them in place
    if isinstance(valid, ValidationError):
        return refused(context, hooked, offer.tool, valid)
    return _Checked(call._replace(arguments=valid.arguments), valid.packed, result, by)


async def _approved(context: CallContext, offer: Offer, call: ToolCall, reason: str) -> _Checked | ToolResult:
    """The approved call, or the result of a call that is refused. The call is the same object if the approver left its
    arguments as they were. Other arguments are validated, and the policy decides about them."""
    tool = offer.tool
    try:
        approved = await ask_approval.ask(context, tool, call, reason)
    except UNROUTABLE as error:  # no route to its preview
        return refused(context, call, tool, unusable(error))
    if isinstance(approved, (PermissionDenied, Cancelled)):
        return refused(context, call, tool, approved)
    if approved is call.arguments:
        return _Checked(call, None)  # encoded again, so that the cell gets exactly what the approver saw
    valid = _replaced(offer.checks, approved, "the approver")
    if isinstance(valid, ValidationError):
        return refused(context, call, tool, valid)
    call = call._replace(arguments=valid.arguments)
    again = permit(context.services.policy, call, offer, context.caller.data.info)
    if not isinstance(again, str):
        return refused(context, call, tool, again)
    return _Checked(call, valid.packed)


def _replaced(checks: Checks, put_in: Mapping[str, Any], who: str) -> Valid | ValidationError:
    """Validate arguments that replaced the call's. The error is not for the model, which did not write them."""
    valid = checks.arguments.check(put_in)
    if isinstance(valid, Valid):
        return valid
    message = f"The arguments that {who} put in do not fit: {valid.message}"
    return valid.model_copy(update={"message": message, "retryable": False})


async def traced(
    telemetry: Telemetry, context: CallContext, name: str, arguments: Mapping[str, Any], repair: Repair | None = None
) -> ToolResult:
    """Run the call, as `dispatch` does. All its attempts are one span, which is current for hooks, approvers and host
    tools."""
    caller = context.caller
    try:
        trace = telemetry.begin(name, context.call_id, caller.id, caller.kind.value, caller.agent_id)
    except BaseException as error:
        pass_on(error)
        _log.exception("the telemetry of call %s failed", context.call_id)
        return await dispatch(context, name, arguments, repair)
    try:
        with trace.active():
            result = await dispatch(context._replace(trace=trace), name, arguments, repair)
    except BaseException as error:
        trace.left(error)
        raise
    tool = caller.toolbox.found(result.tool)
    trace.ended(result, None if tool is None else tool.declaration, arguments)
    return result


async def ask_ahead(context: CallContext, name: str, arguments: Mapping[str, Any]) -> ApprovalRequest | None:
    """Ask for approval of this call, and do not make it. Returns the pending request. Hooks are not called.

    The same call, made before the request expires, takes the answer. None if the call needs no approval, has it
    already, asks the session's own approver, or would be refused: then the result of the call has the error.
    """
    services, caller, routes = context.services, context.caller, context.routes
    if caller.approver is not None:
        return None
    try:
        asked = await _valid(services, caller, routes, ToolCall(context.call_id, name, arguments))
        if isinstance(asked, ErrorBase):
            return None
        offer, call = asked
        reason = permit(services.policy, call, offer, caller.data.info)
        if not isinstance(reason, str) or not reason:
            return None
        request = await ask_approval.request_of(context, offer.tool, call, reason)
    except UNROUTABLE:
        return None
    return await ask_approval.put_up(context, request, offer.declaration)


async def explain_call(services: Services, caller: Caller, routes: Routes, call: ToolCall) -> Explanation:
    """What is decided about a call, by which rule, without making it. Raises UsageError if there is no such call."""
    asked = await _valid(services, caller, routes, call)
    if isinstance(asked, ErrorBase):
        raise UsageError(asked.message)
    offer, call = asked
    found = explain(services.policy, call, offer, caller.data.info)
    return replace(found, file=services.rule_files.get(found.rule, ""))


async def _valid(
    services: Services, caller: Caller, routes: Routes, call: ToolCall
) -> tuple[Offer, ToolCall] | ErrorBase:
    """The first two steps of `attempt`, for a call that is not made. Raises an error of `UNROUTABLE`."""
    tool = caller.toolbox.found(call.tool) or await resolved(services, caller, call.tool)
    if isinstance(tool, ErrorBase):
        return tool
    offer = routes.offer(tool)
    valid = offer.checks.arguments.check(call.arguments)
    if isinstance(valid, ErrorBase):
        return valid
    return offer, call._replace(arguments=valid.arguments, session=caller.data.info, declaration=offer.declaration)
