"""Decide which of a session's changes may be written into the driver's workspace. A hostile cell may have made them."""

import os
from collections.abc import Iterable, Mapping

from toolcell_sandbox.trees import walker
from toolcell_sandbox.trees.protected import REPOSITORY_MARKS, folded, protects_below, reason_of
from toolcell_sandbox.trees.walker import Root

from .exclusions import Exclusions
from .manifest import SentEntry, is_sound

__all__ = ["Judge", "leads_out"]

MOST_NAMES = 100_000
"""The most entries of a directory that are searched for the marks of a repository."""


class Judge:
    """Decides for one workspace, whose root is open. `made` are the session's new and changed entries."""

    def __init__(
        self, root: Root, made: Mapping[str, SentEntry], protected: Iterable[str], exclusions: Exclusions
    ) -> None:
        self._root = root
        self._protected = tuple(protected)
        self._exclusions = exclusions
        self._made: dict[str, list[str]] = {}
        for path in made:
            above, _, name = path.rpartition("/")
            self._made.setdefault(above, []).append(name)
        self._listed: dict[str, list[str]] = {}

    def objection(self, path: str, entry: SentEntry | None) -> str:
        """The reason why this change is not written, "" if it may be. `entry` is None if the path was deleted."""
        if not is_sound(path):
            return "it is no path below the workspace"
        kind = "" if entry is None else entry.kind
        is_directory, is_link = kind == "directory", kind == "link"
        if self._exclusions.covers(path, is_directory=is_directory):
            return "it is excluded from what is sent"
        name = protects_below(
            f"/{path}", ["/"], self._protected, directory=is_directory, link=is_link, listed=self._names
        )
        if name:
            return f"the name {name} is protected: {reason_of(name)}"
        if entry is not None and is_link and leads_out(path, entry.content):
            return "the link leads, or may lead, out of the workspace"
        return ""

    def _names(self, path: str) -> list[str]:
        """The names in a directory that mark a repository, here and on the node together."""
        path = path.strip("/")
        names = self._listed.get(path)
        if names is None:
            here = {*self._here(path), *self._made.get(path, ())}
            names = self._listed[path] = [name for name in here if folded(name) in REPOSITORY_MARKS]
        return names

    def _here(self, path: str) -> list[str]:
        try:
            fd = self._root.open(path, walker.LIST)
        except OSError:
            return []
        try:
            with os.scandir(fd) as scan:
                return [each.name for each, _ in zip(scan, range(MOST_NAMES), strict=False)]
        finally:
            os.close(fd)


def leads_out(path: str, target: bytes) -> bool:
    """Whether a link at this path may lead out of the workspace: its target is absolute, goes up too far, or goes up
    after it has gone down, where another link may be in between."""
    if not target or target.startswith(b"/"):
        return True
    parts = [part for part in target.split(b"/") if part not in (b"", b".")]
    ups = next((count for count, part in enumerate(parts) if part != b".."), len(parts))
    return ups > path.count("/") or b".." in parts[ups:]
