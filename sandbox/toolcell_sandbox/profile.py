"""The profile of a cell: what the kernel enforces for the cells of one kind of session."""

import copy
import os
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from dataclasses import replace as _replace
from functools import lru_cache
from types import MappingProxyType

from .errors import named, refusal, refusing
from .etc import etc_paths
from .limits import MIB, Limits
from .network import HostNetwork, Network, NoNetwork, ProxyNetwork, is_narrower, proxy_environment
from .network import from_wire as network_from_wire
from .network import to_wire as network_to_wire
from .trees.protected import DEFAULT_PROTECTED, check, expanded, lifted

TYPE_CHECKING = False  # checkers know this name; importing typing would cost milliseconds
if TYPE_CHECKING:
    from typing import Any, Self

CAPABILITIES = frozenset(["read", "write", "exec", "channel", "memory.read", "memory.write", "web", "http", "net"])
WORKER_CAPABILITIES = frozenset(["read", "memory.read", "web"])
_RESERVED = ("/", "/dev", "/proc", "/sys", "/tmp")
UNCHECKED = QUARANTINED = ("tell", "deny")
"""The treatment of a call that could not be audited in full, or that made a protected name; the stricter one last."""
_LISTS = ("readable", "writable", "system", "pass_env", "protected")


def python_paths() -> tuple[str, ...]:
    """The paths of this interpreter: its prefixes (of the virtual environment and of the base) and its executable."""
    return _interpreter(sys.prefix, sys.exec_prefix, sys.base_prefix, sys.base_exec_prefix, sys.executable)


@lru_cache(maxsize=16)  # asked for each module that a tool may refer to
def _interpreter(*prefixes_and_executable: str) -> tuple[str, ...]:
    *found, executable = prefixes_and_executable
    if executable:
        found += [executable, os.path.dirname(os.path.realpath(executable))]
    return tuple(dict.fromkeys(path for path in found if path not in _RESERVED))


def system_paths() -> tuple[str, ...]:
    """The system paths that programs and Python need. None of them is secret. Cells leave out missing ones."""
    return ("/usr", "/bin", "/sbin", "/lib", "/lib64", *etc_paths(), *python_paths())


@lru_cache(maxsize=1024)  # sessions are opened by the thousand, and nearly all with the same paths
def _normal(field: str, paths: tuple[str, ...]) -> tuple[str, ...]:
    """The paths of a profile's field, normalised, each once."""
    for path in paths:
        if not path.startswith("/") or "\0" in path:
            raise ValueError(f"Profile.{field} is not an absolute path: {path!r}. Pass os.path.abspath of it.")
        if os.path.normpath(path) in _RESERVED:
            raise ValueError(f"Profile.{field} cannot be {path!r}: the cell has its own. Name what is below it.")
    return tuple(dict.fromkeys(map(os.path.normpath, paths)))


@lru_cache(maxsize=64)
def _checked(names: tuple[str, ...]) -> tuple[str, ...]:
    """The protected names of a profile, each once."""
    names = expanded(names)
    try:
        check(names)
    except ValueError as error:
        raise ValueError(f"Profile.protected {error}") from None
    return names


@refusing
@dataclass(frozen=True, kw_only=True)
class CellProfile:
    """What a cell may see and use. Immutable; a narrower one is made with `narrow`, any other with `replace`. Error
    messages say "Profile", the name of the class that an embedding program derives from this one and shows its users.

    `grants` are capability values; this package itself reads only "exec" (execve is allowed) and "net", without which
    `network` counts for nothing.
    `readable` and `writable` are absolute paths bound into the cell at the same place; whatever is not bound is absent.
    `/tmp` is always private to the cell and gone with it.
    `protected` are names that nothing may create or change in a writable path, for they run later
    (`toolcell_sandbox.trees.protected`); a writable path may itself be, or lie below, one of them. The word
    "project_code" among them stands for the project's own code: `conftest.py`, CI workflows and the like.
    `quarantined` says what becomes of a call that made or changed one all the same, which is moved away: "tell" gives
    its result with a notice, "deny" takes the result away.
    `unchecked` says what becomes of a call whose writable paths could not be audited in full, in the time and with the
    bounds that an audit has: "tell" gives its result with a notice, "deny" takes the result away.
    Without `follow_links`, a readable or writable path that is or passes a symbolic link is refused: for paths that
    were resolved when they could be trusted, and lie where a cell may have put a link since.
    """

    grants: frozenset[str] = frozenset()
    limits: Limits = field(default_factory=Limits)
    readable: tuple[str, ...] = ()
    writable: tuple[str, ...] = ()
    system: tuple[str, ...] = field(default_factory=system_paths)
    env: Mapping[str, str] = field(default_factory=dict[str, str], hash=False)
    pass_env: tuple[str, ...] = ()
    network: Network = field(default_factory=NoNetwork)
    proc: bool = True
    cwd: str = "/tmp"
    follow_links: bool = True
    hostname: str = "toolcell"
    protected: tuple[str, ...] = DEFAULT_PROTECTED
    unchecked: str = "tell"
    quarantined: str = "tell"

    def __post_init__(self) -> None:
        _typed(self)
        object.__setattr__(self, "grants", frozenset(self.grants))
        unknown = self.grants - CAPABILITIES
        if unknown:
            raise ValueError(
                f"Profile.grants has no such capability: {min(map(repr, unknown))}. Known: {sorted(CAPABILITIES)}."
            )
        for name in ("readable", "writable", "system"):
            object.__setattr__(self, name, _normal(name, getattr(self, name)))
        if not self.cwd.startswith("/"):
            raise ValueError(f"Profile.cwd is not an absolute path: {self.cwd!r}. Pass os.path.abspath of it.")
        if not isinstance(self.network, (NoNetwork, ProxyNetwork, HostNetwork)):  # pyright: ignore[reportUnnecessaryIsInstance]
            wanted = "Pass NoNetwork(), ProxyNetwork(allow=[…]) or HostNetwork()."
            raise ValueError(f"Profile.network is not a network policy: {self.network!r}. {wanted}")
        if not self.hostname or len(self.hostname.encode()) > 64:
            raise ValueError(f"Profile.hostname is not of 1 to 64 bytes: {self.hostname!r}. Shorten it.")
        object.__setattr__(self, "protected", _checked(self.protected))
        if self.unchecked not in UNCHECKED:
            raise ValueError(f"Profile.unchecked is not one of {', '.join(UNCHECKED)}: {self.unchecked!r}.")
        if self.quarantined not in QUARANTINED:
            raise ValueError(f"Profile.quarantined is not one of {', '.join(QUARANTINED)}: {self.quarantined!r}.")
        object.__setattr__(self, "env", MappingProxyType(dict(self.env)))

    @classmethod
    def for_kind(cls, kind: str) -> "Self":
        """The preset of a session kind: "main", "branch" or "worker"."""
        if kind in ("main", "branch"):
            return cls(grants=CAPABILITIES)
        if kind == "worker":
            tight = Limits(
                cpu_s=15.0,
                memory_bytes=256 * MIB,
                processes=16,
                open_files=128,
                file_bytes=16 * MIB,
                scratch_bytes=16 * MIB,
                scratch_inodes=1024,
                result_bytes=4 * MIB,
            )
            return cls(grants=WORKER_CAPABILITIES, limits=tight)
        raise refusal(f"There is no profile for this session kind: {kind!r}. Use 'main', 'branch' or 'worker'.")

    def replace(self, **changes: "Any") -> "Self":
        """A copy with these fields changed; nothing is checked against the present one."""
        return _replace(self, **changes)

    @named
    def lifting(self, *names: str) -> "Self":
        """A copy that does not protect these names. Raises ValueError, with the nearest name, for an unknown one."""
        try:
            return _replace(self, protected=lifted(self.protected, *names))
        except ValueError as error:
            raise refusal(f"Profile.lifting: {error}") from None

    @named
    def narrow(
        self,
        *,
        grants: Iterable[str] | None = None,
        readable: Iterable[str] | None = None,
        writable: Iterable[str] | None = None,
        limits: Limits | None = None,
        network: Network | None = None,
        protected: Iterable[str] = (),
    ) -> "Self":
        """A copy that allows no more: grants are intersected, limits minimised, paths must be covered already, and
        `protected` are names to protect besides."""
        asked = {"grants": grants, "readable": readable, "writable": writable, "protected": protected}
        for name, value in asked.items():
            require_list(name, value)
        if limits is not None and not isinstance(limits, Limits):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise refusal(f"Profile.narrow: limits is not a Limits: {limits!r}. Pass Limits(wall_s=…).")
        narrower = _replace(
            self,
            grants=self.grants if grants is None else self.grants & frozenset(grants),
            readable=self.readable if readable is None else tuple(readable),
            writable=self.writable if writable is None else tuple(writable),
            limits=self.limits if limits is None else self.limits.narrow(limits),
            network=self.network if network is None else network,
            protected=(*self.protected, *protected),
        )
        if not narrower.is_narrower_than(self):
            what = "path" if is_narrower(narrower.network, self.network) else "network"
            raise refusal(f"Profile.narrow was given a {what} that the profile does not cover. Leave it out.")
        return narrower

    def is_narrower_than(self, other: "CellProfile") -> bool:
        """True when this profile allows nothing that the other does not (an equal one counts)."""
        readable = (*other.readable, *other.writable, *other.system)
        return (
            self.grants <= other.grants
            and self.limits.is_within(other.limits)
            and all(is_below(path, readable) for path in (*self.readable, *self.system))
            and all(is_below(path, other.writable) for path in self.writable)
            and set(self.pass_env) <= set(other.pass_env)
            and (other.proc or not self.proc)
            and is_narrower(self.reach, other.reach)
            and set(self.protected) >= set(other.protected)
            and UNCHECKED.index(self.unchecked) >= UNCHECKED.index(other.unchecked)
            and QUARANTINED.index(self.quarantined) >= QUARANTINED.index(other.quarantined)
        )

    @property
    def reach(self) -> Network:
        """The network policy that holds: `network` where "net" is granted, else `NoNetwork()`."""
        return self.network if "net" in self.grants else NoNetwork()

    def environment(self, host: Mapping[str, str]) -> dict[str, str]:
        """The whole environment of a cell: a fixed base, `env`, and the variables of `host` that `pass_env` names."""
        path = [os.path.join(sys.prefix, "bin"), "/usr/local/bin", "/usr/bin", "/bin"]
        base = {
            "PATH": ":".join(dict.fromkeys(path)),
            "HOME": "/tmp",
            "TMPDIR": "/tmp",
            "LANG": "C.UTF-8",
            "MALLOC_ARENA_MAX": "2",  # glibc reserves 64 MiB of address space, which is limited, for each arena
        }
        passed = {name: host[name] for name in self.pass_env if name in host}
        proxy = proxy_environment() if isinstance(self.reach, ProxyNetwork) else {}
        return {**base, **passed, **self.env, **proxy}

    def explain(self) -> str:
        """In plain words, what a cell of this profile may do. Names of environment variables, never their values."""
        from .explain import explain

        return explain(self)

    def to_wire(self, *, short: bool = False) -> dict[str, object]:
        """The fields of `CellProfile`, and no field of a subclass: only str, int, float, bool, list and dict. A `short`
        one leaves out what is as it is by default."""
        mine = vars(self)
        left_out = [name for name, default in _DEFAULTS.items() if short and mine[name] == default]
        return {name: _to_wire(mine[name]) for name in _DEFAULTS if name not in left_out}

    @classmethod
    def from_wire(cls, wire: Mapping[str, "Any"]) -> "Self":
        """The inverse of `to_wire`; ValueError on an unknown field or a bad value."""
        unknown = wire.keys() - _DEFAULTS.keys()
        if unknown:
            raise ValueError(f"Profile has no such field: {sorted(unknown)[0]!r}. Remove it.")
        return cls(**{name: _from_wire(name, value) for name, value in wire.items()})

    def figures(self) -> "CellProfile":
        """The part that holds nothing of a session: the grants, the limits, the kind of network, and `proc`."""
        return CellProfile(
            grants=self.grants, limits=self.limits, network=type(self.network)(), proc=self.proc, system=()
        )

    def changed_from_wire(self, changes: Mapping[str, "Any"]) -> "Self":
        """A copy with these fields, of `to_wire`. Nothing is checked: another process has checked them."""
        profile = copy.copy(self)
        vars(profile).update({name: _from_wire(name, value) for name, value in changes.items()})
        return profile


def _to_wire(value: object) -> object:
    """The value of a field, as `CellProfile.to_wire` has it."""
    if isinstance(value, Limits):
        return value.to_wire()
    if isinstance(value, frozenset):
        return sorted(value)  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType] - capabilities
    if isinstance(value, tuple):
        return list(value)  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType] - texts
    if isinstance(value, (NoNetwork, ProxyNetwork, HostNetwork)):
        return network_to_wire(value)
    if isinstance(value, MappingProxyType):
        return dict(value)  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType] - texts
    return value


def _from_wire(name: str, value: "Any") -> "Any":
    """The inverse of `_to_wire` for one field."""
    if name == "network":
        return network_from_wire(value)
    if name == "limits":
        return Limits.from_wire(value)
    if name == "grants":
        return frozenset(value)
    if name == "env":
        return MappingProxyType(value)
    return tuple(value) if name in _LISTS else value


_DEFAULTS = {each.name: each.default for each in fields(CellProfile)}  # for a subclass's instances too
_TEXTS = ("cwd", "hostname", "unchecked", "quarantined")
_SWITCHES = ("proc", "follow_links")


def _typed(profile: CellProfile) -> None:
    """Make tuples of the lists; ValueError for a field of a type that it cannot have, as a checker would find."""
    for name, kind, wanted in (
        ("grants", (frozenset, set), "a set: frozenset({'read', …})"),
        ("limits", Limits, "a Limits: Limits(wall_s=…)"),
        *((name, str, "a str") for name in _TEXTS),
        *((name, bool, "True or False") for name in _SWITCHES),
        ("env", Mapping, "a mapping: {'NAME': 'value'}"),
    ):
        value: object = getattr(profile, name)
        if not isinstance(value, kind):  # type: ignore[arg-type]  # one class, or a tuple of them
            raise ValueError(f"Profile.{name} cannot be {value!r}. Pass {wanted}.")
    for name in _LISTS:
        object.__setattr__(profile, name, texts(name, getattr(profile, name)))
    for pair in profile.env.items():
        if not all(isinstance(each, str) for each in pair):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ValueError(f"Profile.env holds {pair[0]!r}, which is not a text for a text. Pass str(…) of both.")


def texts(name: str, value: object, of: str = "texts") -> tuple[str, ...]:
    """The value of a profile's field as a tuple. ValueError for one that is not a list of texts."""
    if isinstance(value, (str, bytes)) or not isinstance(value, Iterable):
        raise ValueError(f"Profile.{name} is not a list of {of}: {value!r}. Put the one in a list.")
    listed: tuple[Any, ...] = tuple(value)  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
    for each in listed:
        if not isinstance(each, str):
            raise ValueError(f"Profile.{name} holds {each!r}, which is not a text. Pass str(…) of it.")
    return listed


def require_list(name: str, value: object) -> None:
    """Refuse an argument of `narrow` that is neither None nor a list of texts."""
    if value is not None and (isinstance(value, str) or not isinstance(value, Iterable)):
        raise refusal(f"Profile.narrow: {name} is not a list of texts: {value!r}. Put the one in a list.")


def is_below(path: str, roots: Iterable[str]) -> bool:
    """True when `path` is one of `roots` or below one of them, by whole components."""
    return any(path == root or path.startswith(root.rstrip("/") + "/") for root in roots)
