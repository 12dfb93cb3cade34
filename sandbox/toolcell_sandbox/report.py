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
        """Raise SandboxError for the first missing mechanism that `allow_missing` does not name, nor its whole."""
        allowed = frozenset(allow_missing)
        unknown = allowed - set(NAMES)
        if unknown:
            raise ValueError(f"allow_missing names no mechanism: {sorted(unknown)[0]!r}. Known: {', '.join(NAMES)}.")
        lost = {mechanism.name for mechanism in self.missing}
        for mechanism in self.missing:
            if mechanism.name not in allowed and PARTS.get(mechanism.name) not in allowed & lost:
                error = SandboxError(
                    f"The sandbox mechanism {mechanism.name} is missing: {mechanism.detail}",
                    step="require",
                    mechanism=mechanism.name,
                    cure=f"{mechanism.cure} Or pass allow_missing={{{mechanism.name!r}}}.".strip(),
                )
                error.errno = mechanism.errno  # the detail says it in words already
                raise error

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
