"""Walk a directory tree in the order of its paths, without what .gitignore files leave out."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from toolcell_tools.failures import ToolFailure
from toolcell_tools.paths import failure_of
from toolcell_tools.workspace import WorkspaceReader

from .ignore import MAX_BYTES, NOTHING, Ignored

__all__ = ["WalkedDirectory", "shown", "walk"]

_NEVER = frozenset({".git", ".hg", ".svn", ".jj"})
_READ = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOFOLLOW


class WalkedDirectory(NamedTuple):
    """One directory of a walk. `path` is relative to the workspace, and empty or ends in a slash. The names are sorted;
    links are neither followed nor among the files."""

    path: str
    place: str
    files: list[str]
    links: list[str]
    directories: list[str]


def walk(
    workspace: WorkspaceReader, start: str, *, depth: int = 10_000, everything: bool = False
) -> Iterator[WalkedDirectory]:
    """The directories at and below `start`, `depth` levels of them. A directory that cannot be read is left out, except
    `start`. `everything` takes in ignored entries too, but never a version control system's own directory.

    Raises ToolFailure if `start` is not a directory in the workspace.
    """
    root, real = str(workspace.resolve(".")), workspace.resolve(start)
    if not real.is_dir():
        raise ToolFailure(f"{start!r} is not a directory")
    path = Path(os.path.relpath(real, root)).as_posix()
    path = "" if path == "." else f"{path}/"
    rules = NOTHING if everything else _rules_above(root, path)
    stack = [(path, str(real), rules, depth)]
    while stack:
        path, place, rules, left = stack.pop()
        try:
            if not everything:
                rules = _with_own(rules, place, path)
            found = _directory(path, place, rules)
        except OSError as error:
            if place == str(real):
                raise failure_of(error, start) from error
            continue
        yield found
        if left > 1:
            stack.extend((f"{path}{name}/", f"{place}/{name}", rules, left - 1) for name in reversed(found.directories))


def shown(path: str) -> str:
    """A path as results have it: bytes of a name that are not UTF-8 are written as `\\xff`."""
    return path if path.isascii() else os.fsencode(path).decode(errors="backslashreplace")


def _directory(path: str, place: str, rules: Ignored) -> WalkedDirectory:
    files: list[str] = []
    links: list[str] = []
    directories: list[str] = []
    ignored = None if rules is NOTHING else rules.has
    with os.scandir(place) as entries:
        for entry in entries:
            name = entry.name
            if entry.is_dir(follow_symlinks=False):
                if name not in _NEVER and (ignored is None or not ignored(f"{path}{name}/", f"{name}/")):
                    directories.append(name)
            elif ignored is None or not ignored(f"{path}{name}", name):
                if entry.is_file(follow_symlinks=False):
                    files.append(name)
                elif entry.is_symlink():
                    links.append(name)
    files.sort()
    links.sort()
    directories.sort()
    return WalkedDirectory(path, place, files, links, directories)


def _rules_above(root: str, path: str) -> Ignored:
    """The rules of the directories from the root to the parent of `path`, and of .git/info/exclude."""
    rules = NOTHING.below(_text(f"{root}/.git/info/exclude"), "")
    parts = path.split("/")[:-1]
    for count in range(len(parts)):
        above = "".join(f"{part}/" for part in parts[:count])
        rules = _with_own(rules, f"{root}/{above}", above)
    return rules


def _with_own(rules: Ignored, place: str, path: str) -> Ignored:
    text = _text(f"{place}/.gitignore")
    return rules.below(text, path) if text else rules


def _text(file: str) -> str:
    """The text of a rules file, "" if there is none or it cannot be read."""
    try:
        descriptor = os.open(file, _READ)
    except OSError:
        return ""
    try:
        return os.read(descriptor, MAX_BYTES).decode(errors="replace")
    except OSError:  # a directory of that name
        return ""
    finally:
        os.close(descriptor)
