"""Whole repositories that a call moved, or removed as far as it could, and those whose remotes it changed.

A call can move a directory above a repository: the mounts over the protected parts move with it. It cannot remove those
parts, because a mount point is busy (EBUSY). So the audit follows moved repositories and finishes removed ones.
"""

import os

from . import git_settings, walker
from .facts import Look, Seen, as_before
from .git_allowed import SETTINGS, content
from .git_settings import NotRead, parse
from .protected import GIT_PARTS, GIT_POINTER, quick
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


def redirected(
    root: Root, settings: dict[str, tuple[Seen, bytes]], before: Look, now: Look
) -> dict[str, tuple[str, ...]]:
    """The repositories whose settings were changed so that a fetch or a push may go elsewhere: from a changed file of
    each to the keys.

    `settings` has the facts and the content of files before the call. The files of a repository are compared together,
    because a new `config.worktree` overrides `config`. With each go the files outside of all repositories, which may
    be included.
    """
    of_repository: dict[str, set[str]] = {}
    files = {
        path: seen for path, seen in now.found.items() if settings and any(name in SETTINGS for name in seen.names)
    }
    for path in settings:
        of_repository.setdefault(_repository_of(path), set()).add(path)
    repositories = {*before.repositories, *now.repositories}
    included = {path for path in {*settings, *files} if _repository_of(path) not in repositories}
    for path in files.keys() - included:
        if (known := of_repository.get(_repository_of(path))) is not None:
            known.add(path)
    found: dict[str, tuple[str, ...]] = {}
    for repository, own in of_repository.items():
        paths = sorted(own | included if repository in repositories else own)
        old = {path: settings[path][1] for path in paths if path in settings}
        new = {path: old.get(path, b"") for path in paths if path in files}
        were = {path: settings[path][0] if path in old else before.found.get(path) for path in new}
        changed = [path for path, was in were.items() if was is None or not as_before(files[path], was)]
        new |= {path: content(root, path, files[path]) or b"" for path in changed}
        if changed and (keys := git_settings.redirected(b"\n".join(old.values()), b"\n".join(new.values()))):
            found[changed[0]] = keys
    return found


def _repository_of(path: str) -> str:
    """The repository whose settings a file of settings belongs to: its own, or the one of its linked work tree."""
    own = os.path.dirname(path)
    above, _, kind = os.path.dirname(own).rpartition("/")
    return above if kind == "worktrees" else own
