"""Run the call in a cell: give it to the pool and wait. If the workspace becomes another directory, submit it again."""

import time
from typing import NamedTuple, final

from toolcell.backends.threads import NoThread
from toolcell.pool.run import Outcome, Used
from toolcell.rules.call import ToolCall
from toolcell.rules.redaction import Redaction
from toolcell.sessions.changes import CallChanges
from toolcell.sessions.protection import Guarded, Watch, overlap
from toolcell.wire.frames import Field
from toolcell_sandbox.errors import SandboxError
from toolcell_tools.errors import Overloaded, SandboxUnavailable

from .call_context import CallContext
from .call_errors import MISPLACED, UNROUTABLE, no_thread, unseen, unusable
from .route import Route
from .services import Services
from .serving import SessionRun

MOST_SUBMISSIONS = 10  # of one call: one more each time that its workspace was replaced while it waited


@final
class Ran(NamedTuple):
    """A call that has an outcome, whether or not it ran."""

    route: Route
    outcome: Outcome
    used: Used
    secrets: Redaction | None = None
    """The secrets that are removed from the texts of the call's record. None if the arguments have none, and without a
    state directory."""
    run: SessionRun | None = None
    watch: Watch | None = None
    confirmation: str = ""
    """The id of the question that the call waits for."""

    @property
    def is_delivered(self) -> bool:
        """Whether a process got the call. A host tool always gets it."""
        return self.run is None or self.run.started_at > 0

    @property
    def has_effect(self) -> bool:
        """Whether what the call did may last."""
        if self.run is None:
            return not self.route.declaration.annotations.read_only
        return self.is_delivered and self.run.has_effect


async def in_cell(
    context: CallContext,
    route: Route,
    call: ToolCall,
    packed: bytes | None,
    changes: bool,
    wall_s: float,
    confirm: list[Field] | None = None,
) -> Ran | SandboxUnavailable | Overloaded:
    """Run the call in a cell. If the workspace is replaced while the call waits, the call goes to the new directory."""
    services, life = context.services, context.caller.life
    run: SessionRun | None = None
    watch: Watch | None = None
    submissions = 1
    while True:
        if route.is_misplaced:
            return MISPLACED
        changed: CallChanges | None = None
        if route.tracked is not None:
            changed = route.tracked.call(context.caller.profile.changed_files)
        if route.guarded is not None:
            try:
                watch = await _entered(context, route, route.guarded, changed)
            except (SandboxError, OSError) as error:
                return unseen(error)
            except NoThread as error:
                return no_thread(error)
        elif route.tracked is not None and changed is not None:
            await route.tracked.enter(changed)
        run = SessionRun(context, route, call, wall_s, packed, watch, changed, has_result=True, before=run)
        if confirm is not None:
            run.confirm = confirm
        ended: Outcome | None = None
        if (watch is not None or changed is not None) and (
            life.closed or context.routes.has_moved(route)
        ):  # while `enter` was awaited
            ended = Outcome("cancelled" if life.closed else "moved")
            run.end(ended, time.monotonic())
        waiter = services.pool.submit(run) if ended is None else ended
        secrets = None if services.durable is None else run.argument_secrets()  # while the cell works
        try:
            outcome = waiter if isinstance(waiter, Outcome) else await waiter
            if run.gone is not None:
                await run.audited(watch)
            watch = run.audited_elsewhere or watch
        except BaseException:
            if context.fate is not None:
                context.fate.delivered = run.started_at > 0
                context.fate.effect = run.has_effect and not route.declaration.annotations.read_only
            run.abandon(watch)
            raise
        finally:
            if run.started_at and context.taken:
                context.taken.clear()  # it has begun, so its approvals are used up
        if outcome.ending != "moved" or submissions >= MOST_SUBMISSIONS:
            return Ran(route, outcome, run.used, secrets, run, watch, "")
        submissions += 1  # the workspace is another directory now
        try:
            route = context.routes.to(context.routes.offer(route.tool), changes=changes)
        except UNROUTABLE as error:
            return unusable(error)


async def _entered(context: CallContext, route: Route, guarded: Guarded, changed: CallChanges | None) -> Watch:
    """Look at the workspace for protected names, before the call. Raises SandboxError, OSError or NoThread."""
    keeps = bool(route.spec.key.kept_tool)
    kept = keeps or has_kept_writers(context.services, route.spec.profile.writable)
    return await guarded.enter(context.caller.id, kept=kept, keeps=keeps, changed=changed)


def has_kept_writers(services: Services, mine: tuple[str, ...]) -> bool:
    """Whether a kept process of any session may write to one of these paths."""
    return any(overlap(mine, writable) for writable in services.pool.kept_writable())
