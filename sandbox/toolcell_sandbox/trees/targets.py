"""The targets of protected names: of links, of `.git` files, and of paths in git settings."""

import os
import stat
from dataclasses import replace

from . import walker
from .facts import (
    DIGEST_BYTES,
    Found,
    Look,
    Names,
    Seen,
    as_before,
    digest_of,
    doubt_about,
    facts_of,
    is_as,
    is_racy,
    said,
)
from .git_allowed import POINTER, POINTER_BYTES, SETTINGS, path_in
from .git_settings import MAX_BYTES, naming
from .protected import GIT_ODD, GIT_PARTS, GIT_POINTER
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
                for target, part in self._of_pointer(path).items():
                    owner = (GIT_PARTS[part] if name == GIT_POINTER else "" for name in seen.names)
                    targets[target] = _merged(tuple(owner), targets.get(target))
            elif stat.S_ISREG(seen.mode) and any(name in SETTINGS for name in seen.names):
                whole = self._prefix + path
                for place, part in self._named_by(whole, self._work_trees(os.path.dirname(whole))).items():
                    names: Names = tuple(GIT_PARTS[part] if name else "" for name in seen.names)
                    targets[place] = _merged(targets.get(place, names), names)
        for target, names in targets.items():
            if target.startswith(self._prefix):
                self._add_all(target[len(self._prefix) :], names)

    def _of_pointer(self, pointer: str) -> dict[str, str]:
        """The protected parts of the repository that a `.git` file names, and what the settings of a repository outside
        of the tree name in it: path to part. Settings in the tree are findings of their own."""
        named: dict[str, str] = {}
        tree = os.path.dirname(self._prefix + pointer)
        for repository in self._repositories(pointer, tree):
            parts = {f"{repository}/{part}": part for part in _OF_A_REPOSITORY}
            for place, part in parts.items() if not repository.startswith(self._prefix) else ():
                if GIT_PARTS[part] in SETTINGS:
                    named |= self._named_by(place, [tree])
            named |= parts
        return named

    def _repositories(self, pointer: str, tree: str) -> list[str]:
        """The repository that a `.git` file names, and its common directory (gitrepository-layout(5))."""
        said = self._first_bytes(self._prefix + pointer)
        if not said.startswith(POINTER):
            return []
        own = _real_path(os.path.join(tree, path_in(said[len(POINTER) :])))
        common = path_in(self._first_bytes(f"{own}/commondir"))
        return [own, _real_path(os.path.join(own, common))] if common else [own]

    def _named_by(self, settings: str, trees: list[str]) -> dict[str, str]:
        """The hooks directories and further settings that git settings name, and those that the latter name: path to
        part. A relative hooks directory begins at a work tree, or at a bare repository."""
        named: dict[str, str] = {}
        hooks: list[str] = []
        todo = [settings]
        for each in todo:
            above = os.path.dirname(each)
            for key, value in naming(self._first_bytes(each, MAX_BYTES + 1)):
                if key == "core.hookspath":
                    hooks.append(value)
                elif key == "core.worktree":
                    trees.append(os.path.join(os.path.dirname(settings), value))
                elif (place := _real_path(os.path.join(above, value))) not in named:
                    named[place] = "config"
                    if self._may_follow(place):
                        todo.append(place)
        return named | dict.fromkeys(
            (_real_path(os.path.join(tree, value)) for value in hooks for tree in trees), "hooks"
        )

    def _may_follow(self, settings: str) -> bool:
        """Whether no call has changed them: they are outside of the tree, or as they were before the call."""
        if self._before is None or not settings.startswith(self._prefix):
            return True
        path = settings[len(self._prefix) :]
        was = self._before.found.get(path)
        try:
            return was is not None and is_as(self._root.stat(path), was)
        except OSError:
            return False

    def _work_trees(self, repository: str) -> list[str]:
        """Where the work tree of a repository can be, the repository itself, and its linked work trees."""
        links = [f"{repository}/gitdir"]
        try:
            fd = self._root.open(f"{repository}/worktrees"[len(self._prefix) :], walker.LIST)
            try:
                links += [f"{repository}/worktrees/{name}/gitdir" for name in os.listdir(fd)]
            finally:
                os.close(fd)
        except OSError:
            pass  # it has none
        trees = [os.path.dirname(repository), repository]
        for link in links:
            self._budget.entry()
            if pointer := path_in(self._first_bytes(link)):
                trees.append(os.path.dirname(os.path.join(os.path.dirname(link), pointer)))
        return trees

    def _first_bytes(self, path: str, most: int = POINTER_BYTES) -> bytes:
        """The beginning of a file; b"" if it is gone or unreadable, or has a type that git does not read."""
        flags = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            if path.startswith(self._prefix):
                held = self._root.open(path[len(self._prefix) :], flags)
            else:
                with Root(os.path.dirname(path)) as above:
                    held = above.open(os.path.basename(path), flags)
        except OSError:
            return b""
        try:
            return walker.content(held, most)
        except OSError:
            return b""
        finally:
            os.close(held)

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


def _real_path(path: str) -> str:
    """The real path; "" if the path leads nowhere."""
    try:
        return walker.real_path(path)
    except OSError:
        return ""
