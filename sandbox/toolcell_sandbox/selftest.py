"""The self-test of a cell, after the last step: forbidden actions must fail. Any surprise refuses the cell."""

import errno
import os
import resource

from .errors import SandboxError
from .kernel import descriptors
from .kernel.syscalls import attempt
from .limits import Limits
from .mechanisms import capabilities
from .network import PROXY_HOST, PROXY_PORT, HostNetwork, Network, NoNetwork, ProxyNetwork

TYPE_CHECKING = False  # checkers know this name; importing typing would cost milliseconds
if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from .order import Order
    from .view import Bind

AF_UNIX, AF_INET, AF_NETLINK, AF_PACKET = 1, 2, 16, 17
SOCK_STREAM, SOCK_DGRAM, SOCK_RAW = 1, 2, 3
PR_GET_DUMPABLE, PR_GET_SECCOMP = 3, 21
TCGETS = 0x5401
_DENIED = (errno.EROFS, errno.EACCES, errno.EPERM)


def verify(order: "Order", kept_fds: "Collection[int]") -> None:
    """Raise SandboxError (step "selftest") unless this process is confined as ordered, and has no open descriptors but
    0, 1, 2 and `kept_fds`."""
    off, profile, own_root = order.base.off, order.profile, order.base.own_root
    _equal("uid and gid", (*os.getresuid(), *os.getresgid()), (order.identity.uid,) * 3 + (order.identity.gid,) * 3)
    _equal("capabilities", capabilities.held(), (0, 0, 0))
    _equal("no_new_privs", attempt("prctl", capabilities.PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0), 1)
    _equal("dumpable", attempt("prctl", PR_GET_DUMPABLE, 0, 0, 0, 0), 0)
    _limits(profile.limits, order.processes)
    _equal("open descriptors", _descriptors(profile.limits.open_files), {0, 1, 2, *kept_fds})
    if "uts_namespace" not in off:
        _equal("host name", os.uname().nodename, profile.hostname)
    if "pid_namespace" not in off:
        _equal("pid", os.getpid(), 1)
        foreign = order.parent_pid if order.parent_pid > 1 else 2
        _refused("signal to a foreign process", attempt("kill", foreign, 0), (errno.ESRCH,))
    elif order.landlock_abi >= 6 and "landlock" not in off:
        _refused("signal to a foreign process", attempt("kill", order.parent_pid, 0), (errno.EPERM,))
    if own_root or "landlock" not in off:
        _files(order)
    if own_root:
        _mounts(order.view.binds)
        if not os.path.samefile("/..", "/"):
            raise _surprise("the old root is still there, above the new one")
        _equal("read-only root", os.statvfs("/").f_flag & os.ST_RDONLY, os.ST_RDONLY)
    if "landlock" not in off and not order.unbound:
        verify_files((), order.landlock_abi)
    if isinstance(profile.reach, ProxyNetwork):
        _cannot_connect("connection to the outside", "192.0.2.1", PROXY_PORT, errno.ENETUNREACH)  # RFC 5737
        if "landlock" not in off and order.landlock_abi >= 4:
            _cannot_connect("connection to another port", PROXY_HOST, 1, errno.EACCES)
    if "seccomp" not in off:
        _equal("seccomp mode", attempt("prctl", PR_GET_SECCOMP, 0, 0, 0, 0), 2)
        _sockets(profile.reach)
        _refused("mount", attempt("mount", "none", "/tmp", "tmpfs", 0, None), (errno.EPERM,))
        if "exec" not in profile.grants:
            # The file does not exist: without the filter this would be ENOENT.
            _refused("execve", attempt("execve", "/toolcell-selftest", None, None), (errno.EACCES,))


def _sockets(network: Network) -> None:
    """Check that the cell can make only the sockets of its network policy."""
    streams, datagrams = not isinstance(network, NoNetwork), isinstance(network, HostNetwork)
    for what, may, family, kind, protocol in (
        ("stream socket", streams, AF_INET, SOCK_STREAM, 0),
        ("datagram socket", datagrams, AF_INET, SOCK_DGRAM, 0),
        ("raw socket", False, AF_INET, SOCK_RAW, 1),
        ("ping socket", False, AF_INET, SOCK_DGRAM, 1),
        ("MPTCP socket", False, AF_INET, SOCK_STREAM, 262),
        ("unix socket", False, AF_UNIX, SOCK_STREAM, 0),
        ("netlink socket", False, AF_NETLINK, SOCK_RAW, 0),
        ("packet socket", False, AF_PACKET, SOCK_RAW, 0),
    ):
        made = attempt("socket", family, kind, protocol)
        if made >= 0:
            os.close(made)
        if not may:
            _refused(what, made, (errno.EAFNOSUPPORT,))
        elif made < 0:
            raise _surprise(f"{what} should be possible, got {errno.errorcode.get(-made, str(-made))}")


def _cannot_connect(what: str, host: str, port: int, error: int) -> None:
    """Check that a connection fails at once, without a packet: the namespace has no route, or Landlock refuses."""
    import socket  # a cell with sockets has loaded it

    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as stream:
        stream.setblocking(False)
        _refused(what, -stream.connect_ex((host, port)), (error,))


def _files(order: "Order") -> None:
    if order.view.witness:
        opened = attempt("openat", -100, order.view.witness, os.O_RDONLY, 0)
        _refused(f"open of {order.view.witness}", opened, (errno.ENOENT,) if order.base.own_root else _DENIED)
    readable = next((bind.path for bind in order.view.binds if bind.directory and not bind.writable), None)
    for directory in ("/", readable) if readable else ("/",):
        path = os.path.join(directory, "toolcell-selftest")
        made = attempt("openat", -100, path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        if made >= 0:
            os.unlink(path)
        _refused(f"write to {directory}", made, _DENIED)


def verify_files(binds: "Iterable[Bind]", landlock_abi: int) -> None:
    """Check the Landlock file rules, and paths that were bound after `verify`."""
    _mounts(binds)
    if landlock_abi >= 5:
        null = os.open("/dev/null", os.O_RDONLY)  # Landlock (IOCTL_DEV) returns EACCES; without it, the error is ENOTTY
        answer = attempt("ioctl", null, TCGETS, None)
        os.close(null)
        _refused("ioctl on a device", answer, (errno.EACCES,))


def _mounts(binds: "Iterable[Bind]") -> None:
    for bind in binds:
        held = os.open(bind.path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)  # it may be a mounted symbolic link
        flags = os.fstatvfs(held).f_flag
        os.close(held)
        wanted = os.ST_NOSUID | os.ST_NODEV | (0 if bind.writable else os.ST_RDONLY)
        _equal(f"mount flags of {bind.path}", flags & wanted, wanted)


def _limits(limits: Limits, processes: int) -> None:
    for name, most in (
        ("RLIMIT_NPROC", processes),
        ("RLIMIT_NOFILE", limits.open_files),
        ("RLIMIT_FSIZE", limits.file_bytes),
        ("RLIMIT_MEMLOCK", 0),
        ("RLIMIT_CORE", 1),
        ("RLIMIT_RTPRIO", 0),
        ("RLIMIT_NICE", 0),
    ):
        for value in resource.getrlimit(getattr(resource, name)):
            if not 0 <= value <= most:
                raise _surprise(f"{name} should be at most {most}, found {value}")


def _descriptors(limit: int) -> set[int]:
    try:
        names = os.listdir("/proc/self/fd")
    except OSError:
        return descriptors.open_fds(limit)  # this cell has no /proc
    found = {int(name) for name in names}
    return {fd for fd in found if _is_open(fd)}  # without the descriptor of the listing


def _is_open(fd: int) -> bool:
    try:
        os.fstat(fd)
    except OSError:
        return False  # EBADF: not open
    return True


def _equal(what: str, found: object, wanted: object) -> None:
    if found != wanted:
        raise _surprise(f"{what} should be {wanted}, found {found}")


def _refused(what: str, result: int, errors: tuple[int, ...]) -> None:
    if -result not in errors:
        names = " or ".join(errno.errorcode[each] for each in errors)
        answer = "it succeeded" if result >= 0 else errno.errorcode.get(-result, str(-result))
        raise _surprise(f"{what} should fail with {names}, got {answer}")


def _surprise(what: str) -> SandboxError:
    return SandboxError(
        f"The cell is not confined as it should be: {what}",
        step="selftest",
        cure="Report this with the output of `python -m toolcell_sandbox.doctor`; the cell was refused.",
    )
