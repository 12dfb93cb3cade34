"""What the kernel takes for the bare minimum of the same thing: nothing that is built on it can be faster.

Each floor is timed inside a helper process of its own, a clean single-threaded interpreter that this very file is the
script of (`python -I floors.py …`): the harness around it, pytest and an event loop, must not be in the floor.
"""

import fcntl
import json
import os
import socket
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from itertools import repeat, starmap
from types import TracebackType
from typing import Self

Sample = Callable[[], float]
_FORKED = 7  # an exit status that nothing exits with by accident
_CLONE_NEWUSER = 0x10000000
_CALLS = 1000


class Floor:
    """A helper process. `block` asks it for `samples` samples."""

    def __init__(self, samples: int, kind: str, *arguments: str, pause_s: float = 0.0) -> None:
        self._samples = samples
        self._pause_s = pause_s
        self._command = [sys.executable, "-I", *(["-S"] if kind == "bare fork" else []), __file__, kind, *arguments]

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._process:  # closes its input, which ends it, and waits
            pass

    async def block(self) -> list[float]:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(f"{self._samples} {self._pause_s}\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        assert answer, f"{self._command} ended; what it wrote to stderr says why"
        samples: list[float] = json.loads(answer)
        return samples


def ping_pong(samples: int, payload_bytes: int, placement: str, pause_s: float = 0.0) -> Floor:
    """A message to another process and back, over a socket pair. `placement`: "free", or pinned: "one core", "two
    cores"."""
    return Floor(samples, "ping-pong", str(payload_bytes), placement, pause_s=pause_s)


def copy_and_back(samples: int, payload_bytes: int) -> Floor:
    """So many bytes to another process, which has all of them before it sends them back, over a socket pair."""
    return Floor(samples, "copy", str(payload_bytes))


def fork_exit_wait(samples: int, pause_s: float = 0.0, *, bare: bool = False) -> Floor:
    """fork, _exit and waitpid of an interpreter that holds what a zygote holds. `bare`: of one that holds this file."""
    return Floor(samples, "bare fork" if bare else "fork", pause_s=pause_s)


def fork_rate(cores: Sequence[int], seconds: float) -> Floor:
    """How often all these cores together fork, _exit and waitpid such an interpreter in a second."""
    return Floor(1, "fork rate", ",".join(map(str, cores)), str(seconds))


def start_python(samples: int, *program: str) -> Floor:
    """From the start of `python -I …` to its end."""
    return Floor(samples, "start", *program)


def fork_unshare(samples: int) -> Floor:
    """Fork the same interpreter, make all namespaces, fork their first process, and hear from it."""
    return Floor(samples, "unshare")


def system_calls(samples: int, name: str, *, filtered: bool) -> Floor:
    """One system call, on average of a thousand; in a process with the seccomp filter of a cell, or without."""
    return Floor(samples, "system call", name, "filtered" if filtered else "free")


# -- inside the helper -------------------------------------------------------------------------------------------------


def _start_ping_pong(payload_bytes: int, placement: str) -> Sample:
    cores = sorted(os.sched_getaffinity(0))
    if placement != "free":
        os.sched_setaffinity(0, {cores[-1]})
    near, far = (end.detach() for end in socket.socketpair())
    if os.fork() == 0:
        if placement == "two cores":
            os.sched_setaffinity(0, {cores[0]})  # the same one, where there is no other
        os.close(near)
        while data := os.read(far, 65536):
            os.write(far, data)
        os._exit(0)
    os.close(far)
    serial = 0

    def sample() -> float:
        nonlocal serial
        serial += 1
        payload = b"%0*d" % (payload_bytes, serial)
        start = time.perf_counter()
        os.write(near, payload)
        reply = os.read(near, 65536)
        taken = time.perf_counter() - start
        assert reply == payload, (reply, payload)
        return taken

    return sample


def _start_copy(payload_bytes: int) -> Sample:
    near, far = socket.socketpair()
    if os.fork() == 0:
        near.close()
        buffer = bytearray(payload_bytes)
        while _receive(far, buffer):
            far.sendall(buffer)
        os._exit(0)
    far.close()
    payload = os.urandom(1024) * (payload_bytes // 1024)
    buffer = bytearray(payload_bytes)

    def sample() -> float:
        buffer[-1:] = b"\0"
        start = time.perf_counter()
        near.sendall(payload)
        whole = _receive(near, buffer)
        taken = time.perf_counter() - start
        assert whole and buffer == payload
        return taken

    return sample


def _receive(connection: socket.socket, buffer: bytearray) -> bool:
    """Fill the buffer; False where the other end was closed."""
    rest = memoryview(buffer)
    while rest:
        got = connection.recv_into(rest)
        if got == 0:
            return False
        rest = rest[got:]
    return True


def _become_like_a_zygote() -> None:
    import gc

    from toolcell.runner import call_process, zygote

    assert zygote.Zygote is not None  # imported for what it imports
    call_process.preload()
    call_process.preload_for(["cloudpickle"])  # as for the tools of `workload`, which go to cells by value
    gc.collect()
    gc.disable()
    gc.freeze()


def _fork() -> float:
    start = time.perf_counter()
    pid = os.fork()
    if pid == 0:
        os._exit(_FORKED)
    status = os.waitpid(pid, 0)[1]
    taken = time.perf_counter() - start
    assert os.waitstatus_to_exitcode(status) == _FORKED, status
    return taken


def _start_fork_rate(cores: Sequence[int], seconds: float) -> Sample:
    """A process for each core forks as fast as it can."""
    pairs = [socket.socketpair() for _ in cores]
    for core, (_near, far) in zip(cores, pairs, strict=True):
        if os.fork() == 0:
            for each, _far in pairs:  # or none would ever see that its other end is closed
                each.close()
            os.sched_setaffinity(0, {core})
            while far.recv(1):
                end = time.perf_counter() + seconds
                count = 0
                while time.perf_counter() < end:
                    _fork()
                    count += 1
                far.send(b"%d" % count)
            os._exit(0)
    for _near, far in pairs:
        far.close()

    def sample() -> float:
        start = time.perf_counter()
        for near, _far in pairs:
            near.send(b"x")
        counts = [int(near.recv(20)) for near, _far in pairs]
        return sum(counts) / (time.perf_counter() - start)

    return sample


def _start(program: list[str]) -> float:
    command = [sys.executable, "-I", *program]
    start = time.perf_counter()
    pid = os.posix_spawn(command[0], command, os.environ)
    status = os.waitpid(pid, 0)[1]
    taken = time.perf_counter() - start
    assert status == 0, (command, status)
    return taken


def _unshare() -> float:
    from toolcell_sandbox.kernel.syscalls import attempt
    from toolcell_sandbox.mechanisms.namespaces import FLAGS

    flags = sum(FLAGS.values()) | (_CLONE_NEWUSER if os.geteuid() else 0)
    hear, tell = os.pipe()
    start = time.perf_counter()
    outer = os.fork()
    if outer == 0:
        if attempt("unshare", flags) == 0:
            init = os.fork()
            if init == 0:
                os.write(tell, b"%d" % os.getpid())
                os._exit(0)
            os.waitpid(init, 0)
        os._exit(0)
    os.close(tell)
    told = os.read(hear, 16)
    taken = time.perf_counter() - start
    os.waitpid(outer, 0)
    os.close(hear)
    assert told == b"1", f"the first process of a new pid namespace has pid 1; it said {told!r}"
    return taken


def _start_system_calls(name: str, how: str) -> Sample:
    from toolcell_sandbox.mechanisms import capabilities, seccomp

    null = os.open(os.devnull, os.O_RDONLY)
    loops: dict[str, Callable[[], Iterator[object]]] = {  # all in C: a loop of bytecode would take as long as the call
        "getppid": lambda: starmap(os.getppid, repeat((), _CALLS)),
        "fcntl": lambda: starmap(fcntl.fcntl, repeat((null, fcntl.F_GETFD), _CALLS)),
        "open, close": lambda: map(os.close, starmap(os.open, repeat((os.devnull, os.O_RDONLY), _CALLS))),
    }
    if how == "filtered":
        capabilities.no_new_privileges()
        seccomp.load(seccomp.program(allow_exec=False))
        assert _is_refused(), "the filter is not in force"

    def sample() -> float:
        loop = loops[name]()
        start = time.perf_counter()
        deque(loop, maxlen=0)
        return (time.perf_counter() - start) / _CALLS

    return sample


def _is_refused() -> bool:
    try:
        socket.socket().close()
    except OSError:
        return True
    return False


def _sampler(kind: str, arguments: list[str]) -> Sample:
    if kind == "system call":
        return _start_system_calls(*arguments)
    if kind == "ping-pong":
        return _start_ping_pong(int(arguments[0]), arguments[1])
    if kind == "copy":
        return _start_copy(int(arguments[0]))
    if kind == "start":
        return lambda: _start(arguments)
    if kind == "bare fork":
        return _fork
    _become_like_a_zygote()
    if kind == "fork rate":
        return _start_fork_rate([int(core) for core in arguments[0].split(",")], float(arguments[1]))
    return {"fork": _fork, "unshare": _unshare}[kind]


def _serve() -> None:
    """Answer each line `samples pause_s` with a line of JSON, until the input ends."""
    sample = _sampler(sys.argv[1], sys.argv[2:])
    for line in sys.stdin:
        samples, pause_s = line.split()
        taken: list[float] = []
        for _ in range(int(samples)):
            if float(pause_s):
                time.sleep(float(pause_s))
            taken.append(sample())
        print(json.dumps(taken), flush=True)


if __name__ == "__main__":
    _serve()
