"""What this machine offers, mechanism by mechanism."""

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
"""What is a part of another mechanism, and allowed to be missing with it."""


@dataclass(frozen=True, slots=True)
class Mechanism:
    """One mechanism: on, missing, or substituted (something weaker, which `detail` names, stands in)."""

    name: str
    state: "State"
    detail: str = ""
    errno: int = 0
    cure: str = ""


def wholes(mechanisms: Iterable[Mechanism]) -> list[Mechanism]:
    """These mechanisms without the parts of others among them."""
    all = list(mechanisms)
    names = {mechanism.name for mechanism in all}
    return [mechanism for mechanism in all if PARTS.get(mechanism.name) not in names]


def by_cure(mechanisms: Iterable[Mechanism]) -> dict[str, list[Mechanism]]:
    """The mechanisms by what cures them, in order; a part of another one goes with its whole."""
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
        """Names of the mechanisms that are on."""
        return frozenset(mechanism.name for mechanism in self.mechanisms if mechanism.state == "on")

    @property
    def missing(self) -> tuple[Mechanism, ...]:
        """The mechanisms that are missing, in order."""
        return tuple(mechanism for mechanism in self.mechanisms if mechanism.state == "missing")

    def get(self, name: str) -> Mechanism | None:
        """The mechanism of that name; None when it does not apply to this identity mode."""
        return next((mechanism for mechanism in self.mechanisms if mechanism.name == name), None)

    def require(self, allow_missing: Iterable[str] = ()) -> None:
        """Raise one SandboxError for all missing mechanisms that `allow_missing` does not name, nor their whole.

        The error's mechanism and errno are the first one's; its cure ends with the whole `allow_missing` to pass, and
        with the promises that are given up for it.
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
            error.errno = refused[0].errno  # the detail says it in words already
            raise error

    def do_without(self) -> str:
        """The `allow_missing` under which a cell is made here, and what is given up for it."""
        from .promises import lost  # which only errors and the doctor need

        names = ", ".join(repr(mechanism.name) for mechanism in wholes(self.missing))
        missing = frozenset(mechanism.name for mechanism in self.missing)
        return f"allow_missing={{{names}}}. {lost(self.on, missing)}".rstrip()

    def changed(self, *mechanisms: Mechanism) -> "SandboxReport":
        """A copy in which these mechanisms replace those of the same name, or are added."""
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
