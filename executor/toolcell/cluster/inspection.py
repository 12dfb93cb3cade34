"""A call on a node between inspections of its workspace: its changed files, and its protected names."""

import logging
import time
from functools import partial
from typing import Protocol

import anyio

from toolcell.backends.threads import NO_THREAD_RETRY_S, NoThread
from toolcell.dispatch.call_errors import unseen
from toolcell.dispatch.changed_files import listed_of
from toolcell.dispatch.protected_names import audit
from toolcell.dispatch.run_in_cell import has_kept_writers
from toolcell.dispatch.services import Services
from toolcell.dispatch.serving import bound_to
from toolcell.pool.run import Outcome
from toolcell.sessions.changes import RemoteRoot, TrackedRoot
from toolcell.sessions.protection import Guarded, Watch
from toolcell_sandbox.errors import SandboxError

from .node_run import NodeRun

__all__ = ["run_inspected"]

_log = logging.getLogger("toolcell.cluster")


class CallSeat(Protocol):
    """The driver's seat, as an inspected call sees it."""

    @property
    def services(self) -> Services: ...
    @property
    def is_over(self) -> bool: ...
    def has_moved(self, run: NodeRun) -> bool: ...
    def tell(self, run: NodeRun) -> None:
        """Send the outcome of the call to the driver."""
        ...


async def run_inspected(
    seat: CallSeat, run: NodeRun, guarded: Guarded | None, tracked: TrackedRoot | RemoteRoot | None
) -> None:
    """Run a call between inspections of its workspace. An inspection that fails ends only this call."""
    try:
        await _run(seat, run, guarded, tracked)
    except Exception as error:
        _log.exception("the inspection of the workspace around call %s has failed", run.call_id)
        seat.services.pool.cancel(run)
        why = f"The inspection of the workspace failed ({type(error).__name__}). The node's log has the details."
        run.outcome = Outcome("unavailable" if run.started_at == 0 else "lost", message=why)
        seat.tell(run)


async def _run(seat: CallSeat, run: NodeRun, guarded: Guarded | None, tracked: TrackedRoot | RemoteRoot | None) -> None:
    """Inspect the workspace, run the call, then audit the workspace, as `dispatch.run_in_cell` does."""
    services, watch = seat.services, None
    if tracked is not None:
        run.changes = tracked.call(run.most_changes)
        run.changes.run = run
    if guarded is not None:
        try:
            watch = await _guard(services, run, guarded)
        except (SandboxError, OSError, NoThread) as error:
            run.gone = None
            run.end(_unguarded(error), time.monotonic())
            return
    elif tracked is not None and run.changes is not None:
        await tracked.enter(run.changes)
    run.gone = anyio.Event()
    if run.dropped or seat.is_over:
        run.end(Outcome("cancelled"), time.monotonic())
    elif seat.has_moved(run):
        run.end(Outcome("moved"), time.monotonic())
    else:
        services.pool.submit(run)
    see = partial(_see, run, tracked)
    if guarded is not None and watch is not None:
        await audit(services, run, guarded, watch, see)
    else:
        await run.gone.wait()
        with anyio.CancelScope(shield=True):
            try:
                await see()
            finally:
                services.pool.release(run)
    run.watch = watch
    if run.changes is not None and run.changes.tells:
        run.listed = await listed_of(run.changes)
    seat.tell(run)


async def _guard(services: Services, run: NodeRun, guarded: Guarded) -> Watch:
    """Inspect the protected names before the call."""
    spec = run.spec
    keeps = bool(spec.key.kept_tool)
    kept = keeps or has_kept_writers(services, spec.profile.writable)
    watch = await guarded.enter(spec.key.session_id, kept=kept, keeps=keeps, changed=run.changes)
    run.spec, watch.run = bound_to(watch, spec), run
    return watch


async def _see(run: NodeRun, tracked: TrackedRoot | RemoteRoot | None) -> None:
    """Inspect the workspace after the call's last process has ended."""
    if tracked is not None and run.changes is not None:
        await tracked.leave(run.changes)


def _unguarded(error: SandboxError | OSError | NoThread) -> Outcome:
    """The outcome of a call before which the workspace could not be inspected."""
    if isinstance(error, NoThread):
        return Outcome("unavailable", message=str(error), retry_after_s=NO_THREAD_RETRY_S)
    why = unseen(error)
    return Outcome(
        "unavailable", message=why.message, mechanism=why.mechanism, cure=why.cure, retry_after_s=why.retry_after_s
    )
