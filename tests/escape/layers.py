"""Every layer of a cell, how to leave it out, and who notices.

Each `Layer` leaves out one step of `toolcell_sandbox.enter` and nothing else. Then the self-test must refuse the cell,
or, with the self-test left out too, one of its `attacks` must get what it must not. What nobody notices is redundant
by design: its `twin` names the layer that still stands, and why the step is worth its place all the same.
"""

import os
import sys
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from functools import partial
from types import ModuleType
from typing import Any

from toolcell_sandbox import identity as identities
from toolcell_sandbox.kernel import descriptors
from toolcell_sandbox.kernel.syscalls import attempt, syscall
from toolcell_sandbox.mechanisms import bpf, capabilities, landlock, lifetime, mounts, namespaces, rlimits, seccomp

CLONE_NEWNS = 0x20000
MS_MOVE = 0x2000


def replace_in(module: ModuleType, name: str, new: Callable[..., Any]) -> Callable[..., Any]:
    """Put another function in the place of one that a module uses; returns the original."""
    original: Callable[..., Any] = module.__dict__[name]
    module.__dict__[name] = new
    return original


def nothing(*_: object, **__: object) -> None:
    """A step that is left out."""


def without_call_layer() -> None:
    replace_in(landlock, "call_layer", lambda: ())


def without_namespace(name: str) -> None:
    original = namespaces.unshare

    def unshare(names: Collection[str]) -> None:
        original(set(names) - {name})

    replace_in(namespaces, "unshare", unshare)


def without_attribute(attribute: int) -> None:
    original: Callable[..., Any] = mounts.set_attributes
    replace_in(mounts, "set_attributes", lambda fd, attributes, *more: original(fd, attributes & ~attribute, *more))


def without_mount_option(flag: int, *options: str) -> None:
    """Leave a flag or options out of every mount(2)."""
    original: Callable[..., Any] = mounts.__dict__["syscall"]

    def mount(name: str, *arguments: Any, **more: Any) -> Any:
        return original(name, *_eased(name, arguments, flag, options), **more)

    replace_in(mounts, "syscall", mount)
    before: Callable[..., Any] = mounts.__dict__["attempt"]
    replace_in(mounts, "attempt", lambda name, *arguments: before(name, *_eased(name, arguments, flag, options)))


def _eased(name: str, arguments: tuple[Any, ...], flag: int, options: tuple[str, ...]) -> tuple[Any, ...]:
    if name != "mount" or arguments[3] is None:
        return arguments
    source, place, kind, flags, text = arguments
    kept = [part for part in (text or "").split(",") if part.split("=")[0] not in options]
    return source, place, kind, flags & ~flag, ",".join(kept) or None


def without_pivot() -> None:
    """The old root stays where it was, and the new one in a directory of it."""

    def enter_root(root: str) -> None:
        syscall("mount", root, "/mnt", None, MS_MOVE, None, step="uncover what the new root lies on")
        os.chroot("/mnt")
        os.chdir("/")

    replace_in(mounts, "enter_root", enter_root)
    without_detaching()


def without_detaching() -> None:
    """The old root stays mounted on top of the new one."""

    def drop_old_root(old: int) -> None:
        os.close(old)
        mounts.set_attributes(-100, mounts.ATTR_RDONLY | mounts.ATTR_NOSUID | mounts.ATTR_NODEV, "/", 0)

    replace_in(mounts, "drop_old_root", drop_old_root)


def without_mounts() -> None:
    """As where the mount namespace is missing: the host's root. (Only Landlock stands before its files then.)"""
    module = sys.modules["toolcell_sandbox.spawn"]
    original: Callable[..., Any] = module.prepare

    def prepare(*arguments: Any, **more: Any) -> Any:
        order = original(*arguments, **more)
        off = order.base.off | {"mount_namespace"}
        return replace(order, base=replace(order.base, off=off, namespaces=order.base.namespaces - off))

    replace_in(module, "prepare", prepare)


def without_rlimit(name: str) -> None:
    original = rlimits._set

    def limit(which: str, value: int) -> None:
        if which != name:
            original(which, value)

    replace_in(rlimits, "_set", limit)


def without_uid() -> None:
    """Keep the uid and gid of the maker; the capabilities go all the same."""

    def drop(_: identities.Identity) -> None:
        syscall("capset", capabilities._Header(capabilities._VERSION_3, 0), capabilities._Data(), step="drop")

    replace_in(capabilities, "drop", drop)


def without_capset() -> None:
    """Change the uid and keep every capability, as the securebits have it (SECBIT_NO_SETUID_FIXUP)."""

    def drop(identity: identities.Identity) -> None:
        syscall("setgroups", 0, None, step="groups") if identity.mode == "root" else None
        header, data = capabilities._Header(capabilities._VERSION_3, 0), capabilities._Data()
        syscall("capget", header, data, step="read")
        syscall("setresgid", *(identity.gid,) * 3, step="gid")
        syscall("setresuid", *(identity.uid,) * 3, step="uid")
        for word in (0, 1):
            setattr(data, f"effective{word}", getattr(data, f"permitted{word}"))
        syscall("capset", header, data, step="raise")

    replace_in(capabilities, "drop", drop)


def without_groups() -> None:
    original: Callable[..., Any] = capabilities.__dict__["syscall"]
    replace_in(
        capabilities,
        "syscall",
        lambda name, *more, **rest: 0 if name == "setgroups" else original(name, *more, **rest),
    )


def dumpable() -> None:
    replace_in(capabilities, "undumpable", lambda: attempt("prctl", 4, 1, 0, 0, 0))


def without_landlock_part(part: int) -> None:
    original = landlock.handled

    def handled(version: int) -> tuple[int, int, int]:
        found = list(original(version))
        found[part] = 0
        return found[0], found[1], found[2]

    replace_in(landlock, "handled", handled)
    if part == 0:
        replace_in(landlock, "_add", nothing)


def without_refusal(first: str) -> None:
    seccomp.REFUSED = tuple(row for row in seccomp.REFUSED if row[0].split()[0] != first)
    seccomp._cache.clear()


def without_check(names: str, tests: tuple[tuple[int, str, int], ...]) -> None:
    seccomp.CHECKS = tuple(check for check in seccomp.CHECKS if (check.names, check.tests) != (names, tests))
    seccomp._cache.clear()


def without_exec_refusal() -> None:
    original: Callable[..., Any] = seccomp.program
    replace_in(seccomp, "program", lambda *arguments, **more: original(*arguments, **{**more, "allow_exec": True}))


def without_verdict(verdict: int) -> None:
    """Let through what the filter kills, or what it does not know."""
    original: Callable[..., Any] = seccomp._instructions

    def instructions(*arguments: Any) -> Any:
        for each in original(*arguments):
            changed = isinstance(each, bpf.Return) and each.value == verdict
            yield bpf.Return(bpf.ALLOW) if changed else each

    replace_in(seccomp, "_instructions", instructions)
    seccomp._cache.clear()


def without_high_bits() -> None:
    """Compare all 64 bits, as the filters did that CVE-2019-10063 is about: a set high word passes every check."""
    original = seccomp._check

    def check(label: str, checks: list[seccomp.Check]) -> Any:
        yield bpf.Label(label)
        for index, each in enumerate(checks):
            for argument, _operator, _value in each.tests:
                if argument < seccomp.HIGH:
                    yield bpf.BpfLoad(bpf.high_word(argument))
                    yield bpf.Jump("==", 0, no=f"{label} high {index}")
        inner = list(original(f"{label} low", checks))
        yield from inner
        for index in range(len(checks)):
            yield bpf.Label(f"{label} high {index}")
        yield bpf.Return(bpf.ALLOW)

    replace_in(seccomp, "_check", check)
    seccomp._cache.clear()


def without_watch_refusal() -> None:
    original: Callable[..., Any] = seccomp.program
    replace_in(seccomp, "program", lambda *arguments, **more: original(*arguments, **{**more, "allow_watch": True}))


def without_moves_in_a_call() -> None:
    """The layer of a call has no rule about files, and so the kernel has it refuse what gets another directory."""
    original: Callable[..., Any] = landlock.__dict__["_add"]

    def add(ruleset: int, rule: landlock.Rule, files: int) -> None:
        if rule != landlock.Rule("/", landlock.REFER):
            original(ruleset, rule, files)

    replace_in(landlock, "_add", add)


def without_right_to_move() -> None:
    """What may be written to may not be moved to another directory."""
    landlock.WRITE &= ~landlock.REFER


cell_gid = 0
"""Of the cell that is about to be made; `mutant.py` sets it."""


def hidden_but_from_a_group() -> None:
    """A /proc that exempts the cell's own group, as hidepid=2 does the kernel's group 0."""
    original: Callable[..., Any] = mounts.__dict__["attempt"]

    def mount(name: str, *arguments: Any) -> Any:
        if name == "mount" and arguments[2] == "proc":
            arguments = (*arguments[:4], f"{arguments[4]},gid={cell_gid}")
        return original(name, *arguments)

    replace_in(mounts, "attempt", mount)


def set_step(module: Any, name: str) -> None:
    replace_in(module, name, nothing)


@dataclass(frozen=True)
class Layer:
    """One step that is left out, and who notices."""

    name: str
    leave_out: Callable[[], None]

    @property
    def attacks(self) -> tuple[str, ...]:
        """The programs that then get what they must not, or at least another layer's answer."""
        return tuple(ATTACKS.get(self.name, "").split())

    @property
    def self_test(self) -> bool:
        """Whether the cell refuses itself: by the self-test, or by a later step that rests on this one."""
        return self.name in REFUSED or (self.name.startswith("rlimit ") and self.name.split()[1] in REFUSED_RLIMITS)

    @property
    def host(self) -> str:
        """What changes outside the cell."""
        return ON_THE_HOST.get(self.name, "")

    @property
    def twin(self) -> str:
        """Who still stands, where nobody notices."""
        return TWINS.get(self.name, "")


REFUSED = frozenset(
    {
        "mount namespace", "pid namespace", "host name", "private mounts", "detaching the old root", "read-only mounts",
        "nosuid", "nodev", "closing descriptors", "capabilities and uid", "uid", "capability sets", "no_new_privs",
        "not dumpable", "Landlock", "Landlock files", "seccomp", "seccomp: socket", "seccomp: exec",
    }
)  # fmt: skip
REFUSED_RLIMITS = frozenset({"CORE", "NOFILE", "FSIZE", "NPROC", "MEMLOCK", "RTPRIO", "NICE"})
ON_THE_HOST = {"uts namespace": "the host has another name", "private mounts": "mounts are left"}
ATTACKS = {
    "cgroup namespace": "info_cgroup_path",
    "read-only mounts": "fs_chmod_the_system fs_write_the_system",
    "noexec of the scratch": "fs_load_a_library_from_the_scratch",
    "size of the scratch": "res_scratch_size",
    "inodes of the scratch": "res_scratch_inodes",
    "hidepid and subset of /proc": "info_kernel_files net_interfaces priv_memfd_noexec_off",
    "capabilities and uid": "info_uid priv_capabilities",
    "uid": "info_uid priv_setuid",
    "capability sets": "priv_capabilities priv_setuid proc_priority proc_lock_memory",
    "supplementary groups": "info_groups",
    "not dumpable": "proc_own_memory_file",
    "session of its own": "info_session",
    "oom score": "res_oom_order",
    "closing descriptors": "net_inherited_sockets",
    "Landlock": "fs_device_node fs_ioctl_on_a_device proc_kill_the_parent",
    "Landlock files": "fs_device_node fs_ioctl_on_a_device",
    "Landlock scopes": "proc_kill_the_parent proc_sigqueue_to_the_init",
    "Landlock layer of a call": "proc_kill_the_parent proc_sigqueue_to_the_init",
    "seccomp": "net_tcp net_every_family priv_keyrings res_memfd priv_new_namespaces priv_unknown_syscalls",
    "seccomp: unknown numbers": "priv_clone3 fs_openat2",
    "seccomp: watch": "fs_inotify_without_write",
    "moves in the layer of a call": "fs_move_between_directories",
    "moves where it may write": "fs_move_between_directories",
    "hidepid for every group": "proc_see_the_init",
    "seccomp: foreign architectures": "priv_foreign_syscalls priv_x32_syscalls",
    "seccomp: low words": "net_high_bits net_socketpair_high_bits priv_clone_namespaces priv_type_into_a_terminal",
    "seccomp: ptrace": "proc_ptrace_the_host proc_read_another_memory proc_steal_a_descriptor",
    "seccomp: io_uring_setup": "net_io_uring",
    "seccomp: io_setup": "res_aio",
    "seccomp: bpf": "info_kernel_pointers priv_userfaultfd",
    "seccomp: add_key": "priv_keyrings",
    "seccomp: unshare": "priv_new_namespaces priv_setns",
    "seccomp: clone3": "priv_clone3",
    "seccomp: openat2": "fs_openat2",
    "seccomp: mount": "fs_list_mounts fs_new_mount_api",
    "seccomp: name_to_handle_at": "priv_file_handles",
    "seccomp: file_setattr": "fs_file_setattr",
    "seccomp: fanotify_init": "fs_fanotify",
    "seccomp: cachestat": "fs_cachestat",
    "seccomp: reboot": "priv_host_state",
    "seccomp: sethostname": "priv_host_state",
    "seccomp: modify_ldt": "priv_legacy",
    "seccomp: mbind": "priv_numa",
    "seccomp: shmget": "res_sysv",
    "seccomp: memfd_create": "res_memfd priv_exec_a_memfd",
    "seccomp: memfd_secret": "res_memfd_secret",
    "seccomp: vmsplice": "fs_vmsplice",
    "seccomp: lsm_set_self_attr": "info_security_modules",
    "seccomp: socket": "net_every_family net_tcp",
    "seccomp: connect": "net_abstract_socket_through_a_pair",
    "rlimit MSGQUEUE": "res_limits_are_set",
    "rlimit SIGPENDING": "res_timers",
    "rlimit STACK": "res_limits_are_set",
    "rlimit AS": "res_limits_are_set",
    "rlimit RTPRIO": "res_limits_are_set proc_priority",
    "rlimit NICE": "res_limits_are_set proc_priority",
}
_CHECKED = {
    "clone": "priv_clone_namespaces res_shared_descriptors",
    "ioctl": "priv_type_into_a_terminal fs_quota_ioctl fs_flags_and_times_of_the_scratch proc_fcntl_setown",
    "fcntl": "fs_file_lease fs_dnotify fs_write_life_hint proc_fcntl_setown res_ofd_locks",
    "setsockopt": "res_socket_buffers",
    "prlimit64": "proc_limits_of_others priv_core_limit",
    "setrlimit": "priv_core_limit",
    "prctl": "priv_core_limit priv_dumpable",
    "mmap": "res_hugetlb",
    "sendto": "net_fast_open",
    "sendmsg": "net_fast_open",
    "sched_setaffinity": "proc_slow_down_the_init",
    "setpriority": "proc_slow_down_the_init",
    "ioprio_set": "proc_slow_down_the_init",
    "get_robust_list": "proc_robust_list_of_the_init",
    "personality": "priv_personality",
    "socketpair": "net_socketpair_high_bits",
    "seccomp": "priv_seccomp_listener",
    **dict.fromkeys(("chmod", "fchmodat", "mkdir", "mkdirat", "open", "openat"), "fs_setid_files"),
}
"""Which programs notice that a check of arguments is gone, by its first system call."""

TWINS = {
    "net namespace": (
        "No socket can be made (seccomp), and TCP is refused (Landlock). The namespace holds where a socket is "
        "inherited or the filter has a hole, and it needs no list of families."
    ),
    "ipc namespace": ("The filter refuses System V IPC and message queues. The namespace holds for what it misses."),
    "pivot_root": (
        "After a plain chroot the old root is out of reach: chroot, mount and open_tree are refused (seccomp), no "
        "capability is left, and Landlock knows only the new paths. pivot_root takes the old root away instead of "
        "hiding it."
    ),
    "memfd_noexec": ("memfd_create is refused (seccomp). The switch holds for descriptors that come in another way."),
    "bounding set": (
        "The other sets are empty and no_new_privs is set, so no exec can gain what the set still allows."
    ),
    "parent death signal": (
        "A cell ends when its control socket does (runner/init.py). The signal holds for a cell that hangs before "
        "it reads that, and where its init is stopped; tests/sandbox/test_spawn.py kills the maker."
    ),
    "signal handlers": (
        "The zygote has no handler but Python's for SIGINT, which it resets by itself (runner/call_process.py). What a "
        "handler did would happen inside the cell."
    ),
    "Landlock network": ("The net namespace is empty and no socket can be made (seccomp)."),
}
"""Redundant by design: who still stands when a layer is left out that nobody misses, and what it is for."""


def _steps() -> list[Layer]:
    part = partial
    found = [
        Layer("mount namespace", without_mounts),
        Layer("pid namespace", part(without_namespace, "pid_namespace")),
        Layer("net namespace", part(without_namespace, "net_namespace")),
        Layer("ipc namespace", part(without_namespace, "ipc_namespace")),
        Layer("uts namespace", part(without_namespace, "uts_namespace")),
        Layer("cgroup namespace", part(without_namespace, "cgroup_namespace")),
        Layer("host name", part(set_step, namespaces, "name_host")),
        Layer("private mounts", part(set_step, mounts, "make_private")),
        Layer("pivot_root", without_pivot),
        Layer("detaching the old root", without_detaching),
        Layer("read-only mounts", part(without_attribute, mounts.ATTR_RDONLY)),
        Layer("nosuid", part(without_attribute, mounts.ATTR_NOSUID)),
        Layer("nodev", part(without_attribute, mounts.ATTR_NODEV)),
        Layer("noexec of the scratch", part(without_mount_option, mounts.MS_NOEXEC)),
        Layer("size of the scratch", part(without_mount_option, 0, "size")),
        Layer("inodes of the scratch", part(without_mount_option, 0, "nr_inodes")),
        Layer("hidepid and subset of /proc", part(without_mount_option, 0, "hidepid", "subset")),
        Layer("hidepid for every group", hidden_but_from_a_group),
        Layer("memfd_noexec", part(set_step, mounts, "forbid_executable_memfds")),
        Layer("closing descriptors", part(set_step, descriptors, "keep_only")),
        Layer("capabilities and uid", part(set_step, capabilities, "drop")),
        Layer("uid", without_uid),
        Layer("capability sets", without_capset),
        Layer("bounding set", part(set_step, capabilities, "_drop_bounding_set")),
        Layer("supplementary groups", without_groups),
        Layer("no_new_privs", part(set_step, capabilities, "no_new_privileges")),
        Layer("not dumpable", dumpable),
        Layer("session of its own", part(set_step, lifetime, "start_session")),
        Layer("parent death signal", part(set_step, lifetime, "die_with_parent")),
        Layer("signal handlers", part(set_step, lifetime, "reset_signals")),
        Layer("oom score", part(set_step, rlimits, "set_oom_score")),
        Layer("Landlock", part(set_step, landlock, "restrict")),
        Layer("Landlock files", part(without_landlock_part, 0)),
        Layer("Landlock network", part(without_landlock_part, 1)),
        Layer("Landlock scopes", part(without_landlock_part, 2)),
        Layer("Landlock layer of a call", without_call_layer),
        Layer("moves in the layer of a call", without_moves_in_a_call),
        Layer("moves where it may write", without_right_to_move),
        Layer("seccomp", part(set_step, seccomp, "load")),
        Layer("seccomp: exec", without_exec_refusal),
        Layer("seccomp: watch", without_watch_refusal),
        Layer("seccomp: unknown numbers", part(without_verdict, bpf.refuse(seccomp.ENOSYS))),
        Layer("seccomp: foreign architectures", part(without_verdict, bpf.KILL_PROCESS)),
        Layer("seccomp: low words", without_high_bits),
    ]
    limits = ("CORE", "NOFILE", "FSIZE", "NPROC", "MEMLOCK", "MSGQUEUE", "SIGPENDING", "STACK", "AS", "RTPRIO", "NICE")
    found += [Layer(f"rlimit {name}", part(without_rlimit, f"RLIMIT_{name}")) for name in limits]
    for names, _error, _reason in seccomp.REFUSED:
        first = names.split()[0]
        found.append(Layer(f"seccomp: {first}", part(without_refusal, first)))
    for check in seccomp.CHECKS:
        tests = " and ".join(f"{argument} {operator} {value:#x}" for argument, operator, value in check.tests)
        found.append(Layer(f"seccomp: {check.names} {tests}", part(without_check, check.names, check.tests)))
    return found


LAYERS = _steps()
ATTACKS |= {
    layer.name: _CHECKED[layer.name.split()[1]]
    for layer in LAYERS
    if layer.name.startswith("seccomp: ") and layer.name not in {*ATTACKS, *TWINS, *REFUSED}
}
