"""What the hostile programs share. It goes into the cell with each of them, so it imports little."""

import ctypes
import errno
import fcntl
import json
import os
import re
import signal
import stat
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NoReturn, cast

import msgpack
from tests.misbehaving import call_number as call_number
from tests.misbehaving import frame_of as frame_of

from toolcell_sandbox.kernel.syscalls import attempt

ROOT = "root"
ROOTLESS = "rootless"
NO_NAMESPACES = "no namespaces"
NO_LANDLOCK = "no landlock"
NO_CGROUP = "no cgroup"
VARIANTS = (ROOT, ROOTLESS, NO_NAMESPACES, NO_LANDLOCK, NO_CGROUP)

SECRET = re.compile(rb"tcsecret-[0-9a-f]{32}")
"""What the supervisor's memory and environment, the canary's environment and the host's files hold."""


@dataclass(frozen=True)
class Ends:
    """The call ends with a typed error of this kind; `fact` is its resource, signal, exit code, or in its message."""

    kind: str
    fact: str | int = ""


@dataclass(frozen=True)
class Told:
    """The call answers, and its result has a notice of a protected name with this in it."""

    fact: str


@dataclass(frozen=True)
class Scene:
    """What an attacker may know: where everything is, but no secret."""

    ctx: Any
    """The call's ToolContext."""
    workspace: str
    """Has notes.txt, run.sh (0755), dir/inner.txt, repository/.git with config and hooks, and a socket to listen.sock.
    Read-only without WRITE."""
    outside: str
    """A directory of the host, all in it 0666 or 0777: secret.txt, list.txt, run.sh, dir/, app.sock, app.dgram."""
    supervisor: int
    """The supervisor's pid, on the host."""
    canary: int
    """The pid of a process of the supervisor's user, on the host."""
    bystander: int
    """The pid, on the host, of the init of another session's cell."""
    tcp: int
    """The port on which the host listens, on 127.0.0.1 and ::1."""
    udp: int
    """The UDP port on which the host listens, on 127.0.0.1."""
    abstract: str
    """The name of the host's abstract socket, without the NUL."""
    marker: str
    """What a process that is left behind calls itself."""

    @property
    def secret(self) -> str:
        """A file of the host."""
        return f"{self.outside}/secret.txt"

    @property
    def notes(self) -> str:
        """A file of the workspace."""
        return f"{self.workspace}/notes.txt"


def named(number: int) -> str:
    """The name of an errno."""
    return errno.errorcode.get(number, f"errno {number}")


def tried(action: Callable[..., object], *arguments: Any, **more: Any) -> str:
    """What came of a Python call: "ok", the errno's name, or the exception's."""
    try:
        action(*arguments, **more)
    except OSError as error:
        return named(error.errno) if error.errno else type(error).__name__
    except Exception as error:
        return type(error).__name__
    return "ok"


def asked(name: str, *arguments: Any) -> str:
    """What the kernel answered to a raw system call: "ok" or the errno's name."""
    result = attempt(name, *arguments)
    return "ok" if result >= 0 else named(-result)


def each(action: Callable[[Any], object], items: Iterable[Any]) -> object:
    """The one answer that all gave, or each one's own."""
    answers = {str(item): action(item) for item in items}
    return all_of(**answers)


def all_of(**answers: object) -> object:
    """The one answer that all are, or each by its name."""
    found = list(answers.values())
    return found[0] if all(answer == found[0] for answer in found) else answers


def read(path: str) -> bytes:
    """The content of a file, which counts as a leak."""
    with open(path, "rb") as file:
        return file.read()


def write(path: str) -> None:
    """Put something into a file."""
    with open(path, "wb") as file:
        file.write(b"overwritten by a hostile program")


def in_child(action: Callable[[], object]) -> Any:
    """What `action` returns when a child process runs it, or how the child ended."""
    take, give = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.close(take)
            os.write(give, json.dumps(action()).encode())
        finally:
            os._exit(0)
    os.close(give)
    with os.fdopen(take, "rb") as pipe:
        said = pipe.read()
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return json.loads(said) if said else f"signal {-code}" if code < 0 else f"exit {code}"


def in_child_it(action: Callable[..., object], *arguments: Any) -> Any:
    """`tried`, in a child process."""
    return in_child(lambda: tried(action, *arguments))


def linger(scene: Scene) -> NoReturn:
    """Become a process that nothing but SIGKILL ends, and that the host can find by its name."""
    libc = ctypes.CDLL(None)
    libc.prctl(15, scene.marker.encode(), 0, 0, 0)  # PR_SET_NAME
    libc.prctl(1, 0, 0, 0, 0)  # PR_SET_PDEATHSIG off
    signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    while True:
        signal.pause()


def pipes() -> tuple[int, int]:
    """The descriptors of the protocol's pipes (in, out), found as an attacker would, without /proc: by trying."""
    found: dict[int, int] = {}
    for fd in range(3, 64):
        try:
            if stat.S_ISFIFO(os.fstat(fd).st_mode):
                found.setdefault(fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_ACCMODE, fd)
        except OSError:
            continue
    return found[os.O_RDONLY], found[os.O_WRONLY]


def send(data: bytes) -> None:
    """Write to the pipe that carries frames out, all of it."""
    fd = pipes()[1]
    while data:
        data = data[os.write(fd, data) :]


def receive() -> list[Any]:
    """Read one frame from the pipe that carries frames in."""
    fd, data = pipes()[0], b""
    while len(data) < 4 or len(data) < 4 + int.from_bytes(data[:4], "big"):
        data += os.read(fd, 4 if len(data) < 4 else 4 + int.from_bytes(data[:4], "big") - len(data))
    return cast("list[Any]", msgpack.unpackb(data[4:]))


def request(operation: str, arguments: dict[str, Any]) -> dict[str, Any]:
    """Forge a request on the pipe; return what the supervisor answers: `ok` and `value`."""
    send(frame_of(20, call_number(), 1_000, operation, arguments))
    _kind, _call, _request, ok, value = receive()
    return {"ok": ok, "value": value}


def secrets_in(data: bytes) -> int:
    """How many of the host's secrets there are in `data`."""
    return len(set(SECRET.findall(data)))


def look(workspace: str) -> dict[str, object]:
    """What a call that comes after an attack finds: other processes, and files in the scratch (beside mount points)."""
    me = os.getpid()

    def listed(path: str) -> Any:
        try:
            return sorted(os.listdir(path))
        except OSError as error:
            return named(error.errno or 0)

    found = listed("/proc")
    others = (
        [name for name in found if name.isdecimal() and int(name) not in (1, me)] if isinstance(found, list) else []
    )
    scratch = listed("/tmp")
    mounted = workspace.split("/")[2] if workspace.startswith("/tmp/") else ""
    left = [name for name in scratch if name != mounted] if isinstance(scratch, list) else []
    return {"processes": others, "scratch": left, "descriptors": [_flags(fd) for fd in (0, 1, 2, 4, 5)]}


def _flags(fd: int) -> list[str | int]:
    """What forks share of an open file: status flags, who is signalled and how, the size of a pipe, how long what is
    written will live, who may open it, and locks that were taken through it. (Whether /dev/null itself is locked tells
    nothing: any process of the machine may do that.)"""
    answers: list[str | int] = []
    for command in (fcntl.F_GETFL, fcntl.F_GETOWN, 11, 1032, 1035):  # F_GETSIG, F_GETPIPE_SZ, F_GET_RW_HINT
        try:
            answers.append(fcntl.fcntl(fd, command, bytes(8)).hex() if command == 1035 else fcntl.fcntl(fd, command))
        except OSError as error:
            answers.append(named(error.errno or 0))
    info = os.fstat(fd)
    answers += [info.st_mode, info.st_uid, info.st_gid]
    with suppress(OSError), open(f"/proc/self/fdinfo/{fd}") as file:
        answers += [line.strip() for line in file if line.startswith("lock")]
    return answers
