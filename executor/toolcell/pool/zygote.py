"""The supervisor's handle on one zygote: exec it, ask it for cells, learn when it is gone.

The supervisor never forks: `subprocess` execs a new interpreter (vfork and exec in C), with a clean environment and
`-I`. So the zygote has nothing of the user's process: no memory, no environment, no sys.path.
"""

import contextlib
import errno
import fcntl
import logging
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from typing import IO, cast

from toolcell.errors import SandboxUnavailableError
from toolcell.wire import forks
from toolcell.wire.code import running_code
from toolcell.wire.frames import HEADER, Field, Unpackable
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
)
from toolcell.wire.protocol import ZYGOTE_LIMITS, WireEvent, ZygoteLink
from toolcell.wire.switches import OFF, VARIABLE
from toolcell_sandbox.kernel.descriptors import receive_fds
from toolcell_sandbox.order import Particulars, Paths, sealed
from toolcell_sandbox.profile import CellProfile
from toolcell_sandbox.view import Bind

from .deadlines import Patience
from .reactor import Reactor, release

_log = logging.getLogger("toolcell.pool")
MESSAGE_BYTES = HEADER.size + ZYGOTE_LIMITS.frame_bytes
ENVIRONMENT = {
    "PATH": "/usr/local/bin:/usr/bin:/bin",
    "LANG": "C.UTF-8",
    "HOME": "/tmp",
    "TMPDIR": "/tmp",
    "TOOLCELL_IN_CELL": "1",
    "LD_BIND_NOW": "1",  # otherwise each call process resolves each C function that it uses, and copies the page
    "MALLOC_ARENA_MAX": "1",  # each further arena reserves 64 MiB of the limited address space
}


def _socketpair() -> tuple[socket.socket, socket.socket]:
    """Our socket and the zygote's. The zygote's number is above 5: 0 to 5 are the standard streams and a cell's pipes.

    A process whose standard streams are closed would get one of those numbers.
    """
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs, ExitStack() as undo:
        undo.callback(ours.close)
        moved = socket.socket(fileno=fcntl.fcntl(theirs, fcntl.F_DUPFD_CLOEXEC, 6))
        undo.pop_all()
    return ours, moved


_CURES = {
    errno.ENFILE: "Raise the limit on open files of the machine (fs.file-max).",
    errno.ENOSPC: "Free space, or raise the limit on cgroups.",
    errno.EAGAIN: "Raise the limit on processes (ulimit -u, or pids.max of the container).",
    errno.EMFILE: "Raise the limit on open files (ulimit -n) or lower max_cells.",
    errno.ENOMEM: "Free memory, or raise the limit on address space (ulimit -v).",
}


def cure_of(error: Exception) -> str:
    """What to do about an error of the system, "" if that is not known."""
    number = getattr(error, "errno", None) or 0
    if number in (errno.ENOENT, errno.EACCES) and getattr(error, "filename", None) == sys.executable:
        return "sys.executable must be this Python, and executable: set it where Python is embedded."
    return _CURES.get(number, "")


EXHAUSTED = frozenset({errno.EAGAIN, errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOSPC})
"""Errors for an exhausted resource of the host. They usually pass, so a retry can succeed."""


def _other_code(ours: Mapping[str, str], theirs: Mapping[str, str]) -> SandboxUnavailableError:
    """The error for a zygote that runs another version of the code than its supervisor."""
    name = next(name for name in ours if ours[name] != theirs.get(name))
    what = f"The supervisor and its zygote do not run the same {name}: {ours[name]} and {theirs.get(name, 'unknown')}"
    cure = (
        f"Install one toolcell for {sys.executable}, and do not name another in PYTHONPATH or sys.path: the zygote is "
        "started with -I, which leaves them out. If it was upgraded, start the supervisor's program anew."
    )
    return SandboxUnavailableError(f"{what}. {cure}", "", cure)


GRACE_S = 2.0  # for a zygote to end processes of cells without a pid namespace; other zygotes end at once


def require_proc() -> None:
    """Raise SandboxUnavailableError where /proc is not mounted."""
    if not os.path.exists("/proc/self"):
        what, cure = "There is no /proc here, where cells are watched", "Mount it: mount -t proc proc /proc."
        raise SandboxUnavailableError(f"{what}. {cure}", "proc", cure)


class ZygoteProcess:
    """One exec'd zygote. `on_spawned(id, pid, pidfd, listener)`, `on_bound(id)`, `on_failed(id, Failed)` and
    `on_lost(zygote)` are callbacks; `listener` is the socket of the cell's proxy, or -1."""

    def __init__(
        self,
        reactor: Reactor,
        on_spawned: Callable[[int, int, int, int], None],
        on_bound: Callable[[int], None],
        on_failed: Callable[[int, Failed], None],
        on_lost: Callable[["ZygoteProcess"], None],
    ) -> None:
        self._reactor = reactor
        self._on_spawned = on_spawned
        self._on_bound = on_bound
        self._on_failed = on_failed
        self._on_lost = on_lost
        self._process: subprocess.Popen[bytes] | None = None
        self._socket: socket.socket | None = None
        self._stderr: IO[bytes] | None = None
        self._started = reactor.waiter()
        self._link = ZygoteLink.of_supervisor()
        self._last_words = ""
        self.has_started = False
        self.patience: Patience | None = None  # while requests for cells are unanswered
        self.asked: set[int] = set()  # requested cells without an answer
        forks.register(self)

    def __repr__(self) -> str:
        pid = self._process.pid if self._process else None
        return f"<Zygote pid {pid} · {len(self.asked)} cells asked for>"

    @property
    def pid(self) -> int:
        return self._process.pid if self._process else 0

    def start(
        self, report: Mapping[str, object] | None, allow_missing: frozenset[str], preload: Sequence[str] | None
    ) -> None:
        """Exec the interpreter and send the first request. `started()` waits for the answer. `preload` are libraries
        that its cells will need, None for all that the zygote knows.
        """
        known = None if report is None else cast("dict[str, Field]", dict(report))
        try:
            with forks.no_fork:
                ours = self._exec()
            libraries: list[Field] | None = None if preload is None else [*preload]
            self._send(Prepare(known, [*sorted(allow_missing)], libraries, [*CellProfile().system]))
            self._reactor.watch(ours.fileno(), self._on_readable, self)
        except Exception as error:
            self.kill()
            self.close()
            cure = cure_of(error)
            what = f"No zygote process could be started: {error}. {cure}".strip()
            raise SandboxUnavailableError(what, "", cure) from error

    def _exec(self) -> socket.socket:
        ours, theirs = _socketpair()
        self._socket = ours
        with theirs:
            ours.setblocking(False)
            self._stderr = os.fdopen(os.memfd_create("toolcell-zygote"), "r+b")  # needs no writable directory
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-m", "toolcell.runner", str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=self._stderr,
                stderr=self._stderr,
                pass_fds=(theirs.fileno(),),
                env=ENVIRONMENT | ({VARIABLE: ",".join(sorted(OFF))} if OFF else {}),
                cwd="/",
                start_new_session=True,
            )
        return ours

    async def started(self) -> Mapping[str, object]:
        """The wire form of the zygote's sandbox report. Raises SandboxUnavailableError if it died instead."""
        answer = await self._started
        if isinstance(answer, SandboxUnavailableError):
            raise answer
        return cast("Mapping[str, object]", answer)

    def make(self, request: MakeCell, particulars: Particulars, fds: Sequence[int]) -> None:
        """Ask for a cell. Exactly one of `on_spawned`, `on_failed` and `on_lost` follows.

        Raises Unpackable or OSError if the request cannot be sent; then none of them follows.
        """
        self._send_sealed(request, particulars, fds)
        self.asked.add(request.id)

    def bind(self, id: int, binds: Sequence[Bind]) -> None:
        """Ask the zygote to bind these paths in an unbound cell. `on_bound`, `on_failed` or `on_lost` follows, or the
        cell's death. Raises as `make` does.
        """
        owners = {bind.owner for bind in binds if bind.owner}
        self._send_sealed(BindPaths(id, [[*owner] for owner in owners]), Paths([bind.to_wire() for bind in binds]))

    def _send_sealed(
        self, message: MakeCell | BindPaths, content: Particulars | Paths, fds: Sequence[int] = ()
    ) -> None:
        fd = sealed(content)
        try:
            self._send(message, [*fds, fd])
        finally:
            os.close(fd)

    def _send(self, message: Prepare | MakeCell | BindPaths, fds: Sequence[int] = ()) -> None:
        assert self._socket is not None
        frame = self._link.send(message)
        try:
            socket.send_fds(self._socket, [frame], list(fds))
        except (BrokenPipeError, ConnectionResetError):
            self._reactor.soon(self._lost, self)
        except BlockingIOError:
            # The socket holds some hundred requests. A zygote that far behind is stuck: give it up, not the loop.
            self.kill()
        except OSError as error:
            if error.errno != errno.EMSGSIZE:
                raise
            raise Unpackable(f"the request of {len(frame):,} bytes is too large for the zygote's socket") from error

    def _on_readable(self) -> None:
        if self._socket is None:
            return
        while True:
            try:
                data, fds, flags = receive_fds(self._socket, MESSAGE_BYTES, 4)
            except BlockingIOError:
                return
            except ConnectionResetError:
                data, fds, flags = b"", [], 0
            if flags & socket.MSG_CTRUNC:  # this process has no room for all the descriptors
                for fd in fds:
                    release(os.close, fd)
                fds = []
            if not data:
                self._lost()
                return
            self._on_message(self._link.receive(data), fds)

    def look(self) -> None:
        """Read what it has sent."""
        self._reactor.guarded(self, self._on_readable)

    def _on_message(self, message: WireEvent, fds: list[int]) -> None:
        if self.patience is not None:
            self.patience.renew()
        match message:
            case Started(report, code):
                self._on_started(report, cast("dict[str, str]", code))
            case CellsRefused(_step, what, mechanism, cure):
                self._started.set(SandboxUnavailableError(what, mechanism, cure))
            case CellMade(id, pid) if fds:
                self.asked.discard(id)
                pidfd, listener = (*fds, -1)[:2]
                self._on_spawned(id, pid, pidfd, listener)
            case CellMade(id, _):  # this process had no room for its descriptors; our end of the control socket closes
                self.asked.discard(id)
                self._on_failed(id, Failed("spawn", "The supervisor is out of descriptors.", "", "Raise ulimit -n."))
            case PathsBound(id):
                self._on_bound(id)
            case CellFailed(id, step, what, mechanism, cure):
                self.asked.discard(id)
                self._on_failed(id, Failed(step, what, mechanism, cure))
            case _:
                _log.error("%r does not keep to the protocol: %s", self, message)
                if self.has_started:
                    self.kill()
                else:
                    self._give_up(_other_code(running_code(), {}))  # it could not name its code

    def _on_started(self, report: Mapping[str, object], theirs: Mapping[str, str]) -> None:
        self.has_started = True
        ours = running_code()
        if ours == theirs:
            self._started.set(report)
        else:
            self._give_up(_other_code(ours, theirs))

    def _lost(self) -> None:
        """Handle the zygote's end. Its cells die with it. The last line that it printed is the reason."""
        if self._socket is None:
            return
        self.close()
        said = self._last_words.rpartition("\n")[2]  # the exception, if it is a traceback
        cure = (
            f"Check that `{sys.executable} -I -c 'import toolcell.runner.zygote'` works: -I leaves out PYTHONPATH "
            "and packages of `pip install --user`; install toolcell into a virtual environment."
        )
        what = f"The zygote process ended while it started: {said or 'it printed nothing'}. {cure}"
        self._started.set(SandboxUnavailableError(what, "", cure))
        self._on_lost(self)

    def _give_up(self, error: SandboxUnavailableError) -> None:
        """Give up a zygote that is alive and useless."""
        self.close()
        self._last_words = str(error)
        self._started.set(error)
        self._on_lost(self)

    def last_words(self) -> str:
        """The end of what the zygote wrote to stderr."""
        if self._stderr is not None and not self._stderr.closed:
            try:
                size = self._stderr.seek(0, os.SEEK_END)
                self._stderr.seek(max(0, size - 2000))
                self._last_words = self._stderr.read().decode("utf-8", "replace").strip()
            except OSError as error:
                _log.error("what %r has said cannot be read: %s", self, error)
        return self._last_words

    def on_fault(self, error: Exception) -> None:
        """End the zygote: a message of it could not be handled."""
        self.kill()
        self._lost()

    def kill(self) -> None:
        """Kill the zygote. Its socket tells when it is gone."""
        try:
            if self._process is not None and self._process.poll() is None:
                self._process.send_signal(signal.SIGKILL)
        except OSError as error:
            _log.error("%r could not be killed, so its socket is closed, which ends it: %s", self, error)
            self._reactor.soon(self._lost, self)

    def let_go(self) -> None:
        """Close our end, without touching the event loop. An open copy in a fork of the program would hide the
        supervisor's death from the zygote."""
        if self._socket is not None:
            release(self._socket.close)
            self._socket = None

    def hang_up(self) -> None:
        """End the connection, which ends the zygote and every cell that it forked, without waiting for that."""
        if self._socket is not None:
            with contextlib.suppress(OSError):  # it has ended already
                self._socket.shutdown(socket.SHUT_RDWR)

    def close(self, grace_s: float = GRACE_S) -> None:
        """Close our end, which ends the zygote and every cell that it forked. Then reap the zygote."""
        if self._socket is None:
            return
        self._reactor.unwatch(self._socket.fileno())
        release(self._socket.close)
        self._socket = None
        if self.patience is not None:
            self.patience.cancel()
        if self._process is not None:
            try:
                self._process.wait(timeout=grace_s)
            except (subprocess.TimeoutExpired, OSError):
                self.kill()
                with contextlib.suppress(subprocess.TimeoutExpired, OSError):
                    self._process.wait(timeout=5)  # after SIGKILL, this takes microseconds
        self.last_words()
        if self._stderr is not None:
            release(self._stderr.close)
