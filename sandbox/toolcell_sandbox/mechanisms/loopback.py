"""The loopback interface of a fresh network namespace, and the one socket on it that the cell can reach.

A listening socket belongs to the namespace in which it was made; whoever holds its descriptor accepts what comes in.
So the cell's connections end in a process that is outside, though the namespace has no way out.
"""

import errno
import socket
import struct

from toolcell_sandbox.errors import SandboxError
from toolcell_sandbox.kernel.passing import receive_fds

_SIOCGIFFLAGS, _SIOCSIFFLAGS, _IFF_UP = 0x8913, 0x8914, 1
_IFREQ = struct.Struct("16sH22x")
BACKLOG = 128


def listen(host: str, port: int) -> int:
    """Bring `lo` up and return a listening, non-blocking TCP socket on it. Needs CAP_NET_ADMIN over the namespace."""
    from fcntl import ioctl

    try:
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as listener:
            _name, flags = _IFREQ.unpack(ioctl(listener, _SIOCGIFFLAGS, _IFREQ.pack(b"lo", 0)))
            ioctl(listener, _SIOCSIFFLAGS, _IFREQ.pack(b"lo", flags | _IFF_UP))
            listener.bind((host, port))
            listener.listen(BACKLOG)
            listener.setblocking(False)
            return listener.detach()
    except OSError as error:
        raise SandboxError(
            f"The cell's proxy socket could not be made on {host}:{port}",
            step="listen on lo",
            mechanism="net_namespace",
            errno=error.errno or errno.EIO,
            cure="Check that this user may set up a network namespace of its own, or use NoNetwork().",
        ) from error


def send(channel: int, message: bytes, listener: int) -> None:
    """Send a message over a unix socket, and the descriptor with it (SCM_RIGHTS, unix(7))."""
    with socket.socket(fileno=channel) as end:
        socket.send_fds(end, [message], [listener])
        end.detach()


def receive(channel: int, size: int) -> tuple[bytes, int]:
    """The message and the descriptor that `send` sent, -1 where none came."""
    with socket.socket(fileno=channel) as end:
        message, received, _flags = receive_fds(end, size, 1)
        end.detach()
    return message, received[0] if received else -1


def pair() -> tuple[int, int]:
    """Two ends of a unix socket, closed on exec."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    return ours.detach(), theirs.detach()
