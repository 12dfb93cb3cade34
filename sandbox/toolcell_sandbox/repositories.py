"""Whole repositories that a call moved, or removed as far as it could.

A call can move a directory above a repository: the mounts over the protected parts move with it. It cannot remove those
parts, because a mount point is busy (EBUSY). So the audit follows moved repositories and finishes removed ones.
"""

import os

from . import walker
from .gitconfig import NotRead, parse
from .harmless import content
from .protected import GIT_PARTS, GIT_POINTER, quick
from .seen import Look, Seen, as_before
from .walker import Root

_DEPTH = 16  # the most levels of a protected path below its repository or work tree
_RELATIVE = ("core.hookspath", "core.worktree", "include.", "includeif.")


def moved(before: Look, now: Look) -> dict[str, str]:
    """The moved repositories: old path to new path."""
    were = {inode: path for path, inode in before.repositories.items()}
    return {
        old: path
        for path, inode in now.repositories.items()
        if (old := were.get(inode)) is not None and old != path and now.repositories.get(old) != inode
    }


def follow(root: Root, before: Look, now: Look) -> None:
    """Add unchanged paths that were moved with their repository or work tree to `before`, at their new place.

    Repositories whose settings name further files are left out: at the new place, such paths may lead to other files.
    """
    there = {old: new for old, new in moved(before, now).items() if not _name_more(root, new, now)}
    there |= dict(trees for old, new in there.items() if (trees := work_trees(old, new)) is not None)
    for path, was in list(before.found.items()) if there else ():
        above: str = os.path.dirname(path)
        for _ in range(_DEPTH):
            if above in there:
                place = f"{there[above]}{path[len(above) :]}"
                seen = now.found.get(place)
                if seen is not None and as_before(seen, was):
                    before.found[place] = seen
                break
            above = str(os.path.dirname(above))


def work_trees(old: str, new: str) -> tuple[str, str] | None:
    """The old and new work tree of a moved repository, if it is called `.git`; else None."""
    if os.path.basename(old) == os.path.basename(new) == GIT_POINTER and "/" in old and "/" in new:
        return os.path.dirname(old), os.path.dirname(new)
    return None


def _name_more(root: Root, repository: str, now: Look) -> bool:
    for part in ("config", "config.worktree"):
        path = f"{repository}/{part}"
        seen = now.found.get(path)
        raw = content(root, path, seen) if seen is not None else b""
        try:
            if raw is None or any(entry.key.startswith(_RELATIVE) for entry in parse(raw)):
                return True
        except NotRead:
            return True
    return False


def removed(root: Root, before: Look, now: Look) -> dict[str, Seen]:
    """The removed repositories, of which only parts under mounts are left, each with one such part."""
    left: dict[str, Seen] = {}
    for path in before.complete - now.complete if before.complete else ():
        if not path or path not in before.repositories or now.repositories.get(path) != before.repositories[path]:
            continue
        entries = _entries(root, path)
        parts = [seen for name in entries if (seen := now.found.get(f"{path}/{name}")) is not None]
        if parts and all(quick(name) in GIT_PARTS for name in entries):
            left[path] = parts[0]
    return left


def _entries(root: Root, path: str) -> list[str]:
    try:
        fd = root.open(path, walker.LIST)
    except OSError:
        return []  # it was removed meanwhile
    try:
        return os.listdir(fd)
    finally:
        os.close(fd)


def remove_if_empty(root: Root, path: str) -> None:
    """Remove the directory that held a repository, if it is empty."""
    if not path:
        return
    try:
        parent = root.parent(path)
    except OSError:
        return
    try:
        os.rmdir(os.path.basename(path), dir_fd=parent)
    except OSError:
        pass  # it is not empty, or it was removed meanwhile
    finally:
        os.close(parent)
