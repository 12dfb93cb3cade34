"""What came back from a workspace that was sent to a node of a cluster: files, and conflicts."""

from typing import Literal

from pydantic import BaseModel, ConfigDict

__all__ = ["ConflictPolicy", "FileConflict", "FileVersion", "LeftOut", "WorkspaceReturn"]

ConflictPolicy = Literal["ours", "theirs", "beside"]
"""Which file stays where two have changed: the one here, the session's, or both."""


class _ReturnPart(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class FileVersion(_ReturnPart):
    """One version of an entry. `digest` is "sha256:<hex>" of a file, `target` that of a link. "other" is a device, a
    socket or a FIFO."""

    kind: Literal["file", "directory", "link", "other"]
    size: int = 0
    digest: str = ""
    target: str = ""
    executable: bool = False


class FileConflict(_ReturnPart):
    """A path that the session has changed and that is not as it was sent. None stands for a missing entry.

    `base` is what was sent, `ours` what is here now, `theirs` what the session has left. `kept` says which one is at
    the path now, and `beside` where the session's is, if it was written beside it. `why` is the reason."""

    path: str
    base: FileVersion | None
    ours: FileVersion | None
    theirs: FileVersion | None
    kept: Literal["ours", "theirs"]
    beside: str = ""
    why: str = ""


class LeftOut(_ReturnPart):
    """A change of the session that was not written, and why."""

    path: str
    why: str


class WorkspaceReturn(_ReturnPart):
    """What was written into the workspace here. `created`, `changed` and `deleted` are paths of files and links.

    `left_out` names at most 1,000 of `left_out_count` changes that were not written: protected names, links that lead
    out of the workspace, special files, and what is over the bounds. `unknown` says why changes may be missing, "" if
    none is: for example because the node was lost. Bytes in paths that are not UTF-8 are escaped."""

    created: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    deleted: tuple[str, ...] = ()
    conflicts: tuple[FileConflict, ...] = ()
    left_out: tuple[LeftOut, ...] = ()
    left_out_count: int = 0
    unknown: str = ""

    def __bool__(self) -> bool:
        """Whether there is anything to tell."""
        return bool(
            self.created or self.changed or self.deleted or self.conflicts or self.left_out_count or self.unknown
        )
