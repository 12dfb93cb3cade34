"""The report of the sandbox mechanisms of this machine."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from .errors import SandboxError

TYPE_CHECKING = False  # checkers know this name; importing typing would cost milliseconds
if TYPE_CHECKING:
    from typing import Any, Literal

    from .identity import Mode

    State = Literal["on", "missing", "substituted"]

NAMES = [
    "user_namespace",
    "mount_namespace",
    "pid_namespace",
    "net_namespace",
    "ipc_namespace",
    "uts_namespace",
    "cgroup_namespace",
    "mount_setattr",
    "idmapped_mounts",
    "pivot_root",
    "proc",
    "landlock",
    "landlock_net",
    "landlock_scope",
    "seccomp",
    "no_new_privs",
    "close_range",
    "pidfd",
    "cgroup",
]

PARTS = {
    "mount_setattr": "mount_namespace",
    "idmapped_mounts": "mount_namespace",
    "pivot_root": "mount_namespace",
    "landlock_net": "landlock",
    "landlock_scope": "landlock",
}
"""The mechanisms that are parts of others: they may be missing if the other one may."""


@dataclass(frozen=True, slots=True)
class Mechanism:
    """One mechanism: on, missing, or substituted (by a weaker one, which `detail` names)."""

    name: str
    state: "State"
    detail: str = ""
    errno: int = 0
    cure: str = ""


def wholes(mechanisms: Iterable[Mechanism]) -> list[Mechanism]:
    """The mechanisms, without any that is part of another one listed."""
    all = list(mechanisms)
    names = {mechanism.name for mechanism in all}
    return [mechanism for mechanism in all if PARTS.get(mechanism.name) not in names]


def by_cure(mechanisms: Iterable[Mechanism]) -> dict[str, list[Mechanism]]:
    """The mechanisms by their cure, in order. A part of another mechanism is listed with that one."""
    found: dict[str, list[Mechanism]] = {}
    for mechanism in wholes(mechanisms):
        found.setdefault(mechanism.cure, []).append(mechanism)
    return found


def _are_missing(mechanisms: list[Mechanism]) -> str:
    names = ", ".join(mechanism.name for mechanism in mechanisms)
    return f"{names} {'is' if len(mechanisms) == 1 else 'are'} missing"


@dataclass(frozen=True)
class SandboxReport:
    """The mechanisms of this machine for one identity mode ("root", "rootless", "userns-root")."""

    mechanisms: tuple[Mechanism, ...]
    identity: "Mode"

    @property
    def on(self) -> frozenset[str]:
        """The names of the mechanisms that are on."""
        return frozenset(mechanism.name for mechanism in self.mechanisms if mechanism.state == "on")

    @property
    def missing(self) -> tuple[Mechanism, ...]:
        """The mechanisms that are missing, in order."""
        return tuple(mechanism for mechanism in self.mechanisms if mechanism.state == "missing")

    def get(self, name: str) -> Mechanism | None:
        """The mechanism of that name; None if it does not apply to this identity mode."""
        return next((mechanism for mechanism in self.mechanisms if mechanism.name == name), None)

    def require(self, allow_missing: Iterable[str] = ()) -> None:
        """Raise one SandboxError for all missing mechanisms that are not in `allow_missing`, alone or as a part of
        another.

        The error's mechanism and errno are those of the first one. Its cure ends with the whole `allow_missing` to
        pass, and with the promises that this gives up.
        """
        allowed = frozenset(allow_missing)
        unknown = allowed - set(NAMES)
        if unknown:
            raise ValueError(f"allow_missing names no mechanism: {sorted(unknown)[0]!r}. Known: {', '.join(NAMES)}.")
        lost = {mechanism.name for mechanism in self.missing}
        refused = [
            mechanism
            for mechanism in self.missing
            if mechanism.name not in allowed and PARTS.get(mechanism.name) not in allowed & lost
        ]
        if refused:
            groups = by_cure(refused)
            said = [f"{_are_missing(group)}: {group[0].detail}" for group in groups.values()]
            error = SandboxError(
                f"The sandbox mechanism{'s' * (len(refused) > 1)} {'; '.join(said)}",
                step="require",
                mechanism=refused[0].name,
                cure=" ".join([*filter(None, groups), f"Or pass {self.do_without()}"]),
            )
            error.errno = refused[0].errno  # `detail` has its text already
            raise error

    def do_without(self) -> str:
        """The `allow_missing` with which a cell can be made here, and the promises that it gives up."""
        from .promises import lost  # only errors and the doctor need it

        names = ", ".join(repr(mechanism.name) for mechanism in wholes(self.missing))
        missing = frozenset(mechanism.name for mechanism in self.missing)
        return f"allow_missing={{{names}}}. {lost(self.on, missing)}".rstrip()

    def changed(self, *mechanisms: Mechanism) -> "SandboxReport":
        """A copy with these mechanisms, which replace those of the same name."""
        by_name = {mechanism.name: mechanism for mechanism in (*self.mechanisms, *mechanisms)}
        return SandboxReport(tuple(by_name.values()), self.identity)

    def to_wire(self) -> dict[str, object]:
        """Only strings, ints, lists and dicts."""
        names = Mechanism.__slots__
        rows = [{name: getattr(mechanism, name) for name in names} for mechanism in self.mechanisms]
        return {"identity": self.identity, "mechanisms": rows}

    @classmethod
    def from_wire(cls, wire: "Mapping[str, Any]") -> "SandboxReport":
        """The inverse of `to_wire`."""
        return cls(tuple(Mechanism(**row) for row in wire["mechanisms"]), str(wire["identity"]))  # type: ignore[arg-type]

    def __str__(self) -> str:
        lines = [f"sandbox as {self.identity}"]
        for mechanism in self.mechanisms:
            line = f"  {mechanism.name:<18} {mechanism.state:<12} {mechanism.detail}".rstrip()
            lines.append(f"{line}. {mechanism.cure}" if mechanism.state == "missing" and mechanism.cure else line)
        return "\n".join(lines)
