"""The targets of protected names: of links, of `.git` files, and of paths in git settings."""

import os
import stat
from dataclasses import replace

from . import walker
from .gitconfig import MAX_BYTES, NotRead, parse
from .harmless import POINTER, POINTER_BYTES, SETTINGS, path_in
from .protected import GIT_ODD, GIT_PARTS, GIT_POINTER
from .seen import DIGEST_BYTES, Found, Look, Names, Seen, as_before, digest_of, doubt_about, facts_of, is_racy, said
from .walker import Budget, Root

_OF_A_REPOSITORY = tuple(GIT_PARTS)


class Targets:
    """The targets of protected links, the repositories of `.git` files, and the hooks and further settings that git
    settings name, if they lie in the tree.

    After a call, only links that existed before it count: a link that the call made may point anywhere.
    """

    def __init__(self, root: Root, look: Look, before: Look | None, budget: Budget) -> None:
        self._prefix = root.path.rstrip("/") + "/"
        self._root, self._look, self._before, self._budget = root, look, before, budget

    def add(self) -> None:
        """Add the targets to the findings of the look."""
        targets: dict[str, Names] = {}
        for path, seen in self._look.found.items():
            if self._before is not None and not _was_there(path, seen, self._before.found):
                continue
            if GIT_ODD in seen.names:
                continue  # a person's link, such as HEAD of an old git: commits write to its target
            if stat.S_ISLNK(seen.mode):
                target = _real_path(self._prefix + path)
                targets[target] = _merged(seen.names, targets.get(target))
            elif GIT_POINTER in seen.names and stat.S_ISREG(seen.mode):
                for repository in _repositories(self._root, path, self._prefix):
                    for part in _OF_A_REPOSITORY:
                        owner = (f"{GIT_POINTER}/{part}" if name == GIT_POINTER else "" for name in seen.names)
                        target = f"{repository}/{part}"
                        targets[target] = _merged(tuple(owner), targets.get(target))
            elif stat.S_ISREG(seen.mode) and any(name in SETTINGS for name in seen.names):
                for part, place in _named_by(self._root, path, self._prefix):
                    names: Names = tuple(GIT_PARTS[part] if name else "" for name in seen.names)
                    targets[place] = _merged(targets.get(place, names), names)
        for target, names in targets.items():
            if target.startswith(self._prefix):
                self._add_all(target[len(self._prefix) :], names)

    def _add_all(self, path: str, names: Names) -> None:
        todo = [path]
        while todo:
            each = todo.pop()
            try:
                todo += [f"{each}/{name}" for name in self._add_one(each, names)]
            except (FileNotFoundError, NotADirectoryError):
                pass  # a link may lead nowhere
            except OSError as error:
                self._look.unknown = self._look.unknown or said(error, each)

    def _add_one(self, path: str, names: Names) -> list[str]:
        """Add one target. Returns the entries of a directory."""
        self._budget.spend("protected names")
        self._budget.spend("bytes of paths", len(path))
        parent, name = self._root.parent(path), os.path.basename(path)
        try:
            info = os.stat(name, dir_fd=parent, follow_symlinks=False)
            directory = stat.S_ISDIR(info.st_mode)
            racy = not directory and is_racy(info)
            small = not directory and (racy or info.st_size <= DIGEST_BYTES)
            digest = digest_of(name, parent, info) if small and self._budget.may_read(info) else b""
            if racy and not digest:
                self._look.doubt = doubt_about(path)
            found = self._look.found.setdefault(path, Seen(names, *facts_of(info), racy=racy, digest=digest))
            self._look.found[path] = replace(found, names=_merged(found.names, names))
            return _names_in(name, parent) if directory else []
        finally:
            os.close(parent)


def _merged(names: Names, others: Names | None) -> Names:
    """The names of a path that is protected for two reasons: for each vocabulary that in `names`, or else that in
    `others`."""
    return names if others is None else tuple(name or other for name, other in zip(names, others, strict=True))


def _was_there(path: str, seen: Seen, before: Found) -> bool:
    was = before.get(path)
    return was is not None and as_before(seen, was)


def _names_in(name: str, parent: int) -> list[str]:
    fd = os.open(name, walker.LIST, dir_fd=parent)
    try:
        return os.listdir(fd)
    finally:
        os.close(fd)


def _repositories(root: Root, pointer: str, prefix: str) -> list[str]:
    """The repository that a `.git` file names, and its common directory (gitrepository-layout(5))."""
    said = _first_bytes(root, pointer)
    if not said.startswith(POINTER):
        return []
    own = _real_path(os.path.join(os.path.dirname(prefix + pointer), path_in(said[len(POINTER) :])))
    try:
        with Root(own) as repository:
            common = path_in(_first_bytes(repository, "commondir"))
    except OSError:
        return [own]
    return [own, _real_path(os.path.join(own, common))] if common else [own]


def _named_by(root: Root, path: str, prefix: str) -> list[tuple[str, str]]:
    """The hooks directories and further settings that git settings name. A relative directory begins at the work tree,
    or at a bare repository."""
    try:
        entries = parse(_first_bytes(root, path, MAX_BYTES + 1))
    except NotRead:
        return []  # it is protected as a whole
    repository = os.path.dirname(prefix + path)
    named: list[tuple[str, str]] = []
    for entry in entries:
        if entry.key == "core.hookspath":
            for base in (os.path.dirname(repository), repository):
                named.append(("hooks", os.path.join(base, entry.value or "")))
        elif entry.key == "include.path" or (entry.key.startswith("includeif.") and entry.key.endswith(".path")):
            named.append(("config", os.path.join(repository, entry.value or "")))
    return [(part, _real_path(place)) for part, place in named]


def _real_path(path: str) -> str:
    """The real path; "" if the path leads nowhere."""
    try:
        return walker.real_path(path)
    except OSError:
        return ""


def _first_bytes(root: Root, path: str, most: int = POINTER_BYTES) -> bytes:
    try:
        held = root.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return b""  # gone, unreadable, or a file type that git does not read
    try:
        return walker.content(held, most)
    except OSError:
        return b""
    finally:
        os.close(held)
