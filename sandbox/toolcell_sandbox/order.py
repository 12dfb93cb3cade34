"""What a process is told that is to become a cell: `Base` at its beginning, `Order` when its session is known."""

from collections.abc import Mapping
from dataclasses import dataclass

from .identity import Identity
from .profile import CellProfile
from .report import SandboxReport
from .view import Bind, View


@dataclass(frozen=True)
class Base:
    """What a cell is begun with, before it matters whose it is (`spawn.prepare` works it out).

    `off` are the mechanisms that are missing and were allowed to be; `namespaces` those that it makes for itself;
    `ids` the uid and gid that the caller's become in a user namespace of its own; `proxied`: it has a socket for a
    proxy; `proc`: it has a /proc. `binds` and `links` are put in place at once, the rest of the view later. `parent_fd`
    is a pidfd of the caller. `first`: the caller forks the cell as the first process of its pid namespace, so that no
    other process stands between.
    """

    off: frozenset[str]
    namespaces: frozenset[str]
    ids: tuple[int, int] | None
    proxied: bool
    proc: bool
    binds: tuple[Bind, ...]
    links: tuple[tuple[str, str], ...]
    parent_fd: int
    first: bool

    @property
    def own_root(self) -> bool:
        """Whether the cell has a root of its own."""
        return not self.off & {"mount_namespace", "pivot_root", "mount_setattr"}


@dataclass(frozen=True)
class Order:
    """Everything that entering needs, worked out beforehand by the caller (`spawn.prepare`).

    `id_maps` has the user namespace of each owner; `limited` what the cgroups limit, of "memory" and "pids";
    `processes` is RLIMIT_NPROC. An
    `unbound` cell gets the rest of its paths later, and only then the rules about files that go with them (`binding`).
    """

    base: Base
    profile: CellProfile
    identity: Identity
    report: SandboxReport
    view: View
    id_maps: Mapping[tuple[int, int], int]
    cgroups: tuple[str, ...]
    limited: frozenset[str]
    processes: int
    keep_fds: tuple[int, ...]
    parent_pid: int
    landlock_abi: int
    filter: bytes
    unbound: bool = False
