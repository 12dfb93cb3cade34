"""The pipeline: all steps from a tool call to its result, in order.

Nothing here raises because of a tool, a model or a sandbox. Arguments from a repair are validated again, so the call
runs with checked arguments.
"""

import logging
from collections.abc import Mapping
from typing import Any, NamedTuple

from toolcell.pool.run import NOTHING_USED, Outcome, Used
from toolcell.rules.call import ToolCall
from toolcell.wire.budget import Charge
from toolcell.wire.frames import Field
from toolcell_tools.definition import Tool
from toolcell_tools.errors import Cancelled, ErrorBase, PermissionDenied, ValidationError
from toolcell_tools.interrupts import Guard
from toolcell_tools.result import ToolResult

from . import approve, confirming, hooks, host
from .admit import Admission, admit, held
from .catalog import Checks
from .conclude import concluded, put_in_place, refused
from .context import CallContext, Repair
from .execute import UNROUTABLE, Ran, in_cell, unusable
from .grant import mutates
from .malformed import MAX_ATTEMPTS
from .offer import CallableTool
from .permit import allowed_by, permit
from .record import intend, record_without_run, secrets_for_record
from .resolve import resolved
from .route import Route
from .validate import Valid

_log = logging.getLogger("toolcell")
UNCONFIRMED = confirming.Standing([])


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
                    arguments, number = await repair(error), number + 1
            except Exception:
                _log.exception("the repair of call %s of %s failed", context.call_id, result.tool)
                return _given_up(context, result, error)
        if work.scope.cancelled_caught:
            return result.model_copy(update={"error": approve.closed(result.tool, caller.life)})


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
        result = await _after_validation(context, tool, offer, call, valid.packed)
        return result
    finally:
        if charge is not None:
            charge.release()
        if approve.TAKEN.get():
            approve.settle(context, result)


async def _after_validation(
    context: CallContext, tool: Tool[..., Any], offer: CallableTool, call: ToolCall, packed: bytes | None
) -> ToolResult:
    """The steps after validation. Those of a call without hooks, approval and limits are here, because each function
    takes time. The others are functions below."""
    services, caller, routes, call_id = context[:4]
    checks = offer.checks
    # before hooks
    in_its_place: ToolResult | None = None
    by = ""
    if services.hooks:
        hooked = await _after_before_hooks(context, tool, offer, call)
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
        confirmed = await confirming.standing(context, tool, call)
    if reason and not (confirmed.approved or confirmed.pending):
        approved = await _approved(context, tool, offer, call, reason)
        if isinstance(approved, ToolResult):
            return approved
        if approved.call is not call:
            in_its_place = None  # it was for other arguments
            if tool.confirms:
                confirmed = await confirming.standing(context, tool, approved.call)
        call, packed = approved.call, approved.packed
    # grants
    changes = True
    if tool.sometimes_mutates:
        mutating = mutates(call, tool)
        if isinstance(mutating, PermissionDenied):
            return refused(context, call, tool, mutating)
        changes = mutating
    if caller.life.closed:  # it may have been closed while a toolset, a hook or an approver ran
        return refused(context, call, tool, approve.closed(call.tool, caller.life))
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
        return await concluded(context, call, checks, confirming.pending(unrun, confirmed.pending, confirmed.hint))
    # admit
    wall_s = context.timeout_s if context.timeout_s is not None else tool.timeout or route.limits.wall_s
    admission: Admission | None = None
    if caller.meter is not None or services.gate.is_limited or services.gate.breaker.circuits:
        admitted = await admit(services, caller, call_id, offer.declaration, wall_s)
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
            ran = await _on_host(context, route, call, wall_s, confirm)
        else:
            answered = await in_cell(context, route, call, packed, changes, wall_s, confirm)
            if type(answered) is not Ran:
                return refused(context, call, tool, answered, intended=True)
            ran = answered
        if admission is not None and ran.is_delivered:
            used = ran.used
        # conclude
        try:
            if confirm is not None and confirming.has_asked(ran.outcome):
                ran = await confirming.waiting(context, tool, call, ran, confirm, approved=bool(reason))
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


async def _after_before_hooks(
    context: CallContext, tool: Tool[..., Any], offer: CallableTool, call: ToolCall
) -> _Checked | ToolResult:
    """The call with the arguments that the hooks leave, validated again, or the result of a call that is refused."""
    services = context.services
    hooked, denied, result, by = await hooks.before(services.hooks, context.caller.life, call, services.hook_timeout_s)
    if denied is not None:
        return refused(context, hooked, tool, denied)
    valid = _replaced(offer.checks, hooked.arguments, "a hook")  # always: a hook may have changed them in place
    if isinstance(valid, ValidationError):
        return refused(context, hooked, tool, valid)
    return _Checked(call._replace(arguments=valid.arguments), valid.packed, result, by)


async def _approved(
    context: CallContext, tool: Tool[..., Any], offer: CallableTool, call: ToolCall, reason: str
) -> _Checked | ToolResult:
    """The approved call, or the result of a call that is refused. The call is the same object if the approver left its
    arguments as they were. Other arguments are validated, and the policy decides about them."""
    try:
        approved = await approve.ask(context, tool, call, reason)
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


async def _on_host(
    context: CallContext, route: Route, call: ToolCall, wall_s: float, confirm: list[Field] | None
) -> Ran:
    """Run the call of a host tool. A call whose caller goes meanwhile is recorded."""
    services, caller, tool = context.services, context.caller, route.tool
    most = route.limits.result_bytes
    try:
        outcome, used = await host.run(context, tool, call, wall_s=wall_s, result_bytes=most, confirm=confirm)
    except BaseException:
        if context.fate is not None:
            context.fate.delivered, context.fate.effect = True, not route.declaration.annotations.read_only
        record_without_run(services, caller, call, tool.version, approve.closed(call.tool, caller.life), {})
        raise
    return Ran(route, outcome, used, secrets_for_record(services, caller, call))


def _replaced(checks: Checks, put_in: Mapping[str, Any], who: str) -> Valid | ValidationError:
    """Validate arguments that replaced the call's. The error is not for the model, which did not write them."""
    valid = checks.arguments.check(put_in)
    if isinstance(valid, Valid):
        return valid
    message = f"The arguments that {who} put in do not fit: {valid.message}"
    return valid.model_copy(update={"message": message, "retryable": False})
