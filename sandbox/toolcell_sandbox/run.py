"""One Python function in one fresh cell, for scripts and tests."""

import os
import select
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from .enter import Entered
from .errors import SandboxError
from .identity import Identity
from .kernel.probe import probe
from .profile import Profile
from .report import SandboxReport
from .spawn import spawn, terminate

TYPE_CHECKING = False  # checkers know this name; importing typing would cost milliseconds
if TYPE_CHECKING:
    from typing import NoReturn


@dataclass(frozen=True, slots=True)
class Outcome:
    """How it ended: exit status (negative for a signal), whether the wall limit ended it, and the sandbox report."""

    status: int
    timed_out: bool
    report: SandboxReport


def run(
    fn: Callable[[Entered], int | None],
    profile: Profile,
    *,
    identity: Identity | None = None,
    report: SandboxReport | None = None,
    cgroups: Sequence[str] = (),
    keep_fds: Sequence[int] = (),
    allow_missing: frozenset[str] = frozenset(),
) -> Outcome:
    """Run `fn(entered)` in a new cell and wait for it, at most `limits.wall_s`.

    The status is what `fn` returns (None is 0), or 1 after an exception, whose traceback goes to standard error.
    The caller is single-threaded. Raises SandboxError when the cell could not be confined.
    """
    identity = identity or Identity.for_slot(0)
    report = report or probe(identity.mode)
    failure_read, failure_write = os.pipe2(os.O_CLOEXEC)

    def main(entered: Entered) -> "NoReturn":
        os.close(failure_write)
        os._exit(_call(fn, entered))

    def failed(error: SandboxError) -> None:
        wire = error.to_wire()
        os.write(failure_write, "\0".join(str(value) for value in wire.values()).encode())

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
                keep_fds=(*keep_fds, failure_write),
                allow_missing=allow_missing,
            )
        finally:
            os.close(failure_write)
        poll = select.poll()
        poll.register(child.pidfd, select.POLLIN)
        timed_out = not poll.poll(profile.limits.wall_s * 1000)
        if timed_out:
            status = terminate(child)
        else:
            os.close(child.pidfd)
            status = os.waitstatus_to_exitcode(os.waitpid(child.pid, 0)[1])
        told = os.read(failure_read, 65536).decode()
    finally:
        os.close(failure_read)
    if told:
        what, step, mechanism, number, cure = told.split("\0")
        raise SandboxError.from_wire(
            {"what": what, "step": step, "mechanism": mechanism, "errno": int(number), "cure": cure}
        )
    return Outcome(status, timed_out, report)


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
