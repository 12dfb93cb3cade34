"""Enter the sandbox: all steps in their order, in one function.

The order follows from what each step takes away. Namespaces come first, because everything after them is made in them;
a pid namespace holds only children, so the cell's init is forked then. What needs the host (its root, its cgroups, the
paths of the session) is opened before the old root is dropped. The order of the session arrives as late as possible, so
that a cell can be begun before its session is known: until then it has nothing of any session. Limits and descriptors
follow when nothing is opened any more, then privileges, which no later step needs. Landlock and seccomp are last: each
would forbid steps above it, and seccomp would forbid Landlock. The self-test then tries what the profile forbids. There
is no way back and no partial success: after an error, no other code runs in the process.
"""

import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from . import etc, selftest
from .errors import SandboxError
from .identity import Identity, enter_user_namespace, may_be_in_group_0
from .kernel import descriptors
from .mechanisms import capabilities, cgroups, landlock, lifetime, mounts, namespaces, rlimits, seccomp
from .network import PROXY_HOST, PROXY_PORT, HostNetwork, Network, ProxyNetwork
from .order import Base, Order
from .profile import CellProfile
from .report import Mechanism, SandboxReport
from .view import Bind, View


@dataclass(frozen=True, slots=True)
class Entered:
    """The result of entering, for the cell: its identity and the mechanisms in force.

    `children_fd` lists the init's children (proc_pid_children(5)) if the init is not pid 1 of a pid namespace: it
    cannot kill all its descendants with kill(-1), but orphaned descendants become its children. Else it is -1. `view`
    has the binds and links of a cell with a root directory of its own. `score_fd` is the init's oom_score_adj, which it
    raises before a fork and lowers after it; -1 if the cell has no /proc of its own.
    """

    profile: CellProfile
    identity: Identity
    report: SandboxReport
    children_fd: int
    view: View
    score_fd: int


def enter(
    base: Base,
    receive: Callable[[], Order],
    fork_init: Callable[[int], None],
    await_adoption: Callable[[], None],
    note: Callable[[str], None] = lambda step: None,
) -> Entered:
    """Confine this process for good. It is single-threaded, starts in a child of the caller, and returns in the cell's
    init.

    `receive` returns the order. It may wait for one, because a process can be started before its session is known
    (`prespawn`); until then, the process has nothing of any session. `fork_init(listener)` forks and returns only in
    the init. The process that called `enter` passes on the listening socket of the cell's proxy (-1 without one), which
    the init does not get, and exits. With `base.first`, the init itself calls `enter`, and nothing is forked.
    `await_adoption` returns when the init is the caller's child and the caller knows it. `note` is called with the name
    of each finished step.

    Raises SandboxError at the first step that fails. No other code may run in the process after that.
    """
    # In a child of the caller: a plain one, or the init already.
    lifetime.start_session()
    rlimits.set_oom_score(rlimits.CELL_OOM_SCORE)
    in_use = rlimits.address_space_in_use()
    note("start")
    # A cell without a user namespace sets its own group and groups.
    exempt = base.ids is not None and may_be_in_group_0()
    if base.ids is not None:
        enter_user_namespace(*base.ids)
        note("user namespace")
    made_by_caller = {"pid_namespace"} if base.first else set[str]()
    namespaces.unshare(base.namespaces - made_by_caller - {"cgroup_namespace"})
    note("namespaces")
    listener = namespaces.listen(PROXY_HOST, PROXY_PORT) if base.proxied else -1
    fork_init(listener)

    # In the init: pid 1 of its own pid namespace.
    note("fork init")
    lifetime.reset_signals()
    children_fd = lifetime.adopt_descendants() if "pid_namespace" in base.off else -1
    capabilities.limit()
    host = mounts.open_root()
    proc_error = 0
    if base.own_root:
        mounts.make_private()
        root = mounts.new_root()
        if base.proc:
            mounts.forbid_executable_memfds()
            proc_error = -mounts.mount_proc(root, in_group_0=exempt)
            note("proc")
        mounts.enter_root(root)
        mounts.attach(mounts.open_devices(host))
        mounts.attach(mounts.open_trees(base.binds, {}, host))
        mounts.make_links(base.links)
        note("root")
    await_adoption()
    lifetime.die_with_parent(base.parent_fd)  # not earlier: the process in between exits
    note("adoption")
    order = receive()

    # For the session that the order names.
    profile, identity = order.profile, order.identity
    allow_exec = "exec" in profile.grants
    note("order")
    cgroups.join(order.cgroups, host)
    namespaces.unshare(base.namespaces & {"cgroup_namespace"})  # after joining, or it shows the cgroup's path
    if "uts_namespace" not in base.off:
        namespaces.name_host(profile.hostname)
    note("cgroups")
    if base.own_root:
        mounts.mount_scratch(profile.limits, identity, allow_exec=allow_exec)
        mounts.attach(mounts.open_trees(_not_in_place(order), order.id_maps, host))
        mounts.make_links(order.view.links)
        etc.make_accounts(identity, profile.env.get("HOME", "/tmp"), {bind.path for bind in order.view.binds})
        note("mounts")
        mounts.drop_old_root(host)
        note("drop the old root")
    _change_directory(profile.cwd)
    kept_fds = order.keep_fds if children_fd < 0 else (*order.keep_fds, children_fd)
    descriptors.keep_only((*kept_fds, base.parent_fd))
    rlimits.apply(
        profile.limits,
        in_use=in_use,
        memory=_memory_limit(allow_exec, order.limited),
        processes=order.processes,
    )
    note("descriptors and rlimits")
    capabilities.drop(identity)
    capabilities.no_new_privileges()
    score_fd = rlimits.open_oom_score() if order.base.own_root or "landlock" in base.off else -1
    if score_fd >= 0:
        kept_fds = (*kept_fds, score_fd)
    capabilities.undumpable()
    lifetime.die_with_parent(base.parent_fd)  # setresuid cleared it
    os.close(base.parent_fd)
    note("privileges")
    if "landlock" not in base.off:
        rules = [landlock.Rule("/", landlock.ALL)] if order.unbound else _landlock_rules(order)
        landlock.restrict(rules, order.landlock_abi, connect=_ports(profile.reach))
        note("landlock")
    if "seccomp" not in base.off:
        seccomp.load(order.filter)
        note("seccomp")
    selftest.verify(order, kept_fds)
    note("self-test")
    return Entered(profile, identity, _in_force(order, proc_error), children_fd, order.view, score_fd)


def _not_in_place(order: Order) -> list[Bind]:
    in_place = {bind.path for bind in order.base.binds}  # as in its own base: a prespawned cell takes no other
    return [bind for bind in order.view.binds if bind.path not in in_place]


def _memory_limit(allow_exec: bool, limited: frozenset[str]) -> str:
    """The rlimit of each process that enforces `memory_bytes`. Programs such as node, go and java reserve far more
    address space than they use: with EXEC, it limits private writable memory (RLIMIT_DATA), or nothing if a cgroup
    does."""
    if not allow_exec:
        return "RLIMIT_AS"
    return "" if "memory" in limited else "RLIMIT_DATA"


def _ports(network: Network) -> tuple[int, ...] | None:
    """The TCP ports that the cell may connect to; None for all."""
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


def _landlock_rules(order: Order) -> list[landlock.Rule]:
    return [*rules_of(order.view.binds, order.profile), *common_rules(order.profile, own_root=order.base.own_root)]


def rules_of(binds: Iterable[Bind], profile: CellProfile) -> list[landlock.Rule]:
    """The Landlock rules for the bound paths."""
    rules: list[landlock.Rule] = []
    for bind in binds:
        rights = _rights(profile, write=bind.writable)
        rules.append(landlock.Rule(bind.path, rights if bind.directory else rights & landlock.FILE_RIGHTS))
    return rules


def common_rules(profile: CellProfile, *, own_root: bool) -> list[landlock.Rule]:
    """The Landlock rules for all other paths. In the host's root directory, /tmp, /proc and listing / stay denied."""
    rules = [landlock.Rule(f"/dev/{name}", landlock.READ_FILE | landlock.WRITE_FILE) for name in mounts.devices()]
    if own_root:
        rules.append(landlock.Rule("/tmp", _rights(profile, write=True)))
        rules.append(landlock.Rule("/proc", landlock.READ | landlock.WRITE_FILE))  # /proc/self/oom_score_adj, comm
        rules.append(landlock.Rule("/", landlock.READ_DIR))  # names only, of the view only
        rules += (landlock.Rule(path, landlock.READ_FILE) for path in etc.ACCOUNTS if os.path.exists(path))
    return rules


def _rights(profile: CellProfile, *, write: bool) -> int:
    return landlock.READ | (landlock.WRITE if write else 0) | (landlock.EXECUTE if "exec" in profile.grants else 0)


def _in_force(order: Order, proc_error: int) -> SandboxReport:
    """The report for this cell."""
    changes: list[Mechanism] = []
    if order.profile.writable and order.profile.protected:
        if order.base.own_root:
            changes.append(Mechanism("protected_names", "on", "read-only mounts, and an audit after each call"))
        else:
            detail = "without mounts of its own, only the audit after each call"
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
