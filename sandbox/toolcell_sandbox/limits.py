"""The limits of a call."""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from dataclasses import replace as _replace

from .errors import refusal, refusing

MIB = 1024 * 1024
GRACE_SHARE = 0.2  # the grace is at most this share of a call's time, so a short call is not cancelled at once


@refusing
@dataclass(frozen=True, kw_only=True)
class Limits:
    """Limits of one call: seconds as floats, sizes in bytes, the rest counts. Every value is positive and finite."""

    wall_s: float = 30.0
    """Wall time of the call; the supervisor's clock decides. (sandbox2 uses 120 s, nsjail 600 s.)"""
    cpu_s: float = 30.0
    """CPU time of the call with all its children."""
    memory_bytes: int = 512 * MIB
    """Memory of the cell: of its cgroup, or without one the sum of its processes, measured every 50 ms."""
    processes: int = 64
    """Processes and threads of the call."""
    open_files: int = 256
    """Open file descriptors of each process."""
    file_bytes: int = 64 * MIB
    """Size of each file that the call writes."""
    scratch_bytes: int = 64 * MIB
    """Size of the private /tmp."""
    scratch_inodes: int = 4096
    """Files and directories in the private /tmp. (go-judge uses 4,096.)"""
    output_bytes: int = MIB
    """Standard output and standard error, each."""
    result_bytes: int = 16 * MIB
    """The encoded result."""
    start_s: float = 20.0
    """Wall time for a cell to start, the tools' imports included."""
    grace_s: float = 2.0
    """Time that a tool has to end by itself after `ctx.cancelled` is set: before the deadline (at most a fifth of the
    call's time), and after the close of its session. (The MCP SDKs wait 2 s between SIGTERM and SIGKILL.)"""

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            timed = name.endswith("_s")
            if isinstance(value, bool) or not isinstance(value, (int, float) if timed else int):
                wanted = "a number of seconds" if timed else "a whole number"
                raise ValueError(f"Limits.{name} is not {wanted}: {value!r}. Pass {wanted} above zero.")
            if isinstance(value, int) and value >= 1 << 62:  # what system calls and frames can hold
                raise ValueError(f"Limits.{name} is 2**62 or more. Pass a smaller value.")
            if value <= 0 or not math.isfinite(value):
                raise ValueError(f"Limits.{name} is not positive and finite: {value!r}. Pass a value above zero.")

    def replace(self, **changes: float) -> "Limits":
        """A copy with these fields changed."""
        return _replace(self, **changes)  # type: ignore[arg-type]  # int fields are checked when the copy is made

    def narrow(self, other: "Limits") -> "Limits":
        """The smaller of the two, field by field."""
        if not isinstance(other, Limits):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise refusal(f"Limits.narrow was given no Limits: {other!r}. Pass Limits(wall_s=…).")
        return Limits(
            **{field.name: min(getattr(self, field.name), getattr(other, field.name)) for field in fields(self)}
        )

    def is_within(self, other: "Limits") -> bool:
        """True if no field is above the other's."""
        return all(getattr(self, field.name) <= getattr(other, field.name) for field in fields(self))

    def to_wire(self) -> dict[str, object]:
        """Ints and floats by field name."""
        return asdict(self)

    @classmethod
    def from_wire(cls, wire: Mapping[str, object]) -> "Limits":
        """The inverse of `to_wire`. Raises ValueError for an unknown field or a bad value."""
        unknown = wire.keys() - cls.__dataclass_fields__.keys()
        if unknown:
            raise ValueError(f"Limits has no such field: {sorted(unknown)[0]!r}. Remove it.")
        return cls(**wire)  # type: ignore[arg-type]  # __post_init__ checks every value
