"""The cell's own mounts, processes, network with a loopback, IPC, host name and cgroup root."""

import errno
import os
import signal
import struct
from collections.abc import Collection
from contextlib import suppress

from toolcell_sandbox.errors import SandboxError
from toolcell_sandbox.kernel.syscalls import attempt, fork, syscall, write_file

FLAGS = {
    "mount_namespace": 0x00020000,
    "pid_namespace": 0x20000000,
    "net_namespace": 0x40000000,
    "ipc_namespace": 0x08000000,
    "uts_namespace": 0x04000000,
    "cgroup_namespace": 0x02000000,
}
CURE = "Run as root with CAP_SYS_ADMIN or where user namespaces are allowed; in Docker let seccomp allow unshare."
_SIOCGIFFLAGS, _SIOCSIFFLAGS, _IFF_UP = 0x8913, 0x8914, 1
_IFREQ = struct.Struct("16sH22x")
BACKLOG = 128
_TCP_BUFFERS = "4096 65536 212992"  # least, first and most bytes of a connection's buffer, each way; by default 10 MiB


def unshare(names: Collection[str]) -> None:
    """Make new namespaces; `names` are keys of `FLAGS`. The pid namespace is for the children."""
    wanted = [name for name in FLAGS if name in names]
    flags = 0
    for name in wanted:
        flags |= FLAGS[name]
    if not flags or attempt("unshare", flags) == 0:  # container engines refuse even an empty unshare
        return
    for name in wanted:  # find the refused one, for the error
        syscall("unshare", FLAGS[name], step=f"unshare {name}", mechanism=name, cure=CURE)
    raise SandboxError(f"Namespaces could not be made together: {wanted}", step="unshare", cure=CURE)


def fork_first(step: str) -> int:
    """Fork the first process of a new pid namespace. Later children of the caller are in its own namespace again.

    `can_come_back` must hold. Raises SandboxError, without a child, if a namespace or a child is refused.
    """
    own = _own_pid_namespace()
    child = -1
    try:
        unshare(("pid_namespace",))
        try:
            child = fork(step)
        finally:
            if child:
                flag = FLAGS["pid_namespace"]
                syscall("setns", own, flag, step="come back from the pid namespace", mechanism="pid_namespace")
        return child
    except SandboxError:
        if child > 0:  # a namespace without its first process takes no others, so the caller's forks would fail
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
        raise
    finally:
        os.close(own)


def can_come_back() -> bool:
    """Whether this process can set its own pid namespace for its children again, after it has made another one for
    them.

    That needs CAP_SYS_ADMIN in the owning user namespace (setns(2)), and a container's filter may forbid it.
    """
    own = _own_pid_namespace()
    try:
        return attempt("setns", own, FLAGS["pid_namespace"]) == 0  # it is the present one, so this changes nothing
    finally:
        os.close(own)


def _own_pid_namespace() -> int:
    return os.open("/proc/self/ns/pid", os.O_RDONLY | os.O_CLOEXEC)


def name_host(name: str) -> None:
    """Set host and domain name in the UTS namespace."""
    for call, text in (("sethostname", name.encode()), ("setdomainname", b"(none)")):
        syscall(call, text, len(text), step=call, mechanism="uts_namespace")


def listen(host: str, port: int) -> int:
    """Bring `lo` of a new network namespace up and return a listening, non-blocking TCP socket on it. Needs
    CAP_NET_ADMIN over the namespace.

    A listening socket belongs to the network namespace in which it was made, and the holder of its descriptor accepts
    the connections. So a process outside of the cell accepts the cell's connections, though the namespace has no other
    way out.
    """
    import socket  # other cells do not need it
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
