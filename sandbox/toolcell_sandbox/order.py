"""What a cell and its maker tell each other before the cell runs any foreign code.

A process that is to become a cell is told `Base` at its beginning, and `Order` when its session is known. They cross as
these messages:

    cell → maker, by the pipe of `spawn.begin`: `IsInit`, `Forked` or `NotEntered`
    maker → prespawned cell, by its socket: `Become`, with descriptors
    maker's client → cell, in a memory file that the maker passes on unread: `Particulars`, `Paths`
    cell → caller of `run`, by its pipe: `Confined` or `NotEntered`

Each carries one message, `(kind, *fields)`, packed by marshal: both ends are forks of one interpreter, and this
package depends on the standard library only. No foreign code has run at either end, so messages are not checked. Later
messages belong to the supervisor's wire.
"""

import marshal
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace

from .errors import SandboxError
from .identity import Identity
from .profile import CellProfile
from .report import SandboxReport
from .view import Bind, View

TYPE_CHECKING = False  # checkers know this name; importing typing would cost milliseconds
if TYPE_CHECKING:
    from typing import Any, Final

MAX_BYTES: "Final" = 16 * 1024
"""The most bytes of a message by pipe: less than a pipe holds, so one write and one read are enough."""
_TEXT_CHARS = 1000


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
    (`late_paths`).
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


@dataclass(frozen=True, slots=True)
class IsInit:
    """The forked process is the cell's init itself."""


@dataclass(frozen=True, slots=True)
class Forked:
    """The forked process has forked the init, and exits."""

    pid: int


@dataclass(frozen=True, slots=True)
class NotEntered:
    """The cell could not be confined, and exits. The fields are those of `SandboxError`."""

    what: str
    step: str
    mechanism: str
    errno: int
    cure: str

    @classmethod
    def of(cls, error: SandboxError) -> "NotEntered":
        return cls(error.what[:_TEXT_CHARS], error.step, error.mechanism, error.errno, error.cure[:_TEXT_CHARS])

    def error(self) -> SandboxError:
        error = SandboxError(self.what, step=self.step, mechanism=self.mechanism, cure=self.cure)
        error.errno = self.errno  # `what` has its text already
        return error


@dataclass(frozen=True, slots=True)
class Confined:
    """The cell is confined. `report` is a `SandboxReport.to_wire`."""

    report: "dict[str, Any]"


@dataclass(frozen=True, slots=True)
class Become:
    """Carry out this order (`order.Order`).

    `identity` is an `Identity.to_wire`. `streams` are the numbers that the first descriptors get, each with whether
    programs inherit it. The next descriptor has the `Particulars`. The others are the user namespaces of `owners`.
    """

    identity: "list[Any]"
    cgroups: list[str]
    limited: list[str]
    processes: int
    keep_fds: list[int]
    parent_pid: int
    landlock_abi: int
    filter: bytes
    unbound: bool
    streams: list[tuple[int, bool]]
    owners: list[tuple[int, int]]


@dataclass(frozen=True, slots=True)
class Particulars:
    """The part of an order that only the cell may know: a `CellProfile.to_wire` and a `View.to_wire`."""

    profile: "dict[str, Any]"
    view: "list[Any]"


@dataclass(frozen=True, slots=True)
class Paths:
    """The paths that an unbound cell gets, each a `Bind.to_wire`."""

    binds: "list[list[Any]]"


_KINDS: "Mapping[int, type[Any]]" = {
    1: IsInit,
    2: Forked,
    3: NotEntered,
    4: Confined,
    5: Become,
    6: Particulars,
    7: Paths,
}
_KIND_OF: "Mapping[type[Any], int]" = {message: kind for kind, message in _KINDS.items()}


def pack(message: IsInit | Forked | NotEntered | Confined | Become | Particulars | Paths) -> bytes:
    """The bytes of a message."""
    slots: tuple[str, ...] = message.__slots__  # pyright: ignore[reportAssignmentType] - a dataclass makes a tuple
    fields = [getattr(message, name) for name in slots]
    return marshal.dumps((_KIND_OF[type(message)], *fields))


def unpack(told: bytes) -> "Any":
    """The inverse of `pack`; None for no bytes, which mean that the other end has died."""
    if not told:
        return None
    kind, *fields = marshal.loads(told)
    return _KINDS[kind](*fields)


def sealed(message: Particulars | Paths) -> int:
    """A memory file (memfd_create(2)) with this message."""
    fd = os.memfd_create("toolcell", os.MFD_CLOEXEC)
    try:
        rest = memoryview(pack(message))
        while rest:
            rest = rest[os.write(fd, rest) :]
    except BaseException:
        os.close(fd)
        raise
    return fd


def unsealed(fd: int) -> "Any":
    """The message in a `sealed` file. Closes `fd`."""
    try:
        return unpack(os.pread(fd, os.fstat(fd).st_size, 0))  # the offset is shared; a read from memory is complete
    finally:
        os.close(fd)
