"""A cell's options and session, as the supervisor sends them to the init."""

import os
from dataclasses import dataclass, replace
from typing import Any, Self, cast

from toolcell.wire.frames import Field
from toolcell.wire.messages import BindSession, Load
from toolcell_sandbox.trees.protected import protects_below
from toolcell_sandbox.view import Bind


@dataclass(frozen=True, slots=True)
class Options:
    """The options that come with the tools. `Load` documents the fields."""

    environ: dict[str, str]
    scratch: str
    kept: bool
    standby: bool
    unbound: bool
    cpu_s: float
    result_bytes: int
    file_bytes: int
    cwd: str
    writable: tuple[str, ...]
    protected: tuple[str, ...]
    session: dict[str, Field]

    @classmethod
    def of(cls, load: Load) -> Self:
        return cls(**_fields_of(load, "tools"))

    def bound(self, to: BindSession) -> Self:
        """These options with the session of a `BindSession`."""
        return replace(self, **_fields_of(to, "binds"))

    def protects(self, path: str, directory: bool) -> str:
        """The protected name that covers an absolute path, or ""."""
        return protects_below(path, self.writable, self.protected, directory=directory, listed=os.listdir)


def _fields_of(message: Load | BindSession, beside: str) -> dict[str, Any]:
    named: dict[str, Any] = message._asdict()
    del named[beside]
    return {name: tuple(cast("list[str]", value)) if type(value) is list else value for name, value in named.items()}


def binds_of(rows: list[Field]) -> tuple[Bind, ...]:
    """The binds in a message."""
    return tuple(Bind.from_wire(cast("list[Any]", row)) for row in rows)
