"""The cell's init: pid 1, locked down. Imports the tools, forks a call process per call, and sweeps after each.

The init is never the tool process: signals from inside cannot reach pid 1, and when pid 1 dies, the kernel kills the
whole pid namespace (pid_namespaces(7)). The init gets its work only over the control socket, which no call process
holds.
"""

import errno
import gc
import os
import resource
import select
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from importlib import import_module
from typing import Any, NoReturn, cast

from toolcell.wire.frames import WireLimits
from toolcell.wire.messages import AHEAD_NEEDS, VERSION, Failed, Hello, Load
from toolcell.wire.protocol import exited, ready, recycled
from toolcell.wire.switches import is_on
from toolcell_sandbox.enter import Entered
from toolcell_sandbox.errors import SandboxError
from toolcell_sandbox.late_paths import Lock
from toolcell_sandbox.mechanisms import lifetime, rlimits

from . import call_process, cheap_forks, loading, sweep, warm
from .context import Contexts
from .control import CONTROL, FRAMES_IN, OWN_INPUT, READ_BYTES, Options, receive, receive_body, send, write_all
from .link import Link

_starts: Any = import_module("_posixsubprocess")  # in the zygote: each cell would load the library again
# The C function behind `signal.pthread_sigmask`, whose Python wrapper makes enum members of the blocked signals.
_set_mask: Callable[[int, tuple[int, ...]], object] = import_module("_signal").pthread_sigmask
_CELL_SCORE, _CALL_SCORE = b"%d" % rlimits.CELL_OOM_SCORE, b"%d" % rlimits.CALL_OOM_SCORE
_FOR_NODE = '--require="{}"'.format(f"{os.path.dirname(__file__)}/processors.cjs".translate({34: '\\"', 92: "\\\\"}))
umask = [0o022]
"""The umask of call processes: the program's, which the zygote notes. Others may never write."""
_ROUNDS = 16  # generations of a call's processes to kill before the successor is killed too


def main(entered: Entered) -> NoReturn:
    """Make a locked-down process a cell: send Hello, load the tools, call_process."""
    send(Hello(VERSION))
    first = receive()
    if not isinstance(first, Load):
        os._exit(76)  # EX_PROTOCOL, sysexits.h
    options = Options.of(first)
    if not {"mount_namespace", "pivot_root", "mount_setattr"} <= entered.report.on:
        options = replace(options, scratch="")  # never empty the host's own /tmp
    os.environ.clear()
    os.environ.update(options.environ)
    if "exec" in entered.profile.grants:
        os.environ.setdefault("NODE_OPTIONS", _FOR_NODE)
    else:
        _explain_that_no_program_starts()
    try:
        call_process.enter_workspace(options.cwd)
    except SandboxError as error:
        send(Failed(error.step, str(error), error.mechanism, error.cure))
        os._exit(1)
    for step in OWN_INPUT:  # before any tool code is loaded
        step()
    modules = len(sys.modules)
    cheap_forks.stop()
    loaded = loading.load(cast("list[dict[str, object]]", first.tools))
    if loading.started_threads():
        send(
            Failed(
                "import", "a tool's module started a thread while it was imported. Start it inside the tool.", "", ""
            )
        )
        os._exit(1)
    if options.unbound and any(isinstance(tool, loading.LoadError) for tool in loaded.values()):
        _refuse_to_be_ahead("a tool could not be loaded")  # it may need paths that are not in place yet
    link = Link(WireLimits.for_results(options.result_bytes))
    contexts = Contexts(options.session, options.protects, link, options.file_bytes)
    lock = Lock(entered.profile, entered.view) if options.unbound else None
    prepared = call_process.prepare(loaded, options, contexts, lock)
    sys.stdout.flush()
    sys.stderr.flush()
    if len(sys.modules) > modules:  # imports leave cycles behind; without new modules there is nothing to collect
        gc.collect()
    gc.freeze()
    Init(prepared, entered).run()


def _explain_that_no_program_starts() -> None:
    """Have `subprocess` and `multiprocessing` name the missing capability. The kernel refuses execve too, but in the
    forked child: a tool that makes shared memory would see the broken pipe of a tracker."""

    def refused(args: Sequence[str | bytes], *_options: object) -> NoReturn:
        why = "Permission denied: a tool starts programs only with Capability.EXEC"
        raise PermissionError(errno.EACCES, why, os.path.basename(os.fsdecode(args[0])))

    _starts.fork_exec = refused
    if "subprocess" in sys.modules:  # else it will import the above; an import here takes 3 ms of each cell
        vars(sys.modules["subprocess"])["_fork_exec"] = refused


def _refuse_to_be_ahead(why: str) -> NoReturn:
    """End a prewarmed cell because cells of its kind need their session before they load the tools."""
    send(Failed("import", f"{why} before there was a session.", "", ""))
    os._exit(1)


class Init:
    """Runs one call process at a time: fork it, wait for its end or for `Recycle`, sweep, repeat.

    After each fork, the init copies each page to which it writes. So a call must use few Python functions and objects
    here, and rather C functions.
    """

    def __init__(self, prepared: call_process.CallTemplate, entered: Entered) -> None:
        self.scratch = sweep.Scratch(prepared.options.scratch, entered.view) if prepared.options.scratch else None
        self.view = entered.view
        self.standby = prepared.options.standby
        self.number = 0  # of the present call process; the first has 1
        self.settings = sweep.SharedSettings()
        self.child = 0  # pid of the call process, 0 if there is none
        self.successor = 0  # pid of the next call's process, which was forked ahead, 0 if there is none
        self.spared = b""  # the successor's entry in the list of children
        self.gate = -1  # the pipe on which the successor waits
        self.in_namespace = entered.children_fd < 0  # a pid namespace of its own, so kill(-1) reaches only the cell
        self.children_fd = sweep.open_children() if self.in_namespace else entered.children_fd
        # Whether the running call cannot reach the successor, and the init can kill all of the call's processes without
        # killing the successor.
        self.apart = self.children_fd >= 0 and entered.report.on >= AHEAD_NEEDS
        self.deaths_fd = lifetime.watch_children()
        self.score_fd = entered.score_fd
        self.calls = select.poll()
        self.calls.register(FRAMES_IN, select.POLLIN)
        self.prepared = prepared._replace(steps=(*self.parting(), *prepared.steps))

    def parting(self) -> Iterator[Callable[[], object]]:
        """The first steps of a call process: take the program's umask, give up what only the init may have."""
        yield partial(os.umask, umask[0])
        for fd in (CONTROL, self.deaths_fd, self.children_fd, self.score_fd):
            if fd >= 0:
                yield partial(os.close, fd)
        yield from OWN_INPUT
        yield partial(_set_mask, int(signal.SIG_UNBLOCK), (int(signal.SIGCHLD),))
        yield os.setsid  # a process group for `_kill`, and a scheduling group of its own (sched(7), autogroup)
        if not self.in_namespace:
            yield partial(lifetime.die_with_parent, -1)

    def run(self) -> NoReturn:
        watched = select.poll()
        watched.register(CONTROL, select.POLLIN)
        watched.register(self.deaths_fd, select.POLLIN)
        if self.prepared.lock is None:
            self.next()
        else:
            self.wait_for_session(watched)
        while True:
            for fd, _event in watched.poll():
                if fd == CONTROL:
                    self.on_recycle()
                    break  # the deaths may be handled by now; poll again (it is level-triggered)
                os.read(fd, 4096)
                self.on_deaths()

    def wait_for_session(self, watched: select.poll) -> None:
        """Fork a call process that waits at a gate, wait for the session that claims this cell, then serve it."""
        if self.children_fd >= 0 and sweep.children(self.children_fd):  # they would run without Landlock rules
            _refuse_to_be_ahead("a tool started a process while it was loaded")
        gate, self.gate = os.pipe2(os.O_CLOEXEC)
        self.number, self.child = 1, self.fork(gate)
        os.close(gate)
        os.write(CONTROL, ready(self.number, waiting=True))
        if is_on("warm_up"):
            warm.read_session(self.prepared.options, self.prepared.contexts.link)
        while any(fd == self.deaths_fd for fd, _event in watched.poll()):
            os.read(self.deaths_fd, 4096)
            self.on_deaths()
            if not self.child:
                os._exit(1)  # the waiting process has died without a call
        told = receive_body()
        write_all(self.gate, [told])
        self.open_gate()  # the call process binds itself to the session at the same time
        try:
            self.prepared, binds = call_process.bind(self.prepared, told)
        except SandboxError as error:
            send(Failed(error.step, str(error), error.mechanism, error.cure))
            os._exit(1)
        if self.scratch is not None:  # its first state was read in __init__; by now a call may have changed it
            self.scratch.show(replace(self.view, binds=(*self.view.binds, *binds)))

    def on_recycle(self) -> None:
        """Carry out a `Recycle`. The number of the present call process ends its call. The next number asks for another
        call process, now or ahead of time."""
        said = os.read(CONTROL, 4096)
        if not said:
            os._exit(0)  # the supervisor is gone
        for number, account in recycled(said):
            if number == self.number:
                self.sweep(account)
                self.next()
            elif number != self.number + 1:
                os._exit(76)
            elif not self.standby:
                self.offer()
            elif self.apart and not self.successor:
                self.fork_ahead()
                self.rehearse()

    def next(self) -> None:
        """Report that the next call may come, with or without a waiting process."""
        if self.standby:
            self.offer()
        os.write(CONTROL, ready(self.number, self.standby))

    def offer(self) -> None:
        """Provide a call process for the next call."""
        self.number += 1
        if self.successor:
            self.child = self.successor
            os.kill(self.child, signal.SIGCONT)  # in case the finished call has stopped it, which should be impossible
            self.open_gate()
            return
        try:
            self.child = self.fork()
        except OSError as error:
            message = f"There is no room for the call's process: {error.strerror}."
            cure = "Raise the process limit (RLIMIT_NPROC, pids.max) of the user or the cgroup, or run fewer cells."
            send(Failed("fork", message, "", cure))
            os._exit(1)

    def fork_ahead(self) -> None:
        """Fork the next call process while a call runs or is concluded. If there is no room, fork none.

        The new process waits at a gate before it reads the pipe, which may hold frames for the running call.
        """
        try:
            gate, self.gate = os.pipe2(os.O_CLOEXEC)
        except OSError:
            return
        try:
            self.successor = self.fork(gate)
            self.spared = b"%d " % self.successor
        except OSError:
            self.open_gate()
        os.close(gate)

    def rehearse(self) -> None:
        """Run the steps of a call's end that change nothing. They copy the pages to which the real end will write, so
        that the next call does not wait for the copies."""
        self.on_deaths()
        os.pread(self.children_fd, 64, 0)
        exited(self.number, 0, 0.0, 0)
        ready(self.number, waiting=True)
        self.calls.poll(0)
        self.settings.now()
        if self.scratch is not None:
            with suppress(OSError):  # more attributes than can be listed: the sweep handles that
                self.scratch.now()

    def open_gate(self) -> None:
        """Let the successor through its gate, or forget a successor that has died."""
        os.close(self.gate)
        self.gate, self.successor, self.spared = -1, 0, b""

    def fork(self, gate: int = -1) -> int:
        """Fork a call process. No process of another call may be left that could reach it."""
        pid, score_fd = -1, self.score_fd
        if score_fd >= 0:
            os.write(score_fd, _CALL_SCORE)  # the fork inherits it
        try:
            pid = os.fork()
        finally:
            if pid and score_fd >= 0:
                os.write(score_fd, _CELL_SCORE)
        if pid == 0:
            try:
                call_process.serve(self.prepared, gate, self.gate)
            finally:
                os._exit(70)  # EX_SOFTWARE: serve never returns
        return pid

    def on_deaths(self) -> None:
        """Reap dead processes: orphans of the call, the call process itself, or its successor."""
        while True:
            try:
                pid, status, usage = os.wait4(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if pid == self.child:
                self.on_death(status, usage)
            elif pid == self.successor:  # the supervisor does not know of it; `offer` forks another one
                self.open_gate()

    def on_death(self, status: int, usage: resource.struct_rusage) -> None:
        """Handle a call process that has ended by itself: kill what it left, report how it ended, and prepare another
        one for when the supervisor has concluded the call."""
        self.account(status, usage)
        if self.standby and not self.successor:
            self.fork_ahead()

    def account(self, status: int, usage: resource.struct_rusage) -> None:
        """Kill what the reaped call process left, and report how it ended."""
        self.child = 0
        self._kill_rest()
        cpu_s = usage.ru_utime + usage.ru_stime
        os.write(CONTROL, exited(self.number, os.waitstatus_to_exitcode(status), cpu_s, usage.ru_maxrss * 1024))

    def sweep(self, account: bool) -> None:
        """End the call. After this, no process of it is left, no file in the scratch, and no byte in the pipe."""
        if self.child:  # otherwise it has ended by itself, and the rest was killed then
            self._kill()
            if account:
                self.account(*os.wait4(self.child, 0)[1:])
            else:
                os.waitpid(self.child, 0)
                self.child = 0
                self._kill_rest()
            os.read(self.deaths_fd, 4096)  # this has the child's death, which is known
        if self.successor:
            self.on_deaths()  # the successor's too, if it has died
        while self.calls.poll(0):
            if not os.read(FRAMES_IN, READ_BYTES):
                os._exit(0)  # the supervisor is gone
        try:
            self.settings.restore()
            if self.scratch is not None:
                self.scratch.sweep()
        except (OSError, RecursionError):
            # Pipes that cannot be restored, or files that resist deletion: a new cell has new ones.
            os._exit(77)

    def _kill(self) -> None:
        """Kill the call process and its process group with one signal, so that they die concurrently."""
        try:
            os.killpg(self.child, signal.SIGKILL)  # a session leader cannot leave its group
        except ProcessLookupError:
            os.kill(self.child, signal.SIGKILL)  # it has not called setsid yet

    def _kill_rest(self) -> None:
        """Kill and reap all other processes except the successor; after some rounds, the successor too."""
        if not self.in_namespace:
            sweep.kill_children(self.children_fd)
        elif self.children_fd < 0:
            sweep.kill_namespace()
        elif os.pread(self.children_fd, 64, 0) == self.spared:
            pass  # none is left: every orphan is a child of pid 1
        elif not self.successor or not sweep.kill_children(self.children_fd, (self.successor,), _ROUNDS):
            sweep.kill_namespace()
            if self.successor:
                self.open_gate()
