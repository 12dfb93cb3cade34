"""The pipeline: all steps from a tool call to its result, in order.

Nothing here raises because of a tool, a model or a sandbox. Arguments from a repair are validated again, so the call
runs with checked arguments.
"""

from collections.abc import Mapping
from typing import Any

from toolcell.call import ToolCall
from toolcell.fast.tuples import made
from toolcell.pool.run import NOTHING_USED, Outcome, Used
from toolcell_tools.errors import Cancelled, ErrorBase, PermissionDenied, ValidationError
from toolcell_tools.result import ToolResult

from . import approve, confirming, hooks, host
from .admit import Admission, admit
from .catalog import Checks
from .conclude import concluded, put_in_place, refused
from .context import CallContext, Repair
from .execute import UNROUTABLE, Ran, in_cell, unusable
from .grant import mutates
from .permit import allowed_by, permit
from .record import intend, record_without_run, secrets_for_record
from .resolve import resolved
from .validate import Valid

UNCONFIRMED = confirming.Standing([])
MAX_ATTEMPTS = 3  # ADR-0004: at most two retries of a call whose arguments do not validate


async def dispatch(
    context: CallContext, name: str, arguments: Mapping[str, Any], repair: Repair | None = None
) -> ToolResult:
    """Run the call. `repair` may correct its arguments up to twice. The last result is returned."""
    number = 1
    while True:
        result = await attempt(context, name, arguments, number)
        error = result.error
        if repair is None or number >= MAX_ATTEMPTS or not isinstance(error, ValidationError) or not error.retryable:
            if number >= MAX_ATTEMPTS and isinstance(error, ValidationError) and error.retryable:
                context.caller.tally.failed(context.call_id, result.tool, error, for_good=True)
            return result
        with context.caller.life.doing(f"the repair of call {context.call_id}") as work, work.scope:
            arguments, number = await repair(error), number + 1
        if work.scope.cancelled_caught:
            return result.model_copy(update={"error": approve.closed(result.tool, context.caller.life)})


async def attempt(context: CallContext, name: str, arguments: Mapping[str, Any], number: int = 1) -> ToolResult:
    """Make one attempt at a call, step by step. The first attempt has `number` 1."""
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
    call = made(ToolCall, (call_id, name, valid.arguments, number, caller.data.info, offer.declaration))
    packed = valid.packed
    # before hooks
    given: ToolResult | None = None
    by = ""
    if services.hooks:
        hooked, denied, given, by = await hooks.before(services.hooks, caller.life, call, services.hook_timeout_s)
        if denied is not None:
            return refused(context, hooked, tool, denied)
        valid = _replaced(checks, hooked.arguments, "a hook")  # always, because a hook may have changed them in place
        if isinstance(valid, ValidationError):
            return refused(context, hooked, tool, valid)
        call, packed = call._replace(arguments=valid.arguments), valid.packed
    # permit
    verdict = permit(services.policy, call, offer, caller.data.info)
    if not isinstance(verdict, str):
        return refused(context, call, tool, verdict)
    # approve
    confirmed = UNCONFIRMED
    if tool.confirms:
        confirmed = await confirming.standing(context, tool, call)
    if verdict and not (confirmed.approved or confirmed.pending):
        packed = None  # encode again, so that the cell gets exactly the arguments that the approver sees
        try:
            approved = await approve.ask(context, tool, call, verdict)
        except UNROUTABLE as error:  # no route to its preview
            return refused(context, call, tool, unusable(error))
        if isinstance(approved, (PermissionDenied, Cancelled)):
            return refused(context, call, tool, approved)
        if approved is not call.arguments:
            valid = _replaced(checks, approved, "the approver")
            if isinstance(valid, ValidationError):
                return refused(context, call, tool, valid)
            call, packed = call._replace(arguments=valid.arguments), valid.packed
            given = None  # it was for other arguments
            again = permit(services.policy, call, offer, caller.data.info)  # a rule may deny the new arguments
            if not isinstance(again, str):
                return refused(context, call, tool, again)
            if tool.confirms:
                confirmed = await confirming.standing(context, tool, call)
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
        if services.hooks or verdict or tool.sometimes_mutates:  # the program's code has run since the first offer
            offer = routes.offer(tool)
        route = routes.to(offer, changes=changes)
    except UNROUTABLE as error:
        return refused(context, call, tool, unusable(error))
    if given is not None:
        return await put_in_place(context, call, checks, route, given, by)
    if confirmed.pending:
        asked = Ran(route, Outcome("result"), NOTHING_USED, secrets_for_record(services, call))
        return await concluded(context, call, checks, confirming.pending(asked, confirmed.pending, confirmed.hint))
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
            if verdict or "allowed" not in route.asked.facts:
                allowed = allowed_by(services.policy, call, offer, verdict, caller.data.info)
            unrecorded = intend(services.durable, caller.id, call, route.asked, allowed)
            if unrecorded is not None:
                return refused(context, call, tool, unrecorded)
        # run
        confirm = confirmed.given if tool.confirms else None
        if tool.placement == "host":
            most = route.limits.result_bytes
            try:
                outcome, used = await host.run(context, tool, call, wall_s=wall_s, result_bytes=most, confirm=confirm)
            except BaseException:
                if context.fate is not None:
                    context.fate.delivered, context.fate.effect = True, not offer.declaration.annotations.read_only
                record_without_run(services, caller.id, call, tool.version, approve.closed(call.tool, caller.life), {})
                raise
            ran = Ran(route, outcome, used, secrets_for_record(services, call))
            if confirm is not None and confirming.has_asked(outcome):
                ran = await confirming.waiting(context, tool, call, ran, confirm, approved=bool(verdict))
            return await concluded(context, call, checks, ran)
        answered = await in_cell(context, route, call, packed, changes, wall_s, confirm)
        if type(answered) is not Ran:
            return refused(context, call, tool, answered, intended=True)
        ran = answered
        if admission is not None and ran.is_delivered:
            used = ran.used
        try:
            if confirm is not None and confirming.has_asked(ran.outcome):
                ran = await confirming.waiting(context, tool, call, ran, confirm, approved=bool(verdict))
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


def _replaced(checks: Checks, put_in: Mapping[str, Any], who: str) -> Valid | ValidationError:
    """Validate arguments that replaced the call's. The error is not for the model, which did not write them."""
    valid = checks.arguments.check(put_in)
    if isinstance(valid, Valid):
        return valid
    message = f"The arguments that {who} put in do not fit: {valid.message}"
    return valid.model_copy(update={"message": message, "retryable": False})
