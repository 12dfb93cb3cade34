"""Descriptors: close what a cell is not given, move ours out of the way, pass some on (SCM_RIGHTS, unix(7))."""

import os
from collections.abc import Iterable
from fcntl import F_DUPFD_CLOEXEC, fcntl

from toolcell_sandbox.errors import SandboxError
from toolcell_sandbox.kernel.syscalls import syscall

TYPE_CHECKING = False  # most cells need no socket, and importing typing would cost milliseconds
if TYPE_CHECKING:
    import socket

LOWEST_OWN = 32
"""A process that becomes a cell opens its own descriptors here or above. Descriptors for the cell are below."""
_LAST = 0xFFFFFFFF


def raised(fd: int) -> int:
    """A duplicate of `fd` at `LOWEST_OWN` or above, close-on-exec. Closes `fd`."""
    try:
        return fcntl(fd, F_DUPFD_CLOEXEC, LOWEST_OWN)
    except OSError as error:
        raise SandboxError(
            "A descriptor could not be moved out of the way of those that a cell is given",
            step="move a descriptor",
            errno=error.errno or 0,
            cure="Raise the limit on open files (ulimit -n): making a cell takes about 60.",
        ) from error
    finally:
        os.close(fd)


def keep_only(keep: Iterable[int]) -> None:
    """Close every descriptor but 0, 1, 2 and these."""
    start = 0
    for fd in sorted({0, 1, 2, *keep}):
        if fd > start:
            close_range(start, fd - 1)
        start = fd + 1
    close_range(start, _LAST)


def close_range(first: int, last: int) -> None:
    """Close the descriptors from first to last, both included."""
    syscall("close_range", first, last, 0, step="close inherited descriptors", mechanism="close_range")


def open_fds(limit: int) -> set[int]:
    """The open descriptors below `limit`, found without /proc."""
    found: set[int] = set()
    for fd in range(limit):
        try:
            os.fstat(fd)
        except OSError:
            continue  # EBADF: not open
        found.add(fd)
    return found


def receive_fds(end: "socket.socket", size: int, most: int) -> tuple[bytes, list[int], int]:
    """A message, its descriptors (each close-on-exec), and the flags of recvmsg(2).

    `socket.recv_fds` is not used: it ignores its flags (Python 3.11 to 3.13), so the descriptors would survive
    execve(2).
    """
    import array
    import socket

    fds = array.array("i")
    room = socket.CMSG_LEN(most * fds.itemsize)
    message, ancillary, flags, _address = end.recvmsg(size, room, socket.MSG_CMSG_CLOEXEC)
    for level, kind, data in ancillary:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
            fds.frombytes(data[: len(data) - len(data) % fds.itemsize])
    return message, fds.tolist(), flags


def send(channel: int, message: bytes, listener: int) -> None:
    """Send a message and a descriptor over a Unix socket (SCM_RIGHTS, unix(7))."""
    import socket

    with socket.socket(fileno=channel) as end:
        socket.send_fds(end, [message], [listener])
        end.detach()


def receive(channel: int, size: int) -> tuple[bytes, int]:
    """Receive the message and the descriptor of `send`; -1 if there is no descriptor."""
    import socket

    with socket.socket(fileno=channel) as end:
        message, received, _flags = receive_fds(end, size, 1)
        end.detach()
    return message, received[0] if received else -1


def pair() -> tuple[int, int]:
    """Two connected Unix sockets, close-on-exec."""
    import socket

    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    return ours.detach(), theirs.detach()
