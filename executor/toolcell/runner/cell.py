"""The cell's init: pid 1, locked down. Imports the tools, forks a call process per call, and sweeps after each.

It is never the tool process: signals from inside cannot reach pid 1, and when it dies the kernel ends the whole pid
namespace. It learns of its work only over the control socket, which no call process holds.
"""

import gc
import os
import select
import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from importlib import import_module
from types import FrameType
from typing import Any, NoReturn, cast

import msgpack

from toolcell.wire.frames import HEADER, Field, WireLimits, encode
from toolcell.wire.messages import SHAPES, VERSION, Exited, Failed, Hello, Load, Message, Ready, Recycle, to_fields
from toolcell.wire.protocol import CONTROL_LIMITS
from toolcell_sandbox.enter import Entered
from toolcell_sandbox.mechanisms import lifetime
from toolcell_sandbox.protected import protects_below

from . import descendants, fds, forks, loading, serve
from .context import Contexts
from .link import Link
from .scratch import Scratch

# What `signal.signal` calls: itself, it looks for the handler that was there in an enum, a tenth of a fork's price.
_set_handler: Callable[[int, int], object] = import_module("_signal").signal
_DEFAULT = int(signal.SIG_DFL)


@dataclass(frozen=True, slots=True)
class Options:
    """How this cell works; the supervisor sends it with the tools."""

    environ: dict[str, str]
    cwd: str
    scratch: str  # the private directory that is emptied after each call, "" where there is none
    kept: bool  # one process over the calls of the session
    standby: bool  # fork the next call process ahead
    cpu_s: float
    result_bytes: int
    writable: tuple[str, ...]
    protected: tuple[str, ...]  # names that may not be made or changed below those
    session: dict[str, Field]  # what is the same in the contexts of all its calls

    def protects(self, path: str, directory: bool) -> str:
        """The protected name that holds for an absolute path."""
        return protects_below(path, self.writable, self.protected, directory=directory)


class Control:
    """The control socket, blocking. What comes is the supervisor's word, so it is not judged."""

    def __init__(self) -> None:
        self._read = bytearray()

    def send(self, *messages: Message) -> None:
        fds.write_all(fds.CONTROL, [b"".join(self.packed(message) for message in messages)])

    @staticmethod
    def packed(message: Message) -> bytes:
        """The frame that carries a message."""
        return b"".join(encode(to_fields(message), CONTROL_LIMITS))

    @staticmethod
    def unpacked(body: bytes) -> Message:
        """The message of a frame's body."""
        kind, *fields = cast("list[Any]", msgpack.unpackb(body))
        return SHAPES[kind][0]._make(fields)

    def receive(self) -> Message:
        """The supervisor's next message. Its end being closed is the end of this cell."""
        (size,) = HEADER.unpack(self._take(HEADER.size))
        return self.unpacked(self._take(size))

    def _take(self, size: int) -> bytes:
        while len(self._read) < size:
            data = os.read(fds.CONTROL, fds.READ_BYTES)
            if not data:
                os._exit(0)
            self._read += data
        taken = bytes(self._read[:size])
        del self._read[:size]
        return taken


def main(entered: Entered) -> NoReturn:
    """What a locked-down process does to become a cell: say Hello, load the tools, serve."""
    control = Control()
    control.send(Hello(VERSION, {"report": cast("Field", entered.report.to_wire()), "pid": os.getpid()}))
    first = control.receive()
    if not isinstance(first, Load):
        os._exit(76)  # EX_PROTOCOL, sysexits.h
    options = _options(first.options)
    if not {"mount_namespace", "pivot_root", "mount_setattr"} <= entered.report.on:
        options = replace(options, scratch="")  # the host's own /tmp is not ours to empty
    os.environ.clear()
    os.environ.update(options.environ)
    os.chdir(options.cwd)
    modules = len(sys.modules)
    forks.stop()
    loaded = loading.load(cast("list[dict[str, object]]", first.tools))
    if loading.started_threads():
        control.send(
            Failed(
                "import", "a tool's module started a thread while it was imported. Start it inside the tool.", "", ""
            )
        )
        os._exit(1)
    contexts = Contexts(options.session, options.protects, Link(WireLimits.for_results(options.result_bytes)))
    prepared = serve.prepare(loaded, options.cpu_s, contexts, kept=options.kept, standby=options.standby)
    sys.stdout.flush()
    sys.stderr.flush()
    if len(sys.modules) > modules:  # importing leaves cycles behind; what the zygote had leaves nothing to collect
        gc.collect()
    gc.freeze()
    Init(control, options, prepared, Scratch(options.scratch, entered.view), entered.children_fd).run()


def _noted(_number: int, _frame: FrameType | None) -> None:
    """The handler of SIGCHLD: the byte in the pipe says it all."""


def _options(fields: dict[str, Field]) -> Options:
    environ = cast("dict[str, str]", fields["environ"])
    lists = {name: tuple(cast("list[str]", fields[name])) for name in ("writable", "protected")}
    return Options(**{**fields, **lists, "environ": environ})  # type: ignore[arg-type]


class Init:
    """One call process at a time: fork it, wait for its end or for word that its call is over, sweep, again."""

    def __init__(
        self, control: Control, options: Options, prepared: serve.Prepared, scratch: Scratch, children_fd: int
    ) -> None:
        self.control = control
        self.options = options
        self.prepared = prepared
        self.scratch = scratch
        self.seq = 0
        self.states = {fd: fds.state_of(fd) for fd in fds.SHARED}
        self.child = 0  # pid of the call process, 0 where there is none
        self.gate = -1  # what a process that was forked ahead waits for; -1 where the child is not such a one
        self.children_fd = children_fd
        self.deaths_fd, self.death_fd = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)

    def run(self) -> NoReturn:
        signal.signal(signal.SIGCHLD, _noted)  # a handler, or no byte is written
        signal.set_wakeup_fd(self.death_fd, warn_on_full_buffer=False)
        watched = select.poll()
        watched.register(fds.CONTROL, select.POLLIN)
        watched.register(self.deaths_fd, select.POLLIN)
        self.next()
        while True:
            for fd, _event in watched.poll():
                if fd == fds.CONTROL:
                    self.on_message(self.control.receive())
                    break  # the child may be another one now; poll again (it is level-triggered)
                os.read(fd, 4096)
                if descendants.reap_but(self.child):
                    self.on_death()

    def on_message(self, message: Message) -> None:
        """`Recycle` of the process that is there ends its call; of the next number, it asks for a process."""
        if not isinstance(message, Recycle) or message.seq not in (self.seq, self.seq + 1):
            os._exit(76)
        if message.seq == self.seq:
            self.next(*self.sweep())
        else:
            self.offer()

    def next(self, *before: Message) -> None:
        """Say that the next call may come, with a process waiting for it or without, and `before` it what there is."""
        if not self.options.standby:
            self.control.send(*before, Ready(self.seq, waiting=False))
            return
        if before:
            self.control.send(*before)
        self.offer()

    def offer(self) -> None:
        """Have a call process for the next call, and say that it waits."""
        self.seq += 1
        ready = self.control.packed(Ready(self.seq, waiting=True))  # now: after a fork, it costs pages to write to
        if self.gate < 0:
            self.fork()
        fds.write_all(fds.CONTROL, (ready,))
        if self.gate >= 0:
            self.open_gate()

    def fork_ahead(self) -> None:
        """Fork the next call process while the supervisor concludes the last call.

        It waits at a gate before it looks at the pipe, where there may be something left for the last one.
        """
        gate, self.gate = os.pipe2(os.O_CLOEXEC)
        self.fork(gate)
        os.close(gate)

    def open_gate(self) -> None:
        os.close(self.gate)
        self.gate = -1

    def fork(self, gate: int = -1) -> None:
        """Fork a call process. Nothing of another may be left."""
        try:
            pid = os.fork()
        except OSError as error:
            cure = "Raise the process limit (RLIMIT_NPROC, pids.max) of the user or the cgroup, or run fewer cells."
            self.control.send(Failed("fork", f"There is no room for the call's process: {error.strerror}.", "", cure))
            os._exit(1)
        if pid == 0:
            try:
                self._become_call_process()
                serve.serve(self.prepared, gate)
            finally:
                os._exit(70)  # EX_SOFTWARE: serve never returns
        self.child = pid

    def _become_call_process(self) -> None:
        """In the child: give up what is the init's alone."""
        signal.set_wakeup_fd(-1)
        _set_handler(signal.SIGCHLD, _DEFAULT)
        for fd in (fds.CONTROL, self.deaths_fd, self.death_fd):
            os.close(fd)
        if self.children_fd >= 0:
            os.close(self.children_fd)
            lifetime.die_with_parent(-1)
        if self.gate >= 0:
            os.close(self.gate)

    def on_death(self) -> None:
        """The child has ended by itself: say how, and have another ready for when the supervisor has concluded."""
        exited = self.on_exit()
        if self.gate >= 0:
            self.open_gate()  # it was forked ahead, and nobody has heard of it; the next is forked when it is due
            return
        self.control.send(exited)
        if self.options.standby:
            self.fork_ahead()

    def on_exit(self) -> Exited:
        """The call process has ended, or is about to: how it did, once what it left is killed."""
        _pid, status, usage = os.wait4(self.child, 0)
        self.child = 0
        self._kill_rest()
        cpu_s = usage.ru_utime + usage.ru_stime
        return Exited(self.seq, os.waitstatus_to_exitcode(status), cpu_s, usage.ru_maxrss * 1024)

    def sweep(self) -> tuple[Exited, ...]:
        """End the call: no process of it is left after this, no file in the scratch, no byte in the pipe.

        Returns how its process ended, if that has not been said yet.
        """
        exited: tuple[Exited, ...] = ()
        if self.gate >= 0:
            pass  # the call's process ended by itself; what it left was killed before another was forked ahead
        elif self.child:
            os.kill(-1 if self.children_fd < 0 else self.child, signal.SIGKILL)  # all at once: they die side by side
            exited = (self.on_exit(),)
            os.read(self.deaths_fd, 4096)  # its own death is in there, and is known
        else:
            self._kill_rest()
        while select.select([fds.FRAMES_IN], [], [], 0)[0]:
            if not os.read(fds.FRAMES_IN, fds.READ_BYTES):
                os._exit(0)  # the supervisor is gone
        try:
            for fd, state in self.states.items():
                fds.restore(fd, state)
        except OSError:
            os._exit(77)  # the pipes are not what they were and cannot be made so: another cell has its own
        if self.options.scratch:
            try:
                self.scratch.empty()
            except (OSError, RecursionError):
                os._exit(77)  # a tree built to resist: this cell, and its scratch with it, is replaced instead
        return exited

    def _kill_rest(self) -> None:
        if self.children_fd < 0:
            descendants.kill_namespace()
        else:
            descendants.kill_children(self.children_fd)
