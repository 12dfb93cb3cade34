"""SentWorkspaces: how workspaces are sent to the nodes of a cluster, and what comes back."""

from collections.abc import Iterable
from pathlib import Path
from typing import Final, Literal

from toolcell.errors import UsageError
from toolcell.rules import misuse
from toolcell.workplaces.exclusions import DEFAULT_EXCLUDED, Exclusions
from toolcell.workplaces.workspace_return import ConflictPolicy
from toolcell_sandbox.errors import named
from toolcell_sandbox.trees.judge import MAX_DEPTH

__all__ = ["SentWorkspaces", "WorkspaceTooLarge"]

MIB: Final = 1024 * 1024
GIB: Final = 1024 * MIB
POLICIES: Final = ("ours", "theirs", "beside")


class WorkspaceTooLarge(UsageError):
    """A workspace is over the bounds of `SentWorkspaces`. `parts` are its largest directories and files, in descending
    order, each as `(path, bytes, entries)`."""

    def __init__(self, message: str, parts: Iterable[tuple[str, int, int]] = ()) -> None:
        super().__init__(message)
        self.parts = tuple(parts)


class SentWorkspaces:
    """`RayCluster(workspaces=SentWorkspaces())` sends each session's workspace to its node, and writes the session's
    changes back.

    - `max_bytes` (default: 1 GiB), `max_files` (default: 50,000 files, directories and links) and `max_depth` (default:
      64, at most 100) bound a workspace, and also the changes that come back.
    - `exclude` are patterns as in gitignore(5). They follow the patterns of `DEFAULT_EXCLUDED`. A pattern with `!` can
      overrule one of these. With `gitignore`, the workspace's own `.gitignore` files count too.
    - `conflicts` decides about a file that has changed both in the session and here. "ours" keeps the file here.
      "theirs" takes the session's file. "beside" keeps the file here, and writes the session's file beside it, as
      `NAME.theirs`. Each conflict is reported.
    - `base` is a directory whose files are in each copy too. A file of the workspace hides the file of `base` at the
      same path. `base` is read once, and nothing is written to it, so many attempts can begin from one base.
    - `directory` is where each node keeps contents and copies, by default a directory of its own below /var/tmp.
    - `store_bytes` (default: 4 GiB) bounds the contents that a node keeps. The least recently used are evicted first.

    The first driver's values of `directory` and `store_bytes` hold. The start of a driver with other values raises
    UsageError. Wrong arguments raise UsageError.
    """

    @named
    def __init__(
        self,
        *,
        max_bytes: int = GIB,
        max_files: int = 50_000,
        max_depth: int = 64,
        exclude: Iterable[str] = (),
        gitignore: bool = False,
        conflicts: ConflictPolicy = "ours",
        base: str | Path | None = None,
        directory: str | None = None,
        store_bytes: int = 4 * GIB,
    ) -> None:
        how = "Pass a number above 0."
        self.max_bytes = misuse.count("max_bytes", max_bytes, how)
        self.max_files = misuse.count("max_files", max_files, how)
        self.max_depth = min(misuse.count("max_depth", max_depth, how), MAX_DEPTH)
        self.exclusions = Exclusions.of([*DEFAULT_EXCLUDED, *misuse.items("exclude", exclude, "'*.log'")])
        self.gitignore = bool(gitignore)
        if conflicts not in POLICIES:
            raise UsageError(f"conflicts is not 'ours', 'theirs' or 'beside': {conflicts!r}.")
        self.conflicts: ConflictPolicy = conflicts
        self.base = None if base is None else misuse.path("base", base)
        misuse.check_texts(directory=directory)
        self.directory = directory
        self.store_bytes = misuse.count("store_bytes", store_bytes, how)

    def __repr__(self) -> str:
        return f"<SentWorkspaces up to {self.max_bytes:,} bytes in {self.max_files:,} files>"

    @classmethod
    def of(cls, workspaces: "Literal['shared', 'local', 'sent'] | SentWorkspaces") -> "SentWorkspaces | None":
        """The options behind an argument of `RayCluster`; None if workspaces are not sent. Raises UsageError."""
        if isinstance(workspaces, SentWorkspaces):
            return workspaces
        if workspaces not in ("shared", "local", "sent"):
            raise UsageError(f"workspaces is not 'shared', 'local', 'sent' or SentWorkspaces(…): {workspaces!r}.")
        return cls() if workspaces == "sent" else None
