"""Admit a call: the budget of large arguments, usage limits and concurrency limits. Most calls need none of these."""

import time
from dataclasses import dataclass
from typing import Final

import anyio

from toolcell.pool.run import Used
from toolcell.rules.limits import UsageMeter
from toolcell.wire.budget import Charge
from toolcell_tools.declaration import ToolDeclaration
from toolcell_tools.errors import Cancelled, Overloaded, PermissionDenied
from toolcell_tools.preview import counted

from .call_errors import closed, usage_limit_reached
from .services import Caller, Services
from .turnstile import Queue, Turnstile

BUSY_RETRY_S: Final = 1.0


def held(services: Services, caller: Caller, bytes: int) -> Charge | Overloaded:
    """Count the arguments of a call in the budget of its session, until they are released."""
    charge = services.pool.budgets.arguments.hold(caller.id, bytes)
    if charge is not None:
        return charge
    message = (
        f"The call was not started: its arguments take {bytes:,} bytes, and those of the calls that have begun leave "
        "no room for them. Try again when some of these calls have ended."
    )
    return Overloaded(message=message, retry_after_s=BUSY_RETRY_S)


@dataclass(slots=True)
class Admission:
    """A call that may run, within `wall_s` seconds. `leave` must follow."""

    wall_s: float
    session_id: str
    queue: Queue
    turnstiles: list[Turnstile]
    meter: UsageMeter | None
    is_counted: bool = False

    def leave(self, used: Used | None) -> None:
        """Give back the places, and count the call's usage; None if it was not run."""
        if self.turnstiles:
            self.queue.leave(self.turnstiles, self.session_id)
        if self.meter is None or not self.is_counted:
            return
        if used is None:
            self.meter.take_back()
        else:
            moved = used["sent_bytes"] + used["received_bytes"]
            self.meter.add(cpu_s=used["cpu_s"], wall_s=used["wall_s"], bytes=moved)


async def admit(
    services: Services, caller: Caller, declaration: ToolDeclaration, wall_s: float
) -> Admission | PermissionDenied | Overloaded | Cancelled:
    """Admit the call, or say why not. It waits for its turn within `wall_s` seconds."""
    name, meter, queue = declaration.name, caller.meter, services.gate.queue
    admission = Admission(wall_s, caller.id, queue, [], meter)
    if meter is not None:
        reached = meter.begin()
        if reached:
            return usage_limit_reached(declaration, reached)
        admission.is_counted = True
        admission.wall_s = min(wall_s, meter.wall_left_s())
    turnstiles = services.gate.turnstiles(name, caller.kind)
    if not turnstiles:
        return admission
    try:
        refused = await _wait_for_turn(admission, caller, name, turnstiles)
    except BaseException:  # the caller has gone
        admission.leave(None)
        raise
    if refused is not None:
        admission.leave(None)
    return refused or admission


async def _wait_for_turn(
    admission: Admission, caller: Caller, name: str, turnstiles: list[Turnstile]
) -> Overloaded | Cancelled | None:
    """Wait for a place at each turnstile, within the call's time, which this shortens. Returns the error of a call that
    gets none."""
    queue, wall_s = admission.queue, admission.wall_s
    running = f"as many calls of {name!r} or of {caller.kind.value} sessions run as are allowed at the same time"
    refused_s = queue.refusal_s(turnstiles, caller.id, wall_s)
    if refused_s:
        waiting = counted(len(queue), "call waits", "calls wait")
        return Overloaded(
            message=(f"The call was not queued: {running}, and {waiting}. Try again in {refused_s:.2g} s."),
            retry_after_s=round(refused_s, 2),
        )
    began, has_entered = time.monotonic(), False
    with caller.life.doing(f"the wait of a call of {name!r}") as work, work.scope, anyio.move_on_after(wall_s):
        await queue.enter(turnstiles, caller.id)
        admission.turnstiles = turnstiles
        has_entered = True
    if caller.life.closed:  # also if the close has ended the call that had the place
        return closed(name, caller.life)
    if not has_entered:
        return Overloaded(
            message=f"The call waited {wall_s:.3g} s, its whole time, and was not started: {running}. Try again later.",
            retry_after_s=BUSY_RETRY_S,
        )
    admission.wall_s = max(0.0, wall_s - (time.monotonic() - began))
    return None
