"""Judge what a hostile tree elsewhere sends back: which of its changes may be written into a workspace here.

A cell may have made any of them. So a change is refused if its path is not below the workspace, if it is excluded, if
its name is protected here, or in a repository that stands here and there together, and if it is a link that may lead
out of the workspace. What becomes protected only by the changes themselves is left to an audit after they are written.
"""

import os
from collections.abc import Callable, Iterable

from . import walker
from .protected import REPOSITORY_MARKS, folded, protects_below, reason_of
from .walker import Root

MAX_PATH_BYTES = 3_000
"""The longest path below a workspace, in bytes. Together with a node's directory, it fits PATH_MAX (4,096)."""
MAX_DEPTH = 100
MOST_NAMES = 100_000
"""The most entries of a directory that are searched for the marks of a repository."""


def is_sound(path: object) -> bool:
    """Whether the path stays below the directory that it is relative to, and is within the bounds."""
    if not isinstance(path, str) or not path or "\0" in path or path.count("/") >= MAX_DEPTH:
        return False
    try:
        if len(path.encode("utf-8", "surrogateescape")) > MAX_PATH_BYTES:
            return False
    except UnicodeEncodeError:
        return False
    return not any(part in ("", ".", "..") for part in path.split("/"))


class UnstableFile(Exception):
    """A file changed while it was read."""


class Judge:
    """Decides for one workspace, whose root is open. `made` are the paths of new and changed entries. `excludes` says
    of a path, and whether it is a directory, that it takes no part in the exchange."""

    def __init__(
        self, root: Root, made: Iterable[str], protected: Iterable[str], excludes: Callable[[str, bool], bool]
    ) -> None:
        self._root = root
        self._protected = tuple(protected)
        self._excludes = excludes
        self._made: dict[str, list[str]] = {}
        for path in made:
            above, _, name = path.rpartition("/")
            self._made.setdefault(above, []).append(name)
        self._listed: dict[str, list[str]] = {}

    def objection(self, path: str, kind: str, target: bytes = b"") -> str:
        """The reason why this change is not written, "" if it may be. `kind` is "file", "directory" or "link", with its
        target; "" if the path was deleted."""
        if not is_sound(path):
            return "it is no path below the workspace"
        is_directory, is_link = kind == "directory", kind == "link"
        if self._excludes(path, is_directory):
            return "it is excluded from what is sent"
        name = protects_below(
            f"/{path}", ["/"], self._protected, directory=is_directory, link=is_link, listed=self._names
        )
        if name:
            return f"the name {name} is protected: {reason_of(name)}"
        if is_link and leads_out(path, target):
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
