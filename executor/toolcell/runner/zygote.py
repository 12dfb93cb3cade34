"""The zygote: a clean, single-threaded, exec'd interpreter with the libraries of its tools loaded, which forks cells.

It holds no secret and trusts its supervisor. All cells inherit its memory, so it reads figures and descriptors only:
what belongs to a session is in memory files that it passes on unread, to the cell or to the doorkeeper.

It handles one request at a time: a cell's first milliseconds (the fork) run here, the rest runs in the cell. While
there is no request, it prespawns the next cell. When the supervisor's end of the socket closes, the zygote exits, and
every cell dies with it (PR_SET_PDEATHSIG, prctl(2)).
"""

# The large imports of a call, made once here so that all cells and call processes share their pages.
import gc
import marshal
import os
import select
import signal
import socket
import sys
from collections.abc import Sequence
from contextlib import suppress
from fcntl import F_DUPFD_CLOEXEC, fcntl
from typing import NoReturn, cast

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
from toolcell.wire.switches import is_on
from toolcell_sandbox.errors import SandboxError
from toolcell_sandbox.identity import Identity
from toolcell_sandbox.kernel.descriptors import keep_only, receive_fds
from toolcell_sandbox.kernel.probe import start_probe
from toolcell_sandbox.late_paths import Door, bring
from toolcell_sandbox.mechanisms import lifetime
from toolcell_sandbox.order import Sealed, unsealed
from toolcell_sandbox.prespawn import Prespawned
from toolcell_sandbox.profile import CellProfile
from toolcell_sandbox.report import SandboxReport
from toolcell_sandbox.spawn import Child, spawn

from . import call_process, cheap_forks, init, sweep, warm
from .control import CONTROL, FRAMES_IN, FRAMES_OUT, binds_of, write_all

PRESPAWN_AFTER_MS = 10  # without a request; the last cell has nearly finished its start by then
REQUEST_BYTES = HEADER.size + ZYGOTE_LIMITS.frame_bytes


def main(socket_fd: int) -> NoReturn:
    """Serve spawn requests until the supervisor goes away."""
    connection = socket.socket(fileno=socket_fd)
    lifetime.leave_priority()
    init.umask[0] = (os.umask(0o022) & 0o077) | 0o002  # what is made before a call, such as mount points, is for all
    call_process.preload()
    Zygote(connection).run()


def fields_of_failure(error: SandboxError) -> Failed:
    return Failed(error.step, str(error), error.mechanism, error.cure)


def _tell_failure(error: SandboxError) -> None:
    """In the child, report on the cell's control socket why it cannot become a cell."""
    write_all(CONTROL, encode(to_fields(fields_of_failure(error)), WireLimits()))


def _owners(rows: list[Field]) -> tuple[tuple[int, int], ...]:
    return tuple((uid, gid) for uid, gid in cast("list[list[int]]", rows))


def _close_all(received: list[int]) -> None:
    while received:
        os.close(received.pop())


def freeze() -> None:
    """Exclude all present objects from garbage collection, which would write to pages that cells share. Do not call
    this at every fork: each cycle that is garbage by then would leak (apache/airflow#60505).

    There is no collection first. It would take a tenth of the zygote's start, and free some hundred objects.
    """
    gc.freeze()


def _not_in_place(error: SandboxError | OSError) -> SandboxError:
    if isinstance(error, SandboxError):
        return error
    # what lies at a mount point, no descriptors, or a doorkeeper that was killed
    return SandboxError(f"The session's paths cannot be put in place: {error}", step="finish the cell")


class Zygote:
    """The request loop. `cells` maps the pidfd of each live cell to its pid, to reap it at its end."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self.link = ZygoteLink.of_zygote()
        self.cells: dict[int, int] = {}
        self.report = SandboxReport((), "rootless")
        self.allow_missing: frozenset[str] = frozenset()
        self.prespawned: Prespawned | None = None
        self.doors: dict[int, tuple[int, Door]] = {}  # unbound cells by id: the pidfd and the way to add mounts
        self.orders: socket.socket | None = None  # to the doorkeeper
        self.keeper = -1  # its pidfd
        self.next_kind: tuple[Identity, bool] | None = None  # of the next prespawned cell: the identity, `proc`
        self.system: tuple[str, ...] = ()  # the paths that prespawned cells mount
        self.poll = select.poll()
        # A cell gets its descriptors 1 to 5 from us, by number. Our own 1 and 2 are kept above them.
        self.saved = [fcntl(fd, F_DUPFD_CLOEXEC, FRAMES_OUT + 1) for fd in (1, 2)]
        self.children_fd = -1  # the list of our children, which get orphans if cells have no pid namespace
        for fd in (CONTROL, FRAMES_IN, FRAMES_OUT):
            os.dup2(0, fd)

    def run(self) -> NoReturn:
        self.poll.register(self.connection, select.POLLIN)
        gc.disable()
        freeze()
        if is_on("code_pages"):
            cheap_forks.hand_on_code()
        while True:
            events = self.poll.poll(None if self.next_kind is None else PRESPAWN_AFTER_MS)
            if not events:
                self.prespawn()
            for fd, _event in sorted(events, key=lambda event: event[0] == self.connection.fileno()):
                if fd == self.connection.fileno():  # last: remains of dead cells are removed before a new cell is made
                    child = self.on_request()
                    if child is not None:
                        self.poll.register(child, select.POLLIN)
                elif self.prespawned is not None and fd in (self.prespawned.child.pidfd, self.prespawned.mounts):
                    self.end_prespawned()  # it has died, or must not hold a mount that was removed
                elif (id := self.unbound_cell(fd)) is not None:
                    signal.pidfd_send_signal(self.close_door(id), signal.SIGKILL)  # must not hold that mount either
                elif fd in self.cells:
                    self.poll.unregister(fd)
                    if fd == self.keeper and self.orders is not None:
                        self.orders.close()
                        self.orders = None  # the next paths have another doorkeeper
                    for id in [id for id, (pidfd, _door) in self.doors.items() if pidfd == fd]:
                        self.close_door(id)
                    os.waitpid(self.cells.pop(fd), 0)
                    os.close(fd)
                    self.kill_orphans()

    def prespawn(self) -> None:
        """Prespawn the next cell, of the last cell's kind, while there is no request. It has no data of a session."""
        assert self.next_kind is not None
        (identity, proc), self.next_kind = self.next_kind, None
        self.end_prespawned()  # it did not fit
        try:
            self.prespawned = Prespawned(
                init.main,
                _tell_failure,
                identity=identity,
                system=self.system,
                proc=proc,
                report=self.report,
                allow_missing=self.allow_missing,
            )
        except SandboxError:
            return  # the next requested cell takes the same steps and reports the error
        self.poll.register(self.prespawned.child.pidfd, select.POLLIN)
        self.poll.register(self.prespawned.mounts, select.POLLPRI)
        if is_on("requests"):
            warm.rehearse_request(CellProfile(system=self.system, proc=proc).figures())  # the default would be sought

    def end_prespawned(self) -> None:
        if self.prespawned is not None:
            self.poll.unregister(self.prespawned.child.pidfd)
            self.poll.unregister(self.prespawned.mounts)
            self.prespawned.end()
            self.prespawned = None

    def unbound_cell(self, mounts: int) -> int | None:
        """The id of the unbound cell whose door reports on this descriptor that mounts of the host have changed."""
        return next((id for id, (_pidfd, door) in self.doors.items() if door.mounts == mounts), None)

    def close_door(self, id: int) -> int:
        """Forget the door of a cell that is complete, or will be killed. Returns the cell's pidfd."""
        pidfd, door = self.doors.pop(id)
        self.poll.unregister(door.mounts)
        door.close()
        return pidfd

    def kill_orphans(self) -> None:
        """Kill the orphans of a dead cell, which are our children because we are the subreaper above its init."""
        if self.children_fd >= 0:
            sweep.kill_children(self.children_fd, self.cells.values())

    def exit(self) -> NoReturn:
        """Exit, because the supervisor is gone. Our death kills every cell."""
        self.end_prespawned()
        if self.children_fd >= 0:
            sweep.kill_children(self.children_fd)
        os._exit(0)

    def on_request(self) -> int | None:
        """Carry out one request. Returns the pidfd of a new cell, if one was made."""
        data, received, _flags = receive_fds(self.connection, REQUEST_BYTES, 8)
        if not data:
            self.exit()
        try:
            match self.link.receive(data):
                case Prepare() as request:
                    self.on_prepare(request)
                case MakeCell() as request:
                    return self.on_cell(request, received)
                case BindPaths(id, owners):
                    self.on_bind(id, _owners(owners), received)
                case wrong:
                    print(f"the supervisor does not keep to the protocol: {wrong}", file=sys.stderr, flush=True)
                    os._exit(76)  # EX_PROTOCOL, sysexits.h
            return None
        finally:
            _close_all(received)

    def on_prepare(self, request: Prepare) -> None:
        """Take the sandbox report of another zygote, or probe, and load the libraries of the supervisor's tools."""
        self.allow_missing = frozenset(map(str, request.allow_missing))
        self.system = tuple(map(str, request.system))
        try:
            report = start_probe() if request.report is None else None
            self.preload(request.preload)  # while the probe's child works
            self.report = report() if report else SandboxReport.from_wire(cast("dict[str, object]", request.report))
            if "pid_namespace" in {mechanism.name for mechanism in self.report.missing}:
                self.children_fd = lifetime.adopt_descendants()
        except SandboxError as error:
            self.answer(CellsRefused(*fields_of_failure(error)))
            return
        self.answer(Started(cast("dict[str, Field]", self.report.to_wire()), {**running_code()}))

    def preload(self, names: list[Field] | None) -> bool:
        """Load the libraries that these tools need and that are not loaded. Returns whether there were any."""
        loaded = call_process.preload_for(None if names is None else map(str, names))
        if loaded:
            freeze()
        return loaded

    def on_cell(self, request: MakeCell, received: list[int]) -> int | None:
        """Fork a cell onto the descriptors that came with the request."""
        prespawned = None if self.preload(request.preload) else self.prespawned  # which lacks the new libraries
        figures = CellProfile.from_wire(request.figures)
        identity = Identity.from_wire(request.identity)
        if is_on("prespawn") and Prespawned.is_possible(figures, identity, self.report):
            self.next_kind = identity, figures.proc
        *streams, particulars = received
        owners = _owners(request.owners)
        for source, target in zip(streams, (CONTROL, FRAMES_IN, FRAMES_OUT, 1, 2), strict=True):
            os.dup2(source, target, inheritable=target in (1, 2))  # programs inherit stdout and stderr
        try:
            child = spawn(
                figures,
                init.main,
                _tell_failure,
                identity=identity,
                cgroups=list(map(str, request.cgroups)),
                keep_fds=(CONTROL, FRAMES_IN, FRAMES_OUT),
                allow_missing=self.allow_missing,
                report=self.report,
                prespawned=prespawned,
                unbound=request.unbound,
                sealed=Sealed(particulars, owners, request.fits_prespawned),
            )
        except SandboxError as error:
            self.answer(CellFailed(request.id, *fields_of_failure(error)))
            return None
        finally:
            for saved, target in zip(self.saved, (1, 2), strict=True):
                os.dup2(saved, target)
            for fd in (CONTROL, FRAMES_IN, FRAMES_OUT):
                os.dup2(0, fd)
        if prespawned is not None and child is prespawned.child:
            self.poll.unregister(prespawned.mounts)
            self.prespawned = None
        self.cells[child.pidfd] = child.pid
        given = [child.pidfd] if child.listener < 0 else [child.pidfd, child.listener]
        self.answer(CellMade(request.id, child.pid), given)
        if child.listener >= 0:
            os.close(child.listener)  # only the supervisor may accept the cell's connections
        if request.unbound:
            _close_all(received)
            self.keep_door(request.id, child, identity, owners)
        return child.pidfd

    def keep_door(self, id: int, child: Child, identity: Identity, owners: Sequence[tuple[int, int]]) -> None:
        """Keep the door of a cell that will get its session's paths. `owners` are the likely owners of these."""
        try:
            self.doorkeeper()
            door = Door(child.pid, identity)
        except OSError:
            signal.pidfd_send_signal(child.pidfd, signal.SIGKILL)  # unless it has died: it cannot be completed
            return
        self.doors[id] = child.pidfd, door
        self.poll.register(door.mounts, select.POLLPRI)
        with suppress(SandboxError):  # the error is reported when the paths are needed
            door.prepare(owners)

    def on_bind(self, id: int, owners: Sequence[tuple[int, int]], received: Sequence[int]) -> None:
        """Hand a session's paths to the doorkeeper, with the door of their cell."""
        if id not in self.doors:
            return  # it has died, as its pidfd reports
        door = self.doors[id][1]
        try:
            door.prepare(owners)
            given = [*received, door.inside, *(door.id_maps[owner] for owner in owners)]
            socket.send_fds(self.doorkeeper(), [marshal.dumps((id, [*owners]))], given)
        except (SandboxError, OSError) as error:
            self.answer(CellFailed(id, *fields_of_failure(_not_in_place(error))))
        self.close_door(id)

    def doorkeeper(self) -> socket.socket:
        """The socket of the doorkeeper, a fork that mounts paths in cells. It reads them; no cell is forked from it."""
        if self.orders is None:
            ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            with theirs:
                pid = os.fork()
                if pid == 0:
                    self.keep_doors(theirs)
            self.orders, self.keeper = ours, os.pidfd_open(pid)
            self.cells[self.keeper] = pid
            self.poll.register(self.keeper, select.POLLIN)
        return self.orders

    def keep_doors(self, orders: socket.socket) -> NoReturn:
        """In the doorkeeper: mount paths and tell the supervisor, until the zygote is gone."""
        try:
            lifetime.die_with_parent(-1)
            keep_only((self.connection.fileno(), orders.fileno()))
            while True:
                told, received, _flags = receive_fds(orders, REQUEST_BYTES, 128)
                if not told:
                    break
                id, owners = marshal.loads(told)
                paths, inside, *id_maps = received
                answer: PathsBound | CellFailed = PathsBound(id)
                try:
                    binds = binds_of(unsealed(paths).binds)
                    bring(inside, dict(zip(owners, id_maps, strict=True)), binds)
                except (SandboxError, OSError) as error:
                    answer = CellFailed(id, *fields_of_failure(_not_in_place(error)))
                for fd in received[1:]:
                    os.close(fd)
                socket.send_fds(self.connection, [self.link.send(answer)], [])
        finally:
            os._exit(0)

    def answer(
        self, message: Started | CellsRefused | CellMade | PathsBound | CellFailed, given: Sequence[int] = ()
    ) -> None:
        try:
            socket.send_fds(self.connection, [self.link.send(message)], given)
        except BrokenPipeError:
            self.exit()
