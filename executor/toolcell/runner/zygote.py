"""The zygote: a clean, single-threaded, exec'd interpreter with what its tools need loaded, which forks cells.

It holds nothing worth stealing and trusts its supervisor. One request at a time: a cell's first milliseconds
(the plan, the fork) run here, the rest runs in the cell. When nothing is asked for, it begins the next cell ahead. When
the supervisor's end of the socket closes, the zygote exits, and every cell dies with it (PR_SET_PDEATHSIG).
"""

# The heavy imports of a call, done once here so that every cell and call process shares their pages.
import gc
import os
import select
import signal
import socket
import sys
from collections.abc import Sequence
from typing import Any, NoReturn, cast

from toolcell.fast.switches import is_on
from toolcell.wire.code import running_code
from toolcell.wire.frames import HEADER, Field, WireLimits, encode
from toolcell.wire.messages import (
    BindPaths,
    CellFailed,
    CellMade,
    CellsRefused,
    Failed,
    MakeCell,
    PathsBound,
    Prepare,
    Started,
    to_fields,
)
from toolcell.wire.protocol import ZYGOTE_LIMITS, ZygoteLink
from toolcell_sandbox.binding import Door
from toolcell_sandbox.errors import SandboxError
from toolcell_sandbox.identity import Identity
from toolcell_sandbox.kernel.passing import receive_fds
from toolcell_sandbox.kernel.probe import start_probe
from toolcell_sandbox.mechanisms import lifetime
from toolcell_sandbox.prespawn import Prespawned
from toolcell_sandbox.profile import CellProfile
from toolcell_sandbox.report import SandboxReport
from toolcell_sandbox.spawn import Child, spawn
from toolcell_sandbox.view import Bound

from . import cell, descendants, fds, serve
from .cow import pages
from .options import binds_of

PRESPAWN_AFTER_MS = 10  # without a request: the cell that was made last is nearly through its own start
REQUEST_BYTES = HEADER.size + ZYGOTE_LIMITS.frame_bytes


def main(socket_fd: int) -> NoReturn:
    """Serve spawn requests until the supervisor goes away."""
    connection = socket.socket(fileno=socket_fd)
    os.umask(0o022)  # of mount points that are made here; the supervisor's may be any
    serve.preload()
    Zygote(connection).run()


def fields_of_failure(error: SandboxError) -> Failed:
    return Failed(error.step, str(error), error.mechanism, error.cure)


def _tell_failure(error: SandboxError) -> None:
    """In the child: report on the cell's own control socket why it cannot become a cell."""
    fds.write_all(fds.CONTROL, encode(to_fields(fields_of_failure(error)), WireLimits()))


def freeze() -> None:
    """Take what is there out of the collector's sight: it would write to pages that cells share. Never between two
    forks, where nothing new is there: a cycle around every fork would leak (apache/airflow#60505).
    """
    gc.collect()
    gc.freeze()


class Zygote:
    """The request loop. `cells` maps the pidfd of each living cell to its pid, to reap it when it ends."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self.link = ZygoteLink.of_zygote()
        self.cells: dict[int, int] = {}
        self.report = SandboxReport((), "rootless")
        self.allow_missing: frozenset[str] = frozenset()
        self.prespawned: Prespawned | None = None
        self.doors: dict[int, tuple[int, Door]] = {}  # of cells that are unbound, by id: their pidfds
        self.like: tuple[Identity, tuple[str, ...], bool] | None = None  # what the next prespawned is to be fit for
        self.poll = select.poll()
        # Cells inherit 0 to 5 at fixed numbers; park our own 1 and 2 above them.
        self.saved = [os.dup(1), os.dup(2)]
        self.children_fd = -1  # lists our children, where cells have no pid namespace to take their orphans along
        for fd in (fds.CONTROL, fds.FRAMES_IN, fds.FRAMES_OUT):
            os.dup2(0, fd)

    def run(self) -> NoReturn:
        self.poll.register(self.connection, select.POLLIN)
        gc.disable()
        freeze()
        if is_on("code_pages"):
            pages.hand_on_code()
        while True:
            events = self.poll.poll(None if self.like is None else PRESPAWN_AFTER_MS)
            if not events:
                self.prespawn()
            for fd, _event in sorted(events, key=lambda event: event[0] == self.connection.fileno()):
                if fd == self.connection.fileno():  # last: what dead cells left is gone before a new one is made
                    child = self.on_request()
                    if child is not None:
                        self.poll.register(child, select.POLLIN)
                elif self.prespawned is not None and fd in (self.prespawned.child.pidfd, self.prespawned.mounts):
                    self.end_prespawned()  # it has died, or must not hold what was unmounted
                elif (id := self.behind(fd)) is not None:
                    signal.pidfd_send_signal(self.shut(id), signal.SIGKILL)  # for the same reason
                elif fd in self.cells:
                    self.poll.unregister(fd)
                    for id in [id for id, (pidfd, _door) in self.doors.items() if pidfd == fd]:
                        self.shut(id)
                    os.waitpid(self.cells.pop(fd), 0)
                    os.close(fd)
                    self.kill_orphans()

    def prespawn(self) -> None:
        """Begin the next cell, like the last one, while nobody waits for it. Nothing of a session is here any more."""
        assert self.like is not None
        (identity, system, proc), self.like = self.like, None
        self.end_prespawned()  # it did not fit
        try:
            self.prespawned = Prespawned(
                cell.main,
                _tell_failure,
                identity=identity,
                system=system,
                proc=proc,
                report=self.report,
                allow_missing=self.allow_missing,
            )
        except SandboxError:
            return  # what is wrong is told by the next cell, which takes the same steps
        self.poll.register(self.prespawned.child.pidfd, select.POLLIN)
        self.poll.register(self.prespawned.mounts, select.POLLPRI)

    def end_prespawned(self) -> None:
        if self.prespawned is not None:
            self.poll.unregister(self.prespawned.child.pidfd)
            self.poll.unregister(self.prespawned.mounts)
            self.prespawned.end()
            self.prespawned = None

    def behind(self, mounts: int) -> int | None:
        """The unbound cell whose door has this descriptor."""
        return next((id for id, (_pidfd, door) in self.doors.items() if door.mounts == mounts), None)

    def shut(self, id: int) -> int:
        """Forget the way into a cell that is finished, or is to be ended; its pidfd."""
        pidfd, door = self.doors.pop(id)
        self.poll.unregister(door.mounts)
        door.close()
        return pidfd

    def kill_orphans(self) -> None:
        """End what a dead cell left to us, the subreaper above its init."""
        if self.children_fd >= 0:
            descendants.kill_children(self.children_fd, self.cells.values())

    def exit(self) -> NoReturn:
        """The supervisor is gone: our death takes every cell with it."""
        self.end_prespawned()
        if self.children_fd >= 0:
            descendants.kill_children(self.children_fd)
        os._exit(0)

    def on_request(self) -> int | None:
        """Carry out one request; return the pidfd of a new cell, if one was made."""
        data, received, _flags = receive_fds(self.connection, REQUEST_BYTES, 8)
        if not data:
            self.exit()
        try:
            match self.link.receive(data):
                case Prepare() as request:
                    self.on_prepare(request)
                case MakeCell() as request:
                    return self.on_cell(request, received)
                case BindPaths(id, binds):
                    self.on_bind(id, binds)
                case wrong:
                    print(f"the supervisor does not keep to the protocol: {wrong}", file=sys.stderr, flush=True)
                    os._exit(76)  # EX_PROTOCOL, sysexits.h
            return None
        finally:
            for fd in received:
                os.close(fd)

    def on_prepare(self, request: Prepare) -> None:
        """Take over the probe's report, or make it, and load what the supervisor's tools need."""
        self.allow_missing = frozenset(map(str, request.allow_missing))
        try:
            report = start_probe() if request.report is None else None
            self.preload(request.preload)  # while the probe's child is at work
            self.report = report() if report else SandboxReport.from_wire(cast("dict[str, object]", request.report))
            if "pid_namespace" in {mechanism.name for mechanism in self.report.missing}:
                self.children_fd = lifetime.adopt_descendants()
        except SandboxError as error:
            self.answer(CellsRefused(*fields_of_failure(error)))
            return
        self.answer(Started(cast("dict[str, Field]", self.report.to_wire()), {**running_code()}))

    def preload(self, names: list[Field] | None) -> bool:
        """Load what these tools need and no other has needed yet; whether there was anything to load."""
        loaded = serve.preload_for(None if names is None else map(str, names))
        if loaded:
            freeze()
        return loaded

    def on_cell(self, request: MakeCell, received: list[int]) -> int | None:
        """Fork a cell onto the descriptors that came with the request."""
        prespawned = None if self.preload(request.preload) else self.prespawned  # which has not loaded it
        profile = CellProfile.from_wire(request.profile)
        identity = Identity.from_wire(request.identity)
        if is_on("prespawn") and Prespawned.is_possible(profile, identity, self.report):
            self.like = identity, profile.system, profile.proc
        for source, target in zip(received, (fds.CONTROL, fds.FRAMES_IN, fds.FRAMES_OUT, 1, 2), strict=True):
            os.dup2(source, target, inheritable=target in (1, 2))  # a program that a tool starts has the two streams
        try:
            child = spawn(
                profile,
                cell.main,
                _tell_failure,
                identity=identity,
                cgroups=list(map(str, request.cgroups)),
                keep_fds=(fds.CONTROL, fds.FRAMES_IN, fds.FRAMES_OUT),
                allow_missing=self.allow_missing,
                report=self.report,
                protected=[Bound.from_wire(cast("list[Any]", row)) for row in request.protected],
                prespawned=prespawned,
                unbound=request.unbound,
            )
        except SandboxError as error:
            self.answer(CellFailed(request.id, *fields_of_failure(error)))
            return None
        finally:
            for saved, target in zip(self.saved, (1, 2), strict=True):
                os.dup2(saved, target)
            for fd in (fds.CONTROL, fds.FRAMES_IN, fds.FRAMES_OUT):
                os.dup2(0, fd)
        if prespawned is not None and child is prespawned.child:
            self.poll.unregister(prespawned.mounts)
            self.prespawned = None
        self.cells[child.pidfd] = child.pid
        if request.unbound:
            self.leave_open(request.id, child, identity, cast("list[tuple[int, int]]", request.owners))
        given = [child.pidfd] if child.listener < 0 else [child.pidfd, child.listener]
        self.answer(CellMade(request.id, child.pid), given)
        if child.listener >= 0:
            os.close(child.listener)  # only the supervisor may accept what the cell connects to
        return child.pidfd

    def leave_open(self, id: int, child: Child, identity: Identity, owners: Sequence[tuple[int, int]]) -> None:
        """Keep a way into a cell that is to get the rest of its paths, which are likely to be of these owners."""
        try:
            door = Door(child.pid, identity)
        except OSError:
            signal.pidfd_send_signal(child.pidfd, signal.SIGKILL)  # if it has not died: nobody can finish it
            return
        self.doors[id] = child.pidfd, door
        self.poll.register(door.mounts, select.POLLPRI)
        try:
            door.prepare((uid, gid) for uid, gid in owners)
        except SandboxError:
            pass  # it is told where it is needed

    def on_bind(self, id: int, binds: list[Field]) -> None:
        """Bring its session's paths to an unbound cell."""
        if id not in self.doors:
            return  # it has died: its pidfd says so
        try:
            self.doors[id][1].bring(binds_of(binds))
        except (SandboxError, OSError) as error:  # the latter of a mount point: what lies there, or descriptors
            if isinstance(error, OSError):
                error = SandboxError(f"The session's paths cannot be put in place: {error}", step="finish the cell")
            self.answer(CellFailed(id, *fields_of_failure(error)))
        else:
            self.answer(PathsBound(id))
        self.shut(id)

    def answer(
        self, message: Started | CellsRefused | CellMade | PathsBound | CellFailed, given: Sequence[int] = ()
    ) -> None:
        try:
            socket.send_fds(self.connection, [self.link.send(message)], given)
        except BrokenPipeError:
            self.exit()
