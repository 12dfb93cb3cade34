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
from typing import NoReturn, cast

import msgpack

from toolcell.wire.code import running_code
from toolcell.wire.frames import WireLimits, encode
from toolcell.wire.messages import Failed, to_fields
from toolcell_sandbox.errors import SandboxError
from toolcell_sandbox.identity import Identity
from toolcell_sandbox.kernel.passing import receive_fds
from toolcell_sandbox.kernel.probe import start_probe
from toolcell_sandbox.late import Door
from toolcell_sandbox.mechanisms import lifetime
from toolcell_sandbox.profile import Profile
from toolcell_sandbox.report import SandboxReport
from toolcell_sandbox.spare import Spare
from toolcell_sandbox.spawn import Child, spawn
from toolcell_sandbox.view import Bind, Bound

from . import cell, descendants, fds, pages, serve
from .rehearsal import rehearse

SPARE_AFTER_MS = 10  # without a request: the cell that was made last is nearly through its own start
REQUEST_BYTES = 256 * 1024  # a request is one SEQPACKET message; profiles are a few KiB


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


def _rehearse_request(profile: Profile) -> None:
    """The fork of a spare left us with pages to be had anew: now, not when a request comes."""
    wire = msgpack.unpackb(msgpack.packb(profile.to_wire(short=True)), strict_map_key=True)
    Profile.from_wire(cast("dict[str, object]", wire))


def _bound(rows: list[list[object]]) -> list[Bound]:
    """The protected paths, as `pool.pool` sends them: a path may have bytes that are no text."""
    found: list[Bound] = []
    for path, pin, device, inode in rows:
        found.append(Bound(os.fsdecode(cast("bytes", path)), bool(pin), (cast("int", device), cast("int", inode))))
    return found


def _binds(rows: list[list[object]]) -> list[Bind]:
    """What is to be bound, in the same way."""
    found: list[Bind] = []
    for path, writable, directory, device, inode, owner in rows:
        place, file = os.fsdecode(cast("bytes", path)), (cast("int", device), cast("int", inode))
        found.append(Bind(place, bool(writable), bool(directory), file, None if owner is None else _owner(owner)))
    return found


def _owner(pair: object) -> tuple[int, int]:
    uid, gid = cast("list[int]", pair)
    return uid, gid


def freeze() -> None:
    """Take what is there out of the collector's sight: it would write to pages that cells share. Never between two
    forks, where nothing new is there: a cycle around every fork would leak (apache/airflow#60505).
    """
    gc.collect()
    pages.fill_pools()
    gc.freeze()


class Zygote:
    """The request loop. `cells` maps the pidfd of each living cell to its pid, to reap it when it ends."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self.cells: dict[int, int] = {}
        self.report = SandboxReport((), "rootless")
        self.allow_missing: frozenset[str] = frozenset()
        self.spare: Spare | None = None
        self.doors: dict[int, tuple[int, Door]] = {}  # of cells that are unfinished, by id: their pidfds
        self.like: tuple[Identity, tuple[str, ...], bool] | None = None  # what the next spare is to be fit for
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
        pages.hand_on_code()
        while True:
            events = self.poll.poll(None if self.like is None else SPARE_AFTER_MS)
            if not events:
                self.make_spare()
            for fd, _event in sorted(events, key=lambda event: event[0] == self.connection.fileno()):
                if fd == self.connection.fileno():  # last: what dead cells left is gone before a new one is made
                    child = self.on_request()
                    if child is not None:
                        self.poll.register(child, select.POLLIN)
                elif self.spare is not None and fd in (self.spare.child.pidfd, self.spare.mounts):
                    self.end_spare()  # it has died, or must not hold what was unmounted
                elif (id := self.behind(fd)) is not None:
                    signal.pidfd_send_signal(self.shut(id), signal.SIGKILL)  # for the same reason
                elif fd in self.cells:
                    self.poll.unregister(fd)
                    for id in [id for id, (pidfd, _door) in self.doors.items() if pidfd == fd]:
                        self.shut(id)
                    os.waitpid(self.cells.pop(fd), 0)
                    os.close(fd)
                    self.kill_orphans()

    def make_spare(self) -> None:
        """Begin the next cell, like the last one, while nobody waits for it. Nothing of a session is here any more."""
        assert self.like is not None
        (identity, system, proc), self.like = self.like, None
        self.end_spare()  # it did not fit
        try:
            self.spare = Spare(
                cell.main,
                _tell_failure,
                identity=identity,
                system=system,
                proc=proc,
                report=self.report,
                allow_missing=self.allow_missing,
                rehearse=lambda: rehearse(self.report),
            )
        except SandboxError:
            return  # what is wrong is told by the next cell, which takes the same steps
        self.poll.register(self.spare.child.pidfd, select.POLLIN)
        self.poll.register(self.spare.mounts, select.POLLPRI)
        _rehearse_request(Profile(system=system, proc=proc))

    def end_spare(self) -> None:
        if self.spare is not None:
            self.poll.unregister(self.spare.child.pidfd)
            self.poll.unregister(self.spare.mounts)
            self.spare.end()
            self.spare = None

    def behind(self, mounts: int) -> int | None:
        """The unfinished cell whose door has this descriptor."""
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
        self.end_spare()
        if self.children_fd >= 0:
            descendants.kill_children(self.children_fd)
        os._exit(0)

    def on_request(self) -> int | None:
        """Carry out one request; return the pidfd of a new cell, if one was made."""
        data, received, _flags = receive_fds(self.connection, REQUEST_BYTES, 8)
        if not data:
            self.exit()
        request = cast("dict[str, object]", msgpack.unpackb(data, strict_map_key=True))
        try:
            if request["op"] == "start":
                self.on_start(request)
                return None
            if request["op"] == "finish":
                self.on_finish(request)
                return None
            return self.on_cell(request, received)
        finally:
            for fd in received:
                os.close(fd)

    def on_start(self, request: dict[str, object]) -> None:
        """The first request: take over the probe's report, or make it, and load what the supervisor's tools need."""
        known = request["report"]
        self.allow_missing = frozenset(cast("list[str]", request["allow_missing"]))
        try:
            report = start_probe() if known is None else None
            self.preload(request)  # while the probe's child is at work
            self.report = report() if report else SandboxReport.from_wire(cast("dict[str, object]", known))
            if "pid_namespace" in {mechanism.name for mechanism in self.report.missing}:
                self.children_fd = lifetime.adopt_descendants()
        except SandboxError as error:
            self.answer({"op": "refused", "failure": list(fields_of_failure(error))})
            return
        self.answer({"op": "started", "report": self.report.to_wire(), "code": running_code()})

    def preload(self, request: dict[str, object]) -> bool:
        """Load what the request's tools need and no other has needed yet; whether there was anything to load."""
        loaded = serve.preload_for(cast("list[str] | None", request["preload"]))
        if loaded:
            freeze()
        return loaded

    def on_cell(self, request: dict[str, object], received: list[int]) -> int | None:
        """Fork a cell onto the five descriptors that came with the request: control, in, out, stdout, stderr."""
        spare = None if self.preload(request) else self.spare  # which has not loaded it
        profile = Profile.from_wire(cast("dict[str, object]", request["profile"]))
        identity = Identity(**cast("dict[str, object]", request["identity"]))  # type: ignore[arg-type]
        if Spare.is_possible(profile, identity, self.report):
            self.like = identity, profile.system, profile.proc
        for source, target in zip(received, (fds.CONTROL, fds.FRAMES_IN, fds.FRAMES_OUT, 1, 2), strict=True):
            os.dup2(source, target, inheritable=target in (1, 2))  # a program that a tool starts has the two streams
        try:
            child = spawn(
                profile,
                cell.main,
                _tell_failure,
                identity=identity,
                cgroups=cast("list[str]", request["cgroups"]),
                keep_fds=(fds.CONTROL, fds.FRAMES_IN, fds.FRAMES_OUT),
                allow_missing=self.allow_missing,
                report=self.report,
                protected=_bound(cast("list[list[object]]", request["protected"])),
                spare=spare,
                unfinished=bool(request["unfinished"]),
            )
        except SandboxError as error:
            self.answer({"op": "failed", "id": request["id"], "failure": list(fields_of_failure(error))})
            return None
        finally:
            for saved, target in zip(self.saved, (1, 2), strict=True):
                os.dup2(saved, target)
            for fd in (fds.CONTROL, fds.FRAMES_IN, fds.FRAMES_OUT):
                os.dup2(0, fd)
        if spare is not None and child is spare.child:
            self.poll.unregister(spare.mounts)
            self.spare = None
        self.cells[child.pidfd] = child.pid
        if request["unfinished"]:
            self.leave_open(cast("int", request["id"]), child, identity, cast("list[list[int]]", request["owners"]))
        given = [child.pidfd] if child.listener < 0 else [child.pidfd, child.listener]
        self.answer({"op": "spawned", "id": request["id"], "pid": child.pid}, given)
        if child.listener >= 0:
            os.close(child.listener)  # only the supervisor may accept what the cell connects to
        return child.pidfd

    def leave_open(self, id: int, child: Child, identity: Identity, owners: list[list[int]]) -> None:
        """Keep a way into a cell that is to get the rest of its paths, which are likely to be of these owners."""
        try:
            door = Door(child.pid, identity)
        except OSError:
            signal.pidfd_send_signal(child.pidfd, signal.SIGKILL)  # if it has not died: nobody can finish it
            return
        self.doors[id] = child.pidfd, door
        self.poll.register(door.mounts, select.POLLPRI)
        try:
            door.prepare(_owner(pair) for pair in owners)
        except SandboxError:
            pass  # it is told where it is needed

    def on_finish(self, request: dict[str, object]) -> None:
        """Bring the rest of its paths to a cell that is unfinished."""
        id = cast("int", request["id"])
        if id not in self.doors:
            return  # it has died: its pidfd says so
        try:
            self.doors[id][1].bring(_binds(cast("list[list[object]]", request["binds"])))
        except (SandboxError, OSError) as error:  # the latter of a mount point: what lies there, or descriptors
            if isinstance(error, OSError):
                error = SandboxError(f"The session's paths cannot be put in place: {error}", step="finish the cell")
            self.answer({"op": "failed", "id": id, "failure": list(fields_of_failure(error))})
        else:
            self.answer({"op": "finished", "id": id})
        self.shut(id)

    def answer(self, message: dict[str, object], given: list[int] | None = None) -> None:
        try:
            socket.send_fds(self.connection, [msgpack.packb(message)], given or [])
        except BrokenPipeError:
            self.exit()
