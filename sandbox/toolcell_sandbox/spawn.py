"""Make a cell: fork it, confine it, and make the caller the parent of its init."""

import os
import signal
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from . import view
from .enter import Entered, enter
from .errors import SandboxError
from .identity import Identity, idmap_fd
from .kernel import descriptors
from .kernel.syscalls import MACHINE, fork
from .mechanisms import landlock, lifetime, namespaces, rlimits, seccomp
from .mechanisms.cgroups import limited_by
from .network import HostNetwork, ProxyNetwork
from .order import MAX_BYTES, Base, Forked, IsInit, NotEntered, Order, Sealed, pack, unpack
from .profile import CellProfile
from .report import SandboxReport
from .view import Bound, Found

TYPE_CHECKING = False  # checkers know this name; importing typing would cost milliseconds
if TYPE_CHECKING:
    from typing import NoReturn, Protocol

    class BegunAhead(Protocol):
        """A process that was started before its order was known, such as `prespawn.Prespawned`."""

        child: "Child"

        def take(self, order: Order, sealed: Sealed) -> bool: ...


Main = Callable[[Entered], "NoReturn"]
OnFailure = Callable[[SandboxError], None]
_subreaper_pid = 0
_own_pidfd = (0, -1)


@dataclass(frozen=True, slots=True)
class Child:
    """The cell's init, a child of the caller: its pid here, and a pidfd (-1 where the kernel has none).

    `listener` is the listening socket of the proxy, for a cell with `ProxyNetwork`, else -1. Its holder accepts the
    connections of the cell. The caller closes it.
    """

    pid: int
    pidfd: int
    listener: int = -1


def spawn(
    profile: CellProfile,
    main: Main,
    failed: OnFailure,
    *,
    identity: Identity,
    report: SandboxReport,
    cgroups: Sequence[str] = (),
    keep_fds: Sequence[int] = (),
    allow_missing: frozenset[str] = frozenset(),
    protected: Sequence[Bound] = (),
    prespawned: "BegunAhead | None" = None,
    unbound: bool = False,
    sealed: Sealed | None = None,
) -> Child:
    """Fork a cell that enters the sandbox and then runs `main`, which never returns.

    The caller is single-threaded and reaps the cell; afterwards it does not ignore SIGCHLD. If a step fails in the
    child, the child calls `failed` and exits with status 1; if the init did not exist yet, this function raises the
    same SandboxError. `protected` are the paths of `ProtectedTree.bound`; the caller audits afterwards, as `run` does.
    The cell keeps no descriptors but 0, 1, 2 and `keep_fds`.

    An `unbound` cell gets more paths later (`late_paths`), and its file rules with them.

    With `sealed`, this process does not learn what belongs to the cell's session: `profile` has only the `figures`, and
    the cell reads the whole profile and the view from `sealed.fd`. The caller closes that descriptor. Then a
    `prespawned` cell that fits the order becomes the cell: it runs the `main` that it was made with, and its `child` is
    returned.
    """
    order = prepare(
        profile,
        identity=identity,
        report=report,
        cgroups=cgroups,
        keep_fds=keep_fds,
        allow_missing=allow_missing,
        protected=protected,
        unbound=unbound,
        sealed=sealed,
    )
    if prespawned is not None and sealed is not None and prespawned.take(order, sealed):
        return prespawned.child
    return begin(order.base, lambda: order if sealed is None else order.completed(sealed.fd), main, failed)


def begin(
    base: Base, receive: Callable[[], Order], main: Main, failed: OnFailure, inherited: Sequence[int] | None = None
) -> Child:
    """Fork a process that becomes a cell when `receive` returns an order. It keeps all descriptors of the caller, or
    only 0, 1, 2 and those in `inherited`. Otherwise as `spawn`."""
    _become_subreaper_once()
    tell_read, tell_write = descriptors.pair() if base.proxied else os.pipe2(os.O_CLOEXEC)
    adopted_read, adopted_write = os.pipe2(os.O_CLOEXEC)
    try:
        outer = namespaces.fork_first("fork the cell") if base.first else fork("fork the cell")
    except SandboxError:
        for fd in (tell_read, tell_write, adopted_read, adopted_write):
            os.close(fd)
        raise
    if outer == 0:
        os.close(tell_read)
        os.close(adopted_write)
        if inherited is not None:
            descriptors.keep_only((*inherited, tell_write, adopted_read, base.parent_fd))
        _run_cell(base, receive, main, failed, tell_write, adopted_read)
    os.close(tell_write)
    os.close(adopted_read)
    try:
        told, listener = (
            descriptors.receive(tell_read, MAX_BYTES) if base.proxied else (os.read(tell_read, MAX_BYTES), -1)
        )
        message = unpack(told)
        if not isinstance(message, IsInit):
            os.waitpid(outer, 0)  # this process is now the parent of the init, whose pid cannot be reused
        if isinstance(message, NotEntered):
            raise message.error()
        if not isinstance(message, (IsInit, Forked)):
            raise SandboxError("The process that makes a cell died without a word", step="spawn", cure="Try again.")
        pid = outer if isinstance(message, IsInit) else message.pid
        pidfd = -1 if "pidfd" in base.off else os.pidfd_open(pid)
        try:
            os.write(adopted_write, b"1")
        except BrokenPipeError:
            pass  # the init is dead; the caller learns that when it waits for it
        return Child(pid, pidfd, listener)
    finally:
        os.close(tell_read)
        os.close(adopted_write)


def prepare(
    profile: CellProfile,
    *,
    identity: Identity,
    report: SandboxReport,
    cgroups: Sequence[str] = (),
    keep_fds: Sequence[int] = (),
    allow_missing: frozenset[str] = frozenset(),
    protected: Sequence[Bound] = (),
    system: Found | None = None,
    unbound: bool = False,
    sealed: Sealed | None = None,
) -> Order:
    """Compute and check everything that does not need the fork. Raises SandboxError for a missing mechanism.

    With `sealed`, the order lacks the view, and its profile has only the `figures`, until `Order.completed`.
    """
    report.require(allow_missing)
    off = frozenset(mechanism.name for mechanism in report.missing)
    if "net_namespace" in off and isinstance(profile.reach, ProxyNetwork):
        raise SandboxError(
            "A proxied network needs a network namespace, or the cell would be on the host's network",
            step="prepare",
            mechanism="net_namespace",
            cure="Make network namespaces available here, or use NoNetwork().",
        )
    limited = limited_by(cgroups)
    if identity.mode == "userns-root" and not ("pids" in limited or "cgroup" in off or rlimits.bind_processes()):
        raise _unbounded_root()
    planned = view.plan(profile, identity, protected, system) if sealed is None else view.View((), (), "")
    id_maps: dict[tuple[int, int], int] = {}
    if "idmapped_mounts" not in off:
        for owner in view.owners(planned) if sealed is None else sealed.owners:
            id_maps[owner] = idmap_fd(*owner, identity.uid, identity.gid)
    return Order(
        base=_base(profile, identity, off),
        profile=profile,
        identity=identity,
        report=report,
        view=planned,
        id_maps=id_maps,
        cgroups=tuple(cgroups),
        limited=limited,
        processes=rlimits.most_processes(
            profile.limits,
            pids_cgroup="pids" in limited,
            shared=identity.user_namespace and "user_namespace" in off and "pids" not in limited,
        ),
        keep_fds=tuple(sorted(set(keep_fds))),
        parent_pid=os.getpid(),
        landlock_abi=0 if "landlock" in off else landlock.abi(),
        filter=b"" if "seccomp" in off else _filter(profile),
        unbound=unbound,
    )


def _base(profile: CellProfile, identity: Identity, off: frozenset[str]) -> Base:
    shared = {"net_namespace"} if isinstance(profile.reach, HostNetwork) else set[str]()
    return Base(
        off=off,
        namespaces=frozenset(namespaces.FLAGS) - off - shared,
        ids=(identity.uid, identity.gid) if identity.user_namespace and "user_namespace" not in off else None,
        proxied=isinstance(profile.reach, ProxyNetwork),
        proc=profile.proc and not off & {"proc", "pid_namespace"},
        binds=(),
        links=(),
        parent_fd=-1 if "pidfd" in off else _pidfd_of_self(),
        first="pid_namespace" not in off and _forks_first(profile, identity),
    )


def _forks_first(profile: CellProfile, identity: Identity) -> bool:
    """Whether the caller itself makes the pid namespace. Only the root path can do that. With a proxy, it does not,
    because a process outside of the cell must make the listening socket.
    """
    return identity.mode == "root" and not isinstance(profile.reach, ProxyNetwork) and namespaces.can_come_back()


def _filter(profile: CellProfile) -> bytes:
    reach: seccomp.Reach = "none"
    if isinstance(profile.reach, ProxyNetwork):
        reach = "proxy"
    elif isinstance(profile.reach, HostNetwork):
        reach = "host"
    grants = profile.grants
    return seccomp.program(MACHINE, allow_exec="exec" in grants, reach=reach, allow_watch="write" in grants)


def _unbounded_root() -> SandboxError:
    return SandboxError(
        "A cell of uid 0 needs a pids cgroup, for RLIMIT_NPROC does not bind uid 0",
        step="join cgroups",
        mechanism="cgroup",
        cure="Make the pids controller writable, or run as an ordinary user, or put the workspace on a file system "
        "with id-mapped mounts (ext4, xfs, btrfs, tmpfs), not overlayfs.",
    )


def _run_cell(
    base: Base, receive: Callable[[], Order], main: Main, failed: OnFailure, tell: int, adopted: int
) -> "NoReturn":
    """The whole life of the child: enter (which may fork again), then main. It never returns and never raises."""
    open_tell = [tell]

    def fork_init(listener: int) -> None:
        if base.first:
            os.write(open_tell.pop(), pack(IsInit()))
            os.close(tell)
            return
        init = fork("fork the cell's init")
        if init:
            if listener >= 0:
                descriptors.send(tell, pack(Forked(init)), listener)
            else:
                os.write(tell, pack(Forked(init)))
            os._exit(0)
        if listener >= 0:
            os.close(listener)
        os.close(open_tell.pop())

    def await_adoption() -> None:
        if not os.read(adopted, 1):
            os._exit(1)  # the caller died or gave up
        os.close(adopted)

    try:
        try:
            entered = enter(base, receive, fork_init, await_adoption)
        except SandboxError as error:
            failure = error
        except BaseException as error:
            failure = SandboxError(f"Entering the sandbox failed: {error!r}", step="enter")
        else:
            failure = _run_main(main, entered)
        failed(failure)
        if open_tell:
            os.write(tell, pack(NotEntered.of(failure)))
    finally:
        os._exit(1)


def _run_main(main: Callable[[Entered], object], entered: Entered) -> SandboxError:
    try:
        main(entered)
    except BaseException as error:
        return SandboxError(f"The cell's main raised: {error!r}", step="main", cure="It must end with os._exit.")
    return SandboxError("The cell's main returned", step="main", cure="It must end with os._exit.")


def _become_subreaper_once() -> None:
    global _subreaper_pid
    if _subreaper_pid != os.getpid():
        lifetime.become_subreaper()
        lifetime.collect_children()
        _subreaper_pid = os.getpid()


def _pidfd_of_self() -> int:
    global _own_pidfd
    pid, fd = _own_pidfd
    if pid != os.getpid():
        fd = descriptors.raised(os.pidfd_open(os.getpid()))
        _own_pidfd = (os.getpid(), fd)
    return fd


def terminate(child: Child) -> int:
    """Kill the cell and reap it; returns its exit status, negative for a signal."""
    if child.listener >= 0:
        os.close(child.listener)
    if child.pidfd >= 0:
        signal.pidfd_send_signal(child.pidfd, signal.SIGKILL)
        os.close(child.pidfd)
    else:
        os.kill(child.pid, signal.SIGKILL)  # our child and not reaped, so the pid is not reused
    return os.waitstatus_to_exitcode(os.waitpid(child.pid, 0)[1])
