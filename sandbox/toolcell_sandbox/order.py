"""What a process is told that is to become a cell: `Base` at its beginning, `Order` when its session is known."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from .identity import Identity
from .messages import Particulars, unsealed
from .profile import CellProfile
from .report import SandboxReport
from .view import Bind, View


@dataclass(frozen=True)
class Base:
    """The part of an order that does not depend on a session (made by `spawn.prepare`).

    Attributes: `off`: the mechanisms that are missing and allowed to be missing. `namespaces`: the namespaces that the
    cell makes. `ids`: the uid and gid to which a user namespace maps the caller's. `proxied`: the cell has a listening
    socket for a proxy. `proc`: it has a /proc. `binds` and `links`: the part of the view that is mounted at once.
    `parent_fd`: a pidfd of the caller. `first`: the caller forks the cell as the first process of its pid namespace, so
    there is no process in between.
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
        """Whether the cell has a root directory of its own."""
        return not self.off & {"mount_namespace", "pivot_root", "mount_setattr"}


@dataclass(frozen=True)
class Order:
    """Everything that `enter` needs, computed beforehand by the caller (`spawn.prepare`).

    `id_maps` has the user namespace of each owner. `limited` is what the cgroups limit: "memory", "pids" or both.
    `processes` is RLIMIT_NPROC. An `unbound` cell gets its other paths later, and the Landlock rules with them
    (`binding`).
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

    def completed(self, sealed: int) -> "Order":
        """In the cell: this order with the profile and the view of a `Sealed.fd`, which is closed."""
        told: Particulars = unsealed(sealed)
        profile = self.profile.changed_from_wire(told.profile)
        return replace(self, profile=profile, view=View.from_wire(told.view))


@dataclass(frozen=True, slots=True)
class Sealed:
    """The profile and the view of a cell, for a maker that must not know them.

    The maker forks all cells, so each cell inherits the maker's memory, freed parts included. `fd` has sealed
    `Particulars`, which only the cell reads. `owners` are the owners of the view's id-mapped binds. `fits_prespawned`
    is the result of `prespawn.fits`.
    """

    fd: int
    owners: tuple[tuple[int, int], ...]
    fits_prespawned: bool
