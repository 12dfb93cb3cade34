"""The paths that a cell sees: the profile's paths, resolved and reduced to a list of mounts. Mounts nothing itself."""

import os
import stat
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass
from operator import attrgetter

from .errors import SandboxError
from .identity import Identity
from .network import HostNetwork
from .profile import CellProfile

TYPE_CHECKING = False  # checkers know this name; importing typing would cost milliseconds
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

PLAN = "plan view"
"""The step of `plan` in its errors."""
_MAX_LINKS = 40  # the kernel's limit, path_resolution(7)
_RESOLVER = tuple(
    f"/etc/{name}" for name in ("resolv.conf", "hosts", "host.conf", "nsswitch.conf", "gai.conf", "services")
)
"""The files that the C library reads to resolve a host name. They are bound only with the host's network."""
_WITNESSES = [
    "/etc/shadow",
    "/sys/kernel",
    "/boot",
    "/var/log",
    "/var/lib",
    "/home",
    "/srv",
    "/opt",
    "/run",
    "/root",
]


@dataclass(frozen=True)
class Bind:
    """One bind mount, at the same path as on the host. With `owner`, the mount is id-mapped from that uid and gid."""

    path: str
    writable: bool
    directory: bool
    inode: tuple[int, int]
    owner: tuple[int, int] | None
    source: str = ""  # what is mounted there, if not the path itself; it may be a symbolic link

    def to_wire(self) -> list[object]:
        """Paths as bytes, because a path need not be valid text; else only bools, ints and lists."""
        owner = None if self.owner is None else list(self.owner)
        return [os.fsencode(self.path), self.writable, self.directory, *self.inode, owner, os.fsencode(self.source)]

    @classmethod
    def from_wire(cls, wire: "Sequence[Any]") -> "Bind":
        """The inverse of `to_wire`."""
        path, writable, directory, device, inode, owner, source = wire
        of = None if owner is None else (owner[0], owner[1])
        return cls(os.fsdecode(path), writable, directory, (device, inode), of, os.fsdecode(source))


@dataclass(frozen=True, slots=True)
class Bound:
    """A path that a mount protects in a cell. It is read-only; a pin may be written to, but not renamed or removed.

    With a `source`, that file is mounted at the path, with its own owner.
    """

    path: str
    pin: bool
    inode: tuple[int, int]
    born_ns: int = 0  # birth time: a later file may get the same inode number
    source: str = ""

    def to_wire(self) -> list[object]:
        """As `Bind.to_wire`."""
        return [os.fsencode(self.path), self.pin, *self.inode, self.born_ns, os.fsencode(self.source)]

    @classmethod
    def from_wire(cls, wire: "Sequence[Any]") -> "Bound":
        """The inverse of `to_wire`."""
        path, pin, device, inode, born_ns, source = wire
        return cls(os.fsdecode(path), pin, (device, inode), born_ns, os.fsdecode(source))


@dataclass(frozen=True)
class View:
    """The binds, outermost first; the symbolic links to create; a path of the host that the cell must not see."""

    binds: tuple[Bind, ...]
    links: tuple[tuple[str, str], ...]
    witness: str

    def to_wire(self) -> list[object]:
        """As `Bind.to_wire`."""
        binds = [bind.to_wire() for bind in self.binds]
        links = [[os.fsencode(place), os.fsencode(text)] for place, text in self.links]
        return [binds, links, os.fsencode(self.witness)]

    @classmethod
    def from_wire(cls, wire: "Sequence[Any]") -> "View":
        """The inverse of `to_wire`."""
        binds, links, witness = wire
        decoded = tuple((os.fsdecode(place), os.fsdecode(text)) for place, text in links)
        return cls(tuple(map(Bind.from_wire, binds)), decoded, os.fsdecode(witness))


@dataclass(frozen=True)
class Found:
    """The resolved system paths of a profile: the trees to bind, before they are reduced; the symbolic links that lead
    there; and the missing paths."""

    binds: tuple[Bind, ...]
    links: Mapping[str, str]
    missing: tuple[str, ...]

    def holds(self) -> bool:
        """Whether the paths are unchanged."""
        try:
            return (
                all(_inode(os.lstat(bind.path)) == bind.inode for bind in self.binds)
                and all(os.readlink(place) == text for place, text in self.links.items())
                and not any(os.access(path, os.F_OK) for path in self.missing)
            )
        except OSError:
            return False


def find_system(profile: CellProfile, identity: Identity) -> Found:
    """Resolve the system paths of a profile."""
    binds: dict[str, Bind] = {}
    links: dict[str, str] = {}
    missing: list[str] = []
    seen: dict[str, str] = {}
    for path in (*profile.system, *(_RESOLVER if isinstance(profile.reach, HostNetwork) else ())):
        try:
            real, met = _resolved(path, seen)
        except FileNotFoundError:
            missing.append(path)
            continue
        links.update(met)
        if real not in binds:
            binds[real] = _bind(real, False, True, identity)
    return Found(tuple(binds.values()), links, tuple(missing))


def plan(
    profile: CellProfile, identity: Identity, protected: Iterable[Bound] = (), system: Found | None = None
) -> View:
    """The view of this profile. Raises SandboxError if a readable or writable path is missing or cannot be bound.

    `protected` are paths below writable ones. `system` are the resolved system paths, if they are known.
    """
    found = find_system(profile, identity) if system is None else system
    links = dict(found.links)
    writable: dict[str, bool] = {}
    seen: dict[str, str] = {}
    for paths, may_write in ((profile.readable, False), (profile.writable, True)):
        for path in paths:
            try:
                real, met = _resolved(path, seen)
            except FileNotFoundError:
                raise SandboxError(
                    f"A path of the profile does not exist: {path}",
                    step=PLAN,
                    cure="Create it, or take it out of the profile.",
                ) from None
            if met and not profile.follow_links:
                raise SandboxError(
                    f"A path of the profile has become a symbolic link: {path}",
                    step=PLAN,
                    cure="Find out which tool put it there, and open the session anew.",
                )
            links.update(met)
            writable[real] = may_write or writable.get(real, False)
    binds = {bind.path: bind for bind in found.binds}
    binds.update((path, _bind(path, may_write, False, identity)) for path, may_write in writable.items())
    held = [bound for bound in protected if bound.path not in binds]
    reduced = _reduced(
        [*binds.values(), *(bind for bound in held if (bind := _bind_protected(bound, identity)))],
        pins={bound.path for bound in held if bound.pin},
    )
    roots = {bind.path for bind in reduced}
    loose = tuple((path, text) for path, text in links.items() if path not in roots and not above(path, roots))
    return View(reduced, loose, _witness(roots))


def _resolved(path: str, seen: dict[str, str]) -> tuple[str, list[tuple[str, str]]]:
    """As `resolve`. Raises FileNotFoundError for a missing path, SandboxError for a path that no cell can have."""
    try:
        real, met = resolve(path, seen)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise SandboxError(
            f"A path of the profile cannot be reached: {path}",
            step=PLAN,
            errno=error.errno or 0,
            cure="Make it and its parents accessible to this user, or take it out of the profile.",
        ) from error
    if real in ("/", "/tmp", "/proc", "/dev", "/sys"):
        raise SandboxError(f"A path of the profile is really {real}: {path}", step=PLAN, cure="Name what is below it.")
    return real, met


def resolve(path: str, seen: dict[str, str] | None = None) -> tuple[str, list[tuple[str, str]]]:
    """The path without symbolic links, and each link on the way as (path, target).

    `seen` caches the components for the next path: the target of a link, "" for anything else.
    """
    seen = {} if seen is None else seen
    links: list[tuple[str, str]] = []
    current, rest = "/", path.split("/")
    while rest:
        part = rest.pop(0)
        if part in ("", "."):
            continue
        if part == "..":
            current = os.path.dirname(current)
            continue
        candidate = f"/{part}" if current == "/" else f"{current}/{part}"
        text = seen.get(candidate)
        if text is None:
            text = os.readlink(candidate) if stat.S_ISLNK(os.lstat(candidate).st_mode) else ""
            seen[candidate] = text
        if not text:
            current = candidate
            continue
        links.append((candidate, text))
        if len(links) > _MAX_LINKS:
            raise SandboxError(
                f"A path of the profile has too many symbolic links: {path}", step=PLAN, cure="Name its target."
            )
        rest = text.split("/") + rest
        if text.startswith("/"):
            current = "/"
    return current, links


def _bind(path: str, writable: bool, system: bool, identity: Identity) -> Bind:
    info = os.stat(path, follow_symlinks=False)
    directory = stat.S_ISDIR(info.st_mode)
    if not directory and not stat.S_ISREG(info.st_mode):
        raise SandboxError(
            f"A path of the profile is neither a file nor a directory: {path}",
            step=PLAN,
            cure="Take it out of the profile.",
        )
    open_to_all = info.st_mode & 0o005 == 0o005 if directory else info.st_mode & 0o004
    owner = None if system and open_to_all else _owner(info, identity)
    return Bind(path, writable, directory, _inode(info), owner)


def _bind_protected(bound: Bound, identity: Identity) -> Bind | None:
    """The bind of a protected path; None if the path has changed since: then the audit after the call protects it."""
    try:
        info = os.lstat(bound.path)
    except OSError:
        return None
    if _inode(info) != bound.inode:
        return None
    if bound.source:
        try:
            shown = os.lstat(bound.source)
        except OSError:
            return None
        return Bind(bound.path, bound.pin, stat.S_ISDIR(shown.st_mode), _inode(shown), None, bound.source)
    return Bind(bound.path, bound.pin, stat.S_ISDIR(info.st_mode), bound.inode, _owner(info, identity))


def _inode(info: os.stat_result) -> tuple[int, int]:
    return info.st_dev, info.st_ino


def _owner(info: os.stat_result, identity: Identity) -> tuple[int, int] | None:
    return (info.st_uid, info.st_gid) if identity.mode == "root" and info.st_uid != identity.uid else None


def _reduced(binds: Iterable[Bind], pins: Container[str]) -> tuple[Bind, ...]:
    kept: dict[str, Bind] = {}
    for bind in sorted(binds, key=attrgetter("path")):  # a directory comes before what is in it
        nearest = kept.get(above(bind.path, kept))
        if nearest is None or bind.path in pins or (nearest.writable, nearest.owner) != (bind.writable, bind.owner):
            kept[bind.path] = bind
    return tuple(kept.values())


def rest(planned: View, binds: Iterable[Bind]) -> list[Bind] | None:
    """The view's other binds, outermost first, if `binds` can be mounted before them. None if the view lacks one of
    `binds`, or if another bind lies above one of them and would hide it.
    """
    others = {bind.path: bind for bind in planned.binds}
    before = list(binds)
    if any(others.pop(bind.path, None) != bind for bind in before):
        return None
    return None if any(above(bind.path, others) for bind in before) else list(others.values())


def owners(planned: View) -> tuple[tuple[int, int], ...]:
    """The owners of the view's id-mapped binds, each once."""
    return tuple(sorted({bind.owner for bind in planned.binds if bind.owner}))


def above(path: str, places: Container[str]) -> str:
    """The innermost directory above an absolute path that is one of `places`; "" if none is."""
    while path := path[: path.rindex("/")]:
        if path in places:
            return path
    return ""


def _witness(roots: set[str]) -> str:
    for path in _WITNESSES:
        hidden = path not in roots and not above(path, roots) and not any(root.startswith(f"{path}/") for root in roots)
        if hidden and os.path.lexists(path):
            return path
    return ""
