"""Entering the sandbox: the whole order, top to bottom, in one function."""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from . import selftest
from .errors import SandboxError
from .identity import Identity, enter_user_namespace
from .mechanisms import capabilities, cgroups, fds, landlock, lifetime, mounts, namespaces, rlimits, seccomp
from .network import PROXY_HOST, PROXY_PORT, HostNetwork, Network, ProxyNetwork
from .profile import Profile
from .report import Mechanism, SandboxReport
from .view import View


@dataclass(frozen=True, slots=True)
class Order:
    """Everything that entering needs, worked out beforehand by the caller (`spawn.prepare`).

    `off` are the mechanisms that are missing and were allowed to be; `id_maps` the user namespace of each owner;
    `limited` what the cgroups limit, of "memory" and "pids"; `parent_fd` a pidfd of the caller. `first`: the caller
    forks the cell as the first process of its pid namespace, so that no other process stands between.
    """

    profile: Profile
    identity: Identity
    report: SandboxReport
    off: frozenset[str]
    view: View
    id_maps: Mapping[tuple[int, int], int]
    cgroups: tuple[str, ...]
    limited: frozenset[str]
    keep_fds: tuple[int, ...]
    parent_pid: int
    parent_fd: int
    first: bool
    landlock_abi: int
    filter: bytes


@dataclass(frozen=True, slots=True)
class Entered:
    """What the cell is told once it is inside: who it is and what is in force.

    `children_fd` lists the init's children (proc_pid_children(5)) where it is not pid 1 of a namespace of its own, and
    so cannot kill all that is left of it with kill(-1); its orphaned descendants become its children. Else it is -1.
    `view` is what was bound and linked, where the cell has a root of its own.
    """

    profile: Profile
    identity: Identity
    report: SandboxReport
    children_fd: int
    view: View


def enter(
    order: Order,
    fork_init: Callable[[int], None],
    await_adoption: Callable[[], None],
    note: Callable[[str], None] = lambda step: None,
) -> Entered:
    """Confine this process for good. Single-threaded; starts in a child of the caller, returns in the cell's init.

    `fork_init(listener)` forks and returns only in the init; the process that called `enter` hands on the listening
    socket of the cell's proxy (-1 where it has none), which the init does not get, and exits. Where `order.first`, the
    init has called `enter`, and nothing is forked. `await_adoption` returns once the init is the caller's child and the
    caller knows it. `note` hears the name of each finished step.
    Raises SandboxError at the first step that fails; nothing may run after that.
    """
    profile, identity, off = order.profile, order.identity, order.off
    allow_exec = "exec" in profile.grants
    own_root = not off & {"mount_namespace", "pivot_root", "mount_setattr"}
    own_proc = profile.proc and not off & {"proc", "pid_namespace"}

    # In a child of the caller: a plain one, or the init already.
    lifetime.start_session()
    rlimits.set_oom_score(rlimits.CELL_OOM_SCORE)
    in_use = rlimits.address_space_in_use()
    cgroups.join(order.cgroups)
    if identity.mode == "userns-root" and not ("pids" in order.limited or "cgroup" in off or rlimits.bind_processes()):
        raise _unbounded_root()
    address_space = not (allow_exec and "memory" in order.limited)  # node, go, java reserve far more
    note("start")
    if identity.user_namespace and "user_namespace" not in off:
        enter_user_namespace(identity)
        note("user namespace")
    shared = {"net_namespace"} if isinstance(profile.reach, HostNetwork) else set[str]()
    made = {"pid_namespace"} if order.first else set[str]()
    namespaces.unshare(namespaces.FLAGS.keys() - off - shared - made)  # cgroup after joining, or it shows the path
    note("namespaces")
    listener = _listen_for_proxy() if isinstance(profile.reach, ProxyNetwork) else -1
    fork_init(listener)

    # In the init: pid 1 of its own pid namespace.
    note("fork init")
    lifetime.reset_signals()
    children_fd = lifetime.adopt_descendants() if "pid_namespace" in off else -1
    if "uts_namespace" not in off:
        namespaces.name_host(profile.hostname)
    proc_error = 0
    if own_root:
        mounts.make_private()
        trees = mounts.open_trees(order.view, order.id_maps)
        note("open trees")
        root = mounts.new_root(len(trees) + len(order.view.links))
        mounts.mount_scratch(root, profile.limits, identity, allow_exec=allow_exec)
        mounts.attach(root, trees)
        mounts.make_links(root, order.view.links)
        note("mounts")
        if own_proc:
            mounts.forbid_executable_memfds()
            proc_error = -mounts.mount_proc(root)
            note("proc")
        mounts.switch_root(root)
        note("switch root")
    await_adoption()
    lifetime.die_with_parent(order.parent_fd)  # not before: the exit of the process between would count
    note("adoption")
    _change_directory(profile.cwd)
    kept_fds = order.keep_fds if children_fd < 0 else (*order.keep_fds, children_fd)
    fds.keep_only((*kept_fds, order.parent_fd))
    rlimits.apply(
        profile.limits,
        in_use=in_use,
        address_space=address_space,
        processes=rlimits.most_processes(profile.limits, "pids" in order.limited),
    )
    note("descriptors and rlimits")
    capabilities.drop(identity)
    capabilities.no_new_privileges()
    capabilities.undumpable()
    lifetime.die_with_parent(order.parent_fd)  # setresuid cleared it
    os.close(order.parent_fd)
    note("privileges")
    if "landlock" not in off:
        rules = _landlock_rules(order, own_root=own_root)
        landlock.restrict(rules, order.landlock_abi, connect=_ports(profile.reach))
        note("landlock")
    if "seccomp" not in off:
        seccomp.load(order.filter)
        note("seccomp")
    selftest.verify(order, kept_fds, own_root=own_root)
    note("self-test")
    return Entered(profile, identity, _in_force(order, proc_error, own_root=own_root), children_fd, order.view)


def _listen_for_proxy() -> int:
    from .mechanisms import loopback  # imports socket, which no other cell needs

    return loopback.listen(PROXY_HOST, PROXY_PORT)


def _ports(network: Network) -> tuple[int, ...] | None:
    """The TCP ports that may be connected to; None for all."""
    if isinstance(network, HostNetwork):
        return None
    return (PROXY_PORT,) if isinstance(network, ProxyNetwork) else ()


def _change_directory(path: str) -> None:
    try:
        os.chdir(path)
    except OSError as error:
        raise SandboxError(
            f"The profile's cwd cannot be entered: {path}",
            step="change directory",
            errno=error.errno or 0,
            cure="Make it readable or writable in the profile.",
        ) from error


def _unbounded_root() -> SandboxError:
    return SandboxError(
        "A cell of uid 0 needs a pids cgroup, for RLIMIT_NPROC does not bind uid 0",
        step="join cgroups",
        mechanism="cgroup",
        cure="Make the pids controller writable, or run as an ordinary user, or put the workspace on a file system "
        "with id-mapped mounts (ext4, xfs, btrfs, tmpfs), not overlayfs.",
    )


def _landlock_rules(order: Order, *, own_root: bool) -> list[landlock.Rule]:
    """By what is bound. Where the root is the host's, its /tmp, /proc and listing of / stay closed."""
    execute = landlock.EXECUTE if "exec" in order.profile.grants else 0
    read, write = landlock.READ | execute, landlock.READ | landlock.WRITE | execute
    rules = [landlock.Rule(bind.path, write if bind.writable else read) for bind in order.view.binds]
    rules += [landlock.Rule(f"/dev/{name}", landlock.READ_FILE | landlock.WRITE_FILE) for name in mounts.devices()]
    if own_root:
        rules.append(landlock.Rule("/tmp", write))
        rules.append(landlock.Rule("/proc", landlock.READ | landlock.WRITE_FILE))  # /proc/self/oom_score_adj, comm
        rules.append(landlock.Rule("/", landlock.READ_DIR))  # names only, and only those of the view
    return rules


def _in_force(order: Order, proc_error: int, *, own_root: bool) -> SandboxReport:
    """The report as it is true for this cell."""
    changes: list[Mechanism] = []
    if order.profile.writable and order.profile.protected:
        if own_root:
            changes.append(Mechanism("protected_names", "on", "read-only mounts, and an audit after each call"))
        else:
            detail = "without mounts of its own, the audit after each call has to do"
            cure = "Make mount namespaces available here."
            changes.append(Mechanism("protected_names", "substituted", detail, 0, cure))
    if proc_error:
        detail = "the kernel refuses a fresh /proc here (mount too revealing); the cell has none"
        changes.append(Mechanism("proc", "substituted", detail, proc_error, "Unmask /proc of the container."))
    if isinstance(order.profile.reach, HostNetwork):
        choice = "not used: the profile says HostNetwork(), which shares the host's network"
        changes += [Mechanism(name, "substituted", choice) for name in ("net_namespace", "landlock_net")]
    elif isinstance(order.profile.reach, ProxyNetwork):
        detail = f"with a proxy at {PROXY_HOST}:{PROXY_PORT}, which lives outside"
        changes.append(Mechanism("net_namespace", "on", detail))
    if order.limited >= {"memory", "pids"}:
        changes.append(Mechanism("cgroup", "on", "joined"))
    else:
        detail = "limits of each process, and the supervisor watches the whole cell"
        changes.append(Mechanism("cgroup", "substituted", detail, 0, "Make cgroups writable."))
    return order.report.changed(*changes)
