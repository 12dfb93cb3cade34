"""Receive descriptors with a message over a Unix socket (SCM_RIGHTS, unix(7))."""

import array
import socket


def receive_fds(end: socket.socket, size: int, most: int) -> tuple[bytes, list[int], int]:
    """A message, its descriptors (each close-on-exec), and the flags of recvmsg(2).

    `socket.recv_fds` is not used: it ignores its flags (Python 3.11 to 3.13), so the descriptors would survive
    execve(2).
    """
    fds = array.array("i")
    room = socket.CMSG_LEN(most * fds.itemsize)
    message, ancillary, flags, _address = end.recvmsg(size, room, socket.MSG_CMSG_CLOEXEC)
    for level, kind, data in ancillary:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
            fds.frombytes(data[: len(data) - len(data) % fds.itemsize])
    return message, fds.tolist(), flags
