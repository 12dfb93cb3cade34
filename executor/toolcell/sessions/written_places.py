"""Where the symbolic links on the way to a path lead, and whether a call may have put one of them there."""

import os
from collections.abc import Collection

from toolcell.errors import UsageError

MAX_KEPT = 100_000
"""The most directories that are kept; the oldest is forgotten first."""
_MOST_LINKS = 40  # as the kernel's bound (path_resolution(7))


class WrittenPlaces:
    """The directories in which calls of this supervisor may have put symbolic links: workspaces and writable paths.

    They outlive their sessions. A call could replace a directory in its workspace by a link to any other, and a later
    session whose profile names a path through that directory would be given the other one.
    """

    def __init__(self) -> None:
        self._roots: dict[str, None] = {}

    def add(self, *roots: str) -> None:
        """Keep these real paths."""
        for root in roots:
            self._roots.pop(root, None)
            self._roots[root] = None
        while len(self._roots) > MAX_KEPT:
            del self._roots[next(iter(self._roots))]

    def real(self, what: str, path: str, own: Collection[str] = ()) -> str:
        """The real path of an absolute path, as os.path.realpath gives it. `own` are more such directories. Raises
        UsageError if it passes a link in one of them: `what` names the path there.
        """
        here, rest, links = "/", _parts(path), 0
        while rest:
            part = rest.pop()
            if part == "..":
                here = os.path.dirname(here)
                continue
            place = os.path.join(here, part)
            try:
                target = os.readlink(place)
            except OSError:  # no link, or nothing at all
                here = place
                continue
            links += 1
            if links > _MOST_LINKS:
                raise UsageError(f"{what} has too many symbolic links in it: {path!r}. Pass one without.")
            if _is_in(place, self._roots) or _is_in(place, own):
                raise UsageError(
                    f"{what} passes the symbolic link {place!r}: {path!r}. Calls may write there, so a call may have "
                    f"put it there. If you did, pass the path that it leads to: {os.path.realpath(path)!r}."
                )
            here = "/" if target.startswith("/") else here
            rest += _parts(target)
        return here


def _parts(path: str) -> list[str]:
    """The components of a path, the last one first."""
    return [part for part in reversed(path.split("/")) if part not in ("", ".")]


def _is_in(place: str, roots: Collection[str]) -> bool:
    """Whether a real path lies below one of these."""
    while place != "/":
        place = os.path.dirname(place)
        if place in roots:
            return True
    return False
