"""Control groups: the limits of a whole cell, and what it used. Made by the supervisor, joined by the cell."""

import errno
import os
import signal
import time
from collections.abc import Iterable

from toolcell_sandbox.errors import SandboxError
from toolcell_sandbox.kernel.syscalls import write_file
from toolcell_sandbox.limits import Limits

_OWN_PROCESSES = 3  # the cell's init, its standby, and the process that forks the init
_PREFIX = "toolcell-"


class Cgroup:
    """One cell's group: a directory in each v1 hierarchy, or one in v2. Reusable for cell after cell."""

    def __init__(self, directories: dict[str, str]) -> None:
        self._directories = directories
        self._unified = "unified" in directories
        self.paths: tuple[str, ...] = tuple(dict.fromkeys(directories.values()))

    def __repr__(self) -> str:
        return f"<Cgroup {os.path.basename(self.paths[0])} [{' '.join(self._directories)}]>"

    def set_limits(self, limits: Limits) -> None:
        """Set memory (swap included) and process limits; raises SandboxError when the kernel refuses."""
        memory, pids = str(limits.memory_bytes), str(limits.processes + _OWN_PROCESSES)
        if self._unified:
            self._write("memory", "memory.max", memory)
            if self._has("memory", "memory.swap.max"):
                self._write("memory", "memory.swap.max", "0")
        elif "memory" in self._directories:
            self._set_v1_memory(memory)
        if self._has("pids", "pids.max"):
            self._write("pids", "pids.max", pids)

    def _set_v1_memory(self, value: str) -> None:
        names = ["memory.limit_in_bytes"]
        if self._has("memory", "memory.memsw.limit_in_bytes"):
            names.append("memory.memsw.limit_in_bytes")
        try:
            for name in names:
                self._write("memory", name, value)
        except SandboxError as error:
            if error.errno != errno.EINVAL:
                raise
            for name in reversed(names):  # memsw may never be the smaller: raise it first
                self._write("memory", name, value)

    def oom_kills(self) -> int:
        """Processes that were killed here because the memory limit was reached, since the group was made."""
        return self._counter("memory", "memory.events" if self._unified else "memory.oom_control", "oom_kill")

    def pids_refused(self) -> int:
        """Forks that the process limit refused, since the group was made."""
        return self._counter("pids", "pids.events", "max")

    def memory_peak(self) -> int | None:
        """Most bytes in use at once since the group was made or `reset_peak`; None where it is not counted."""
        name = "memory.peak" if self._unified else "memory.max_usage_in_bytes"
        return int(self._read("memory", name)) if self._has("memory", name) else None

    def reset_peak(self) -> bool:
        """Start `memory_peak` anew. False on cgroup v2, whose kernels cannot do this for the group as such."""
        if self._unified or "memory" not in self._directories:
            return False
        self._write("memory", "memory.max_usage_in_bytes", "0")
        return True

    def cpu_s(self) -> float | None:
        """CPU seconds used by everything that ever ran here; None where it is not counted."""
        if self._unified:
            return self._counter("cpuacct", "cpu.stat", "usage_usec") / 1e6
        if "cpuacct" not in self._directories:
            return None
        return int(self._read("cpuacct", "cpuacct.usage")) / 1e9

    def processes(self) -> list[int]:
        """Pids of all processes in any of the group's directories."""
        found: set[int] = set()
        for path in self.paths:
            found.update(int(line) for line in _read_file(f"{path}/cgroup.procs").split())
        return sorted(found)

    def kill(self, timeout_s: float = 2.0) -> None:
        """Kill every process in the group and wait until it is empty; SandboxError when some survive `timeout_s`."""
        deadline = time.monotonic() + timeout_s
        while True:
            self._signal_all()
            left = self.processes()
            if not left:
                return
            if time.monotonic() > deadline:
                raise SandboxError(f"Processes of a cgroup do not die: {left}", step="kill cgroup", mechanism="cgroup")
            time.sleep(0.001)

    def _signal_all(self) -> None:
        if self._has("unified", "cgroup.kill"):
            self._write("unified", "cgroup.kill", "1")
            return
        for pid in self.processes():
            try:
                pidfd = os.pidfd_open(pid)
            except ProcessLookupError:
                continue  # gone meanwhile
            try:
                if pid in self.processes():  # the number was not reused between reading it and opening it
                    signal.pidfd_send_signal(pidfd, signal.SIGKILL)
            except ProcessLookupError:
                pass  # gone meanwhile
            finally:
                os.close(pidfd)

    def remove(self, timeout_s: float = 2.0) -> None:
        """Remove the directories; the kernel says EBUSY for a moment after the last process has died."""
        deadline = time.monotonic() + timeout_s
        for path in self.paths:
            while True:
                try:
                    os.rmdir(path)
                    break
                except FileNotFoundError:
                    break
                except OSError as error:
                    if error.errno != errno.EBUSY or time.monotonic() > deadline:
                        raise SandboxError(
                            f"A cgroup cannot be removed: {path}",
                            step="remove cgroup",
                            mechanism="cgroup",
                            errno=error.errno or 0,
                            cure="Kill what is in it first.",
                        ) from error
                    time.sleep(0.001)

    def _directory(self, controller: str) -> str | None:
        return self._directories.get("unified") if self._unified else self._directories.get(controller)

    def _has(self, controller: str, name: str) -> bool:
        directory = self._directory(controller)
        return directory is not None and os.path.exists(f"{directory}/{name}")

    def _read(self, controller: str, name: str) -> str:
        return _read_file(f"{self._directory(controller)}/{name}")

    def _write(self, controller: str, name: str, text: str) -> None:
        write_file(f"{self._directory(controller)}/{name}", text, step=f"write {name}", mechanism="cgroup")

    def _counter(self, controller: str, name: str, key: str) -> int:
        if self._directory(controller) is None:
            return 0
        for line in self._read(controller, name).splitlines():
            if line.startswith(f"{key} "):
                return int(line.split()[1])
        raise SandboxError(f"{name} has no counter {key}", step="read cgroup", mechanism="cgroup")


class CgroupTree:
    """Where this process may make cgroups: below its own, in the v1 hierarchies or in v2."""

    def __init__(self, bases: dict[str, str]) -> None:
        self._bases = bases

    def __repr__(self) -> str:
        return f"<CgroupTree {self._bases}>"

    @property
    def controllers(self) -> frozenset[str]:
        """What a group of this tree limits or counts, of memory, pids and cpuacct."""
        return frozenset({"memory", "pids", "cpuacct"} if "unified" in self._bases else self._bases)

    @classmethod
    def detect(cls) -> "CgroupTree | None":
        """The tree if groups with memory and process limits can be made here, else None. Tries by making one."""
        mounts = list(_mounts())
        for bases in (_v2_bases(mounts), _v1_bases(mounts)):
            if bases is None:
                continue
            tree = cls(bases)
            try:
                group = tree.create(f"probe-{time.monotonic_ns()}", Limits())
            except (SandboxError, OSError):
                continue  # not writable, or a controller is not delegated: then not this one
            group.remove()
            return tree
        return None

    def create(self, name: str, limits: Limits) -> Cgroup:
        """A new group `toolcell-<pid>-<name>` with these limits."""
        full = f"{_PREFIX}{os.getpid()}-{name}"
        group = Cgroup({controller: os.path.join(base, full) for controller, base in self._bases.items()})
        made: list[str] = []
        try:
            for path in group.paths:
                os.mkdir(path)
                made.append(path)
            group.set_limits(limits)
        except (OSError, SandboxError):
            for path in made:
                os.rmdir(path)
            raise
        return group

    def sweep_stale(self) -> list[str]:
        """Remove the empty groups of supervisors that are dead; returns their paths."""
        removed: list[str] = []
        for base in dict.fromkeys(self._bases.values()):
            for entry in os.listdir(base):
                owner = entry.removeprefix(_PREFIX).partition("-")[0]
                if not entry.startswith(_PREFIX) or not owner.isdecimal() or os.path.exists(f"/proc/{owner}"):
                    continue
                try:
                    os.rmdir(os.path.join(base, entry))
                except OSError as error:
                    if error.errno in (errno.EBUSY, errno.ENOENT, errno.ENOTEMPTY):
                        continue  # still in use, or another supervisor swept it
                    raise
                removed.append(os.path.join(base, entry))
        return removed


def join(paths: Iterable[str]) -> None:
    """Move this process into these groups."""
    for path in paths:
        write_file(
            f"{path}/cgroup.procs", "0", step=f"join {path}", mechanism="cgroup", cure="Is the cgroup still there?"
        )


def limited_by(paths: Iterable[str]) -> frozenset[str]:
    """What these groups limit: "memory", "pids", both or neither."""
    files = {"memory.limit_in_bytes": "memory", "memory.max": "memory", "pids.max": "pids"}
    return frozenset(what for path in paths for name, what in files.items() if os.path.exists(f"{path}/{name}"))


Mount = tuple[str, str, str, list[str]]


def _mounts() -> Iterable[Mount]:
    """The cgroup mounts: kind, mount point, root within the hierarchy, options (v1: the controllers)."""
    for line in _read_file("/proc/self/mountinfo").splitlines():
        left, _, right = line.partition(" - ")
        kind, _source, options = right.split(" ", 2)
        if kind in ("cgroup", "cgroup2"):
            fields = left.split(" ")
            yield kind, fields[4], fields[3], options.split(",")


def _own(controller: str) -> str | None:
    for line in _read_file("/proc/self/cgroup").splitlines():
        number, controllers, path = line.split(":", 2)
        if (number == "0") if controller == "unified" else (controller in controllers.split(",")):
            return path
    return None


def _below(mount_point: str, root: str, own: str | None) -> str | None:
    """The directory of this process's own group, as far as the mount shows it (a container's shows its own root)."""
    if own is None:
        return None
    relative = own.removeprefix(root.rstrip("/")) if own.startswith(root) else "/"
    path = os.path.normpath(mount_point + "/" + relative)
    return path if os.path.isdir(path) else mount_point


def _v1_bases(mounts: Iterable[Mount]) -> dict[str, str] | None:
    bases: dict[str, str] = {}
    for kind, mount_point, root, options in mounts:
        for controller in {"memory", "pids", "cpuacct"} & set(options) if kind == "cgroup" else ():
            path = _below(mount_point, root, _own(controller))
            if path is not None:
                bases[controller] = path
    return bases if {"memory", "pids"} <= bases.keys() else None


def _v2_bases(mounts: Iterable[Mount]) -> dict[str, str] | None:
    for kind, mount_point, root, _options in mounts:
        own = _below(mount_point, root, _own("unified")) if kind == "cgroup2" else None
        while own is not None and own.startswith(mount_point):
            # A group with processes of its own cannot pass controllers on, so look upwards for one that does.
            if not os.path.exists(f"{own}/cgroup.subtree_control"):
                return None  # something else is mounted over it
            if {"memory", "pids"} <= set(_read_file(f"{own}/cgroup.subtree_control").split()):
                return {"unified": own}
            own = os.path.dirname(own)
    return None


def _read_file(path: str) -> str:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        parts: list[bytes] = []
        while part := os.read(fd, 65536):
            parts.append(part)
    finally:
        os.close(fd)
    return b"".join(parts).decode()
