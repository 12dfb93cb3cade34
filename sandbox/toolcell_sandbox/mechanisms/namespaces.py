"""The cell's own mounts, processes, network, IPC, host name and cgroup root."""

from collections.abc import Collection

from toolcell_sandbox.errors import SandboxError
from toolcell_sandbox.kernel.syscalls import attempt, syscall

FLAGS = {
    "mount_namespace": 0x00020000,
    "pid_namespace": 0x20000000,
    "net_namespace": 0x40000000,
    "ipc_namespace": 0x08000000,
    "uts_namespace": 0x04000000,
    "cgroup_namespace": 0x02000000,
}
CURE = "Run as root with CAP_SYS_ADMIN or where user namespaces are allowed; in Docker let seccomp allow unshare."


def unshare(names: Collection[str]) -> None:
    """Make new namespaces of these names, which are keys of `FLAGS`. The pid namespace is for the children."""
    wanted = [name for name in FLAGS if name in names]
    flags = 0
    for name in wanted:
        flags |= FLAGS[name]
    if not flags or attempt("unshare", flags) == 0:  # engines refuse even an empty unshare
        return
    for name in wanted:  # find the one that is refused, to name it
        syscall("unshare", FLAGS[name], step=f"unshare {name}", mechanism=name, cure=CURE)
    raise SandboxError(f"Namespaces could not be made together: {wanted}", step="unshare", cure=CURE)


def name_host(name: str) -> None:
    """Set host and domain name in the UTS namespace."""
    for call, text in (("sethostname", name.encode()), ("setdomainname", b"(none)")):
        syscall(call, text, len(text), step=call, mechanism="uts_namespace")
