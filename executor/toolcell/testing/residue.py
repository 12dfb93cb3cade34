"""Find what a supervisor has left behind in its process: children, descriptors, cgroups, mounts, temporary files.

before = Residue.now() … assert not Residue.now().beyond(before)
"""

import os
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Self

from toolcell_sandbox.mechanisms.cgroup_tree import CONTROLLERS, OPTIONAL, group_prefix

_CONTROLLERS = CONTROLLERS.union(OPTIONAL)


@dataclass(frozen=True, slots=True)
class Residue:
    """A snapshot of this process. `children` are pids, zombies included; `fds` maps number to target."""

    children: frozenset[int]
    fds: Mapping[int, str]
    cgroups: frozenset[str]
    mounts: frozenset[str]
    temporary: frozenset[str]

    @classmethod
    def now(cls) -> Self:
        """The present snapshot."""
        return cls(
            frozenset(_children()),
            dict(_fds()),
            frozenset(cgroups_of(os.getpid())),
            frozenset(_lines("/proc/self/mountinfo")),
            frozenset(os.listdir(tempfile.gettempdir())),
        )

    def beyond(self, before: "Residue") -> list[str]:
        """One line for each thing that did not exist `before`. Descriptors are only reported if there are more than
        before, because an event loop may close one and open another.
        """
        found = [f"child process {pid} ({_command(pid)})" for pid in sorted(self.children - before.children)]
        if len(self.fds) > len(before.fds):
            found += [f"descriptor {fd} → {to}" for fd, to in self.fds.items() if before.fds.get(fd) != to]
        found += [f"cgroup {path}" for path in sorted(self.cgroups - before.cgroups)]
        found += [f"mount {line}" for line in sorted(self.mounts - before.mounts)]
        found += [f"temporary file {name}" for name in sorted(self.temporary - before.temporary)]
        return found


def cgroups_of(pid: int) -> Iterator[str]:
    """The cgroup directories that the supervisor of this pid has made and not removed."""
    prefix = group_prefix(pid)
    own: dict[str, str] = {}
    for line in _lines("/proc/self/cgroup"):
        _number, controllers, path = line.split(":", 2)
        own.update(dict.fromkeys(controllers.split(","), path))
    for line in _lines("/proc/self/mountinfo"):
        left, _, right = line.partition(" - ")
        kind, _source, options = right.split(" ", 2)
        mine = _CONTROLLERS & set(options.split(",")) if kind == "cgroup" else {""} if kind == "cgroup2" else set[str]()
        if not mine:
            continue
        fields = left.split(" ")
        root, mount_point = fields[3], fields[4]
        relative = own.get(min(mine), "/").removeprefix(root.rstrip("/")).strip("/")
        steps = [""] + ["/".join(relative.split("/")[: n + 1]) for n in range(len(relative.split("/")))]
        for step in dict.fromkeys(steps):  # with v2, groups are made in the nearest ancestor that delegates controllers
            directory = os.path.join(mount_point, step)
            try:
                names = os.listdir(directory)
            except FileNotFoundError:
                continue
            yield from (os.path.join(directory, name) for name in names if name.startswith(prefix))


def _children() -> Iterator[int]:
    for task in os.listdir("/proc/self/task"):
        try:
            with open(f"/proc/self/task/{task}/children") as file:
                yield from map(int, file.read().split())
        except FileNotFoundError:
            continue  # the thread has ended


def _fds() -> Iterator[tuple[int, str]]:
    for name in os.listdir("/proc/self/fd"):
        try:
            yield int(name), os.readlink(f"/proc/self/fd/{name}")
        except FileNotFoundError:
            continue  # the descriptor of this listing


def _lines(path: str) -> list[str]:
    with open(path) as file:
        return file.read().splitlines()


def _command(pid: int) -> str:
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            return file.read().replace(b"\0", b" ").decode(errors="replace").strip() or "a zombie"
    except (FileNotFoundError, ProcessLookupError):
        return "gone by now"
