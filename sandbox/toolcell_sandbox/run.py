"""Run one Python function in a new cell, for scripts and tests."""

import os
import select
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from .enter import Entered
from .errors import SandboxError
from .identity import Identity, unused_slots
from .kernel.probe import probe
from .order import MAX_BYTES, Confined, NotEntered, pack, unpack
from .profile import CellProfile
from .report import SandboxReport
from .spawn import Child, spawn, terminate
from .trees.audit import Finding, ProtectedTrees
from .trees.quarantine import Quarantine

TYPE_CHECKING = False  # checkers know this name; importing typing would cost milliseconds
if TYPE_CHECKING:
    from typing import NoReturn


@dataclass(frozen=True, slots=True)
class RunOutcome:
    """The end of a run: exit status (negative for a signal), whether the wall limit ended it, and the mechanisms in
    force.

    `findings` are the protected names that it made, changed or moved; they are in quarantine, or put back. `unchecked`
    gives the reason if the audit could not see all writable paths, else "".
    """

    status: int
    timed_out: bool
    report: SandboxReport
    findings: tuple[Finding, ...] = ()
    unchecked: str = ""


def run(
    fn: Callable[[Entered], int | None],
    profile: CellProfile,
    *,
    identity: Identity | None = None,
    report: SandboxReport | None = None,
    cgroups: Sequence[str] = (),
    keep_fds: Sequence[int] = (),
    allow_missing: frozenset[str] = frozenset(),
    quarantine: str | None = None,
) -> RunOutcome:
    """Run `fn(entered)` in a new cell and wait for it, at most `limits.wall_s`.

    The status is what `fn` returns (None is 0), or 1 after an exception, whose traceback goes to standard error.
    Files that it made under protected names are moved to the directory `quarantine`, or to a new temporary one. With
    `ProxyNetwork` there is no proxy here: connections are refused. The caller must be single-threaded, and the kernel
    must have pidfds. Raises SandboxError if the cell could not be confined, or if such a file could not be moved.
    """
    identity = identity or Identity.for_slot(unused_slots())
    report = report or probe(identity.mode)
    trees = ProtectedTrees(profile.writable, profile.protected)
    before = trees.look()
    told_read, told_write = os.pipe2(os.O_CLOEXEC)

    def main(entered: Entered) -> "NoReturn":
        os.write(told_write, pack(Confined(entered.report.to_wire())))
        os.close(told_write)
        if entered.score_fd >= 0:
            os.close(entered.score_fd)
        os._exit(_call(fn, replace(entered, score_fd=-1)))

    def failed(error: SandboxError) -> None:
        os.write(told_write, pack(NotEntered.of(error)))

    sys.stdout.flush()
    sys.stderr.flush()
    try:
        try:
            child = spawn(
                profile,
                main,
                failed,
                identity=identity,
                report=report,
                cgroups=cgroups,
                keep_fds=(*keep_fds, told_write),
                allow_missing=allow_missing,
                protected=trees.bound(before),
            )
        finally:
            os.close(told_write)
        if child.listener >= 0:
            os.close(child.listener)
            child = Child(child.pid, child.pidfd)
        status, timed_out = _wait(child, profile.limits.wall_s)
        told = unpack(os.read(told_read, MAX_BYTES))
    finally:
        os.close(told_read)
    if isinstance(told, NotEntered):
        raise told.error()
    if not isinstance(told, Confined):
        raise SandboxError(f"The cell ended before it was confined: status {status}", step="run", cure="Try again.")
    settled = trees.settle(before, Quarantine(quarantine))
    if settled.stuck:
        raise SandboxError(
            f"What the function made of protected names is still there: {settled.stuck}",
            step="quarantine",
            mechanism="protected_names",
            cure="Look at it and remove it.",
        )
    report = SandboxReport.from_wire(told.report)
    return RunOutcome(status, timed_out, report, settled.findings, settled.unknown)


def _wait(child: Child, seconds: float) -> tuple[int, bool]:
    poll = select.poll()
    poll.register(child.pidfd, select.POLLIN)
    if not poll.poll(seconds * 1000):
        return terminate(child), True
    os.close(child.pidfd)
    return os.waitstatus_to_exitcode(os.waitpid(child.pid, 0)[1]), False


def _call(fn: Callable[[Entered], int | None], entered: Entered) -> int:
    status = 1
    try:
        status = fn(entered) or 0
    except BaseException:
        import traceback

        traceback.print_exc()
    sys.stdout.flush()
    sys.stderr.flush()
    return status
