"""Functions for tools that try what a sandbox must prevent. Each returns the outcome.

`attempt` makes one of `ATTEMPTS` and returns "done" or the name of the errno. `handles` returns which handles are None.
`ask` writes a forged request frame and returns the supervisor's answer.
"""

import contextlib
import ctypes
import errno
import os
import signal
import socket
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.misbehaving import call_number, frame_of, libc, read_frame, write_frames

from toolcell_tools.context import ToolContext

_HANDLES = ("writer", "shell", "channel", "memory", "memory_writer", "web", "http")
REQUEST = 20  # the number of a request frame (toolcell.wire.messages)


def handles(ctx: ToolContext) -> dict[str, bool]:
    """Whether each handle exists. For "workspace": whether the handle can be used."""
    there = {name: getattr(ctx, name) is not None for name in _HANDLES}
    try:
        ctx.workspace.list(".")
    except Exception:
        return there | {"workspace": False}
    return there | {"workspace": True}


def ask(operation: str, arguments: dict[str, Any]) -> dict[str, Any]:
    """Forge a request on the raw pipe. Return the supervisor's answer: `ok` and `value`."""
    write_frames(frame_of(REQUEST, call_number(), 1_000, operation, arguments))
    _kind, _call, request, ok, value = read_frame()
    return {"request": request, "ok": ok, "value": value}


def _checked(returned: int) -> None:
    if returned == -1:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def _write(path: str) -> None:
    with open(path, "w") as file:
        file.write("written")


def _append(path: str) -> None:
    with open(path, "a") as file:
        file.write("written")


def _truncate_on_open(path: str) -> None:
    os.close(os.open(path, os.O_RDWR | os.O_TRUNC))


def _execute(path: str) -> None:
    """Execute a program in a child. The child's exit code is the errno of a failure."""
    child = os.fork()
    if child == 0:
        try:
            os.execve(path, [path], {})
        except OSError as error:
            os._exit(error.errno or 255)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if code:
        raise OSError(code, os.strerror(code))


def _spawn(path: str) -> None:
    os.waitpid(os.posix_spawn(path, [path], {}), 0)


def _socket(family: str) -> None:
    kinds = (socket.SOCK_STREAM, socket.SOCK_DGRAM, socket.SOCK_RAW)
    refusals: set[int] = set()
    for kind in kinds:
        try:
            socket.socket(getattr(socket, family), kind).close()
        except OSError as error:
            refusals.add(error.errno or 0)
        else:
            return
    if len(refusals) > 1:
        raise RuntimeError(f"refused in different ways: {refusals}")
    raise OSError(refusals.pop(), "no socket")


def _mount(path: str) -> None:
    _checked(libc().mount(b"none", path.encode(), b"tmpfs", 0, None))


def _bind(path: str) -> None:
    _checked(libc().mount(b"/tmp", path.encode(), None, 4096, None))


def _ptrace(pid: int) -> None:
    _checked(libc().ptrace(16, pid, None, None))  # PTRACE_ATTACH


def _setns(path: str) -> None:
    fd = os.open(path, os.O_RDONLY)
    try:
        _checked(libc().setns(fd, 0))
    finally:
        os.close(fd)


def _read(path: str) -> None:
    with open(path, "rb") as file:
        file.read(64)


def _remount_writable(path: str) -> None:
    _checked(libc().mount(None, path.encode(), None, 32, None))  # MS_REMOUNT


def _rename_from_scratch(path: str) -> None:
    Path("/tmp/mine").touch()
    os.rename("/tmp/mine", path)


def _socketpair_datagram(_: object) -> None:
    for end in socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM):
        end.close()


ATTEMPTS: dict[str, Callable[[Any], object]] = {
    "write": _write,
    "append": _append,
    "create": lambda path: os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY)),
    "open_truncating": _truncate_on_open,
    "truncate": lambda path: os.truncate(path, 0),
    "rename": lambda path: os.rename(path, path + ".renamed"),
    "rename_to_scratch": lambda path: os.rename(path, "/tmp/stolen"),
    "rename_from_scratch": _rename_from_scratch,
    "unlink": os.unlink,
    "rmdir": os.rmdir,
    "mkdir": os.mkdir,
    "chmod": lambda path: os.chmod(path, 0o777),
    "chown": lambda path: os.chown(path, os.getuid(), os.getgid()),
    "utime": os.utime,
    "setxattr": lambda path: os.setxattr(path, "user.toolcell", b"x"),
    "link": lambda path: os.link(path, path + ".linked"),
    "link_to_scratch": lambda path: os.link(path, "/tmp/linked"),
    "symlink": lambda path: os.symlink("/etc/passwd", path),
    "mkfifo": os.mkfifo,
    "mknod": lambda path: os.mknod(path, 0o20666, os.makedev(1, 3)),
    "execve": _execute,
    "posix_spawn": _spawn,
    "subprocess": lambda path: subprocess.run([str(path)], check=False),
    "read": _read,
    "list": os.listdir,
    "stat": os.stat,
    "readlink": os.readlink,
    "chdir": os.chdir,
    "socket": _socket,
    "socketpair_datagram": _socketpair_datagram,
    "mount": _mount,
    "bind": _bind,
    "remount": _remount_writable,
    "umount": lambda path: _checked(libc().umount2(path.encode(), 2)),
    "pivot_root": lambda path: _checked(libc().syscall(155, path.encode(), path.encode())),
    "chroot": os.chroot,
    "unshare": lambda flags: _checked(libc().unshare(flags)),
    "setns": _setns,
    "ptrace": _ptrace,
    "kill": lambda pid: os.kill(pid, signal.SIGKILL),
    "pidfd_open": lambda pid: os.close(os.pidfd_open(pid)),
    "setuid": os.setuid,
    "setgroups": lambda _: os.setgroups([0]),
    "sethostname": lambda _: socket.sethostname("elsewhere"),
    "nice": lambda _: os.setpriority(os.PRIO_PROCESS, 0, -20),
    "memfd": lambda _: os.close(os.memfd_create("x")),
    "mlock": lambda _: _checked(libc().mlockall(3)),
}
"""The attempts, by name. Each takes a path, a pid, flags or None."""


def attempt(name: str, target: Any = None) -> str:
    """Make one of `ATTEMPTS` on `target`; return "done", or the errno's name."""
    try:
        ATTEMPTS[name](target)
    except OSError as error:
        return errno.errorcode.get(error.errno or 0, f"errno {error.errno}")
    return "done"


def entries(path: str) -> list[str]:
    """The names in a directory. Empty if it does not exist."""
    with contextlib.suppress(FileNotFoundError):
        return sorted(os.listdir(path))
    return []
