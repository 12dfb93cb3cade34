"""`python -I host.py STEP… -- COMMAND…`: run a command on another kind of host, which the steps make of this one.

The steps really remove what such a host lacks, for this process and its descendants: by namespaces and mounts,
by dropped capabilities, and by system call filters. A step is a function below, `name` or `name=argument`.
"""

import errno
import json
import os
import resource
import sys
from collections.abc import Callable, Sequence

from toolcell_sandbox.kernel.syscalls import NUMBERS, syscall, write_file
from toolcell_sandbox.limits import Limits
from toolcell_sandbox.mechanisms import capabilities, cgroups, landlock, mounts, seccomp
from toolcell_sandbox.mechanisms.bpf import ALLOW, NUMBER, BpfLoad, Instruction, Jump, Label, Return, assemble, low_word
from toolcell_sandbox.mechanisms.bpf import refuse as refusal
from toolcell_sandbox.mechanisms.cgroup_tree import CgroupTree

NEWNS, NEWPID, NEWUSER = 0x00020000, 0x20000000, 0x10000000
NEW_NAMESPACES = 0x7E020000
REMOUNT_READ_ONLY = 32 | 4096 | mounts.MS_RDONLY  # MS_REMOUNT, MS_BIND
MS_BIND = 4096
DOCKERS_CAPABILITIES = frozenset([0, 1, 3, 4, 5, 6, 7, 8, 10, 13, 18, 27, 29, 31])
"""What Docker leaves to a container's root (moby, oci/caps/defaults.go): no CAP_SYS_ADMIN, no CAP_SYS_PTRACE."""
MOUNTING = ["mount", "umount2", "pivot_root", "open_tree", "move_mount", "mount_setattr", "fsopen", "fsconfig"]
MOUNTING += ["fsmount", "fspick", "setns", "sethostname", "setdomainname"]


def mount(source: str, target: str, kind: str | None, flags: int = 0, options: str | None = None) -> None:
    syscall("mount", source, target, kind, flags, options, step=f"mount {target}")


# -- containers -------------------------------------------------------------------------------------------------------


def container() -> None:
    """Use a pid namespace, and a /proc that shows it."""
    syscall("unshare", NEWPID, step="unshare")
    become_first_process()
    mount("proc", "/proc", "proc")


def rootless_container() -> None:
    """Use a container that an ordinary user made, and in which this user is root."""
    enter_user_namespace(0, 0)
    syscall("unshare", NEWNS, step="unshare mounts")
    mounts.make_private()
    container()


def enter_user_namespace(uid: int, gid: int) -> None:
    outside = os.getuid(), os.getgid()
    syscall("unshare", NEWUSER, step="unshare user namespace")
    write_file("/proc/self/setgroups", "deny", step="deny setgroups")
    write_file("/proc/self/uid_map", f"{uid} {outside[0]} 1", step="write uid_map")
    write_file("/proc/self/gid_map", f"{gid} {outside[1]} 1", step="write gid_map")


def become_first_process() -> None:
    """Continue in a child, which is pid 1 in its namespace. This process ends as the child does, and the child ends
    with it.
    """
    child = os.fork()
    if child:
        os._exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) & 0xFF)
    syscall("prctl", 1, 9, 0, 0, 0, step="die with the parent")


def docker_capabilities() -> None:
    """Drop the capabilities that Docker does not leave to root, from the next execve on."""
    with open("/proc/sys/kernel/cap_last_cap") as file:
        last = int(file.read())
    for number in {*range(last + 1)} - DOCKERS_CAPABILITIES:
        syscall("prctl", capabilities.PR_CAPBSET_DROP, number, 0, 0, 0, step=f"drop capability {number}")


def docker_filter() -> None:
    """Load the part of Docker's default filter that concerns sandboxes: no namespace and no mount; clone3 does not
    exist.
    """
    load_filter([*MOUNTING, "unshare"], namespaces=False)


def docker_profile(path: str) -> None:
    """Load a seccomp profile in Docker's format, as runc does: for this machine's calls, by their names."""
    with open(path) as file:
        profile = json.load(file)
    assert profile["defaultAction"] == "SCMP_ACT_ERRNO", "other default actions are not read here"
    code: list[Instruction] = [BpfLoad(NUMBER)]
    for index, group in enumerate(profile["syscalls"]):
        known = [NUMBERS[name] for name in group["names"] if name in NUMBERS]
        result = ALLOW if group["action"] == "SCMP_ACT_ALLOW" else refusal(group["errnoRet"])
        for at, number in enumerate(known):
            code += [Jump("==", number, no=f"{index}.{at}"), Return(result), Label(f"{index}.{at}")]
    code.append(Return(refusal(profile["defaultErrnoRet"])))
    capabilities.no_new_privileges()
    seccomp.load(assemble(code))


# -- restricted user namespaces ---------------------------------------------------------------------------------------


def apparmor() -> None:
    """Allow user namespaces, but without capabilities in them (Ubuntu from 23.10): no mount, and no host name."""
    load_filter(MOUNTING, namespaces=True)


def ubuntu_switch() -> None:
    switch("kernel", "apparmor_restrict_unprivileged_userns", "1")


def debian_switch() -> None:
    switch("kernel", "unprivileged_userns_clone", "0")


def switch(directory: str, name: str, value: str) -> None:
    """Remove a sysctl, as on a kernel that lacks it. The other sysctls of its directory are hidden too, except the
    needed ones.
    """
    with open("/proc/sys/kernel/cap_last_cap") as file:
        last = file.read()
    mount("tmpfs", f"/proc/sys/{directory}", "tmpfs", 0, "mode=755")
    for file_name, text in ((name, value), ("cap_last_cap", last)):
        with open(f"/proc/sys/{directory}/{file_name}", "w") as made:
            made.write(text)


def no_user_namespaces() -> None:
    """Set user.max_user_namespaces=0 in a new user namespace, because each one has its own limit."""
    enter_user_namespace(os.getuid(), os.getgid())
    write_file("/proc/sys/user/max_user_namespaces", "0", step="set max_user_namespaces")


def landlocked() -> None:
    """Run inside another sandbox that uses Landlock: every file may be used, and nothing can be mounted
    (landlock(7)).
    """
    capabilities.no_new_privileges()
    every = landlock.READ | landlock.WRITE | landlock.EXECUTE | landlock.IOCTL_DEV
    landlock.restrict([landlock.Rule("/", every)], 5, connect=None)


def load_filter(refused: Sequence[str], *, namespaces: bool) -> None:
    """Refuse these system calls with EPERM. Without `namespaces`, also refuse clone into new namespaces."""
    code: list[Instruction] = [BpfLoad(NUMBER), *(Jump("==", NUMBERS[name], yes="refuse") for name in refused)]
    if not namespaces:
        code += [Jump("==", NUMBERS["clone3"], yes="unknown"), Jump("==", NUMBERS["clone"], no="allow")]
        code += [BpfLoad(low_word(0)), Jump("&", NEW_NAMESPACES, yes="refuse")]
    code += [Label("allow"), Return(ALLOW), Label("refuse"), Return(refusal(errno.EPERM))]
    code += [Label("unknown"), Return(refusal(errno.ENOSYS))]
    capabilities.no_new_privileges()
    seccomp.load(assemble(code))


def no_setns() -> None:
    """Refuse to enter another process's namespaces."""
    load_filter(["setns"], namespaces=True)


# -- /proc, /dev, /sys and the rest -----------------------------------------------------------------------------------


def masked_proc() -> None:
    """Mask /proc as container engines do. Over a masked /proc, a user namespace may not mount another ("too
    revealing").
    """
    mount("/dev/null", "/proc/keys", None, MS_BIND)
    mount("/proc/sys", "/proc/sys", None, MS_BIND)
    mount("none", "/proc/sys", None, REMOUNT_READ_ONLY)


def hidden_proc() -> None:
    mount("proc", "/proc", "proc", 0, "hidepid=2")


def read_only_proc() -> None:
    mount("none", "/proc", None, REMOUNT_READ_ONLY)


def no_proc() -> None:
    mount("tmpfs", "/proc", "tmpfs")


def bare_dev() -> None:
    """Leave only null and urandom in /dev."""
    kept = {name: mounts.clone_tree(f"/dev/{name}") for name in ("null", "urandom")}
    mount("tmpfs", "/dev", "tmpfs", 0, "mode=755")
    for name, fd in kept.items():
        os.close(os.open(f"/dev/{name}", os.O_CREAT | os.O_WRONLY, 0o666))
        syscall("move_mount", fd, "", -100, f"/dev/{name}", mounts.MOVE_FROM_FD, step=f"bind {name}")


def own_cgroups() -> None:
    """Make a group of each controller, in which groups for cells can be made, as engines do for a container.

    A supervisor in another pid namespace would mistake the groups of the machine's own supervisors for those of dead
    ones.
    """
    tree = CgroupTree.detect()
    assert tree is not None, "no writable memory and pids cgroups on this machine"
    group = tree.create(f"host-{os.getpid()}", Limits(processes=1000, memory_bytes=1 << 30))
    child = os.fork()
    if child:
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        group.remove()
        os._exit(status & 0xFF)
    cgroups.join(group.paths)


def no_cgroups() -> None:
    mount("tmpfs", "/sys/fs/cgroup", "tmpfs")


def read_only_root(workspace: str) -> None:
    """Make everything read-only except the workspace: no /tmp, no home."""
    mount(workspace, workspace, None, MS_BIND)
    for path in ("/", "/tmp", "/var/tmp", "/dev/shm"):
        if os.path.ismount(path):
            mount("none", path, None, REMOUNT_READ_ONLY)


def file_systems(below: str) -> None:
    """Mount directories with several kinds of file systems, below an existing directory."""
    for name in ("tmpfs", "noexec", "read-only", "layers", "lower", "overlay", "mount within/mount"):
        os.makedirs(f"{below}/{name}")
        os.chmod(f"{below}/{name.partition('/')[0]}", 0o777)
    mount("tmpfs", f"{below}/tmpfs", "tmpfs", 0, "mode=777")
    mount("tmpfs", f"{below}/noexec", "tmpfs", mounts.MS_NOEXEC | mounts.MS_NOSUID, "mode=777")
    mount("tmpfs", f"{below}/mount within/mount", "tmpfs", 0, "mode=777")
    mount("tmpfs", f"{below}/layers", "tmpfs", 0, "mode=777")
    for name in ("upper", "work"):
        os.mkdir(f"{below}/layers/{name}")
        os.chmod(f"{below}/layers/{name}", 0o777)
    layers = f"lowerdir={below}/lower,upperdir={below}/layers/upper,workdir={below}/layers/work"
    mount("overlay", f"{below}/overlay", "overlay", 0, layers)
    mount("tmpfs", f"{below}/read-only", "tmpfs", 0, "mode=777")
    with open(f"{below}/read-only/a.txt", "w") as file:
        file.write("hello")
    mount("none", f"{below}/read-only", None, REMOUNT_READ_ONLY)


def own_mounts() -> None:
    """Do only the preparation that precedes every step. The mounts of this machine stay unchanged."""


def limit(setting: str) -> None:
    """Set a resource limit: `limit=NOFILE:24`."""
    name, value = setting.split(":")
    resource.setrlimit(getattr(resource, f"RLIMIT_{name}"), (int(value), int(value)))


STEPS: dict[str, Callable[..., None]] = {
    step.__name__: step
    for step in (
        container, rootless_container, docker_capabilities, docker_filter, docker_profile, apparmor, ubuntu_switch,
        debian_switch, no_user_namespaces, landlocked, masked_proc, hidden_proc, read_only_proc, no_proc, bare_dev,
        own_cgroups, no_cgroups, no_setns, read_only_root, file_systems, own_mounts, limit,
    )
}  # fmt: skip

if __name__ == "__main__":
    split = sys.argv.index("--")
    if os.geteuid() == 0:  # before any step, so that none can reach the mounts of this machine
        syscall("unshare", NEWNS, step="unshare mounts")
        mounts.make_private()
    for word in sys.argv[1:split]:
        name, _, argument = word.partition("=")
        STEPS[name](*([argument] if argument else []))
    os.execv(sys.argv[split + 1], sys.argv[split + 1 :])
