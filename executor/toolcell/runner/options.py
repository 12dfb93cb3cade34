"""How a cell works and whose it is, as the supervisor tells its init."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Self, cast

from toolcell.wire.frames import Field
from toolcell_sandbox.protected import protects_below
from toolcell_sandbox.view import Bind


@dataclass(frozen=True, slots=True)
class Options:
    """What comes with the tools."""

    environ: dict[str, str]
    cwd: str
    scratch: str  # the private directory that is emptied after each call, "" where there is none
    kept: bool  # one process over the calls of the session
    standby: bool  # fork the next call process ahead
    unfinished: bool  # whose it is comes later, and the paths that go with that: `Finish`
    cpu_s: float
    result_bytes: int
    file_bytes: int
    writable: tuple[str, ...]
    protected: tuple[str, ...]  # names that may not be made or changed below those
    session: dict[str, Field]  # what is the same in the contexts of all its calls

    @classmethod
    def from_wire(cls, fields: Mapping[str, Field]) -> Self:
        return cls(**_read(fields))

    def changed(self, fields: Mapping[str, Field]) -> Self:
        """With what has been said since."""
        return replace(self, **_read(fields))

    def protects(self, path: str, directory: bool) -> str:
        """The protected name that holds for an absolute path."""
        return protects_below(path, self.writable, self.protected, directory=directory)


def _read(fields: Mapping[str, Field]) -> dict[str, Any]:
    return {name: tuple(value) if type(value) is list else value for name, value in fields.items()}


def binds_of(rows: list[Field]) -> tuple[Bind, ...]:
    """The last paths of an unfinished cell: each may have bytes that are no text."""
    given = cast("list[tuple[bytes, bool, bool]]", rows)
    return tuple(Bind(os.fsdecode(path), writable, directory, (0, 0), None) for path, writable, directory in given)
