"""The loopback interface of a new network namespace, and the one listening socket on it.

A listening socket belongs to the network namespace in which it was made, and the holder of its descriptor accepts the
connections. So a process outside of the cell accepts the cell's connections, though the namespace has no other way out.
"""

import errno
import socket
import struct
from contextlib import suppress

from toolcell_sandbox.errors import SandboxError
from toolcell_sandbox.kernel.passing import receive_fds
from toolcell_sandbox.kernel.syscalls import write_file

_SIOCGIFFLAGS, _SIOCSIFFLAGS, _IFF_UP = 0x8913, 0x8914, 1
_IFREQ = struct.Struct("16sH22x")
BACKLOG = 128
_TCP_BUFFERS = "4096 65536 212992"  # least, first and most bytes of a connection's buffer, each way; by default 10 MiB


def listen(host: str, port: int) -> int:
    """Bring `lo` up and return a listening, non-blocking TCP socket on it. Needs CAP_NET_ADMIN over the namespace."""
    from fcntl import ioctl

    try:
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as listener:
            _name, flags = _IFREQ.unpack(ioctl(listener, _SIOCGIFFLAGS, _IFREQ.pack(b"lo", 0)))
            ioctl(listener, _SIOCSIFFLAGS, _IFREQ.pack(b"lo", flags | _IFF_UP))
            for name in ("tcp_rmem", "tcp_wmem"):
                with suppress(SandboxError):  # a container whose /proc/sys is read-only
                    write_file(f"/proc/sys/net/ipv4/{name}", _TCP_BUFFERS, step="bound TCP buffers")
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
    """Send a message and a descriptor over a Unix socket (SCM_RIGHTS, unix(7))."""
    with socket.socket(fileno=channel) as end:
        socket.send_fds(end, [message], [listener])
        end.detach()


def receive(channel: int, size: int) -> tuple[bytes, int]:
    """Receive the message and the descriptor of `send`; -1 if there is no descriptor."""
    with socket.socket(fileno=channel) as end:
        message, received, _flags = receive_fds(end, size, 1)
        end.detach()
    return message, received[0] if received else -1


def pair() -> tuple[int, int]:
    """Two connected Unix sockets, close-on-exec."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    return ours.detach(), theirs.detach()
